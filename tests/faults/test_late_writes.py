"""A write that arrives when another process has long done the work: no fence can call it back.

The process dies with one of its writes on the way; another ends what was begun; then the write is
carried out as it was sent.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from lean_sandbox.local.controlplane import ControlPlane
from tests.faults.flows import FLOWS, Flow, Run, begun
from tests.faults.promises import Promise
from tests.support.clock import FakeClock
from tests.support.extensions import settings
from tests.support.world import World, open_world

# The flows in which Sandboxes are made, bound, replaced and given new Pods.
NAMES = ("cold", "resume", "pool-fill", "rollout", "claim-warm", "claim-cold", "claim-conflict")
# What may not be so even for a moment. What a late status tells is not true, and is mended.
ALWAYS = (Promise.BOUND_ONCE, Promise.READY_IS_OWNED, Promise.OWNED, Promise.CHILDREN_GO)


class LateWrite:
    """The n-th write of a controller, Events left out, which dies as it is about to send it."""

    def __init__(self, world: World, number: int) -> None:
        """Wait for it."""
        self.data = b""
        self._world = world
        self._left = number
        transport: Any = world.whole._client.transport
        self._attempt = transport._attempt
        transport._attempt = self._take

    @property
    def title(self) -> str:
        """Its method and path."""
        return self.data.partition(b" HTTP")[0].decode()

    async def deliver(self, plane: ControlPlane) -> None:
        """Let the server have it."""
        address = urlsplit(plane.url)
        assert address.hostname is not None
        assert address.port is not None
        async with await anyio.connect_tcp(address.hostname, address.port) as stream:
            await stream.send(self.data)
            assert (await stream.receive()).startswith(b"HTTP/1.1 ")

    async def _take(self, exchange: Any) -> Any:
        if exchange.method != "GET" and b"/events" not in exchange.data.partition(b" HTTP")[0]:
            self._left -= 1
            if self._left == 0:
                self.data = exchange.data
                self._world.kill()
                await anyio.sleep_forever()
        return await self._attempt(exchange)


async def carried_out_late(
    flow: Flow, number: int, plane: ControlPlane, clock: FakeClock
) -> tuple[str, Run, list[str]]:
    """Run a flow with one late write; return which it was, and how the flow ended."""
    run = Run(plane, clock, (flow.act,), is_timed=flow.is_timed)
    late: LateWrite | None = None
    async with open_world(settings(), plane=plane, clock=clock) as first:
        late = LateWrite(first, number)
        await run.end(first)
    assert late is not None
    async with open_world(settings(), plane=plane, clock=clock) as second:
        await run.end(second)
        if late.data:
            await late.deliver(plane)
        return late.title, run, await run.end(second)


@pytest.mark.parametrize("name", NAMES)
async def test_a_write_that_arrives_last_of_all_changes_nothing_for_good(name: str) -> None:
    """Promises: BOUND_ONCE, READY_IS_OWNED, OWNED, CHILDREN_GO at every moment, and SAME_END."""
    async with begun(FLOWS[name]) as (plane, clock):
        _, _, wanted = await carried_out_late(FLOWS[name], 0, plane, clock)
    number = 0
    title = "first"
    while title:
        number += 1
        async with begun(FLOWS[name]) as (plane, clock):
            title, run, end = await carried_out_late(FLOWS[name], number, plane, clock)
        case = f"{name}: {title} was carried out last"
        kinds = tuple(promise.name for promise in ALWAYS)
        assert [found for found in run.history.violations() if found.startswith(kinds)] == [], case
        assert end == wanted, "\n".join(
            [case, *set(end) - set(wanted), "not", *set(wanted) - set(end)]
        )
    assert number > 2
