"""A pool whose template is not there, or not there any more."""

from __future__ import annotations

import pytest

from lean_sandbox.model.names import name_hash
from tests.support.builders import claim, placed, pool
from tests.support.extensions import (
    fill,
    ids,
    members,
    open_claims,
    open_pools,
    pool_events,
    pool_status,
    ready_of,
    rest,
)
from tests.support.names import CLAIMS, POOLS, TEMPLATES, WARM_POOL
from tests.support.world import NS


@pytest.mark.pool_case(89, 90)
async def test_a_pool_waits_for_its_template_and_starts_at_once() -> None:
    """Pool case 89, 90: selector and generation are told, one Warning; then it fills by itself."""
    async with open_pools() as world:
        await world.create(pool(replicas=2))
        await world.advance(400.0)
        assert not members(world)
        assert pool_status(world) == {
            "selector": f"{WARM_POOL}={name_hash('pool')}",
            "observedGeneration": 1,
        }
        (event,) = pool_events(world)
        assert event[:2] == ("Warning", "WarmPoolNotProgressing")
        assert event[2] == 'SandboxTemplate not found: "tpl"'
        await world.create(placed())
        assert len(members(world)) == 2
        await rest(world)
        assert [one[1] for one in pool_events(world)] == [
            "WarmPoolNotProgressing",
            "WarmPoolProgressing",
        ]


@pytest.mark.pool_case(90)
async def test_a_pool_of_none_needs_no_template() -> None:
    """Pool case 90: with replicas 0 there is no Event, and nothing to come back for."""
    async with open_pools() as world:
        await world.create(pool(replicas=0))
        await rest(world)
        world.forget_requests()
        reconciles = world.controller.activity().reconciles["sandboxwarmpool"]
        await world.advance(600.0)
        assert not pool_events(world)
        assert not world.asked(events=True)
        assert world.controller.activity().reconciles["sandboxwarmpool"] == reconciles


@pytest.mark.pool_case(92)
async def test_members_outlive_their_template_and_are_not_replaced() -> None:
    """Pool case 92: claims still get them."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        before = ids(members(world))
        await world.delete(TEMPLATES, "tpl")
        await rest(world)
        assert ids(members(world)) == before
        await world.create(claim())
        await rest(world)
        bound = world.plane.store.get(CLAIMS, NS, "c")["status"]["sandbox"]["name"]
        assert world.get(bound)["metadata"]["uid"] in before
        await world.advance(120.0)
        assert len(members(world)) == 1
        assert world.writes()["create sandboxes"] == 0
        assert pool_status(world)["replicas"] == 1


@pytest.mark.pool_case(91)
async def test_templates_that_cannot_be_read_cost_no_member() -> None:
    """Pool case 91: the list fails with 500 for a while: no Event, no delete, the same counts."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2, strategy="Recreate"))
        before = ids(members(world))
        told = pool_status(world)
        await world.cut_watches()
        world.plane.fail_next("list", "sandboxtemplates", 500, times=4)
        world.plane.store.patch(TEMPLATES, NS, "tpl", {"metadata": {"labels": {"a": "b"}}})
        world.plane.store.patch(POOLS, NS, "pool", {"metadata": {"labels": {"a": "b"}}})
        world.plane.compact()
        world.forget_requests()
        await world.recover()
        await rest(world)
        assert [one for one in world.requests("list", "sandboxtemplates") if one.code == 500]
        assert ids(members(world)) == before
        assert pool_status(world) == told
        assert not pool_events(world)
        assert not world.writes()
        newer = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "newer"}]}}}
        await world.patch(TEMPLATES, "tpl", {"spec": newer})
        await rest(world)
        assert len(members(world)) == 2
        assert not ids(members(world)) & before


LARGE = placed(metadata={"annotations": {"a": "x" * 300_000}})
FAULT = "spec.podTemplate.metadata.annotations: 300001 bytes"


async def test_another_reason_is_told_as_well() -> None:
    """A pool that is created before its template says both that it is missing and its fault."""
    async with open_pools() as world:
        await world.create(pool(replicas=1))
        await rest(world)
        await world.create(LARGE)
        await rest(world)
        notes = [
            note for _, reason, note in pool_events(world) if reason.endswith("NotProgressing")
        ]
        assert len(notes) == 2
        assert "not found" in notes[0]
        assert FAULT in notes[1]
        await world.advance(300.0)
        assert len(pool_events(world)) == 2


@pytest.mark.parametrize("is_shown", [False, True])
async def test_a_claim_says_why_its_template_cannot_be_used(is_shown: bool) -> None:  # noqa: FBT001
    """Whether a watch has shown that, or the claim itself had to look."""
    async with open_claims(templates=()) as world:
        if not is_shown:
            world.plane.hold_events("sandboxtemplates")
        await world.create(LARGE)
        await world.create(claim())
        await world.advance(3.0)
        status, reason, message = ready_of(world)
        assert (status, reason) == ("False", "ReconcilerError")
        assert message.startswith(f'Error seen: SandboxTemplate "tpl" cannot be used: {FAULT}')
