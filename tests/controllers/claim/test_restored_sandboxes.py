"""Sandboxes that a restore from a backup brought back without their owner."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.kinds import Kind
from tests.support.builders import claim, placed
from tests.support.extensions import bound_name, open_claims, owner_of, ready_of
from tests.support.names import ANNOTATION, CLAIM_UID, SANDBOXES
from tests.support.webhooks import add_webhook
from tests.support.world import NS, World

Json = dict[str, Any]


def restore(world: World, name: str, labels: Json) -> None:
    """Create a Sandbox without an owner, as it comes out of a backup that strips them."""
    spec = placed()["spec"]
    metadata = {"name": name, "namespace": NS, "labels": labels}
    body = {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": metadata}
    world.plane.store.create({**body, "spec": spec})


async def made(world: World, **metadata: Any) -> str:
    """Create a claim that is not served yet, and return its uid."""
    held = world.plane.store.create(claim(metadata=metadata))
    return str(held["metadata"]["uid"])


@pytest.mark.parametrize("name", ["c", "m1"])
async def test_one_that_is_labelled_as_the_claims_is_taken_back(name: str) -> None:
    """Under the claim's own name, or the one that its annotation carries."""
    async with open_claims(replicas=0) as world:
        uid = "none"

        def arrive() -> None:
            restore(world, name, {CLAIM_UID: uid})

        held = world.plane.hold_events("sandboxclaims")
        uid = await made(world, annotations={} if name == "c" else {ANNOTATION: name})
        arrive()
        await world.moments(300)
        held.release()
        await world.settle()
        assert owner_of(world, name) == "SandboxClaim/c"
        assert bound_name(world) == name
        assert len(world.plane.store.list(SANDBOXES)) == 1
        await world.run_pod(name)
        await world.advance(3.0)
        assert ready_of(world)[0] == "True"


@pytest.mark.parametrize("name", ["c", "m1"])
async def test_one_that_was_another_claims_is_not_taken_and_the_claim_says_how(name: str) -> None:
    """A restored claim has a new uid: whoever may label Sandboxes hands the Sandbox over."""
    async with open_claims("m2", replicas=1) as world:
        restore(world, name, {CLAIM_UID: "of-before"})
        await world.settle()
        uid = await made(world, annotations={} if name == "c" else {ANNOTATION: name})
        await world.settle()
        assert ready_of(world)[:2] == ("False", "ReconcilerError")
        assert f'label it "{CLAIM_UID}={uid}"' in ready_of(world)[2]
        assert f'sandbox "{name}"' in ready_of(world)[2]
        assert "ownerReferences" not in world.get(name)["metadata"]
        # Its backoff has grown meanwhile.
        await world.advance(200.0)
        await world.patch("sandboxes", name, {"metadata": {"labels": {CLAIM_UID: uid}}})
        await world.advance(0.2)
        assert owner_of(world, name) == "SandboxClaim/c"
        assert bound_name(world) == name


@pytest.mark.parametrize("name", ["c", "m1"])
async def test_one_that_was_nobodys_is_left_alone(name: str) -> None:
    """A user's own Sandbox without a label of claims."""
    async with open_claims("m2", replicas=1) as world:
        restore(world, name, {})
        await world.settle()
        await world.create(
            claim(metadata={"annotations": {} if name == "c" else {ANNOTATION: name}})
        )
        assert "ownerReferences" not in world.get(name)["metadata"]
        if name == "c":
            assert ready_of(world)[1] == "ReconcilerError"
            assert "label it" not in ready_of(world)[2]
        else:
            assert bound_name(world) == "m2"


@pytest.mark.parametrize(("verb", "is_going"), [("patch", False), ("get", False), ("get", True)])
async def test_one_that_has_another_owner_by_now_or_goes_is_not_taken(
    verb: str,
    is_going: bool,  # noqa: FBT001
) -> None:
    """It is looked at first, and the patch is guarded by the version that was seen."""
    async with open_claims(replicas=0) as world:
        store = world.plane.store
        held = world.plane.hold_events("sandboxclaims")
        uid = await made(world)
        restore(world, "c", {CLAIM_UID: uid})
        store.patch(SANDBOXES, NS, "c", {"metadata": {"finalizers": ["example.com/hold"]}})
        await world.moments(300)
        owners = [world.foreign_owner()]

        def change() -> None:
            if is_going:
                store.delete(SANDBOXES, NS, "c")
            else:
                store.patch(SANDBOXES, NS, "c", {"metadata": {"ownerReferences": owners}})

        world.meanwhile(verb, "sandboxes", change)
        held.release()
        await world.settle()
        stored = world.get("c")["metadata"]
        assert stored.get("ownerReferences", []) == ([] if is_going else owners)
        assert bound_name(world) == ""


async def test_one_that_a_webhook_leaves_without_an_owner_is_not_taken() -> None:
    """A claim names only what goes with it. It has it once the webhook is gone."""
    async with open_claims(replicas=0) as world:
        is_on = True

        def take_owner_away(kind: Kind, obj: Json) -> None:
            if is_on and kind.plural == "sandboxes":
                obj["metadata"].pop("ownerReferences", None)

        add_webhook(world.plane, take_owner_away)
        held = world.plane.hold_events("sandboxclaims")
        restore(world, "c", {CLAIM_UID: await made(world)})
        await world.moments(300)
        held.release()
        await world.settle()
        assert bound_name(world) == ""
        assert "without the claim as its owner" in ready_of(world)[2]
        is_on = False
        await world.advance(60.0)
        assert owner_of(world, "c") == "SandboxClaim/c"
        assert bound_name(world) == "c"
