"""A claim that asks for labels or annotations is ready only when its Pod has them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import claim, template
from tests.support.extensions import (
    BIND,
    get_claim,
    open_claims,
    ready_of,
    run_members,
    writes_in_order,
)

Json = dict[str, Any]
LABELS = {"sandbox.users.io/team": "blue"}
ASKED: Json = {"labels": LABELS, "annotations": {"example.com/note": "x"}}


async def test_the_pod_is_written_before_the_claim_is_ready() -> None:
    """Whoever acts upon Ready finds the labels on the Pod: policies select it already."""
    async with open_claims("m1") as world:
        held = world.plane.hold("patch", "pods", answers=False)
        world.plane.store.create(claim(additionalPodMetadata=ASKED))
        await world.until(lambda: world.plane.faults.waiting)
        await world.advance(0.5)
        assert get_claim(world).get("status", {}) == {}
        held.release()
        await world.settle()
        assert ready_of(world)[0] == "True"
        assert world.pod("m1")["metadata"]["labels"].items() >= LABELS.items()
        order = writes_in_order(world)
        assert order.index("patch pods") < order.index(BIND[1])


async def test_it_costs_no_write_more_and_no_wait_for_a_timer() -> None:
    """The same writes as always, in another order, at the moment of the claim."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        plain = sorted(writes_in_order(world))
    async with open_claims("m1") as world:
        await world.create(claim(additionalPodMetadata=ASKED))
        await world.advance(0.1)
        assert ready_of(world)[0] == "True"
        await world.advance(3.0)
        assert sorted(writes_in_order(world)) == plain


async def test_who_asks_for_nothing_does_not_wait() -> None:
    """Also where the Pod changes because the member was the pool's."""
    async with open_claims("m1") as world:
        held = world.plane.hold("patch", "pods", answers=False)
        world.plane.store.create(claim())
        await world.until(lambda: get_claim(world).get("status"))
        assert ready_of(world)[0] == "True"
        held.release()
        await world.settle()


async def test_what_the_template_gives_anyway_is_not_waited_for() -> None:
    """The member has it already, and its Pod, too."""
    given = template(metadata={"labels": LABELS, "annotations": {"example.com/note": "x"}})
    async with open_claims("m1", templates=(given,), enable_warm_pool_eviction=False) as world:
        await world.create(claim(additionalPodMetadata=ASKED))
        assert ready_of(world)[0] == "True"
        assert world.pod("m1")["metadata"]["labels"].items() >= LABELS.items()


@pytest.mark.parametrize("times", [1, 3])
async def test_a_pod_that_cannot_be_written_keeps_the_claim_from_ready(times: int) -> None:
    """Until it can be: nothing is given up."""
    async with open_claims("m1") as world:
        world.plane.fail_next("patch", "pods", 500, times=times)
        world.plane.store.create(claim(additionalPodMetadata=ASKED))
        await world.settle()
        ready = get_claim(world).get("status", {}).get("conditions", ())
        assert not [one for one in ready if one["type"] == "Ready" and one["status"] == "True"]
        await world.advance(5.0)
        assert ready_of(world)[0] == "True"
        assert world.pod("m1")["metadata"]["labels"].items() >= LABELS.items()


async def test_a_member_that_is_not_ready_yet_is_told_as_such() -> None:
    """Waiting is for the step to Ready alone."""
    async with open_claims("m1", ready=False) as world:
        await world.run_pod("m1", ready=False)
        await world.advance(3.0)
        await world.create(claim(additionalPodMetadata=ASKED))
        assert ready_of(world)[:2] == ("False", "DependenciesNotReady")
        await run_members(world, "m1")
        await world.advance(3.0)
        assert ready_of(world)[0] == "True"
