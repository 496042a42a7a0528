"""How often a reconcile that fails is told of, as docs/observability.md says."""

from __future__ import annotations

from structlog.testing import capture_logs

from tests.support.world import open_world, sandbox


async def test_the_first_failure_and_those_with_long_pauses_are_warnings() -> None:
    """Those in between are lines at debug; each names error, attempts and the pause."""
    with capture_logs() as lines:
        async with open_world() as world:
            world.plane.fail_next("create", "pods", 500, times=11)
            await world.create(sandbox())
            await world.advance(30.0)
            assert world.find("pods") is not None
    told = [one for one in lines if one["event"] == "reconcile_failed"]
    assert len(told) == 11
    assert all("injected failure" in one["error"] for one in told)
    assert [one["attempts"] for one in told] == list(range(1, 12))
    assert [one["log_level"] for one in told] == [
        "warning" if number == 0 or one["next_s"] >= 1.0 else "debug"
        for number, one in enumerate(told)
    ]
    assert {one["log_level"] for one in told[1:]} == {"warning", "debug"}
