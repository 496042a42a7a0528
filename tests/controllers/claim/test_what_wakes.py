"""What wakes the reconcile of a claim, and what is kept of claims and members until then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from lean_sandbox.controllers.claim.controller import ClaimController
from lean_sandbox.controllers.warm import Counts
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.http.faults import HeldRequests
from lean_sandbox.model.times import format_rfc3339
from lean_sandbox.watch.kind import Key
from tests.support.builders import claim, pool, template
from tests.support.clock import EPOCH
from tests.support.extensions import (
    add_member,
    bound_name,
    claim_reconciles,
    get_claim,
    open_claims,
    owner_of,
    ready_of,
    run_members,
)
from tests.support.names import ANNOTATION, CLAIMS, CREATED_BY, POOLS, SANDBOXES, TEMPLATES
from tests.support.world import NS, World, condition, pod_conditions, write_pod_status

Json = dict[str, Any]
OBSERVED = "agents.x-k8s.io/controller-first-observed-at"
HOLD: Json = {"finalizers": ["example.com/hold"]}
Cause = Callable[[World], Awaitable[None]]
ENV: Json = {"env": [{"name": "A", "value": "1"}]}


def controller_of(world: World) -> ClaimController:
    """Return the claim controller."""
    assert world.whole.claims is not None
    return world.whole.claims


def counts(world: World, name: str = "pool") -> Counts:
    """Return how many members of a pool claims could get."""
    return controller_of(world).warm.counts(Key(NS, name))


@pytest.mark.claim_case(111)
async def test_a_pools_spec_wakes_only_its_own_unbound_living_claims() -> None:
    """Claim case 111: of five claims one; a write of the pool's status wakes none."""

    def more(plane: ControlPlane) -> None:
        plane.store.create(pool("other"))

    async with open_claims("m1", prepare=more) as world:
        await world.create(claim("bound"))
        await world.create(claim("open", **ENV))
        await world.create(claim("elsewhere", pool="other", **ENV))
        await world.create(claim("going", metadata=HOLD, **ENV))
        world.plane.store.delete(CLAIMS, NS, "going")
        await world.advance(3.0)
        assert bound_name(world, "bound") == "m1"
        before = claim_reconciles(world)
        await world.patch(POOLS, "pool", {"status": {"replicas": 7}}, subresource="status")
        await world.advance(2.0)
        assert claim_reconciles(world) == before
        await world.patch(POOLS, "pool", {"spec": {"updateStrategy": {"type": "Recreate"}}})
        await world.advance(2.0)
        assert claim_reconciles(world) == before + 1


@pytest.mark.claim_case(112)
async def test_a_new_template_wakes_the_living_claims_of_all_its_pools_once() -> None:
    """Claim case 112: bound or not, of both pools; its edit and its end wake those not served.

    The one without a Sandbox is reconciled once more when the NetworkPolicy of the template is
    there, for it may have waited for that.
    """

    def more(plane: ControlPlane) -> None:
        plane.store.create(pool("second"))
        plane.store.create(pool("other", template="another"))

    async with open_claims("m1", prepare=more) as world:
        await world.create(claim("bound"))
        await world.create(claim("open", pool="second", **ENV))
        await world.create(claim("elsewhere", pool="other"))
        await world.create(claim("going", metadata=HOLD, **ENV))
        world.plane.store.delete(CLAIMS, NS, "going")
        await world.advance(3.0)
        before = claim_reconciles(world)
        await world.delete(TEMPLATES, "tpl")
        await world.advance(3.0)
        assert claim_reconciles(world) == before + 1
        await world.create(template())
        await world.advance(3.0)
        assert claim_reconciles(world) == before + 4
        await world.patch(TEMPLATES, "tpl", {"spec": {"envVarsInjectionPolicy": "Overrides"}})
        await world.advance(1.0)
        assert bound_name(world, "open") == "open"
        assert bound_name(world, "bound") == "m1"


async def new_address(world: World) -> None:
    """Give the Pod another address."""
    await world.run_pod("m1", ips=("10.9.9.9",))


async def new_service(world: World) -> None:
    """Let the Sandbox have a Service."""
    await world.patch("sandboxes", "m1", {"spec": {"service": True}})


async def not_ready(world: World) -> None:
    """Let the Pod lose its readiness."""
    await world.run_pod("m1", ready=False)


async def finished(world: World) -> None:
    """Let the Pod end."""
    await world.pod_status("m1", phase="Succeeded")


