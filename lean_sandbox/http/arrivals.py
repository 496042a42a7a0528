"""Accepts connections, and closes surplus ones before they cost more."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from typing import Final

#: Connections that the system keeps until they are accepted, all of them at once.
BACKLOG: Final = 1024


class Arrivals:
    """The connections that are accepted at one time, by the address of the peer.

    Once there were too many, for each more a connection of the peer with the most is closed before
    anything is made for it, so that no peer keeps others out: the oldest that has sent nothing, or
    else the oldest.
    """

    def __init__(self, most: int) -> None:
        #: How many were closed.
        self.refused = 0
        self._most = most
        self._accepted = 0
        self._by_peer: dict[str, list[socket.socket]] = {}

    def accept(self, listening: socket.socket) -> None:
        """Accept what has connected. Raises OSError; what was accepted before that is kept."""
        for _ in range(BACKLOG):
            try:
                made, address = listening.accept()
            except BlockingIOError:
                return
            self._by_peer.setdefault(address[0], []).append(made)
            self._accepted += 1
            if self._accepted > self._most:
                line = max(self._by_peer.values(), key=len)
                line.pop(silent(line)).close()
                self.refused += 1

    def kept(self) -> Iterator[tuple[str, socket.socket]]:
        """Yield the peers and their connections."""
        for peer, line in self._by_peer.items():
            for made in line:
                yield peer, made


def silent(oldest_first: Iterable[socket.socket]) -> int:
    """Return the place of the first connection on which nothing waits to be read, else 0."""
    for place, accepted in enumerate(oldest_first):
        try:
            if not accepted.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                return place
        except OSError:
            # Nothing yet, or never more.
            return place
    return 0
