"""Pools and templates that are not there: how often they are looked for, and who is told what."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.kube.resources import SANDBOXWARMPOOLS
from lean_sandbox.local.direct import StoredChange
from tests.support.builders import claim, pool, template
from tests.support.extensions import bound_name, open_claims, open_pools, ready_of
from tests.support.names import CLAIMS, POOLS, TEMPLATES
from tests.support.volumes import volume
from tests.support.world import CONTROLLER, NS, World, condition

Json = dict[str, Any]
MISSING = ("False", "WarmPoolNotFound", 'SandboxWarmPool "nope" not found')


def free(name: str) -> Json:
    """Return a template without a NetworkPolicy."""
    return template(name, networkPolicyManagement="Unmanaged")


def looks(world: World, resource: str = SANDBOXWARMPOOLS.plural) -> int:
    """Return how often the controller fetched an object of a kind by its name."""
    return len(world.requests("get", resource))


@pytest.mark.parametrize("lack", [POOLS, TEMPLATES])
async def test_many_claims_for_what_is_missing_cost_few_gets(lack: str) -> None:
    """Each is told; it is not looked for again, and serves them when it comes."""
    names = [f"c{number}" for number in range(30)]
    comes = pool("nope") if lack == POOLS else template()
    async with open_claims(templates=() if lack == TEMPLATES else None) as world:
        for name in names:
            world.plane.store.create(claim(name, pool="nope" if lack == POOLS else "pool"))
        await world.settle()
        await world.advance(5.0)
        reason = "WarmPoolNotFound" if lack == POOLS else "TemplateNotFound"
        assert {ready_of(world, name)[1] for name in names} == {reason}
        assert looks(world, lack.partition(".")[0]) <= 5
        world.forget_requests()
        await world.advance(600.0)
        assert looks(world, lack.partition(".")[0]) <= 2
        await world.create(comes)
        assert all(bound_name(world, name) for name in names)


ASKED: dict[str, Json] = {
    "variables": {"env": [{"name": "A", "value": "1"}]},
    "volumes": {"volumeClaimTemplates": [volume("data")]},
}


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("lack", [POOLS, TEMPLATES])
async def test_a_claim_that_waits_for_what_is_missing_is_not_fetched(what: str, lack: str) -> None:
    """Whatever it asks for: that matters only once there is a template."""
    policies = ("envVarsInjectionPolicy", "volumeClaimTemplatesPolicy")
    allowing: Json = template()
    allowing["spec"] |= dict.fromkeys(policies, "Allowed")
    async with open_claims(templates=(allowing,)) as world:
        await world.delete(lack, "pool" if lack == POOLS else "tpl")
        world.forget_requests()
        for number in range(10):
            await world.create(claim(f"c{number}", **ASKED[what]))
        await world.advance(600.0)
        assert looks(world, "sandboxclaims") == 0
        await world.create(pool() if lack == POOLS else allowing)
        await world.advance(1.0)
        assert all(bound_name(world, f"c{number}") for number in range(10))
        assert looks(world, "sandboxclaims") == 10


@pytest.mark.parametrize("lack", [POOLS, TEMPLATES])
async def test_a_claim_that_lost_its_sandbox_and_its_pool_costs_no_request(lack: str) -> None:
    """It is told once, and looked at each minute, in memory."""
    async with open_claims(*(f"m{number}" for number in range(5))) as world:
        for number in range(5):
            await world.create(claim(f"c{number}"))
        await world.advance(3.0)
        await world.patch(POOLS, "pool", {"spec": {"replicas": 0}})
        await world.advance(3.0)
        await world.delete(lack, "pool" if lack == POOLS else "tpl")
        for number in range(5):
            await world.delete("sandboxes", bound_name(world, f"c{number}"))
        await world.advance(60.0)
        world.forget_requests()
        await world.advance(600.0)
        assert looks(world, "sandboxclaims") == 0


async def test_a_claim_is_told_only_what_was_looked_for_after_it_came() -> None:
    """A pool that came before the claim, and that the watch does not show yet, is found."""
    async with open_claims() as world:
        await world.create(claim("first", pool="nope"))
        assert ready_of(world, "first") == MISSING
        world.plane.fail_next("watch", SANDBOXWARMPOOLS.plural, 500, times=1000)
        await world.cut_watches()
        world.plane.store.create(pool("nope"))
        world.plane.store.create(claim("second", pool="nope"))
        await world.pass_time(3.0)
        assert bound_name(world, "second") == "second"


async def test_a_claim_needs_no_watch_to_have_shown_its_pool_and_template() -> None:
    """Both were made just before it: they are looked for, and the claim is never told otherwise."""
    async with open_pools() as world:
        held = [world.plane.hold_events(one) for one in ("sandboxtemplates", "sandboxwarmpools")]
        reasons: list[str] = []

        def note(change: StoredChange) -> None:
            conditions = (change.after or {}).get("status", {}).get("conditions", ())
            reasons.extend(one["reason"] for one in conditions if one["type"] == "Ready")

        world.plane.store.follow(note, (CLAIMS,))
        for body in (free("tpl"), pool(replicas=0), claim()):
            world.plane.store.create(body)
        await world.advance(5.0)
        assert bound_name(world) == "c"
        assert set(reasons) <= {"SandboxNotReady", "DependenciesNotReady"}
        assert {"get sandboxwarmpools", "get sandboxtemplates"} <= set(world.asked())
        for one in held:
            one.release()
        await world.settle()


async def test_names_are_looked_for_by_namespace() -> None:
    """That one namespace has no pool of a name says nothing of another."""
    async with open_claims() as world:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
        world.plane.store.create(body)
        await world.create(claim(pool="nope"))
        theirs = [template("tpl"), pool("nope"), claim(pool="nope"), claim("d", pool="gone")]
        for one in theirs:
            one["metadata"]["namespace"] = "other"
            world.plane.store.create(one)
        await world.settle()
        await world.advance(3.0)
        assert ready_of(world) == MISSING
        served = world.plane.store.get(CLAIMS, "other", "c")
        assert served["status"]["sandbox"]["name"] == "c"
        told = condition(world.plane.store.get(CLAIMS, "other", "d"), "Ready")
        assert told["reason"] == "WarmPoolNotFound"
        asked = world.plane.audit.select(user=CONTROLLER, verb="get", namespace=NS)
        assert [one.name for one in asked if one.resource == "sandboxwarmpools"] == ["nope"]


async def test_an_old_absence_is_not_believed_of_a_template_that_a_pool_is_pointed_at() -> None:
    """Another claim had met the absence minutes ago, and the watch of templates is late."""
    async with open_pools(free("strict")) as world:
        await world.create(pool("other", template="new"))
        await world.create(claim("first", pool="other"))
        await world.advance(60.0)
        assert ready_of(world, "first")[1] == "TemplateNotFound"
        await world.create(pool("mine", template="strict"))
        world.plane.fail_next("create", "sandboxes", 500, times=1000)
        await world.create(claim("c", pool="mine"))
        await world.advance(5.0)
        held = world.plane.hold_events("sandboxtemplates")
        world.plane.store.create(free("new"))
        world.plane.store.patch(
            POOLS, NS, "mine", {"spec": {"sandboxTemplateRef": {"name": "new"}}}
        )
        await world.advance(2.0)
        assert ready_of(world, "c")[1] == "ReconcilerError"
        held.release()
        await world.settle()
