"""An owner is deleted and its watch tells late: what is made for it goes, and is not made for ever.

The garbage collector deletes each child of an owner that is gone. A controller that makes it anew
whenever it goes, because nothing has told it of the owner's end, would do so as fast as it can.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import claim, placed, pool
from tests.support.extensions import change_pool, change_template, member_names, open_pools
from tests.support.names import CLAIMS, POLICIES, POOLS, SANDBOXES, TEMPLATE_REF, TEMPLATES
from tests.support.volumes import WHOLE
from tests.support.world import NS, World, condition, sandbox

Json = dict[str, Any]


async def end_unseen(world: World, resource: str, name: str) -> dict[str, int]:
    """Delete an owner while the events of its kind are held, and let a minute pass.

    Returns what was created or patched meanwhile.
    """
    held = world.plane.hold_events(resource.partition(".")[0])
    world.forget_requests()
    world.plane.store.delete(resource, NS, name)
    await world.advance(60.0)
    verbs = ("create ", "patch ")
    written = {what: n for what, n in world.asked().items() if what.startswith(verbs)}
    held.release()
    for pod in world.plane.store.list("pods", NS):
        world.plane.store.delete("pods", NS, pod["metadata"]["name"], grace_s=0)
    await world.settle()
    return written


@pytest.mark.parametrize(
    ("before", "owner", "made", "many"),
    [
        ([], (TEMPLATES, "tpl"), POLICIES, 1),
        ([pool(replicas=1)], (POOLS, "pool"), SANDBOXES, 1),
        ([pool(replicas=3)], (POOLS, "pool"), SANDBOXES, 3),
        ([pool(replicas=0), claim()], (CLAIMS, "c"), SANDBOXES, 1),
    ],
)
async def test_what_is_made_for_an_owner_whose_end_is_told_late(
    before: list[Json], owner: tuple[str, str], made: str, many: int
) -> None:
    """It is not made over and over, and does not stay."""
    async with open_pools() as world:
        for body in (placed(), *before):
            await world.create(body)
        await world.advance(5.0)
        assert len(world.plane.store.list(made, NS)) == many
        assert not await end_unseen(world, *owner)
        assert not world.plane.store.list(made, NS)


async def test_the_service_of_a_sandbox_whose_end_and_whose_pods_are_told_late() -> None:
    """It is not made over and over, and does not stay: nothing but its own end is told."""
    async with open_pools() as world:
        await world.ready_sandbox(sandbox(spec={"service": True}))
        held = world.plane.hold_events("pods")
        assert not await end_unseen(world, SANDBOXES, "sb-1")
        held.release()
        await world.settle()
        assert not world.plane.store.list("services", NS)


async def test_the_children_of_a_sandbox_whose_end_is_told_late() -> None:
    """Pod, Service and volume claim are not made over and over, and do not stay."""
    async with open_pools() as world:
        await world.ready_sandbox(sandbox(spec=WHOLE))
        created = await end_unseen(world, SANDBOXES, "sb-1")
        assert max(created.values(), default=0) <= 1
        for resource in ("pods", "services", "persistentvolumeclaims"):
            assert not world.plane.store.list(resource, NS), resource


@pytest.mark.parametrize("resource", ["pods", "services", "persistentvolumeclaims"])
async def test_a_shared_child_of_a_sandbox_whose_end_is_told_late(resource: str) -> None:
    """It is not taken back when the garbage collector takes the owner that is gone out of it."""
    async with open_pools() as world:
        store = world.plane.store
        await world.ready_sandbox(sandbox(spec=WHOLE))
        kind = {"apiVersion": "v1", "kind": "ConfigMap"}
        other = store.create({**kind, "metadata": {"name": "other"}}, NS)
        owner = {**kind, "name": "other", "uid": other["metadata"]["uid"]}
        (child,) = store.list(resource, NS)
        owners = [*child["metadata"]["ownerReferences"], owner]
        body = {"metadata": {"ownerReferences": owners}}
        store.patch(resource, NS, child["metadata"]["name"], body)
        await world.settle()
        assert f"patch {resource}" not in await end_unseen(world, SANDBOXES, "sb-1")


async def test_the_members_of_a_pool_whose_end_is_one_of_many_things_that_happen() -> None:
    """They are not made anew, whatever else the reconcile is for by then."""
    async with open_pools(sandbox_warm_pool_concurrent_workers=1) as world:
        await world.create(placed())
        await world.create(pool("other", replicas=1))
        await world.create(pool(replicas=1))
        await world.advance(15.0)
        (name,) = member_names(world)
        # The only worker is busy with another pool, so all that happens to this one is gathered.
        busy = world.plane.hold("create", "sandboxes", answers=False, times=1)
        await change_pool(world, {"replicas": 2}, "other")
        assert busy.waiting
        metadata = {"annotations": {"changed": "yes"}}
        await world.patch(POOLS, "pool", {"metadata": metadata})
        await world.patch("sandboxes", name, {"metadata": {"annotations": {TEMPLATE_REF: "x"}}})
        await change_template(world, {"networkPolicyManagement": "Unmanaged"})
        held = world.plane.hold_events("sandboxwarmpools")
        world.plane.store.delete(POOLS, NS, "pool")
        await world.settle()
        assert member_names(world) == []
        world.forget_requests()
        busy.release()
        await world.advance(30.0)
        # For the other pool.
        assert world.asked()["create sandboxes"] == 1
        assert world.asked()["get sandboxwarmpools"] == 1
        held.release()
        await world.settle()


async def test_a_sandbox_that_took_a_name_unseen_gets_one_status_of_another_at_most() -> None:
    """A status is written by name, and its response shows who has the name by now."""
    async with open_pools() as world:
        store = world.plane.store
        await world.ready_sandbox(sandbox())
        held = world.plane.hold_events("sandboxes")
        world.forget_requests()
        store.delete(SANDBOXES, NS, "sb-1")
        store.create(sandbox())
        await world.advance(5.0)
        assert world.writes()["patch sandboxes/status"] == 1
        await world.delete("pods", "sb-1")
        await world.advance(60.0)
        assert world.writes() == {"patch sandboxes/status": 1}
        held.release()
        await world.settle()
        await world.run_pod()
        assert condition(world.get(), "Ready")["status"] == "True"
        assert world.get()["status"]["podIPs"] == ["10.244.0.5"]
