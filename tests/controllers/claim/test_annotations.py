"""When the controller's annotations of claims are there, and what they cost."""

from __future__ import annotations

from typing import Any

from lean_sandbox.local.kinds import Kind
from tests.support.builders import claim
from tests.support.extensions import (
    BIND,
    bound_name,
    get_claim,
    open_claims,
    ready_of,
    writes_in_order,
)
from tests.support.names import ANNOTATION, CLAIMS
from tests.support.spans import Spans
from tests.support.suspension import suspend
from tests.support.webhooks import add_webhook
from tests.support.world import World

Json = dict[str, Any]
OBSERVED = "agents.x-k8s.io/controller-first-observed-at"
FIRST_READY = "agents.x-k8s.io/claim-first-ready-at"
TRACE = "opentelemetry.io/trace-context"
ANNOTATE = "patch sandboxclaims"


def annotations_of(world: World, name: str = "c") -> Json:
    """Return the annotations of a claim."""
    found: Json = get_claim(world, name)["metadata"].get("annotations", {})
    return found


async def test_an_annotation_that_a_claim_carries_already_is_left_as_it_is() -> None:
    """Whoever wrote it, and whatever it says."""
    carried = {OBSERVED: "2030-01-01T00:00:00Z"}
    async with open_claims("m1") as world:
        await world.create(claim(metadata={"annotations": carried}))
        await world.advance(60.0)
        assert ready_of(world)[0] == "True"
        assert annotations_of(world)[OBSERVED] == carried[OBSERVED]
        assert set(annotations_of(world)) == {ANNOTATION, OBSERVED, FIRST_READY}


async def test_the_annotations_do_not_wait_for_the_answer_to_the_status() -> None:
    """They go out beside it; and which answer comes first makes no difference."""
    async with open_claims("m1") as world:
        held = world.plane.hold("patch", "sandboxclaims/status", answers=True)
        world.plane.store.create(claim())
        await world.until(lambda: FIRST_READY in annotations_of(world))
        held.release()
        await world.settle()
        await world.advance(60.0)
        assert ready_of(world)[0] == "True"
        claims = [one for one in writes_in_order(world) if "claims" in one]
        assert sorted(claims) == [ANNOTATE, BIND[-1]]


async def test_in_a_burst_one_annotation_at_a_time_goes_beside_the_bindings() -> None:
    """Other claims are bound first; nothing is lost."""
    names = [f"c{number}" for number in range(12)]
    async with open_claims(*(f"m{number}" for number in range(12))) as world:
        held = world.plane.hold("patch", "sandboxclaims", match=lambda one: not one.subresource)
        for name in names:
            world.plane.store.create(claim(name))
        await world.moments(400)
        assert all(ready_of(world, name)[0] == "True" for name in names)
        held.release()
        await world.advance(1.0)
        assert all(annotations_of(world, name)[ANNOTATION] for name in names)
        assert writes_in_order(world).count(ANNOTATE) == 12


async def test_a_refused_claim_says_since_when_the_controller_knows_it() -> None:
    """One patch, and none after it."""
    async with open_claims() as world:
        await world.create(claim(additionalPodMetadata={"labels": {"plain": "x"}}))
        assert ready_of(world)[1] == "InvalidMetadata"
        await world.advance(2.0)
        assert set(annotations_of(world)) == {OBSERVED}
        await world.advance(120.0)
        assert writes_in_order(world).count(ANNOTATE) == 1


async def test_a_claim_whose_pod_takes_long_says_since_when() -> None:
    """A cold start of the usual length costs no patch more; a longer one does."""
    async with open_claims(replicas=0) as world:
        await world.create(claim())
        await world.advance(20.0)
        assert annotations_of(world) == {}
        await world.advance(20.0)
        assert set(annotations_of(world)) == {OBSERVED}
        first = annotations_of(world)[OBSERVED]
        await world.run_pod("c")
        await world.advance(3.0)
        assert ready_of(world)[0] == "True"
        assert set(annotations_of(world)) == {OBSERVED, FIRST_READY}
        assert annotations_of(world)[OBSERVED] == first


async def test_a_quick_cold_start_costs_one_patch_of_annotations() -> None:
    """The time of the first reconcile goes with that of the first readiness."""
    async with open_claims(replicas=0) as world:
        await world.create(claim())
        await world.run_pod("c")
        await world.advance(60.0)
        assert set(annotations_of(world)) == {OBSERVED, FIRST_READY}
        assert writes_in_order(world).count(ANNOTATE) == 1


async def test_with_tracing_a_claim_carries_its_trace() -> None:
    """The first reconcile begins it, later ones and the Sandbox go on with it, in one patch."""
    spans = Spans()
    async with open_claims("m1", tracing=spans) as world:
        await world.create(claim())
        await world.advance(2.0)
        trace = annotations_of(world)[TRACE]
        assert trace
        assert world.get(bound_name(world))["metadata"]["annotations"][TRACE] == trace
        assert writes_in_order(world).count(ANNOTATE) == 1
        spans.begun.clear()
        await suspend(world, "m1")
        parents = {parent for name, _, parent in spans.begun if name == "ReconcileSandboxClaim"}
        assert parents == {trace}


async def test_an_annotation_that_a_webhook_takes_away_is_not_written_again_and_again() -> None:
    """Nothing of it has changed when the claim is looked at, so it would be taken away again."""

    def strip(kind: Kind, one: Json) -> None:
        if kind.plural == "sandboxclaims":
            one["metadata"].get("annotations", {}).pop(ANNOTATION, None)

    async with open_claims("m1", prepare=lambda plane: add_webhook(plane, strip)) as world:
        await world.create(claim())
        for number in range(10):
            await world.patch(CLAIMS, "c", {"metadata": {"labels": {"turn": f"{number}"}}})
            await world.advance(3.0)
        assert set(annotations_of(world)) == {OBSERVED, FIRST_READY}
        # Once with the others, and once alone.
        assert writes_in_order(world).count(ANNOTATE) == 2