async def another_condition(world: World) -> None:
    """Let the Suspended condition of the Sandbox change."""
    held = world.get("m1")["status"]["conditions"]
    told = [{**one, "message": "edited"} if one["type"] == "Suspended" else one for one in held]
    assert told != held
    await world.patch("sandboxes", "m1", {"status": {"conditions": told}}, subresource="status")


async def labels(world: World) -> None:
    """Label the Sandbox."""
    await world.patch("sandboxes", "m1", {"metadata": {"labels": {"mine": "1"}}})


async def finalizers(world: World) -> None:
    """Hold the Sandbox."""
    await world.patch("sandboxes", "m1", {"metadata": HOLD})


@pytest.mark.claim_case(113)
@pytest.mark.parametrize("cause", [new_address, new_service, not_ready, finished])
async def test_what_a_claim_reports_of_its_sandbox_wakes_it(cause: Cause) -> None:
    """Claim case 113: addresses, service, Ready and Finished arrive at the claim."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        before = claim_reconciles(world)
        told = get_claim(world)["status"]
        await cause(world)
        await world.advance(5.0)
        assert claim_reconciles(world) > before
        status = get_claim(world)["status"]
        source = world.get("m1")["status"]
        assert status != told
        for field in ("podIPs", "serviceFQDN"):
            assert status["sandbox"].get(field) == source.get(field)
        for one in status["conditions"]:
            theirs = condition(world.get("m1"), one["type"])
            assert (one["status"], one["reason"]) == (theirs["status"], theirs["reason"])


@pytest.mark.claim_case(113)
@pytest.mark.parametrize("cause", [another_condition, labels, finalizers])
async def test_what_a_claim_does_not_report_leaves_it_alone(cause: Cause) -> None:
    """Claim case 113: other conditions and metadata of the Sandbox cost the claim no reconcile."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        before = claim_reconciles(world)
        source = world.get("m1")
        await cause(world)
        await world.advance(5.0)
        assert world.get("m1") != source
        assert claim_reconciles(world) == before


