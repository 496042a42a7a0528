"""What somebody deletes companions leave alone, though a finalizer keeps it for a while."""

from __future__ import annotations

from typing import Any

import pytest

from tests.companions.rolling import change_template, make_ready, members, open_rolling
from tests.companions.support import PREFIX, annotate, notes, reasons
from tests.support.builders import claim
from tests.support.clock import FakeClock
from tests.support.extensions import open_claims, settings
from tests.support.names import CLAIMS, POOLS, SANDBOXES
from tests.support.world import NS, World, open_world, sandbox

Json = dict[str, Any]
KEPT = {"metadata": {"finalizers": ["example.com/keep"]}}
API = "agents.x-k8s.io/"


def delete(world: World, resource: str, name: str) -> None:
    """Delete an object that a finalizer keeps."""
    world.plane.store.patch(resource, NS, name, KEPT)
    world.plane.store.delete(resource, NS, name, grace_s=0)


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_sandbox_being_deleted_is_neither_suspended_nor_counted(
    *, is_deleted: bool
) -> None:
    """By idle and recreate; another Sandbox is."""
    asks = {API + "idle-timeout-seconds": "60", API + "pod-failure-policy": "Recreate"}
    given = settings(companions=("idle", "recreate"))
    async with open_world(given, one_time=True, clock=FakeClock()) as world:
        for name in ("sb-1", "sb-2"):
            await world.ready_sandbox(sandbox(name, metadata={"annotations": asks}))
        if is_deleted:
            delete(world, SANDBOXES, "sb-1")
            delete(world, SANDBOXES, "sb-2")
        await world.pod_status("sb-2", phase="Failed")
        await world.advance(120.0)
        mode = world.get("sb-1")["spec"].get("operatingMode", "Running")
        assert mode == ("Running" if is_deleted else "Suspended")
        assert (PREFIX + "pod-failure-count" in notes(world.get("sb-2"))) is not is_deleted


async def test_what_is_gone_when_its_time_comes_is_not_looked_for() -> None:
    """A Sandbox that was idle, one whose Pod has failed, a pool whose template has changed."""
    asks = {API + "idle-timeout-seconds": "60", API + "pod-failure-policy": "Recreate"}
    async with open_rolling("1", companions=("idle", "recreate", "rollout")) as world:
        for name in ("sb-1", "sb-2"):
            await world.ready_sandbox(sandbox(name, metadata={"annotations": asks}))
        await world.pod_status("sb-2", phase="Failed")
        await world.advance(5.0)
        await change_template(world)
        for resource, name in ((SANDBOXES, "sb-1"), (SANDBOXES, "sb-2"), (POOLS, "pool")):
            world.plane.store.delete(resource, NS, name)
        await world.advance(120.0)
        assert reasons(world) == []


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_pool_being_deleted_is_neither_sized_nor_rolled(*, is_deleted: bool) -> None:
    """By autosize and rollout; another pool is."""
    async with open_rolling("1", companions=("autosize", "rollout")) as world:
        if is_deleted:
            delete(world, POOLS, "pool")
        await annotate(world, POOLS, "pool", min_replicas="9", max_replicas="9")
        await change_template(world)
        before = {one["metadata"]["uid"] for one in members(world)}
        for _ in range(3):
            await world.advance(5.0)
            await make_ready(world)
        found = world.plane.store.get(POOLS, NS, "pool")
        assert found["spec"]["replicas"] == (4 if is_deleted else 9)
        assert (PREFIX + "rollout-status" in notes(found)) is not is_deleted
        after = {one["metadata"]["uid"] for one in members(world)}
        assert before.issubset(after) is is_deleted


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_claim_being_deleted_gets_no_lifecycle(*, is_deleted: bool) -> None:
    """From defaults; another claim does."""
    asks = {PREFIX + "claim-defaults": '{"shutdownPolicy": "Delete"}'}
    async with open_claims(
        "m-1", companions=("defaults",), clock=FakeClock(), one_time=True
    ) as world:
        await world.create(claim())
        if is_deleted:
            delete(world, CLAIMS, "c")
        await world.patch(POOLS, "pool", {"metadata": {"annotations": asks}})
        await world.advance(5.0)
        assert ("lifecycle" in world.plane.store.get(CLAIMS, NS, "c")["spec"]) is not is_deleted
