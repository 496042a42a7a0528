"""Whatever happens to two electors, their machines and their network: never do both lead."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lean_sandbox.manager.leaderelection import Elector
from tests.manager.model import Host, LeaseServer
from tests.support.clock import FakeClock, settle

# Just below the ratio of the duration to the deadline, which client-go names as the tolerance.
FASTEST = 1.49
_STEP_S = 0.5

which = st.integers(0, 1)
some = st.integers(0, 3)
spans_s = st.sampled_from([0.0, 0.3, 2.0, 3.7, 8.0, 10.0, 16.0, 30.0])


class Elections(RuleBasedStateMachine):
    """Two machines, each running an elector or none, and one Lease."""

    def __init__(self) -> None:
        """Start an event loop that lives as long as the machine."""
        super().__init__()
        self.runner = asyncio.Runner()
        self.started = 0

    def do(self, what: Coroutine[Any, Any, None]) -> None:
        """Run something, and whatever it sets in motion."""
        self.runner.run(what)

    @initialize(rate=st.floats(1.0, FASTEST), fast=which, uniform=st.floats(0.0, 0.99))
    def begin(self, rate: float, fast: int, uniform: float) -> None:
        """Start both, one of them with a clock that runs faster."""

        async def start() -> None:
            self.truth = FakeClock()
            self.server = LeaseServer()
            self.uniform = uniform
            self.hosts = [
                Host(self.server, self.truth, rate=rate if index == fast else 1.0)
                for index in (0, 1)
            ]
            self.electors: list[Elector] = []
            self.tasks: list[asyncio.Task[None]] = []
            for host in self.hosts:
                elector, task = self.launch(host)
                self.electors.append(elector)
                self.tasks.append(task)
            await settle()

        self.do(start())

    def launch(self, host: Host) -> tuple[Elector, asyncio.Task[None]]:
        """Start a process on a machine."""
        self.started += 1
        elector = Elector(
            host.client,
            namespace="ns",
            identity=f"process-{self.started}",
            clock=host.clock,
            uniform=lambda: self.uniform,
        )
        return elector, asyncio.get_running_loop().create_task(elector.run())

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, looking at who leads all the while."""
        until_s = self.truth.monotonic() + seconds
        while (left_s := until_s - self.truth.monotonic()) > 0.0:
            next_s = self.truth.next_s
            await self.truth.advance(min(left_s, _STEP_S, left_s if next_s is None else next_s))
            self.at_most_one_leads()

    @rule(then_s=spans_s)
    def time_passes(self, then_s: float) -> None:
        """Timers ring in their order."""
        self.do(self.pass_time(then_s))

    @rule(who=which, requests=st.booleans(), answers=st.booleans(), then_s=spans_s)
    def the_network_changes(
        self, who: int, *, requests: bool, answers: bool, then_s: float
    ) -> None:
        """Requests or answers of one machine are held back, or pass."""

        async def change() -> None:
            self.hosts[who].let_through(requests=requests, answers=answers)
            await settle()
            await self.pass_time(then_s)

        self.do(change())

    @rule(who=which, index=some)
    def a_request_arrives(self, who: int, index: int) -> None:
        """However late, and whatever has overtaken it."""

        async def arrive() -> None:
            self.hosts[who].arrive(index)
            await settle()

        self.do(arrive())

    @rule(who=which, index=some)
    def an_answer_arrives(self, who: int, index: int) -> None:
        """Perhaps after the caller has given up."""

        async def arrive() -> None:
            self.hosts[who].deliver(index)
            await settle()

        self.do(arrive())

    @rule(who=which, index=some)
    def a_connection_breaks(self, who: int, index: int) -> None:
        """The caller learns that it failed, not whether it was carried out."""

        async def cut() -> None:
            self.hosts[who].fail(index)
            await settle()

        self.do(cut())

    @rule(who=which, then_s=spans_s)
    def a_machine_stops(self, who: int, then_s: float) -> None:
        """Its clock goes on, and nothing else."""
        self.hosts[who].stop()
        self.do(self.pass_time(then_s))

    @rule(who=which, then_s=spans_s)
    def a_machine_goes_on(self, who: int, then_s: float) -> None:
        """Everything that was due happens at once."""

        async def go_on() -> None:
            self.hosts[who].go_on()
            await settle()
            self.at_most_one_leads()
            await self.pass_time(then_s)

        self.do(go_on())

    @rule(who=which)
    def a_process_starts_anew(self, who: int) -> None:
        """After a crash at whatever moment, or the loss of the Lease."""

        async def restart() -> None:
            self.tasks[who].cancel()
            await settle()
            # What has crashed leads nothing, whatever its last word was.
            self.electors[who], self.tasks[who] = self.launch(self.hosts[who])
            await settle()

        self.do(restart())

    @rule(who=which, then_s=spans_s)
    def a_process_ends_gracefully(self, who: int, then_s: float) -> None:
        """It releases, if it can, and is given some time for that."""

        async def release() -> None:
            releasing = asyncio.get_running_loop().create_task(self.electors[who].release())
            await settle()
            await self.pass_time(then_s)
            releasing.cancel()
            await settle()

        self.do(release())

    @precondition(lambda self: hasattr(self, "electors"))
    @invariant()
    def at_most_one_leads(self) -> None:
        """The law."""
        leaders = [elector.identity for elector in self.electors if elector.is_leader]
        assert len(leaders) <= 1, (leaders, self.server.lease)

    def teardown(self) -> None:
        """Once all is well again somebody leads, and it is who the Lease says."""
        try:
            if hasattr(self, "electors"):
                self.do(self.come_to_rest())
        finally:
            self.runner.close()

    async def come_to_rest(self) -> None:
        """Mend everything, start what has ended, and see who leads."""
        for host in self.hosts:
            host.go_on()
            host.let_through(requests=True, answers=True)
        await settle()
        await self.pass_time(20.0)
        for index, task in enumerate(self.tasks):
            if task.done():
                assert task.exception() is None
                self.electors[index], self.tasks[index] = self.launch(self.hosts[index])
        await self.pass_time(40.0)
        (leader,) = (elector for elector in self.electors if elector.is_leader)
        assert self.server.lease is not None
        assert self.server.lease["spec"]["holderIdentity"] == leader.identity
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


TestElections = Elections.TestCase
TestElections.settings = settings(max_examples=50, stateful_step_count=30)
