"""Telling the echo of our own writes from news.

A write answers with the resourceVersion it produced, and the same version comes back as an event
on the watch. That event shows exactly the state our write left behind, so no pass is needed for it;
any later change by anyone has another version. Only exact (uid, resourceVersion) pairs are
compared, because versions are opaque and have no order.

Event and answer travel on different connections, so either may come first:

* answer first: :meth:`EchoSuppressor.expect` remembers the pair, :meth:`EchoSuppressor.is_echo`
  then says so and the event is not queued;
* event first: it was queued, with the pair as the token of its queue entry. ``expect`` finds the
  pair among what was just seen and returns True: the entry may be withdrawn.

Two limits the caller keeps to. Ask only about events of a live watch: an object found by a list may
carry our version and, with it, an earlier change that was never shown separately. And give
``expect`` the version the write was based on: a write that changed nothing answers with a version
that was someone else's.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from cachetools import TTLCache

from lean_sandbox.clock import Clock

__all__ = ["EchoStatistics", "EchoSuppressor", "Token", "echo_token"]

# What identifies one version of one object, and with it one event.
Token: TypeAlias = tuple[str, str]


def echo_token(uid: str, resource_version: str) -> Token:
    """Return the token under which the event of this version is queued."""
    return (uid, resource_version)


class EchoStatistics(msgspec.Struct, frozen=True, gc=False):
    """Counters at one moment."""

    awaited: int
    remembered: int
    expected: int
    suppressed: int
    overtaken: int


class EchoSuppressor:
    """A short, bounded memory of versions we wrote and of versions just seen.

    Losing an entry, by age or for room, costs one superfluous pass and nothing else.
    """

    def __init__(self, max_entries: int, ttl_s: float, clock: Clock) -> None:
        """Keep at most ``max_entries`` of either for ``ttl_s`` seconds each."""
        self._written: TTLCache[Token, None] = TTLCache(max_entries, ttl_s, timer=clock.monotonic)
        # The last version seen of each object. One is enough: if ours was followed by another, that
        # one is a cause of its own and the entry has to stay.
        self._seen: TTLCache[str, str] = TTLCache(max_entries, ttl_s, timer=clock.monotonic)
        self._expected = 0
        self._suppressed = 0
        self._overtaken = 0

    def expect(self, uid: str, resource_version: str, *, based_on: str = "") -> bool:
        """Note what our write answered; return whether its event was already seen.

        If so, the queue entry with the token of this version may be withdrawn. Does nothing when
        the version equals ``based_on``: then nothing was written.
        """
        if not uid or not resource_version or resource_version == based_on:
            return False
        self._expected += 1
        # Also when overtaken: another watch may show the same version again.
        self._written[uid, resource_version] = None
        if not self.overtaken(uid, resource_version):
            return False
        self._overtaken += 1
        return True

    def is_echo(self, uid: str, resource_version: str) -> bool:
        """Return whether an event shows just what we wrote; remember it as seen if not."""
        if (uid, resource_version) in self._written:
            self._suppressed += 1
            return True
        self._seen[uid] = resource_version
        return False

    def overtaken(self, uid: str, resource_version: str) -> bool:
        """Return whether this version is the last one seen of its object."""
        return self._seen.get(uid) == resource_version

    def statistics(self) -> EchoStatistics:
        """Return the counters as they are now."""
        return EchoStatistics(
            awaited=len(self._written),
            remembered=len(self._seen),
            expected=self._expected,
            suppressed=self._suppressed,
            overtaken=self._overtaken,
        )
