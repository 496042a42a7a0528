"""What is gone, taken or changed already when the request of a Sandbox arrives."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.kinds import Kind
from tests.support.volumes import volume
from tests.support.webhooks import add_webhook
from tests.support.world import NS, condition, open_world, sandbox

Json = dict[str, Any]
# What each child is called where it is named, and the spec that asks for it.
CHILDREN: dict[str, tuple[str, Json]] = {
    "pods": ("pod", {}),
    "services": ("service", {"service": True}),
    "persistentvolumeclaims": ("PVC", {"volumeClaimTemplates": [volume()]}),
}


def taken(resource: str) -> Json:
    """Return the answer to a create whose name is taken."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": "AlreadyExists",
        "message": f"{resource} already exists",
        "code": 409,
    }


@pytest.mark.parametrize("resource", CHILDREN)
async def test_a_name_that_is_taken_at_each_create_and_free_at_each_look(resource: str) -> None:
    """Somebody makes and deletes it: each try is one create and one look, after a longer pause."""
    word, spec = CHILDREN[resource]
    async with open_world() as world:
        world.plane.fail_next("create", resource, 409, times=10**6, body=taken(resource))
        await world.create(sandbox(spec=spec))
        assert world.asked()[f"create {resource}"] == 1
        await world.advance(10.0)
        tries = world.asked()[f"create {resource}"]
        assert 2 <= tries <= 12
        assert world.asked()[f"get {resource}"] == tries
        ready = condition(world.get(), "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "ReconcilerError")
        assert word in ready["message"]
        world.plane.faults.clear()
        await world.advance(20.0)
        assert world.asked()[f"create {resource}"] == tries + 1
        await world.run_pod()
        await world.advance(3.0)
        assert world.is_ready()


async def test_a_service_that_a_webhook_changes_as_it_is_made_is_repaired() -> None:
    """At once, by one patch: the name of the Sandbox leads to its Pod."""
    is_on = [True]

    def change(kind: Kind, one: Json) -> None:
        if kind.plural == "services" and is_on:
            one["spec"]["selector"] = {"a": "b"}
            is_on.clear()

    async with open_world(prepare=lambda plane: add_webhook(plane, change)) as world:
        await world.create(sandbox(spec={"service": True}))
        await world.advance(1.0)
        service = world.find("services")
        assert service is not None
        assert "a" not in service["spec"]["selector"]
        assert world.writes()["patch services"] == 1
        await world.advance(60.0)
        assert world.writes()["patch services"] == 1


async def test_a_label_by_which_a_pod_is_watched_is_not_written_over_and_over() -> None:
    """A webhook strips it while the Sandbox is suspended: the Pod ends all the same."""

    def strip(kind: Kind, one: Json) -> None:
        if kind.plural == "pods":
            (one["metadata"].get("labels") or {}).pop("agents.x-k8s.io/sandbox-name-hash", None)

    async with open_world(prepare=lambda plane: add_webhook(plane, strip)) as world:
        await world.ready_sandbox()
        # No watch shows what becomes of a Pod without the label.
        world.net_may_catch = True
        await world.patch("sandboxes", "sb-1", {"spec": {"operatingMode": "Suspended"}})
        await world.advance(60.0)
        assert world.writes()["patch pods"] <= 3
        world.plane.store.delete("pods", NS, "sb-1", grace_s=0)
        await world.advance(600.0)
        assert world.find("pods") is None
        assert condition(world.get(), "Suspended")["status"] == "True"