@pytest.mark.claim_case(113)
async def test_a_sandbox_on_its_way_out_wakes_its_claim() -> None:
    """Claim case 113: the deletionTimestamp counts, though the Sandbox stays for a while."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.patch("sandboxes", "m1", {"metadata": HOLD})
        await world.advance(3.0)
        before = claim_reconciles(world)
        world.plane.store.delete(SANDBOXES, NS, "m1")
        await world.settle()
        assert claim_reconciles(world) > before
        assert bound_name(world) == "m1"


@pytest.mark.claim_case(118)
async def test_the_first_sight_of_a_claim_is_kept_until_it_is_ready() -> None:
    """Claim case 118: an edit does not change it; a successor of the same name has its own."""
    async with open_claims() as world:
        await world.create(claim())
        await world.create(claim("twin"))
        await world.advance(5.0)
        await world.patch(CLAIMS, "c", {"spec": {"lifecycle": {"shutdownPolicy": "Delete"}}})
        world.plane.store.delete(CLAIMS, NS, "twin", grace_s=0)
        await world.create(claim("twin"))
        await world.advance(5.0)
        await run_members(world, "c", "twin")
        await world.advance(5.0)
        seen = {
            name: get_claim(world, name)["metadata"]["annotations"][OBSERVED]
            for name in ("c", "twin")
        }
        # The worlds of these tests begin two seconds after the epoch.
        assert seen == {
            "c": format_rfc3339(EPOCH + timedelta(seconds=2)),
            "twin": format_rfc3339(EPOCH + timedelta(seconds=7)),
        }


@pytest.mark.claim_case(118)
async def test_nothing_is_kept_of_claims_that_are_ready_or_gone() -> None:
    """Claim case 118: a hundred claims come and go, and nothing of them stays."""
    async with open_claims("m1") as world:
        states = controller_of(world)._states
        await world.create(claim("ready"))
        for number in range(100):
            world.plane.store.create(claim(f"c{number}", pool="missing"))
        await world.settle()
        assert len(states) == 100
        for number in range(100):
            world.plane.store.delete(CLAIMS, NS, f"c{number}", grace_s=0)
        await world.advance(3.0)
        assert ready_of(world, "ready")[0] == "True"
        assert not states


# -- members ---------------------------------------------------------------------------------------


@pytest.mark.claim_case(121)
async def test_members_are_known_from_their_creation_to_their_end() -> None:
    """Claim case 121: waiting, then networked, then Ready, each once; gone when deleted."""
    async with open_claims("m1", "m2", ready=False) as world:
        assert counts(world) == Counts(waiting=2)
        await world.run_pod("m1", ready=False, ips=("10.244.0.9",))
        await world.advance(2.0)
        assert counts(world) == Counts(networked=1, waiting=1)
        await world.run_pod("m1", ips=("10.244.0.9",))
        await world.advance(2.0)
        assert counts(world) == Counts(ready=1, waiting=1)
        await world.patch("sandboxes", "m2", {"metadata": HOLD})
        world.plane.store.delete(SANDBOXES, NS, "m2")
        await world.settle()
        assert counts(world) == Counts(ready=1)


@pytest.mark.claim_case(121)
async def test_a_deleted_pool_takes_its_members_out_of_reach() -> None:
    """Claim case 121: they may outlive it, but no claim gets them."""
    async with open_claims("m1", "m2") as world:
        assert counts(world) == Counts(ready=2)
        world.plane.store.delete(POOLS, NS, "pool", policy="Orphan")
        await world.settle()
        assert counts(world) == Counts()
        assert not controller_of(world).warm._pools
        await world.create(claim())
        assert ready_of(world)[1] == "WarmPoolNotFound"


@pytest.mark.claim_case(64)
async def test_a_member_of_another_namespace_is_out_of_reach() -> None:
    """Claim case 64: the same pool, template and labels next door; the claim starts cold."""

    def next_door(plane: ControlPlane) -> None:
        plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        for body in (template(), pool(replicas=1)):
            body["metadata"]["namespace"] = "other"
            plane.store.create(body)
        owner = plane.store.get(POOLS, "other", "pool")

        def move(body: Json) -> None:
            body["metadata"]["namespace"] = "other"
            body["metadata"]["ownerReferences"][0]["uid"] = owner["metadata"]["uid"]

        add_member(plane, "m1", change=move)

    async with open_claims(prepare=next_door, ready=False) as world:
        status = {
            "phase": "Running",
            "podIPs": [{"ip": "10.244.0.5"}],
            "conditions": pod_conditions(ready=True),
        }
        write_pod_status(world.plane, "m1", status, "other")
        await world.advance(3.0)
        there = world.plane.store.get(SANDBOXES, "other", "m1")
        assert condition(there, "Ready")["status"] == "True"
        await world.create(claim())
        assert bound_name(world) == "c"
        assert owner_of(world, "c") == "SandboxClaim/c"
        (owner,) = world.plane.store.get(SANDBOXES, "other", "m1")["metadata"]["ownerReferences"]
        assert owner["kind"] == "SandboxWarmPool"


async def overtake(world: World, held: HeldRequests, metadata: Json) -> None:
    """Change the metadata of claim ``c`` while a write of ours is held back, and let it go on."""
    assert held.waiting
    world.plane.store.patch(CLAIMS, NS, "c", {"metadata": metadata})
    await world.settle()
    held.release()
    await world.advance(5.0)


@pytest.mark.parametrize("resource", ["sandboxclaims/status", "sandboxclaims"])
async def test_a_label_that_a_write_overtakes_still_reaches_the_sandbox(resource: str) -> None:
    """It is set while status or annotations are on their way; their response shows it, no event."""
    async with open_claims("m1") as world:
        held = world.plane.hold("patch", resource, answers=False, times=1)
        world.plane.store.create(claim())
        await world.advance(1.0)
        await overtake(world, held, {"labels": {CREATED_BY: "go-client"}})
        assert world.get("m1")["metadata"]["labels"][CREATED_BY] == "go-client"


async def test_a_name_that_a_status_overtakes_is_put_right() -> None:
    """Somebody names another Sandbox in the annotation of a claim whose status is on its way."""
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        await world.advance(3.0)
        held = world.plane.hold("patch", "sandboxclaims/status", answers=False, times=1)
        await world.run_pod("m1", ready=False)
        await overtake(world, held, {"annotations": {ANNOTATION: "m2"}})
        assert get_claim(world)["metadata"]["annotations"][ANNOTATION] == "m1"


async def test_a_status_that_annotations_overtake_is_put_right() -> None:
    """Somebody overwrites the status of a claim whose annotations are on their way."""
    async with open_claims("m1") as world:
        held = world.plane.hold("patch", "sandboxclaims", answers=False, times=1)
        world.plane.store.create(claim())
        await world.advance(1.0)
        assert held.waiting
        ready = {**condition(get_claim(world), "Ready"), "status": "False", "reason": "Odd"}
        odd = {"status": {"conditions": [ready]}}
        world.plane.store.patch(CLAIMS, NS, "c", odd, subresource="status")
        await world.settle()
        held.release()
        await world.advance(5.0)
        assert ready_of(world)[:2] == ("True", "DependenciesReady")
