"""A claim takes a ready member of its pool, and its client waits for nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.claims import (
    ANNOTATION,
    BIND,
    CLAIM_UID,
    LAUNCH_TYPE,
    REF_HASH,
    WARM_POOL,
    add_member,
    bound_name,
    claim,
    events_of,
    failed,
    get_claim,
    members,
    open_claims,
    owner_of,
    passes,
    pool,
    ready_of,
    run_members,
    template,
    writes_in_order,
)
from tests.support.world import condition

Json = dict[str, Any]


@pytest.mark.claim_case(52)
async def test_the_first_ready_member_becomes_the_claims_in_one_pass() -> None:
    """Claim case 52: m1 loses the pool's marks, gets the claim's, and the claim is Ready."""
    async with open_claims("m1", "m2", "m3") as world:
        made = await world.create(claim())
        held = world.get("m1")
        labels = held["metadata"]["labels"]
        assert labels[LAUNCH_TYPE] == "warm"
        assert labels[CLAIM_UID] == made["metadata"]["uid"]
        assert REF_HASH in labels
        assert not [key for key in labels if key == WARM_POOL or key.endswith("template-hash")]
        assert "agents.x-k8s.io/created-by" not in labels
        assert "agents.x-k8s.io/pod-name" not in held["metadata"]["annotations"]
        assert owner_of(world, "m1") == "SandboxClaim/c"
        assert ready_of(world) == ("True", "DependenciesReady", "Pod is Ready")
        status = get_claim(world)["status"]
        assert status["sandbox"] == {"name": "m1", "podIPs": held["status"]["podIPs"]}
        ready = condition(get_claim(world), "Ready")
        assert ready["observedGeneration"] == made["metadata"]["generation"]
        assert ready["lastTransitionTime"] == condition(held, "Ready")["lastTransitionTime"]
        assert passes(world) == 1
        await world.advance(2.0)
        assert get_claim(world)["metadata"]["annotations"][ANNOTATION] == "m1"
        assert events_of(world) == [
            ("SandboxAdopted", "Adoption", 'Adopted warm pool Sandbox "m1"')
        ]


@pytest.mark.claim_case(53)
async def test_a_member_of_the_fullest_node_goes_first() -> None:
    """Claim case 53: with m1 on n1, m2 and m3 on n2, m2 is taken, then m1."""
    async with open_claims("m1", "m2", "m3", ready=False) as world:
        await run_members(world, "m1", "m2", "m3", nodes={"m1": "n1", "m2": "n2", "m3": "n2"})
        await world.advance(2.0)
        await world.create(claim("c1"))
        assert bound_name(world, "c1") == "m2"
        await world.create(claim("c2"))
        assert bound_name(world, "c2") == "m1"


@pytest.mark.claim_case(54)
async def test_a_ready_member_goes_before_an_older_one_that_is_not() -> None:
    """Claim case 54: m1 has an address but is not Ready; m2 is taken."""
    async with open_claims("m1", "m2", ready=False) as world:
        await world.run_pod("m1", ready=False, ips=("10.244.0.9",))
        await run_members(world, "m2")
        await world.advance(3.0)
        await world.create(claim())
        assert bound_name(world) == "m2"


@pytest.mark.claim_case(55, 60)
async def test_a_member_with_an_address_is_taken_before_it_is_ready() -> None:
    """Claim case 55: no cold start, no waiting for m2; 60: Ready follows when the member is."""
    async with open_claims("m1", "m2", ready=False) as world:
        await world.run_pod("m1", ready=False, ips=("10.244.0.9",))
        await world.advance(3.0)
        await world.create(claim())
        assert bound_name(world) == "m1"
        assert ready_of(world)[0] == "False"
        await world.run_pod("m1", ready=True, ips=("10.244.0.9",))
        await world.advance(3.0)
        assert ready_of(world)[0] == "True"
        assert world.find("sandboxes", "c") is None


@pytest.mark.claim_case(56, 59)
async def test_a_young_claim_waits_for_members_on_their_way_up() -> None:
    """Claim case 56: nothing is written for the claim; 59: the first address ends the wait."""
    async with open_claims("m1", ready=False) as world:
        await world.create(claim())
        await world.advance(1.0)
        assert "status" not in get_claim(world) or not get_claim(world)["status"]
        assert not [one for one in writes_in_order(world) if "claims" in one]
        await run_members(world, "m1")
        assert bound_name(world) == "m1"
        assert ready_of(world)[0] == "True"


@pytest.mark.claim_case(57)
async def test_the_wait_ends_after_two_seconds_with_a_cold_start() -> None:
    """Claim case 57: the grace counts from the claim's creation."""
    async with open_claims("m1", ready=False) as world:
        await world.create(claim())
        await world.advance(1.9)
        assert world.find("sandboxes", "c") is None
        await world.advance(0.2)
        assert bound_name(world) == "c"
        assert members(world) == ["m1"]


@pytest.mark.claim_case(58)
async def test_an_empty_pool_means_a_cold_start_at_once() -> None:
    """Claim case 58: there is nothing to wait for."""
    async with open_claims() as world:
        await world.create(claim())
        assert bound_name(world) == "c"


@pytest.mark.claim_case(61, 62, 64)
async def test_only_true_members_are_taken() -> None:
    """Claim case 61: not one that is deleted, a ReplicaSet's or nobody's; 62: of any API version.

    64: nor one of a pool of the same name in another namespace, which is another pool.
    """

    def foreign(body: Json) -> None:
        body["metadata"]["ownerReferences"][0].update(apiVersion="apps/v1", kind="ReplicaSet")

    def other_group(body: Json) -> None:
        body["metadata"]["ownerReferences"][0].update(apiVersion="apps/v1")

    def unowned(body: Json) -> None:
        del body["metadata"]["ownerReferences"]

    def leaving(body: Json) -> None:
        body["metadata"]["finalizers"] = ["example.com/wait"]

    def old(body: Json) -> None:
        group = "extensions.agents.x-k8s.io"
        body["metadata"]["ownerReferences"][0].update(apiVersion=f"{group}/v1alpha1")

    def more(plane: Any) -> None:
        add_member(plane, "a-leaving", change=leaving)
        add_member(plane, "b-foreign", change=foreign)
        add_member(plane, "c-group", change=other_group)
        add_member(plane, "d-old", change=old)

    names = ("a-leaving", "b-foreign", "c-group", "d-old")
    async with open_claims(replicas=0, prepare=more, ready=False) as world:
        world.plane.store.patch(
            "sandboxwarmpools.extensions.agents.x-k8s.io", "ns", "pool", {"spec": {"replicas": 2}}
        )
        await world.settle()
        assert names
