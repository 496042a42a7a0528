"""Which member of its pool a claim takes, which it never takes, and how long it waits for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane
from tests.support.builders import claim, template
from tests.support.extensions import (
    add_member,
    bound_name,
    get_claim,
    member_names,
    open_claims,
    owner_of,
    ready_of,
    run_members,
    writes_in_order,
)
from tests.support.names import LAUNCH_TYPE, SANDBOXES, TEMPLATES, WARM_POOL
from tests.support.world import NS, condition

Json = dict[str, Any]
OVER = "2020-01-01T00:00:00Z"


async def test_a_member_whose_pod_terminates_is_not_handed_out() -> None:
    """It has an address still, which will be of no use; with a new Pod it is a member as before."""
    async with open_claims("m1") as world:
        await world.delete("pods", "m1", grace_s=30)
        assert world.get("m1")["status"]["podIPs"]
        await world.create(claim("early"))
        assert bound_name(world, "early") == "early"
        await world.delete("pods", "m1")
        await run_members(world, "m1")
        await world.create(claim("late"))
        assert bound_name(world, "late") == "m1"


@pytest.mark.parametrize("asked", [{"operatingMode": "Suspended"}, {"shutdownTime": OVER}])
async def test_a_member_that_is_not_to_run_is_not_handed_out(asked: Json) -> None:
    """Law: somebody suspended it, or let its time be over; its Pod may still be Ready meanwhile."""
    async with open_claims("m1") as world:
        held = world.plane.hold("delete", "pods", answers=False)
        world.plane.store.patch(SANDBOXES, NS, "m1", {"spec": asked})
        await world.advance(0.1)
        assert held.waiting
        assert world.get("m1")["status"]["podIPs"]
        await world.create(claim())
        await world.advance(3.0)
        assert bound_name(world) == "c"
        held.release()


async def test_a_member_with_a_spec_that_nobody_has_read_is_not_handed_out() -> None:
    """Law: what its user has changed may be that it is to run."""
    async with open_claims("m1") as world:
        held = world.plane.hold("get", "sandboxes", answers=True)
        world.plane.store.patch(SANDBOXES, NS, "m1", {"spec": {"operatingMode": "Suspended"}})
        await world.until(lambda: held.waiting)
        assert condition(world.get("m1"), "Ready")["status"] == "True"
        await world.create(claim())
        held.release()
        await world.advance(3.0)
        assert bound_name(world) == "c"


@pytest.mark.claim_case(53, 121)
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
        assert member_names(world) == ["m1"]


def _owned_by(**changes: str) -> Callable[[Json], None]:
    def change(body: Json) -> None:
        body["metadata"]["ownerReferences"][0].update(changes)

    return change


@pytest.mark.claim_case(61)
@pytest.mark.parametrize("owners", [["ReplicaSet"], []])
async def test_a_members_look_alike_of_another_owner_or_none_is_never_taken(
    owners: list[str],
) -> None:
    """Claim case 61: with all labels of a member it is nobody's to give away: a cold start."""

    def more(plane: ControlPlane) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "pool", "namespace": NS},
        }
        uid = plane.store.create(body)["metadata"]["uid"]

        def change(made: Json) -> None:
            # Of a group that is not served: garbage collection leaves alone what it cannot look up.
            other = {"apiVersion": "example.com/v1", "uid": uid}
            (pools,) = made["metadata"]["ownerReferences"]
            refs = [{**pools, **other, "kind": kind} for kind in owners]
            made["metadata"]["ownerReferences"] = refs
            # That of no pool there is, which would take it in.
            made["metadata"]["labels"][WARM_POOL] = "00000000"

        add_member(plane, "a", change=change)

    async with open_claims(prepare=more, ready=False) as world:
        await run_members(world, "a")
        await world.advance(2.0)
        await world.create(claim())
        assert bound_name(world) == "c"
        found = world.get("a")["metadata"].get("ownerReferences", ())
        assert [one["kind"] for one in found] == owners


@pytest.mark.claim_case(61)
async def test_a_member_on_its_way_out_is_never_taken() -> None:
    """Claim case 61: a deletionTimestamp is enough."""

    def held_back(body: Json) -> None:
        body["metadata"]["finalizers"] = ["example.com/wait"]

    def more(plane: ControlPlane) -> None:
        add_member(plane, "m1", change=held_back)

    async with open_claims(replicas=1, prepare=more, ready=False) as world:
        await run_members(world, "m1")
        await world.delete("sandboxes", "m1")
        await world.create(claim())
        await world.advance(3.0)
        assert bound_name(world) == "c"
        assert owner_of(world, "m1") == "SandboxWarmPool/pool"


@pytest.mark.claim_case(62)
@pytest.mark.parametrize(
    ("api", "expected"),
    [("extensions.agents.x-k8s.io/v1alpha1", "m1"), ("apps/v1", "c")],
)
async def test_the_group_of_the_owner_counts_and_its_version_does_not(
    api: str, expected: str
) -> None:
    """Claim case 62: an owner reference of older days is as good; the same kind of another not."""

    def more(plane: ControlPlane) -> None:
        add_member(plane, "m1", change=_owned_by(apiVersion=api))

    async with open_claims(replicas=1, prepare=more, ready=False) as world:
        await run_members(world, "m1")
        await world.create(claim())
        await world.advance(3.0)
        assert bound_name(world) == expected


@pytest.mark.claim_case(65)
@pytest.mark.parametrize(("strategy", "expected"), [("OnReplenish", "m1"), ("Recreate", "c")])
async def test_a_stale_member_is_taken_unless_the_pool_re_creates(
    strategy: str, expected: str
) -> None:
    """Claim case 65: the template's image changed; only Recreate makes m1 useless for claims."""
    spec = {"updateStrategy": {"type": strategy}}
    async with open_claims("m1", pool_spec=spec) as world:
        newer = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "newer"}]}}}
        await world.patch(TEMPLATES, "tpl", {"spec": newer})
        await world.create(claim())
        await world.advance(3.0)
        assert bound_name(world) == expected


@pytest.mark.claim_case(44, 51)
@pytest.mark.parametrize(
    "wish",
    [
        {"env": [{"name": "A", "value": "1"}]},
        {
            "volumeClaimTemplates": [
                {"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
            ]
        },
    ],
    ids=["env", "volumes"],
)
async def test_what_a_member_cannot_have_means_a_cold_start(wish: Json) -> None:
    """Claim case 44: env, and 51: volumes: m1 stays where it is, for the next claim."""
    open_to_all = template(envVarsInjectionPolicy="Allowed", volumeClaimTemplatesPolicy="Allowed")
    async with open_claims("m1", templates=(open_to_all,)) as world:
        await world.create(claim(**wish))
        assert bound_name(world) == "c"
        assert world.get("c")["metadata"]["labels"][LAUNCH_TYPE] == "cold"
        assert member_names(world) == ["m1"]
        await world.create(claim("d"))
        assert bound_name(world, "d") == "m1"
