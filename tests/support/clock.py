"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from bisect import insort
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import anyio
import anyio.lowlevel

from lean_sandbox.clock import Clock

P = ParamSpec("P")
# Bytes sent to another socket of this machine can be read at once: two turns would do.
_QUIET_TURNS = 3

EPOCH = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


async def settle(rounds: int = 20) -> None:
    """Let every runnable task run until it waits again, for this many turns of the loop at most."""
    loop: Any = asyncio.get_running_loop()
    quiet = 0
    for _ in range(rounds):
        await anyio.lowlevel.checkpoint()
        # The loop of asyncio has no public way to ask whether anything is left to run in this turn.
        quiet = 0 if loop._ready else quiet + 1
        if quiet >= _QUIET_TURNS:
            return


class FakeClock:
    """Time moves only through :meth:`advance`; sleepers wake in the order of their deadlines."""

    def __init__(self, start: datetime = EPOCH) -> None:
        """Start at ``start`` with monotonic zero."""
        self._start = start
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        """Return the wall-clock time of the test."""
        return self._start + timedelta(seconds=self._elapsed)

    def set_wall(self, ahead_s: float) -> None:
        """Move the wall clock alone, as NTP or an administrator does."""
        self._start += timedelta(seconds=ahead_s)

    def elsewhere(self, ahead_s: float = 0.0) -> Clock:
        """Return the clock of another machine: time passes as here, its wall clock is its own."""
        return _Elsewhere(self, self.now() + timedelta(seconds=ahead_s))

    def monotonic(self) -> float:
        """Return the seconds advanced so far."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has advanced by ``seconds``."""
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        alarm = anyio.Event()
        with self._ringing(self._elapsed + seconds, alarm.set):
            await alarm.wait()

    async def wait(self, event: anyio.Event, timeout_s: float | None) -> bool:
        """Wait for ``event`` or until the test has advanced by ``timeout_s``."""
        if timeout_s is None:
            await event.wait()
            return True
        if timeout_s <= 0 or event.is_set():
            await anyio.lowlevel.checkpoint()
            return event.is_set()
        scope = anyio.CancelScope()
        with scope, self._ringing(self._elapsed + timeout_s, scope.cancel):
            await event.wait()
        return event.is_set()

    @asynccontextmanager
    async def limit(self, seconds: float) -> AsyncIterator[None]:
        """Raise TimeoutError once the test has advanced by ``seconds`` while the block lasts."""
        scope = anyio.CancelScope()
        with scope, self._ringing(self._elapsed + seconds, scope.cancel):
            if seconds <= 0:
                scope.cancel()
            yield
        if scope.cancelled_caught:
            raise TimeoutError

    @property
    def sleepers(self) -> int:
        """Number of timers that have not rung."""
        return len(self._sleepers)

    @property
    def next_s(self) -> float | None:
        """Seconds until the next timer rings; ``None`` without one."""
        return max(0.0, self._sleepers[0][0] - self._elapsed) if self._sleepers else None

    def leap(self, seconds: float) -> None:
        """Let time pass while no task of this process runs; who slept wakes afterwards."""
        self._elapsed += seconds

    async def advance(self, seconds: float) -> None:
        """Move time forward, waking each sleeper at its own moment."""
        await settle()
        target = self._elapsed + seconds
        # A deadline reached but for the rounding of a sum is reached.
        while self._sleepers and self._sleepers[0][0] <= target + 1e-9:
            deadline, _, ring = self._sleepers.pop(0)
            self._elapsed = max(self._elapsed, deadline)
            ring()
            await settle()
        self._elapsed = max(self._elapsed, target)
        await settle()

    @contextmanager
    def _ringing(self, deadline: float, ring: Callable[[], None]) -> Iterator[None]:
        """Call ``ring`` at ``deadline`` if the block still lasts then."""
        alarm = (deadline, next(self._order), ring)
        insort(self._sleepers, alarm)
        try:
            yield
        finally:
            if alarm in self._sleepers:
                self._sleepers.remove(alarm)


class EndlessError(Exception):
    """Something goes on and on at one moment of the clock."""


class ClockLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers go by a clock that a test moves.

    So every deadline is one of the clock, those of requests on sockets included.
    """

    def __init__(self, clock: FakeClock) -> None:
        """Count time by ``clock``."""
        self._fake = clock
        self._quiet = 0
        #: How many more turns it may make before something that should end is called endless.
        self.turns_left = 0
        super().__init__()

    def time(self) -> float:
        """Return the time of the clock."""
        return self._fake.monotonic()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing ran or arrived for some turns but the one task that asks."""
        return self._quiet >= _QUIET_TURNS

    @property
    def next_s(self) -> float | None:
        """Seconds until the next timer rings; ``None`` without one."""
        # The loop of asyncio has no public way to ask for them.
        times = [one._when for one in self._scheduled if not one._cancelled]  # type: ignore[attr-defined]
        return max(0.0, min(times) - self.time()) if times else None

    def _process_events(self, event_list: Any) -> None:
        """Note whether this turn has anything to do, and end what never comes to rest."""
        is_quiet = not event_list and len(self._ready) <= 1  # type: ignore[attr-defined]
        self._quiet = self._quiet + 1 if is_quiet else 0
        self.turns_left -= 1
        if self.turns_left == 0:
            raise EndlessError("nothing comes to rest")
        super()._process_events(event_list)  # type: ignore[misc]


def on_clock(
    test: Callable[Concatenate[FakeClock, P], Coroutine[Any, Any, None]],
) -> Callable[P, None]:
    """Run a test on a loop whose deadlines go by the clock that it is given first."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        clock = FakeClock()
        with asyncio.Runner(loop_factory=lambda: ClockLoop(clock)) as runner:
            runner.run(test(clock, *args, **kwargs))

    # The clock is no fixture.
    _, *others = inspect.signature(test).parameters.values()
    run.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
    return run


class _Elsewhere:
    """Time as it passes by another clock, with a wall clock of its own."""

    def __init__(self, here: FakeClock, now: datetime) -> None:
        self._here = here
        self._start = now - timedelta(seconds=here.monotonic())

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._here.monotonic())

    def monotonic(self) -> float:
        return self._here.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._here.sleep(seconds)

    async def wait(self, event: anyio.Event, timeout_s: float | None) -> bool:
        return await self._here.wait(event, timeout_s)

    @asynccontextmanager
    async def limit(self, seconds: float) -> AsyncIterator[None]:
        async with self._here.limit(seconds):
            yield
