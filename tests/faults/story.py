"""A story of one controller, of the network between it and its server, and of its successors."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime, timedelta
from typing import Any

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.faults import HeldEvents
from tests.faults.acts import Acts
from tests.faults.promises import History, history_of
from tests.faults.proxy import Proxy, open_proxy
from tests.support.backup import Backup
from tests.support.extensions import settings
from tests.support.world import CONTROLLER, World, open_world

__all__ = ["Story"]

Json = dict[str, Any]
# Watches come back within the first, which has the deadline of a list, the pause after it, and what
# follows; one that is mute is given up within the second: a server ends each watch after at most
# 319 s, and half a minute later its deadline is over, which is looked at every half minute.
_UP_S = 100.0
_MUTE_S = 380.0
# A wall clock that was set is noticed within it.
_SEEN_S = 60.0


class Story(Acts):
    """One example: what was done, and the world it was done to."""

    def __init__(self) -> None:
        """Start server and controller, with nothing stored."""
        self.history: History
        self.proxy: Proxy
        self.world: World
        self.backup: Backup | None = None
        self.restores = 0
        self._options: Json = {}
        self._ahead_s = 0.0
        self._set_at_s = -2 * _SEEN_S
        self._is_late = False
        self.events: list[HeldEvents] = []
        self._is_over = self._is_down = False
        self._gone = asyncio.Event()
        self._starts = asyncio.Event()
        self._starts.set()
        super().__init__()

    # -- the controller --------------------------------------------------------------------------

    async def _begin(self) -> None:
        await super()._begin()
        await self.world.until(self.world.controller.synced.is_set)

    async def _serve(self) -> None:
        chance = random.Random(1)  # noqa: S311 - the same names in every run
        async with (
            ControlPlane(clock=self.clock.elsewhere(), rng=chance) as plane,
            open_proxy(plane.url) as proxy,
        ):
            self._furnish(plane)
            self.proxy, self.history = proxy, history_of(plane)
            while True:
                await self._starts.wait()
                self._starts.clear()
                if self._is_over:
                    break
                # Small pages: what a server does in the midst of a list happens here too.
                async with open_world(
                    settings(page_size=2, **self._options),
                    plane=plane,
                    clock=self.clock,
                    url=proxy.url,
                    is_served=False,
                ) as world:
                    self.world = world
                    self._up.set()
                    await self._down.wait()
                    self._down.clear()
                self._gone.set()

    def restart(self, options: Json | None = None) -> None:
        """Kill the controller and start another, perhaps with other options."""
        if options is not None:
            self._options = options
        self.kill()
        self.start()

    def kill(self) -> None:
        """Kill the controller; until :meth:`start` there is none."""
        if not self._is_down:
            self.tell("the controller is killed")
            self._run(self._kill())
            self._is_down = True

    def start(self) -> None:
        """Start a controller, unless one runs."""
        if self._is_down:
            self.tell(f"another controller starts {self._options or ''}")
            self._run(self._start())
            self._is_down = False

    async def _start(self) -> None:
        self._starts.set()
        await self._when(self._up)

    async def _kill(self) -> None:
        self._down.set()
        await self._when(self._gone)

    async def _replace(self) -> None:
        await self._kill()
        await self._start()

    async def _close(self) -> None:
        self._is_over = True
        if self._is_down:
            await self._start()
            self._is_down = False
        self.proxy.clear()
        self._starts.set()
        await super()._close()

    @property
    def users(self) -> list[str]:
        """As whom it asks."""
        return [CONTROLLER]

    def end(self) -> list[str]:
        """End all faults, with a controller that serves everything."""
        if not self._options.keys().isdisjoint(("namespaces", "exclude_namespaces")):
            self.restart({})
        self.start()
        return super().end()

    def explain(self) -> str:
        """Return what the controller is at."""
        return self.world.explain()

    # -- time --------------------------------------------------------------------------------------

    def leap(self, seconds: float) -> None:
        """Set the controller's wall clock, unless it was set a moment ago.

        The controller looks at it once a minute: what is set there and back in between is unseen.
        """
        if self.clock.monotonic() - self._set_at_s > _SEEN_S:
            self._set_at_s = self.clock.monotonic()
            # What is due by then may be found by the safety net before that look.
            self.world.net_may_catch = True
            self.tell(f"the controller's wall clock is set by {seconds} s")
            self._ahead_s += seconds
            self.clock.set_wall(seconds)

    def true_time(self) -> datetime:
        """Return the time of day, whatever the controller's wall clock was set to."""
        return self.clock.now() - timedelta(seconds=self._ahead_s)

    # -- faults ------------------------------------------------------------------------------------

    def expire_pages(self, plural: str, times: int) -> None:
        """Let the next pages of lists, but for the first ones, be too old."""
        self.tell(f"the next {times} continue tokens of {plural} are too old")
        self.plane.fail_next(
            "list", plural, 410, times, match=lambda target: "continue" in target.query
        )

    def hold_events(self, plural: str) -> None:
        """Hold the events of a kind."""
        self.tell(f"events of {plural} are held")
        self.events = [one for one in self.events if not one.is_over]
        held = self.plane.hold_events(plural)
        if held not in self.events:
            self.events.append(held)

    def let_events_go(self, which: int, count: int | None) -> None:
        """Let events of a kind go, some or all."""
        if self.events:
            held = self.events[which % len(self.events)]
            line = f"{count or 'all'} events of {held.plural} go on"
            self.disturb(line, lambda: held.release(count))
            if count is None:
                self.events.remove(held)

    def save(self) -> None:
        """Take a backup of the store."""
        # Less each time: what was known before the last restore is not reached either.
        since = 10 ** max(3, 12 - self.restores)

        def save() -> None:
            self.backup = Backup(self.plane, since=since)

        self.disturb("a backup is taken", save)

    def restore(self) -> None:
        """Restore the last backup, once: of what has happened since nothing is known any more."""
        backup, self.backup = self.backup, None
        if backup is not None:
            self.world.net_may_catch = True
            self.restores += 1
            self._is_late |= not self._is_up()

            def restoring() -> None:
                # Servers are stopped for it: no answer of before is still under way.
                self.proxy.go_away()
                self.proxy.is_away = False
                backup.restore(self.plane)

            self.disturb("the store is restored from the backup", restoring)

    # -- the end -----------------------------------------------------------------------------------

    async def _end(self) -> list[str]:
        world = self.world
        self.plane.faults.clear()
        self.proxy.clear()
        if self._ahead_s:
            await self._work(self._set_at_s + _SEEN_S - self.clock.monotonic())
            self.leap(-self._ahead_s)
            await self._work(_SEEN_S)
        # Watches come back after a pause of up to half a minute, those that are mute once they are
        # given up, and bring what was missed. From then on nothing may be left to the safety net.
        began_s, longest_s = self.clock.monotonic(), _UP_S
        while not self._is_up():
            if self.proxy.mute_watches:
                longest_s = _UP_S + _MUTE_S
            if self.clock.monotonic() - began_s >= longest_s:
                return [f"the watches do not come back: {world.explain()}"]
            await self._time(5.0 if self.proxy.mute_watches else 0.5)
        # A watch that works again asks after five seconds whether the store was restored. One that
        # first begins after that, on a list from before, is silent until the server ends it.
        await self._time(_MUTE_S if self._is_late else 6.0)
        before = world.controller.activity().caught
        found = await self._come_to_rest()
        await world.settle()
        if self.restores:
            # A Service for a spec that is no more is kept by one that asks for none either way; a
            # claim that cannot be served keeps the name of the Sandbox that it had (claims, 5.4).
            unknown = ("has Services", "which is not its own")
            found = [one for one in found if not any(text in one for text in unknown)]
        found += self.history.violations()
        for name, number in world.controller.activity().caught.items():
            if number > before[name]:
                found.append(f"the safety net caught {number - before[name]} of {name}")
        return found + await self._stay_at_rest()

    async def _work(self, seconds: float) -> None:
        """Let more than so much time pass, and kubelets work."""
        until_s = self.clock.monotonic() + seconds
        while self.clock.monotonic() <= until_s:
            await self._time(4.0)
            self._kubelets.work()

    def _is_up(self) -> bool:
        controller = self.world.controller
        watches = sum(len(seen) for seen in controller.seen_versions().values())
        is_complete = controller.activity().streams == watches == self.plane.open_watches
        is_complete = is_complete and not self.proxy.mute_watches
        return is_complete and controller.synced.is_set()
