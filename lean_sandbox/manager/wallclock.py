"""Follows the time: that of the server by its answers, and moves of our own wall clock."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import structlog

from lean_sandbox.clock import Clock
from lean_sandbox.controllers.common import ServerTime
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.kube.resources import SANDBOXES
from lean_sandbox.runtime.controller import Controller

# How often the wall clock is compared, and by how much it may differ from what a timer counts.
_INTERVAL_S = 60.0
_SLACK_S = 1.0

log = structlog.get_logger("controller")


class WallClock:
    """Compares the wall clock with the monotonic one, by which timers count.

    When the wall clock jumps, or the machine has slept, timers for a time of day would fire late.
    So the server is asked for the time, and everything is reconciled.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        server_time: ServerTime,
        controllers: Sequence[Controller[Any]],
    ) -> None:
        self._client = client
        self._clock = clock
        self._server_time = server_time
        self._controllers = controllers

    def note_server_time(self) -> None:
        """Take the server's time from the date of its last answer."""
        transport = self._client.transport
        self._server_time.answered(transport.date, transport.dated_at)

    async def follow(self) -> None:
        """Notice moves within a minute, until cancelled.

        A server that does not answer is asked again after a minute.
        """
        ahead_s = self._ahead_s()
        while True:
            await self._clock.sleep(_INTERVAL_S)
            moved_s = abs(self._ahead_s() - ahead_s)
            if moved_s > _SLACK_S:
                log.warning("wall_clock_moved", by_s=round(moved_s, 1))
                if not await self._ask_the_time():
                    continue
                for controller in self._controllers:
                    if not controller.queue.is_paused:
                        controller.enqueue_all("wall clock moved")
            ahead_s = self._ahead_s()

    def _ahead_s(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()

    async def _ask_the_time(self) -> bool:
        """Return whether the server answered, whatever it said. One request."""
        asked_at = self._clock.monotonic()
        with suppress(ControlPlaneError):
            await self._client.list(SANDBOXES, bytes, chunk_size=1)
        self.note_server_time()
        return self._client.transport.dated_at >= asked_at
