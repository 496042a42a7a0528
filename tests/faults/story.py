"""A story of one controller or two shards, of the network before the server, of successors."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from lean_sandbox.config.forms import SHARD
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.http.faults import HeldEvents
from tests.faults.acts import NAMESPACES
from tests.faults.ending import Ending
from tests.faults.history import history_of
from tests.faults.oracle import POOLS, SANDBOXES
from tests.faults.process import Borders, Process
from tests.faults.proxy import Proxy, open_proxy
from tests.faults.scope import EVERYTHING, Scope
from tests.support.backup import Backup
from tests.support.clients import cluster_admin
from tests.support.extensions import settings
from tests.support.world import CONTROLLER

__all__ = ["Story"]

Json = dict[str, Any]
# Watches come back within the first, which has the deadline of a list, the pause after it, and what
# follows; one that is mute is given up within the second: a server ends each watch after at most
# 319 s, and half a minute later its deadline is over, which is looked at every half minute.
_UP_S = 100.0
_MUTE_S = 380.0
# A wall clock that was set is noticed within it.
_SEEN_S = 60.0


class Story(Ending):
    """One example: what was done, and the world it was done to."""

    def __init__(self) -> None:
        """Start server and controller, with nothing stored."""
        self.proxy: Proxy
        self.borders: Borders
        self.processes: list[Process] = []
        self.backup: Backup | None = None
        self.restores = 0
        self._options: Json = {}
        self._ahead_s = 0.0
        self._set_at_s = -2 * _SEEN_S
        self._is_late = False
        self.events: list[HeldEvents] = []
        super().__init__()

    # -- the controller --------------------------------------------------------------------------

    async def _begin(self) -> None:
        await super()._begin()
        self._equip({})
        await self._start(self.processes)
        for process in self.processes:
            await process.world.until(process.world.controller.synced.is_set)

    async def _serve(self) -> None:
        chance = random.Random(1)  # noqa: S311 - the same names in every run
        async with (
            ControlPlane(clock=self.clock.elsewhere(), rng=chance) as plane,
            open_proxy(plane.url) as proxy,
        ):
            self._furnish(plane)
            self.proxy = proxy
            self.borders = Borders(plane)
            self._up.set()
            await self._down.wait()

    def _equip(self, options: Json) -> None:
        """Say what the processes to come are told: ``shards`` are the values of ``--shard``."""
        self._options = options
        told = {name: value for name, value in options.items() if name != "shards"}
        # Small pages: what a server does in the midst of a list happens here too. Shards have a
        # Lease each, so they never wait for each other: no election takes part.
        told = {"page_size": 2, **told}
        self.processes = [
            Process(settings(**told, shard=SHARD.parse(shard)))
            for shard in options.get("shards", ("",))
        ]

    def restart(self, options: Json | None = None, which: int | None = None) -> None:
        """Kill the controller, or one shard, and start another; with other options all of it."""
        self.kill(which if options is None else None)
        if options is not None:
            self._equip(options)
        self.start()

    def kill(self, which: int | None = None) -> None:
        """Kill the controller, or one shard; until :meth:`start` there is none."""
        every = self.processes
        for one in every if which is None else [every[which % len(every)]]:
            if one.runs:
                self.tell(f"{one.name} is killed")
                self._run(one.kill())

    def start(self) -> None:
        """Start what does not run."""
        missing = [one for one in self.processes if not one.runs]
        if missing:
            named = ", ".join(one.name for one in missing)
            self.tell(f"{named} starts anew {self._options or ''}")
            self._run(self._start(missing))

    async def _start(self, processes: list[Process]) -> None:
        for one in processes:
            if one.user not in self.borders.users:
                self.borders.grant(one.user, one.settings)
                if one.user != CONTROLLER:
                    name = one.user.rpartition(":")[2]
                    self.plane.store.create(cluster_admin(one.user, name=name))
            await one.start(self.plane, self.clock, self.proxy.url)

    async def _replace(self) -> None:
        for one in self.processes:
            await one.kill()
        await self._start(self.processes)

    async def _close(self) -> None:
        self.plane.faults.clear()
        self.proxy.clear()
        for one in self.processes:
            await one.kill()
        await super()._close()

    @property
    def users(self) -> list[str]:
        """The users of the controllers that serve, or have served."""
        return self.borders.users

    @property
    def scope(self) -> Scope:
        """What is served at present."""
        return self.processes[0].scope

    def excuse_net(self) -> None:
        """Let the safety net find what was missed, as long as those run who run now."""
        for one in self.processes:
            one.world.net_may_catch = True

    def explain(self) -> str:
        """Return what the controller is at."""
        return "\n".join(one.world.explain() for one in self.processes)

    # -- time --------------------------------------------------------------------------------------

    def leap(self, seconds: float) -> None:
        """Set the controller's wall clock, unless it was set a moment ago.

        The controller looks at it once a minute: what is set there and back in between is unseen.
        """
        if self.clock.monotonic() - self._set_at_s > _SEEN_S:
            self._set_at_s = self.clock.monotonic()
            # What is due by then may be found by the safety net before that.
            self.excuse_net()
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
        backup = self.backup
        self.backup = None
        if backup is not None:
            self.excuse_net()
            self.restores += 1
            self._is_late |= not self._is_up()

            def restoring() -> None:
                # Servers are stopped for it: no answer of before is still under way.
                self.proxy.go_away()
                self.proxy.is_away = False
                backup.restore(self.plane)

            self.disturb("the store is restored from the backup", restoring)

    # -- the end -----------------------------------------------------------------------------------

    def end(self) -> list[str]:
        """End all faults; return what is not as it should be.

        A controller that serves only a part is judged by that part, then one by everything.
        """
        if not self._options.keys().isdisjoint(("namespaces", "exclude_namespaces")):
            self.restart({})
        self.start()
        found = super().end()
        if not found and self.scope != EVERYTHING:
            self.restart({})
            found = super().end()
        return found

    async def _end(self) -> list[str]:
        self.plane.faults.clear()
        self.proxy.clear()
        if self._ahead_s:
            await self._work(self._set_at_s + _SEEN_S - self.clock.monotonic())
            self.leap(-self._ahead_s)
            await self._work(_SEEN_S)
        # Watches come back after a pause of up to half a minute, those that are mute once they are
        # given up, and bring what was missed. From then on nothing may be left to the safety net.
        began_s = self.clock.monotonic()
        longest_s = _UP_S
        while not self._is_up():
            if self.proxy.mute_watches:
                longest_s = _UP_S + _MUTE_S
            if self.clock.monotonic() - began_s >= longest_s:
                return [f"the watches do not come back: {self.explain()}"]
            await self._time(5.0 if self.proxy.mute_watches else 0.5)
        # A watch that works again asks after five seconds whether the store was restored. One that
        # first begins after that, on a list from before, is silent until the server ends it.
        await self._time(_MUTE_S if self._is_late else 6.0)
        before = self._caught()
        found = await self._come_to_rest()
        for one in self.processes:
            await one.world.settle()
        if self.restores:
            # A Service for a spec that is no more is kept by one that asks for none either way; a
            # claim that cannot be served keeps the name of the Sandbox that it had (claims, 5.4).
            unknown = ("has Services", "which is not its own")
            found = [one for one in found if not any(text in one for text in unknown)]
        found += history_of(self.plane).violations()
        for name, number in (self._caught() - before).items():
            found.append(f"the safety net caught {number} of {name}")
        found += await self._stay_at_rest()
        return found + await self._meddle_outside() + self.borders.crossed

    async def _meddle_outside(self) -> list[str]:
        """Change what is not served; return what is asked for, if anything is."""
        scope = self.scope
        store = self.plane.store
        if scope == EVERYTHING:
            return []
        self.plane.audit.reset()
        for where in NAMESPACES:
            for kind in (SANDBOXES, POOLS):
                for one in store.list(kind, where):
                    if scope.serves(one):
                        continue
                    name = one["metadata"]["name"]
                    mode = one["spec"].get("operatingMode")
                    other = "Running" if mode == "Suspended" else "Suspended"
                    spec = {"operatingMode": other} if kind == SANDBOXES else {"replicas": 1}
                    store.patch(kind, where, name, {"spec": spec})
                    if kind == SANDBOXES and store.find("pods", where, name):
                        store.delete("pods", where, name, grace_s=0)
        await self._time(_UP_S)
        asked = self._asked()
        return [f"what is not served is not left alone: {dict(asked)}"] if asked else []

    def _caught(self) -> Counter[str]:
        every = [Counter(one.world.controller.activity().caught) for one in self.processes]
        return sum(every, Counter())

    async def _work(self, seconds: float) -> None:
        """Let more than so much time pass, and kubelets work."""
        until_s = self.clock.monotonic() + seconds
        while self.clock.monotonic() <= until_s:
            await self._time(4.0)
            self._kubelets.work()

    def _is_up(self) -> bool:
        if self.proxy.mute_watches:
            return False
        controllers = [one.world.controller for one in self.processes]
        streams = [one.activity().streams for one in controllers]
        watches = [sum(len(seen) for seen in one.seen_versions().values()) for one in controllers]
        is_complete = streams == watches and sum(streams) == self.plane.open_watches
        return is_complete and all(one.synced.is_set() for one in controllers)
