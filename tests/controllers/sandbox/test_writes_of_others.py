"""What others do to a Sandbox or its children, where no event of ours follows, is not missed."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from tests.support.names import SANDBOXES
from tests.support.suspension import SUSPENDED
from tests.support.volumes import volume, volume_claim
from tests.support.world import (
    NS,
    World,
    condition,
    controlled_by,
    open_world,
    pod_body,
    sandbox,
    tracking,
)

Json = dict[str, Any]
AT_ONCE = Settings(sandbox_status_window=0.0, sandbox_status_step_window=0.0)
# What a server calls the author of a patch of ours: the user agent up to its first slash.
PATCH_MANAGER = "lean-sandbox"
POD_NAME = "agents.x-k8s.io/pod-name"
PAST = "2020-01-01T00:00:00Z"


def suspension(world: World) -> tuple[str, str]:
    """Return status and reason of the condition Suspended."""
    found = condition(world.get(), "Suspended")
    return found["status"], found["reason"]


async def test_suspension_completes_past_an_annotation_that_names_anothers_pod() -> None:
    """The Pod survives, the annotation goes, and the Sandbox has no Pod of its own: suspended."""
    async with open_world(AT_ONCE) as world:
        world.plane.store.create(pod_body("victim", owners=(world.foreign_owner(),)))
        metadata = {"annotations": {POD_NAME: "victim"}}
        await world.create(sandbox(spec=SUSPENDED, metadata=metadata))
        await world.advance(1.0)
        assert suspension(world) == ("True", "PodTerminated")
        assert world.find("pods", "victim") is not None
        assert POD_NAME not in world.get()["metadata"].get("annotations", {})


async def test_a_pod_without_the_tracking_label_does_not_outlive_its_sandbox() -> None:
    """A Sandbox that is expired when it is first seen, with a Pod that the watch does not show."""
    async with open_world(AT_ONCE) as world:
        body = sandbox(spec={"shutdownTime": PAST, "shutdownPolicy": "Retain"})

        def before_anything() -> None:
            owner = controlled_by(world.get())
            world.plane.store.create(pod_body(owners=(owner,)))

        world.meanwhile("get", "sandboxes", before_anything)
        await world.create(body)
        await world.advance(1.0)
        pod = world.find("pods")
        assert pod is None or pod["metadata"].get("deletionTimestamp")


async def test_a_volume_claim_that_goes_is_made_again() -> None:
    """Its end wakes the Sandbox, which needs nothing else to happen."""
    async with open_world(AT_ONCE) as world:
        await world.create(sandbox(spec={"volumeClaimTemplates": [volume()]}))
        first = world.find("persistentvolumeclaims", "data-sb-1")
        assert first is not None
        # Its finalizer keeps it while the Pod uses it.
        await world.patch("persistentvolumeclaims", "data-sb-1", {"metadata": {"finalizers": None}})
        await world.delete("persistentvolumeclaims", "data-sb-1")
        second = world.find("persistentvolumeclaims", "data-sb-1")
        assert second is not None
        assert second["metadata"]["uid"] != first["metadata"]["uid"]


async def test_a_volume_claim_in_the_way_is_told_of_when_it_goes() -> None:
    """One that nobody controls names no Sandbox: its own name tells who may have waited for it."""
    async with open_world(AT_ONCE) as world:
        world.plane.store.create(volume_claim("my-data-sb-1"))
        await world.create(sandbox(spec={"volumeClaimTemplates": [volume("my-data")]}))
        assert condition(world.get(), "Ready")["reason"] == "ReconcilerError"
        await world.delete("persistentvolumeclaims", "my-data-sb-1")
        made = world.find("persistentvolumeclaims", "my-data-sb-1")
        assert made is not None
        assert made["metadata"]["ownerReferences"] == [controlled_by(world.get())]


async def test_a_volume_claim_that_becomes_adoptable_is_adopted_at_once() -> None:
    """The label that the refusal asks for is what its Sandbox waits for."""
    async with open_world(AT_ONCE) as world:
        world.plane.store.create(volume_claim())
        await world.create(sandbox(spec={"volumeClaimTemplates": [volume()]}))
        labels = {"metadata": {"labels": {"agents.x-k8s.io/adoptable": "true"}}}
        await world.patch("persistentvolumeclaims", "data-sb-1", labels)
        adopted = world.find("persistentvolumeclaims", "data-sb-1")
        assert adopted is not None
        assert adopted["metadata"]["ownerReferences"] == [controlled_by(world.get())]


@pytest.mark.parametrize(
    "forged",
    [{"podIPs": ["6.6.6.6"]}, {"nodeName": "elsewhere"}, {"serviceFQDN": "evil.example"}],
    ids=["podIPs", "nodeName", "serviceFQDN"],
)
async def test_a_status_that_somebody_else_wrote_is_repaired(forged: Json) -> None:
    """Also in fields that no printed column shows: what shows is who wrote."""
    async with open_world(AT_ONCE) as world:
        await world.ready_sandbox()
        before = world.get()["status"]
        await world.patch("sandboxes", "sb-1", {"status": forged}, subresource="status")
        assert world.get()["status"] == before
        world.forget_requests()
        await world.patch("sandboxes", "sb-1", {"metadata": {"annotations": {"a": "b"}}})
        assert not world.asked()


async def test_what_is_noted_of_a_pod_goes_with_its_sandbox() -> None:
    """A thousand short lives, the Sandbox gone before its Pod, leave nothing behind."""
    async with open_world(AT_ONCE) as world:
        for number in range(20):
            name = f"short-{number}"
            await world.create(sandbox(name))
            owner = controlled_by(world.get(name))
            world.plane.store.create(
                pod_body(f"late-{number}", labels=tracking(name), owners=(owner,))
            )
            await world.delete("sandboxes", name)
            await world.advance(1.0)
        assert not world.plane.store.list("pods", NS)
        assert not world.whole.sandboxes.hidden._known


async def test_a_late_status_of_our_own_is_repaired() -> None:
    """A write that had timed out, or an old leader's, is carried out after those that followed it.

    The server of the tests drops what its client has given up, so what was sent is sent again.
    """
    async with open_world() as world:
        await world.ready_sandbox()
        late = world.get()["status"]
        await world.server_clock.advance(5.0)
        await world.run_pod(ips=("10.0.0.2",))
        assert world.get()["status"]["podIPs"] == ["10.0.0.2"]
        await world.server_clock.advance(5.0)
        world.plane.store.patch(
            SANDBOXES,
            NS,
            "sb-1",
            {"status": late},
            subresource="status",
            manager=PATCH_MANAGER,
        )
        await world.advance(60.0)
        assert world.get()["status"]["podIPs"] == ["10.0.0.2"]


async def test_a_foreign_status_right_before_our_annotation_is_repaired() -> None:
    """The response to the annotation shows who wrote the status last."""
    forged = {"status": {"podIPs": ["192.0.2.6"]}}
    async with open_world() as world:
        await world.ready_sandbox()
        before = world.get()["status"]
        store = world.plane.store
        world.meanwhile(
            "patch",
            "sandboxes",
            lambda: store.patch(SANDBOXES, NS, "sb-1", forged, subresource="status"),
        )
        annotation = {"metadata": {"annotations": {POD_NAME: "elsewhere"}}}
        await world.patch("sandboxes", "sb-1", annotation)
        await world.advance(60.0)
        assert world.get()["status"] == before
