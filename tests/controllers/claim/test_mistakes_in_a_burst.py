"""What users and machines do wrong in the middle of a burst, and what is right again in the end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import claim, template
from tests.support.extensions import (
    bound_name,
    get_claim,
    member_names,
    open_claims,
    owner_of,
    ready_of,
    run_members,
)
from tests.support.names import ANNOTATION, CLAIMS, POOLS, SANDBOXES, TEMPLATES
from tests.support.world import NS, World, condition, write_pod_status

Json = dict[str, Any]
MEMBERS = tuple(f"m{number:02}" for number in range(20))
NEWER: Json = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "newer"}]}}}


def image_of(world: World, name: str) -> str:
    """Return the image of a Sandbox."""
    held = world.get(name)["spec"]["podTemplate"]["spec"]["containers"][0]
    return str(held["image"])


def burst(world: World, first: int, last: int) -> list[str]:
    """Create claims without waiting for anybody; return their names."""
    names = [f"c{number:02}" for number in range(first, last)]
    for name in names:
        world.plane.store.create(claim(name))
    return names


def each_has_its_own(world: World, names: list[str]) -> None:
    """Assert that every claim has a Sandbox, and that none has two or another's."""
    owned: dict[str, list[str]] = {}
    for held in world.plane.store.list(SANDBOXES, NS):
        kind, _, owner = owner_of(world, held["metadata"]["name"]).partition("/")
        if kind == "SandboxClaim":
            owned.setdefault(owner, []).append(held["metadata"]["name"])
    assert owned == {name: [bound_name(world, name)] for name in names}


@pytest.mark.parametrize("strategy", ["OnReplenish", "Recreate"])
async def test_a_template_that_changes_under_a_burst_costs_no_claim_its_sandbox(
    strategy: str,
) -> None:
    """Law: the first half has old members, nobody has two; whoever comes later is of the new one.

    Under Recreate the second half gets nothing stale.
    """
    spec = {"updateStrategy": {"type": strategy}}
    async with open_claims(*MEMBERS, pool_spec=spec) as world:
        names = burst(world, 0, 8)
        await world.settle()
        names += burst(world, 8, 10)
        world.plane.store.patch(TEMPLATES, NS, "tpl", {"spec": NEWER})
        late = burst(world, 10, 16)
        await world.settle()
        await world.advance(5.0)
        each_has_its_own(world, [*names, *late])
        assert {image_of(world, bound_name(world, name)) for name in names[:8]} == {"busybox"}
        if strategy == "Recreate":
            assert {image_of(world, name) for name in member_names(world)} == {"newer"}
        made = set(member_names(world)) - set(MEMBERS)
        assert {image_of(world, name) for name in made} == {"newer"}
        assert len(member_names(world)) == len(MEMBERS)


async def test_a_template_that_disappears_under_a_burst_is_told_to_those_it_leaves_without() -> (
    None
):
    """Law: members go to claims as long as there are any; the others wait, and are served later."""
    async with open_claims(*MEMBERS[:6]) as world:
        names = burst(world, 0, 3)
        world.plane.store.delete(TEMPLATES, NS, "tpl", grace_s=0)
        names += burst(world, 3, 10)
        await world.settle()
        await world.advance(5.0)
        bound = [name for name in names if bound_name(world, name)]
        left = [name for name in names if name not in bound]
        assert len(bound) >= 6
        assert left
        for name in left:
            assert ready_of(world, name)[1:] == (
                "TemplateNotFound",
                'SandboxTemplate "tpl" not found',
            )
        assert world.writes()["create sandboxes"] <= len(bound)
        await world.create(template())
        await world.advance(5.0)
        each_has_its_own(world, names)


async def test_a_pool_that_disappears_under_a_burst_is_told_and_then_forgiven() -> None:
    """Law: who was bound stays bound; who was not is served when the pool is there again."""
    async with open_claims(*MEMBERS[:6]) as world:
        names = burst(world, 0, 3)
        await world.settle()
        body = world.plane.store.get(POOLS, NS, "pool")
        world.plane.store.delete(POOLS, NS, "pool", grace_s=0)
        late = burst(world, 3, 6)
        await world.settle()
        await world.advance(5.0)
        assert [bound_name(world, name) for name in names] == list(MEMBERS[:3])
        for name in late:
            assert ready_of(world, name)[1] == "WarmPoolNotFound"
        spec = {"replicas": 0, "sandboxTemplateRef": body["spec"]["sandboxTemplateRef"]}
        again = {key: body[key] for key in ("apiVersion", "kind")}
        await world.create({**again, "metadata": {"name": "pool", "namespace": NS}, "spec": spec})
        await world.advance(5.0)
        each_has_its_own(world, [*names, *late])


