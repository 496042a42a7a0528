"""How long a list is waited for, as docs/reliability.md says."""

from __future__ import annotations

from lean_sandbox.local.controlplane import ControlPlane
from tests.support.clock import FakeClock, on_clock
from tests.support.world import open_world


@on_clock
async def test_a_page_of_a_list_is_given_up_after_half_a_minute(clock: FakeClock) -> None:
    """A connection went silent: the page is asked for again, and what follows is seen."""

    def stall(plane: ControlPlane) -> None:
        plane.hold("list", "services", times=1)

    async with open_world(clock=clock, prepare=stall, is_served=False) as world:
        await world.pass_time(29.75)
        assert not world.controller.problems
        await world.pass_time(0.5)
        assert "services" in world.controller.problems
        await world.pass_time(5.0)
        assert len(world.requests("list", "services")) == 2
        assert world.controller.not_ready is None
