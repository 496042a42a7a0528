"""How long a request is waited for, as docs/reliability.md says."""

from __future__ import annotations

import pytest

from lean_sandbox.config.options import Settings
from tests.support.clock import FakeClock, on_clock
from tests.support.world import open_world, sandbox


@pytest.mark.parametrize(("settings", "deadline_s"), [({}, 15.0), ({"request_timeout": 3.0}, 3.0)])
@on_clock
async def test_a_request_without_an_answer_is_given_up_and_sent_again(
    clock: FakeClock, settings: dict[str, float], deadline_s: float
) -> None:
    """After fifteen seconds, or as many as the flag says; the Pod is created once."""
    async with open_world(Settings(**settings), clock=clock) as world:  # type: ignore[arg-type]
        world.plane.hold("create", "pods", times=1)
        world.plane.store.create(sandbox())
        await world.pass_time(deadline_s - 0.5)
        assert len(world.requests("create", "pods")) == 1
        assert not world.reports
        await world.pass_time(1.0)
        assert [one.outcome.value for one in world.reports][:1] == ["error"]
        await world.pass_time(2.0)
        assert len(world.plane.store.list("pods", "ns")) == 1