@pytest.mark.parametrize("fate", ["gone", "failed", "not ready"])
async def test_a_pod_that_dies_between_take_and_adoption_is_told_and_replaced(fate: str) -> None:
    """Law: the claim keeps the Sandbox it took, says how it is, and is Ready once it can be.

    A Pod that failed is told as such and not replaced: that is the end of the Sandbox.
    """
    async with open_claims("m1", "m2") as world:

        def die() -> None:
            if fate == "gone":
                world.plane.store.delete("pods", NS, "m1", grace_s=0)
                return
            conditions = [{"type": "Ready", "status": "False"}]
            status: Json = {"conditions": conditions}
            if fate == "failed":
                status["phase"] = "Failed"
            write_pod_status(world.plane, "m1", status)

        world.meanwhile("patch", "sandboxes", die)
        await world.create(claim())
        await world.advance(3.0)
        assert bound_name(world) == "m1"
        assert owner_of(world, "m1") == "SandboxClaim/c"
        status, reason, _ = ready_of(world)
        assert status == "False"
        assert reason == ("PodFailed" if fate == "failed" else "DependenciesNotReady")
        ready = condition(world.get("m1"), "Ready")
        assert (ready["status"], ready["reason"]) == (status, reason)
        if fate == "failed":
            assert condition(get_claim(world), "Finished")["reason"] == "PodFailed"
            return
        await run_members(world, "m1")
        await world.advance(3.0)
        assert ready_of(world)[0] == "True"
        assert get_claim(world)["status"]["sandbox"]["podIPs"] == ["10.244.0.5"]
        each_has_its_own(world, ["c"])


@pytest.mark.parametrize("how", ["stripped", "given to another owner", "a second one"])
async def test_owner_references_edited_by_hand_end_in_one_owner_or_none(how: str) -> None:
    """Law: what was taken from the claim stays taken, and the claim gets another Sandbox.

    A further owner that controls nothing changes nothing.
    """
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        await world.advance(3.0)
        held = world.get("m1")["metadata"]["ownerReferences"]
        foreign = world.foreign_owner()
        edited = {
            "stripped": [],
            "given to another owner": [foreign],
            "a second one": [*held, {**foreign, "controller": False}],
        }[how]
        await world.patch("sandboxes", "m1", {"metadata": {"ownerReferences": edited}})
        await world.advance(5.0)
        assert world.get("m1")["metadata"].get("ownerReferences", []) == edited
        has = "m1" if how == "a second one" else "m2"
        assert bound_name(world) == has
        assert get_claim(world)["metadata"]["annotations"][ANNOTATION] == has
        assert ready_of(world)[0] == "True"
        world.forget_requests()
        await world.patch(CLAIMS, "c", {"metadata": {"labels": {"touched": "1"}}})
        await world.advance(60.0)
        assert not [one for one in world.writes() if "claims" in one or one == "patch sandboxes"]


async def test_a_claim_edited_while_it_gets_another_sandbox_keeps_that() -> None:
    """The view with the edit is older than the status that names the other one."""
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        had = bound_name(world)
        held = world.plane.hold("patch", "sandboxes")
        world.plane.store.delete(SANDBOXES, NS, had, grace_s=0)
        await world.clock.advance(1.0)
        await world.until(lambda: held.waiting)
        world.plane.hold_events("sandboxclaims")
        refused = {"spec": {"additionalPodMetadata": {"labels": {"plain": "x"}}}}
        world.plane.store.patch(CLAIMS, NS, "c", refused)
        held.release()
        await world.until(lambda: bound_name(world) != had)
        has = bound_name(world)
        await world.clock.advance(1.0)
        world.plane.faults.clear()
        await world.advance(3.0)
        assert (bound_name(world), ready_of(world)[1]) == (has, "InvalidMetadata")
