"""What the watch of a kind has shown of single objects, for those who wait for it.

The response to a write comes before its event, or after it. Other clients see the write in their
own watches, which the server serves from the same queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from lean_sandbox.clock import Clock
from lean_sandbox.watch.kind import Key


class Shown:
    """The newest version of one object that the watch has shown, since this was asked for."""

    def __init__(self) -> None:
        self._version = 0
        self._is_newer = anyio.Event()

    def note(self, version: int) -> None:
        """Note that the watch has shown the object at a version."""
        self._version = max(version, self._version)
        self._is_newer.set()

    async def until(self, version: int, clock: Clock, longest_s: float) -> None:
        """Wait until the watch has shown this version, no longer than ``longest_s``."""
        deadline = clock.monotonic() + longest_s
        while self._version < version and (left_s := deadline - clock.monotonic()) > 0:
            self._is_newer = anyio.Event()
            await clock.wait(self._is_newer, left_s)


class ShownVersions:
    """Collects, for the objects that somebody waits for, what the watch shows of them."""

    def __init__(self) -> None:
        self._awaited: dict[Key, list[Shown]] = {}

    def __bool__(self) -> bool:
        return bool(self._awaited)

    def note(self, namespace: str, name: str, version: int) -> None:
        """Note that the watch has shown an object at a version."""
        for shown in self._awaited.get(Key(namespace, name), ()):
            shown.note(version)

    @contextmanager
    def of(self, key: Key) -> Iterator[Shown]:
        """Collect what the watch shows of an object while the block lasts."""
        shown = Shown()
        self._awaited.setdefault(key, []).append(shown)
        try:
            yield shown
        finally:
            self._awaited[key].remove(shown)
            if not self._awaited[key]:
                del self._awaited[key]
