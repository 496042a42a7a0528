"""What docs/lifecycle.md, troubleshooting.md and upgrade.md promise of a Sandbox."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import claim, pool
from tests.support.expiry import at, dying, reason
from tests.support.extensions import fill, open_pools, rest
from tests.support.names import CLAIMS, SANDBOXES
from tests.support.suspension import resume, suspend
from tests.support.volumes import volume
from tests.support.world import NS, World, open_world

Json = dict[str, Any]
IMAGE = {"spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "newer"}]}}}}


def image(world: World) -> str:
    """Return the image of the Pod."""
    return str(world.pod()["spec"]["containers"][0]["image"])


@pytest.mark.parametrize("way", ["suspend and resume", "delete the Pod"])
async def test_an_edit_of_the_pod_template_reaches_the_next_pod(way: str) -> None:
    """The Pod that runs is left as it is, for as long as it does."""
    async with open_world() as world:
        await world.ready_sandbox()
        uid = world.pod()["metadata"]["uid"]
        world.forget_requests()
        await world.patch("sandboxes", "sb-1", IMAGE)
        await world.advance(3600.0)
        assert (image(world), world.pod()["metadata"]["uid"]) == ("busybox", uid)
        if way == "delete the Pod":
            await world.delete("pods", "sb-1")
        else:
            await suspend(world)
            await world.delete("pods", "sb-1")
            await resume(world)
        assert image(world) == "newer"


async def test_a_retained_sandbox_runs_again_on_its_volume_and_with_its_service() -> None:
    """The volume is the one from before; the Service is made anew."""
    async with open_world() as world:
        await world.ready_sandbox(dying(60.0, service=True, volumeClaimTemplates=[volume()]))
        kept = world.find("persistentvolumeclaims", "data-sb-1")
        assert kept is not None
        await world.advance(61.0)
        await world.delete("pods", "sb-1")
        await world.patch("sandboxes", "sb-1", {"spec": {"shutdownTime": None}})
        await world.run_pod()
        await world.advance(2.0)
        assert reason(world) == "DependenciesReady"
        assert world.find("persistentvolumeclaims", "data-sb-1") == kept
        assert world.find("services") is not None


async def test_an_edit_just_before_the_deletion_keeps_the_sandbox() -> None:
    """The DELETE names the version that was read: the server refuses it, and all is read anew."""
    async with open_world() as world:
        await world.ready_sandbox(dying(60.0, policy="Delete"))
        uid = world.get()["metadata"]["uid"]
        later = {"spec": {"shutdownTime": at(7200.0)}}
        store = world.plane.store
        world.meanwhile("delete", "sandboxes", lambda: store.patch(SANDBOXES, NS, "sb-1", later))
        world.forget_requests()
        await world.advance(65.0)
        assert [one.code for one in world.requests("delete", "sandboxes")] == [409]
        assert world.get()["metadata"]["uid"] == uid
        await world.delete("pods", "sb-1")
        await world.run_pod()
        assert reason(world) == "DependenciesReady"


async def test_the_end_of_a_claim_adds_nothing_to_its_pool() -> None:
    """The replacement came when the member was taken."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        lifecycle = {"shutdownTime": at(120.0), "shutdownPolicy": "Delete"}
        await world.create(claim(lifecycle=lifecycle))
        await rest(world)
        assert len(world.requests("create", "sandboxes")) == 1
        await world.advance(180.0)
        assert world.find(CLAIMS, "c") is None
        assert len(world.requests("create", "sandboxes")) == 1
