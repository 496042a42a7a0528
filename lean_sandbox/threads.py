"""Calls that block, each in a thread of its own."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar, cast

import anyio

T = TypeVar("T")


class Call(Generic[T]):
    """A call that has begun in a thread; any number of tasks may wait for its result, or none.

    The end of the process does not wait for it, as it does for the threads of asyncio and anyio. If
    the system has no thread left, the result is an OSError.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._ended = anyio.Event()
        self._result: T | None = None
        self._problem: Exception | None = None
        try:
            threading.Thread(target=self._run, daemon=True).start()
        except RuntimeError as problem:
            self._problem = OSError(errno.EAGAIN, str(problem))
            self._ended.set()

    async def result(self) -> T:
        """Return what the call returns, or raise what it raises. Cancelling the wait is no end."""
        await self._ended.wait()
        if self._problem is not None:
            raise self._problem
        return cast("T", self._result)

    def _run(self) -> None:
        try:
            self._result = self._call()
        except Exception as problem:  # noqa: BLE001 -- raised to those who wait
            self._problem = problem
        # Too late for a loop that has ended.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ended.set)
