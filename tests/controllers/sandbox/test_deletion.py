"""A Sandbox on its way out, gone, or never there: the controller keeps its hands off."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from tests.support.names import SANDBOXES
from tests.support.suspension import SUSPENDED, suspend
from tests.support.world import NS, condition, open_world, sandbox

Json = dict[str, Any]
HELD = {"finalizers": ["example.com/hold"]}
# Two names whose 32-bit FNV-1a hashes are equal.
COLLIDING = ("sandbox-ujtra", "sandbox-oikxw")


@pytest.mark.case(130)
async def test_nothing_is_written_about_a_sandbox_that_is_being_deleted() -> None:
    """Case 130: while somebody's finalizer holds it, a lost Pod is not made again."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox(metadata=HELD))
        world.forget_requests()
        await world.delete("sandboxes", "sb-1")
        assert "deletionTimestamp" in world.get()["metadata"]
        await world.delete("pods", "sb-1")
        await suspend(world)
        await world.patch("sandboxes", "sb-1", {"spec": {"service": True}})
        await world.advance(600.0)
        assert world.find("pods") is None
        assert not world.writes(events=True)
        assert condition(world.get(), "Ready")["status"] == "True"


@pytest.mark.case(130)
async def test_a_sandbox_found_being_deleted_at_the_start_is_left_alone() -> None:
    """Case 130: the same holds for one whose deletion began before the controller did."""
    async with open_world() as first:
        await first.create(sandbox(metadata=HELD))
        plane = first.plane
        await first.delete("sandboxes", "sb-1")
        first.forget_requests()
        async with open_world(plane=plane) as second:
            await second.advance(600.0)
            assert not second.writes()


@pytest.mark.case(130, 131)
@pytest.mark.parametrize("metadata", [{}, HELD], ids=["gone", "going"])
async def test_a_sandbox_deleted_when_its_turn_comes_is_no_error(metadata: Json) -> None:
    """Case 131: it went between the event and the GET; nothing is written, no reconcile fails.

    Nor about one that a finalizer holds (130), which has no child to be made.
    """
    async with open_world() as world:
        world.forget_requests()
        world.meanwhile("get", "sandboxes", lambda: world.plane.store.delete(SANDBOXES, NS, "sb-1"))
        await world.create(sandbox(spec=SUSPENDED, metadata=metadata))
        await world.advance(60.0)
        assert (world.find("sandboxes") is not None) is bool(metadata)
        assert world.asked(events=True) == {"get sandboxes": 1}
        assert all(report.error is None for report in world.reports)


async def test_a_sandbox_made_anew_under_its_name_has_its_first_status_in_time() -> None:
    """The pauses between the statuses of its predecessor, which was slow to start, are over."""
    async with open_world(Settings(sandbox_status_window=1.0)) as world:
        await world.create(sandbox())
        await world.advance(5.0)
        world.plane.store.delete(SANDBOXES, NS, "sb-1")
        await world.create(sandbox())
        await world.advance(1.1)
        assert condition(world.get(), "Ready")["reason"] == "DependenciesNotReady"


@pytest.mark.case(152)
async def test_sandboxes_with_the_same_name_hash_keep_to_their_own_pods() -> None:
    """Case 152: ownership tells Pods apart where the tracking label does not."""
    one, two = COLLIDING
    async with open_world() as world:
        await world.ready_sandbox(sandbox(one))
        await world.ready_sandbox(sandbox(two))
        assert world.get(one)["status"]["selector"] == world.get(two)["status"]["selector"]
        uids = {name: world.pod(name)["metadata"]["uid"] for name in COLLIDING}
        await suspend(world, one)
        assert "deletionTimestamp" in world.pod(one)["metadata"]
        await world.delete("pods", one)
        await world.advance(60.0)
        assert world.find("pods", one) is None
        assert world.pod(two)["metadata"]["uid"] == uids[two]
        assert "deletionTimestamp" not in world.pod(two)["metadata"]
        assert condition(world.get(two), "Ready")["status"] == "True"
        assert condition(world.get(one), "Suspended")["status"] == "True"
