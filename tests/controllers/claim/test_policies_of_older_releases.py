"""A NetworkPolicy that an older release made for a claim is deleted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import claim, template
from tests.support.extensions import get_claim, open_claims, writes_in_order
from tests.support.names import CLAIMS, LAUNCH_TYPE, POLICIES
from tests.support.world import NS, controlled_by

Json = dict[str, Any]


@pytest.mark.claim_case(110)
async def test_policies_of_older_releases_go_with_the_first_reconcile() -> None:
    """Claim case 110: one that the claim controls is deleted, even without a template.

    One of the same name that nobody controls is kept, and so is a template's.
    """
    async with open_claims(templates=()) as world:
        await world.create(template("e"))
        for name in ("c", "d", "e"):
            world.plane.store.create(claim(name, pool="missing"))
        world.plane.store.create(old_policy("c", controlled_by(get_claim(world, "c"))))
        world.plane.store.create(old_policy("d"))
        await world.settle()
        await world.advance(61.0)
        assert world.find(POLICIES, "c-network-policy") is None
        assert world.find(POLICIES, "d-network-policy") is not None
        assert world.find(POLICIES, "e-network-policy") is not None
        assert len(world.requests("delete", "networkpolicies")) == 1


@pytest.mark.claim_case(109)
async def test_a_claim_on_its_way_out_still_loses_its_old_policy() -> None:
    """Claim case 109: that is the only write it gets."""
    async with open_claims() as world:
        made = world.plane.store.create(claim(metadata={"finalizers": ["example.com/hold"]}))
        world.plane.store.delete(CLAIMS, NS, "c")
        world.plane.store.create(old_policy("c", controlled_by(made)))
        await world.settle()
        await world.patch(CLAIMS, "c", {"metadata": {"labels": {LAUNCH_TYPE: "x"}}})
        await world.advance(3.0)
        assert world.find(POLICIES, "c-network-policy") is None
        assert writes_in_order(world) == ["delete networkpolicies"]


async def test_a_policy_that_a_delete_has_not_found_is_not_deleted_again() -> None:
    """Law: what answered 404 is known to be absent, however often the claim changes."""
    async with open_claims(templates=()) as world:
        world.plane.fail_next("delete", "networkpolicies", 404)
        world.plane.store.create(claim(pool="missing"))
        world.plane.store.create(old_policy("c", controlled_by(get_claim(world))))
        await world.settle()
        await world.advance(61.0)
        for turn in range(3):
            await world.patch(CLAIMS, "c", {"metadata": {"labels": {LAUNCH_TYPE: f"{turn}"}}})
            await world.advance(2.0)
        assert len(world.requests("delete", "networkpolicies")) == 1


def old_policy(name: str, *owners: Json) -> Json:
    """Return a policy as releases of older days made them for each claim."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": f"{name}-network-policy",
            "namespace": NS,
            "ownerReferences": list(owners),
        },
        "spec": {"podSelector": {}},
    }
