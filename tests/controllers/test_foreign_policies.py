"""A NetworkPolicy of a template's name that is not the template's is left alone."""

from __future__ import annotations

import pytest

from tests.controllers.policies import NAME, ROUTER, UNMANAGED, errors, policy, spec_of, theirs
from tests.support.builders import claim, placed
from tests.support.extensions import change_template, open_pools, rest
from tests.support.names import CLAIMS, POLICIES, TEMPLATES
from tests.support.world import NS, controlled_by


@pytest.mark.template_case(26, 29)
async def test_a_template_made_again_waits_for_the_old_policy_to_go() -> None:
    """Template case 26, 29: the old uid is not ours; once it is gone the POST follows at once."""
    async with open_pools(placed()) as world:
        await rest(world)
        hold = {"metadata": {"finalizers": ["example.com/hold"]}}
        world.plane.store.patch(POLICIES, NS, NAME, hold)
        old = world.plane.store.get(POLICIES, NS, NAME)["metadata"]["uid"]
        world.plane.store.delete(TEMPLATES, NS, "tpl")
        made = await world.create(placed())
        await world.advance(120.0)
        found = policy(world)
        assert found is not None
        assert found["metadata"]["uid"] == old
        assert 2 <= errors(world) <= 20
        await world.patch(POLICIES, NAME, {"metadata": {"finalizers": None}})
        found = policy(world)
        assert found is not None
        assert found["metadata"]["ownerReferences"] == [controlled_by(made)]


@pytest.mark.template_case(27)
async def test_unmanaged_a_foreign_policy_is_left_alone() -> None:
    """Template case 27: no request, no error."""
    async with open_pools(theirs()) as world:
        await world.create(placed(**UNMANAGED))
        await rest(world)
        assert world.writes() == {"patch sandboxtemplates": 1}
        assert policy(world) is not None
        assert errors(world) == 0


@pytest.mark.template_case(28, 30)
@pytest.mark.parametrize("kind", ["nobody's", "another's", "a friend of the template"])
async def test_managed_a_foreign_policy_is_refused_until_it_goes(kind: str) -> None:
    """Template case 28, 30: untouched and no POST; when its owner removes it, ours comes."""
    async with open_pools() as world:
        made = world.plane.store.create(placed(**UNMANAGED))
        owner = {
            "nobody's": [],
            "another's": [world.foreign_owner()],
            "a friend of the template": [{**controlled_by(made), "controller": False}],
        }[kind]
        stored = world.plane.store.create(theirs(ownerReferences=owner))
        await rest(world)
        world.forget_requests()
        await change_template(world, {"networkPolicyManagement": "Managed"})
        await world.advance(60.0)
        assert policy(world) == stored
        assert not world.writes()
        assert errors(world) >= 2
        await world.delete(POLICIES, NAME)
        assert spec_of(world)["ingress"] == [{"from": [ROUTER]}]


async def test_a_policy_replaced_by_a_foreign_one_costs_no_request() -> None:
    """However often the refusal is repeated: no policy is created, so the template is not read."""
    async with open_pools() as world:
        await world.create(placed())
        await rest(world)
        world.forget_requests()
        world.plane.store.delete(POLICIES, NS, NAME)
        world.plane.store.create(theirs())
        await world.advance(600.0)
        assert errors(world) >= 5
        assert world.asked() == {}


@pytest.mark.template_case(31)
async def test_the_old_policy_of_a_claim_of_the_same_name_makes_way() -> None:
    """Template case 31: refused while it is there; the claim controller deletes it, ours comes."""
    async with open_pools() as world:
        held = world.plane.store.create(claim("tpl", pool="missing"))
        world.plane.fail_next("delete", "networkpolicies", 500, times=1)
        world.plane.store.create(theirs(ownerReferences=[controlled_by(held)]))
        made = await world.create(placed())
        assert errors(world) >= 1
        assert not world.requests("create", "networkpolicies")
        await world.patch(CLAIMS, "tpl", {"spec": {"lifecycle": {"shutdownPolicy": "Delete"}}})
        await rest(world)
        found = policy(world)
        assert found is not None
        assert found["metadata"]["ownerReferences"] == [controlled_by(made)]
        assert spec_of(world)["ingress"] == [{"from": [ROUTER]}]


@pytest.mark.template_case(35)
async def test_a_policy_that_is_there_already_is_found_by_the_next_reconcile() -> None:
    """Template case 35: 409 on the POST; no duplicate, the one in the way is judged."""
    async with open_pools() as world:
        world.meanwhile("create", "networkpolicies", lambda: world.plane.store.create(theirs()))
        await world.create(placed())
        await rest(world)
        assert [one.code for one in world.requests("create", "networkpolicies")] == [409]
        assert errors(world) >= 2
        assert len(world.plane.store.list(POLICIES, NS)) == 1


async def test_the_owner_of_a_policy_may_be_stripped_and_given_back() -> None:
    """A policy that lost its owner is refused, not overwritten; with it back all is well."""
    async with open_pools(placed()) as world:
        await rest(world)
        found = policy(world)
        assert found is not None
        owners = found["metadata"]["ownerReferences"]
        world.forget_requests()
        await world.patch(POLICIES, NAME, {"metadata": {"ownerReferences": None}})
        await rest(world)
        assert not world.writes()
        assert errors(world) >= 1
        await world.patch(
            POLICIES, NAME, {"metadata": {"ownerReferences": owners}, "spec": {"egress": [{}]}}
        )
        await rest(world)
        assert spec_of(world)["egress"] == found["spec"]["egress"]
