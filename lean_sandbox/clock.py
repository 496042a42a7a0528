"""Time as a dependency that is passed in, so that logic can be tested without waiting.

Nothing below this module reads a clock of its own: every queue, backoff, expiry and deadline takes
a :class:`Clock`. Production uses :class:`SystemClock`; tests use a clock they move by hand.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Protocol

import anyio


class Clock(Protocol):
    """The clock that the program uses; the methods are those of the machine's."""

    def now(self) -> datetime:
        """Return the wall-clock time, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes backwards; only differences mean something."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``; a value of zero or less still yields to other tasks."""
        await anyio.sleep(max(0.0, seconds))

    async def wait(self, event: anyio.Event, timeout_s: float | None) -> bool:
        """Wait for ``event``, at most ``timeout_s`` seconds; return whether it was set."""
        if timeout_s is None:
            await event.wait()
            return True
        with anyio.move_on_after(timeout_s):
            await event.wait()
        return event.is_set()

    @asynccontextmanager
    async def limit(self, seconds: float) -> AsyncIterator[None]:
        """Raise TimeoutError when the block takes longer than ``seconds``."""
        with anyio.fail_after(seconds):
            yield


class SystemClock(Clock):
    """The clock of the machine."""
