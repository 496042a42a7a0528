"""The spans of reconciles over claims."""

from __future__ import annotations

import pytest

from tests.support.builders import claim
from tests.support.extensions import bound_name, get_claim, open_claims
from tests.support.spans import CONTEXT, Spans
from tests.support.world import World

CREATED_BY = "agents.x-k8s.io/created-by"
TRACE = "opentelemetry.io/trace-context"


def of_claims(spans: Spans) -> list[tuple[object, str | None]]:
    """Return attributes and parent of each reconcile over a claim."""
    return [
        (attributes, parent)
        for name, attributes, parent in spans.begun
        if name == "ReconcileSandboxClaim"
    ]


@pytest.mark.claim_case(119)
@pytest.mark.parametrize(("creator", "told"), [("evil", {CREATED_BY: "unknown"}), (None, {})])
async def test_the_span_of_a_reconcile_names_the_creator_within_bounds(
    creator: str | None, told: dict[str, str]
) -> None:
    """Claim case 119: a word that is not known is unknown, and the Sandbox keeps the claim's.

    Without the label there is no attribute (claims, 8.4).
    """
    spans = Spans()
    metadata = {"labels": {CREATED_BY: creator} if creator is not None else {}}
    async with open_claims("m1", tracing=spans) as world:
        await world.create(claim(metadata=metadata))
        seen = of_claims(spans)
        assert seen
        assert all(one == (told, None) for one in seen)
        assert world.get("m1")["metadata"]["labels"].get(CREATED_BY) == creator


async def test_a_span_goes_on_with_the_trace_of_the_client() -> None:
    """Law (claims, 8.4): the claim's annotation is the parent, and stays as it is."""
    spans = Spans()
    async with open_claims("m1", tracing=spans) as world:
        await world.create(claim(metadata={"annotations": {TRACE: CONTEXT}}))
        assert {parent for _, parent in of_claims(spans)} == {CONTEXT}
        assert spans.ended.count("ReconcileSandboxClaim") == len(of_claims(spans))
        await world.advance(2.0)
        assert get_claim(world)["metadata"]["annotations"][TRACE] == CONTEXT


async def test_tracing_costs_a_claim_no_request() -> None:
    """Law (design, budgets): with tracing there are the same writes, and one of the Sandbox."""

    async def bill(world: World) -> dict[str, int]:
        await world.create(claim())
        assert bound_name(world) == "m1"
        return dict(world.writes())

    async with open_claims("m1") as world:
        plain = await bill(world)
    async with open_claims("m1", tracing=Spans()) as world:
        traced = await bill(world)
    assert traced == plain
    assert traced["patch sandboxes"] == 1


async def test_the_trace_of_a_claim_stands_beside_annotations_that_nobody_reads() -> None:
    """Law (claims, 3.8): a member gets the claim's trace, and what others wrote on it stays."""
    async with open_claims("m1") as world:
        held = world.get("m1")["metadata"].get("annotations") or {}
        theirs = {**dict.fromkeys(held), "theirs": "kept"}
        await world.patch("sandboxes", "m1", {"metadata": {"annotations": theirs}})
        await world.create(claim(metadata={"annotations": {TRACE: CONTEXT}}))
        assert bound_name(world) == "m1"
        assert world.get("m1")["metadata"]["annotations"] == {"theirs": "kept", TRACE: CONTEXT}
