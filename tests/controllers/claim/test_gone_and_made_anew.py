"""What a claim makes of a pool, a template or a Sandbox that is gone or was made anew."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import claim, placed, pool, template
from tests.support.extensions import (
    bound_name,
    get_claim,
    member_names,
    open_claims,
    open_pools,
    ready_of,
)
from tests.support.names import CLAIMS, POOLS, SANDBOXES, TEMPLATES
from tests.support.world import NS

Json = dict[str, Any]
UNMANAGED: Json = {"networkPolicyManagement": "Unmanaged"}
ALLOWS: Json = {**UNMANAGED, "envVarsInjectionPolicy": "Allowed"}


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize("kind", [POOLS, TEMPLATES])
async def test_a_pool_or_a_template_that_is_made_anew_wakes_its_claims(
    kind: str,
    is_seen: bool,  # noqa: FBT001
) -> None:
    """Also if its end and the new one, both of generation 1, fall into a gap of the watch."""
    async with open_pools(template(**UNMANAGED), template("open", **ALLOWS)) as world:
        await world.create(pool())
        await world.create(claim(env=[{"name": "A", "value": "1"}]))
        await world.advance(3.0)
        assert ready_of(world)[1] == "EnvVarsInjectionRejected"
        if not is_seen:
            for verb in ("list", "watch"):
                world.plane.fail_next(verb, kind.partition(".")[0], 503, times=6)
            await world.cut_watches()
        again = pool(template="open") if kind == POOLS else template(**ALLOWS)
        world.plane.store.delete(kind, NS, again["metadata"]["name"], grace_s=0)
        world.plane.store.create(again)
        if not is_seen:
            await world.recover()
        await world.advance(120.0)
        assert bound_name(world) == "c"


async def test_an_annotation_of_a_sandbox_that_is_gone_is_not_written() -> None:
    """The annotation that names m1 waits; m1 goes, and the claim starts cold."""
    async with open_claims("m1", templates=(placed(**UNMANAGED),)) as world:
        world.plane.fail_next("patch", "sandboxclaims", 500, times=11)
        await world.create(claim())
        assert bound_name(world) == "m1"
        await world.advance(1.0)
        assert not get_claim(world)["metadata"].get("annotations")
        for name in member_names(world):
            world.plane.store.delete(SANDBOXES, NS, name, grace_s=0)
        await world.delete(SANDBOXES, "m1")
        await world.advance(30.0)
        assert bound_name(world) == "c"
        named = get_claim(world)["metadata"].get("annotations", {})
        assert named.get("agents.x-k8s.io/sandbox-name") in (None, "c"), named


async def test_a_claim_that_lost_its_sandbox_is_woken_by_the_policy_it_waits_for() -> None:
    """Its status still names the Sandbox that is gone."""
    async with open_claims("m1", replicas=1, templates=(placed(),)) as world:
        await world.create(claim())
        assert bound_name(world) == "m1"
        await world.advance(3.0)
        held = world.plane.hold("create", "networkpolicies")
        for name in member_names(world):
            world.plane.store.delete(SANDBOXES, NS, name, grace_s=0)
        world.plane.store.delete("networkpolicies.networking.k8s.io", NS, "tpl-network-policy")
        await world.delete(SANDBOXES, "m1")
        await world.advance(1.0)
        assert "NetworkPolicy" in ready_of(world)[2]
        held.release()
        await world.advance(2.0)
        assert bound_name(world) == "c"


async def test_a_refused_claim_that_lost_its_sandbox_is_woken_by_its_pool() -> None:
    """Refused by the template, it still names the Sandbox that is gone; the pool changes."""
    async with open_pools(template(**ALLOWS), template("other", **ALLOWS)) as world:
        await world.create(pool())
        await world.create(claim(env=[{"name": "A", "value": "1"}]))
        await world.advance(3.0)
        assert bound_name(world) == "c"
        await world.patch(TEMPLATES, "tpl", {"spec": {"envVarsInjectionPolicy": "Disallowed"}})
        await world.delete(SANDBOXES, "c")
        await world.advance(3.0)
        assert ready_of(world)[1] == "EnvVarsInjectionRejected"
        await world.patch(POOLS, "pool", {"spec": {"sandboxTemplateRef": {"name": "other"}}})
        await world.advance(600.0)
        assert world.find(SANDBOXES, "c") is not None


@pytest.mark.parametrize("had_one", [True, False])
async def test_a_claim_that_cannot_start_cold_is_woken_by_a_member(
    had_one: bool,  # noqa: FBT001
) -> None:
    """The template is gone, and a member becomes Ready: for a claim that lost its Sandbox, too."""
    async with open_pools(placed(**UNMANAGED)) as world:
        await world.create(pool(replicas=1))
        await world.advance(3.0)
        (first,) = member_names(world)
        if had_one:
            await world.run_pod(first)
            await world.advance(3.0)
            await world.create(claim())
            assert bound_name(world) == first
            await world.advance(6.0)
        (second,) = member_names(world)
        world.plane.store.delete(TEMPLATES, NS, "tpl", grace_s=0)
        if had_one:
            await world.delete(SANDBOXES, first)
        else:
            await world.create(claim())
        await world.advance(5.0)
        assert ready_of(world)[1] == "TemplateNotFound"
        await world.run_pod(second)
        await world.advance(10.0)
        assert bound_name(world) == second


async def test_a_claim_made_anew_is_not_told_what_its_predecessor_had() -> None:
    """Law: its client would take a Sandbox that goes with the one before, and is Ready still."""
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        await world.advance(3.0)
        store = world.plane.store
        had = bound_name(world)

        def make_anew() -> None:
            store.delete(CLAIMS, NS, "c")
            store.create(claim())

        said: list[Json] = []
        store.follow(lambda change: said.append(change.after or {}), (CLAIMS,))
        world.meanwhile("patch", "sandboxclaims/status", make_anew)
        await world.run_pod(had, ready=False)
        await world.advance(3.0)
        named = [one.get("status", {}).get("sandbox", {}).get("name") for one in said]
        assert had not in named
        assert bound_name(world) not in ("", had)
