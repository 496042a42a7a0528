"""Children that two want, or that somebody changes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controllers.sandbox.services import ADOPTABLE, service_body
from tests.support.names import SANDBOXES
from tests.support.volumes import WHOLE, volume_claim
from tests.support.world import NS, condition, open_world, pod_body, sandbox, tracking

Json = dict[str, Any]
POD_NAME = "agents.x-k8s.io/pod-name"


@pytest.mark.parametrize(
    ("resource", "theirs", "spec"),
    [
        ("pods", pod_body(labels=ADOPTABLE), {}),
        ("persistentvolumeclaims", volume_claim(labels=tracking()), WHOLE),
        ("services", service_body(labels=ADOPTABLE), WHOLE),
    ],
)
async def test_a_child_that_somebody_adopts_before_the_patch_is_not_taken(
    resource: str, theirs: Json, spec: Json
) -> None:
    """Nobody controls it when it is read, and somebody does when our patch comes."""
    name = theirs["metadata"]["name"]
    async with open_world() as world:
        store = world.plane.store
        adopted = {"metadata": {"ownerReferences": [world.foreign_owner()]}}
        store.create(theirs)
        world.meanwhile("patch", resource, lambda: store.patch(resource, NS, name, adopted))
        await world.create(sandbox(spec=spec))
        await world.advance(3.0)
        owners = store.get(resource, NS, name)["metadata"]["ownerReferences"]
        assert [one["kind"] for one in owners if one.get("controller")] == ["Deployment"]


async def test_two_sandboxes_that_name_one_pod_take_it_once() -> None:
    """Whoever takes it first keeps it; the other makes its own."""
    owners: list[str] = []
    async with open_world() as world:
        store = world.plane.store
        store.create(pod_body("warm-1", labels={**ADOPTABLE, **tracking("x")}))

        def note(change: Any) -> None:
            if change.after is None:
                return
            meta = change.after["metadata"]
            if meta["name"] == "warm-1":
                for one in meta.get("ownerReferences", ()):
                    if not owners or owners[-1] != one["name"]:
                        owners.append(one["name"])

        store.follow(note, ("pods",))
        named = {"annotations": {POD_NAME: "warm-1"}}
        store.create(sandbox("sb-1", metadata=named))
        store.create(sandbox("sb-2", metadata=named))
        await world.settle()
        await world.advance(10.0)
        assert len(owners) == 1, owners


async def test_a_service_that_is_replaced_by_a_foreign_one() -> None:
    """Deleted and made again by somebody else in one go."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox(spec={"service": True}))
        store = world.plane.store
        store.delete("services", NS, "sb-1")
        store.create(service_body(owners=(world.foreign_owner(),)))
        await world.settle()
        assert condition(world.get(), "Ready")["reason"] == "ReconcilerError"
        store.delete("services", NS, "sb-1")
        await world.settle()
        assert condition(world.get(), "Ready")["status"] == "True"


async def test_suspend_and_resume_many_times() -> None:
    """In quick succession, with the Pod ending at any time."""
    async with open_world() as world:
        await world.ready_sandbox()
        for number in range(7):
            mode = "Running" if number % 2 else "Suspended"
            world.plane.store.patch(SANDBOXES, NS, "sb-1", {"spec": {"operatingMode": mode}})
            await world.moments(number * 7)
        await world.settle()
        assert condition(world.get(), "Suspended")["status"] == "False"
        pod = world.find("pods")
        assert pod is not None
        if "deletionTimestamp" in pod["metadata"]:
            await world.delete("pods", "sb-1")
        await world.advance(3.0)
        assert condition(world.get(), "Suspended")["status"] == "True"


async def test_metadata_are_not_written_to_a_foreign_pod() -> None:
    """Our Pod is gone and another's has its name when our patch comes."""
    async with open_world() as world:
        await world.ready_sandbox()
        store = world.plane.store

        def replace() -> None:
            store.delete("pods", NS, "sb-1", grace_s=0)
            store.create(pod_body("sb-1", owners=(world.foreign_owner(),)))

        world.meanwhile("patch", "pods", replace)
        template = {"spec": {"podTemplate": {"metadata": {"labels": {"a": "b"}}}}}
        await world.patch("sandboxes", "sb-1", template)
        await world.advance(3.0)
        assert not world.pod()["metadata"].get("labels")
        assert condition(world.get(), "Ready")["reason"] != "InvalidConfiguration"


async def test_a_service_with_a_finalizer_that_is_not_wanted_and_wanted_again() -> None:
    """It goes when its finalizer lets it; asked for again it is made anew."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox(spec={"service": True}))
        await world.patch("services", "sb-1", {"metadata": {"finalizers": ["example.com/x"]}})
        world.forget_requests()
        await world.patch("sandboxes", "sb-1", {"spec": {"service": False}})
        await world.advance(60.0)
        assert len(world.requests("delete", "services")) == 1
        await world.patch("sandboxes", "sb-1", {"spec": {"service": True}})
        await world.advance(10.0)
        await world.patch("services", "sb-1", {"metadata": {"finalizers": None}})
        await world.advance(10.0)
        assert (
            "deletionTimestamp"
            not in (world.find("services") or {"metadata": {"deletionTimestamp": 1}})["metadata"]
        )
        assert condition(world.get(), "Ready")["status"] == "True"
