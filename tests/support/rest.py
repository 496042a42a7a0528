"""When a controller has come to rest, how time passes meanwhile, and what it waits for if not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, count

import anyio.lowlevel

from lean_sandbox.local.controlplane import ControlPlane
from tests.support.clock import FakeClock, settle
from tests.support.observable import Observable
from tests.support.patience import patient, requests_under_way

__all__ = ["Rest"]

# As from a real server: more of them would hide a controller that waits for one.
_BOOKMARK_S = 60.0
# An event comes within a few turns of the loop. After these a watch does not show the change.
_TURNS_OF_A_CHANGE = 100


class Rest:
    """A controller over a control plane, and a clock that a test moves.

    Requests and events that the control plane holds are waited for by nobody: with some of them
    the controller is at rest when everything else is done.
    """

    def __init__(
        self, plane: ControlPlane, controller: Observable, clock: FakeClock, user: str
    ) -> None:
        """Hold the parts; ``user`` is as whom the controller asks."""
        self.plane = plane
        self.controller = controller
        self.clock = clock
        self.user = user
        self._bookmark_due_s = 0.0

    async def settle(self) -> None:
        """Wait until the controller has seen everything and is idle at this moment of the clock."""
        with patient("came to rest", self.explain):
            idle = False
            while not idle:
                await self.plane.settled()
                version = self.plane.store.version
                if self.clock.monotonic() >= self._bookmark_due_s or not await self._sees_changes():
                    version = await self._see_bookmark()
                before = self._progress()
                await settle(30)
                idle = not self._is_busy(before) and self.plane.store.version == version

    async def _sees_changes(self) -> bool:
        """Wait for the last change of each kind; false if some watch does not show it.

        Such is a watch of one namespace, or of some labels: a bookmark tells that it has seen all.
        """
        for _ in range(_TURNS_OF_A_CHANGE):
            if self._has_seen():
                return True
            await anyio.lowlevel.checkpoint()
        return False

    async def _see_bookmark(self) -> int:
        """Send each watch a bookmark and wait for it; return the version."""
        version = self._bookmark()
        for turn in count(1):
            if self._has_seen(version):
                break
            await anyio.lowlevel.checkpoint()
            # A watch that opened after the bookmark was sent has to be sent another one.
            if self.plane.store.version != version or turn % 100 == 0:
                version = self._bookmark()
        return version

    async def advance(self, seconds: float) -> None:
        """Move the clock, settling wherever a timer rings, for requests take no time by it.

        Each watch gets a bookmark a minute, as from a real server.
        """
        await self.settle()
        until_s = self.clock.monotonic() + seconds
        while (left_s := until_s - self.clock.monotonic()) > 0.0:
            next_s = self.clock.next_s
            due_s = self._bookmark_due_s - self.clock.monotonic()
            await self.clock.advance(min(left_s, due_s, left_s if next_s is None else next_s))
            await self.settle()

    def _bookmark(self) -> int:
        self._bookmark_due_s = self.clock.monotonic() + _BOOKMARK_S
        return self.plane.bookmark_now()

    async def pass_time(self, seconds: float) -> None:
        """Move the clock in small steps while some watches cannot be opened, so none settles."""
        with patient("let time pass", self.explain):
            until_s = self.clock.monotonic() + seconds
            while True:
                await settle(50)
                while self.controller.activity().in_flight > self._held():
                    await anyio.lowlevel.checkpoint()
                if (left_s := until_s - self.clock.monotonic()) <= 0.0:
                    return
                await self.clock.advance(min(left_s, 0.25))

    async def cut_watches(self) -> None:
        """Cut every watch connection and wait until the controller has noticed."""
        with patient("noticed that its watches were cut", self.explain):
            self.plane.drop_watches()
            while self._streams() or self.plane.open_watches:
                await anyio.lowlevel.checkpoint()

    async def recover(self, within_s: float = 300.0) -> float:
        """Let the watches come back after a fault, moving the clock, and settle.

        Returns how long that took by the clock; fails when it takes longer than ``within_s``.
        """
        began = self.clock.monotonic()
        with patient("recovered", self.explain):
            while True:
                before = self._progress()
                await settle(50)
                while self._is_busy(before) or self._streams() != self.plane.open_watches:
                    before = self._progress()
                    for _ in range(30 if self._held() else 1):
                        await anyio.lowlevel.checkpoint()
                if self._streams() == len(list(chain(*self.controller.seen_versions().values()))):
                    break
                took_s = self.clock.monotonic() - began
                assert took_s <= within_s, self.controller.problems
                await self.clock.advance(0.25)
        await self.settle()
        return self.clock.monotonic() - began

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds, for moments at which the controller cannot come to rest."""
        with patient("got there", self.explain):
            while not holds():
                await anyio.lowlevel.checkpoint()

    async def moments(self, count: int) -> None:
        """Let everything that can run run this many times, whether it comes to rest or not."""
        for _ in range(count):
            await anyio.lowlevel.checkpoint()

    def explain(self) -> str:
        """Return what the controller is at: watches behind, busy queues, requests under way."""
        version = self.plane.store.version
        held_kinds = self.plane.faults.held_kinds
        activity = self.controller.activity()
        lines = [f"at {self.clock.monotonic():.3f} s; store at version {version}"]
        for plural, versions in self.controller.seen_versions().items():
            if any(seen is None or int(seen) < version for seen in versions):
                held = " (events held)" if plural in held_kinds else ""
                lines.append(f"watch of {plural} has seen {versions}{held}")
        lines += [f"problem with {name}: {why}" for name, why in self.controller.problems.items()]
        lines += [f"queue {name}: {keys} keys" for name, keys in activity.busy.items() if keys]
        lines += requests_under_way(self.plane)
        lines.append(f"requests in flight: {activity.in_flight}, streams: {activity.streams}")
        return "\n  ".join(lines)

    def _streams(self) -> int:
        return self.controller.activity().streams

    def _has_seen(self, version: int | None = None) -> bool:
        """Return whether each watch has seen the last change of its kind, or this version."""
        held = self.plane.faults.held_kinds
        return all(
            seen is not None
            and int(seen) >= (self.plane.store.changed(kind) if version is None else version)
            for plural, versions in self.controller.seen_versions().items()
            if (kind := plural.removeprefix("companions/")) not in held
            for seen in versions
        )

    def _held(self) -> int:
        return sum(entry.user == self.user for entry in self.plane.faults.waiting)

    def _progress(self) -> object:
        """Return what changes with everything that is done beside requests that are held."""
        held = self._held()
        return (self.controller.activity(), self.plane.audit.total, held) if held else None

    def _is_busy(self, before: object) -> bool:
        """Say whether anything is to be done now, besides waiting for what is held."""
        held = self._held()
        if not held:
            return self.controller.is_busy
        return self.controller.activity().in_flight > held or before != self._progress()
