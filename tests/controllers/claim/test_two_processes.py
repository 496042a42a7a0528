"""Two controllers serve the same claims, one after the other or both at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.local.request import Target
from tests.support.builders import claim, pool, template
from tests.support.clock import FakeClock
from tests.support.extensions import (
    add_member,
    bound_name,
    get_claim,
    member_names,
    open_claims,
    ready_of,
    run_members,
)
from tests.support.names import ANNOTATION, CLAIMS, POOLS, SAFE_TO_EVICT, SANDBOXES, WARM_POOL
from tests.support.world import NS, World, controlled_by


def furnish(plane: ControlPlane, size: int) -> None:
    """Create a template and a pool with members."""
    plane.store.create(template())
    plane.store.create(pool(replicas=size))
    for number in range(1, size + 1):
        add_member(plane, f"m{number}")


@asynccontextmanager
async def first_process(
    plane: ControlPlane, clock: FakeClock, size: int = 0
) -> AsyncIterator[World]:
    """Run a controller over a pool of Ready members, on a control plane that outlives it."""
    async with open_claims(
        plane=plane, clock=clock, prepare=lambda made: furnish(made, size)
    ) as world:
        await run_members(world, *(f"m{number}" for number in range(1, size + 1)))
        await world.advance(2.0)
        world.forget_requests()
        yield world


@pytest.mark.claim_case(83)
@pytest.mark.parametrize("moment", ["get sandboxes", "patch sandboxclaims"])
async def test_a_shutdown_within_an_adoption_says_nothing_and_loses_nothing(moment: str) -> None:
    """Claim case 83: while a conflict is looked into, or cleaned up: the next process goes on."""
    clock = FakeClock()
    async with ControlPlane(LocalSettings(), clock=clock) as plane:
        async with first_process(plane, clock, 2) as world:

            def end(_target: Target) -> bool:
                world.kill()
                return True

            if moment == "get sandboxes":
                plane.fail_next("patch", "sandboxes", 409)
            else:
                world.meanwhile(
                    "patch", "sandboxes", lambda: plane.store.delete(SANDBOXES, NS, "m1", grace_s=0)
                )
            verb, resource = moment.split()
            plane.fail_next(verb, resource, 500, match=end)
            await world.create(claim(metadata={"annotations": {ANNOTATION: "m1"}}))
        held = plane.store.get(CLAIMS, NS, "c")
        assert not held.get("status")
        assert held["metadata"]["annotations"] == {ANNOTATION: "m1"}
        plane.faults.clear()
        async with open_claims(plane=plane, clock=clock, ready=False) as second:
            expected = "m1" if moment == "get sandboxes" else "m2"
            assert bound_name(second) == expected
            assert ready_of(second)[0] == "True"
            await second.advance(3.0)
            assert get_claim(second)["metadata"]["annotations"][ANNOTATION] == expected


async def test_a_pod_that_another_process_has_handed_over_keeps_the_metadata_it_was_given() -> None:
    """Its events may come before those of its Sandbox, which is fetched before the Pod is written.

    Otherwise the Pod would look free again, while its claim says Ready.
    """
    async with open_claims("m1") as world:
        store = world.plane.store
        held = [world.plane.hold_events(kind) for kind in ("sandboxes", "sandboxclaims")]
        owners = [controlled_by(store.create(claim()))]
        taken = {"ownerReferences": owners, "labels": {WARM_POOL: None}}
        pod_template = {"metadata": {"labels": {WARM_POOL: None}, "annotations": None}}
        spec = {"podTemplate": pod_template}
        store.patch(SANDBOXES, NS, "m1", {"metadata": taken, "spec": spec})
        freed = {"labels": {WARM_POOL: None}, "annotations": {SAFE_TO_EVICT: None}}
        store.patch("pods", NS, "m1", {"metadata": freed})
        await world.moments(300)
        assert not {WARM_POOL} & world.pod("m1")["metadata"]["labels"].keys()
        assert SAFE_TO_EVICT not in world.pod("m1")["metadata"].get("annotations", {})
        for events in held:
            events.release()
        await world.advance(2.0)
        assert bound_name(world) == "m1"


@pytest.mark.claim_case(76, 96)
async def test_two_controllers_at_once_give_each_claim_one_sandbox() -> None:
    """Bad input: both serve the same claims; each claim has just the Sandbox that it names.

    The first knows the members in the order they came up, the second in that of their names, so
    that they take different ones for the same claim. Nobody's status is taken back.
    """
    clock = FakeClock()
    names = [f"c{number:02}" for number in range(15)]
    async with (
        ControlPlane(LocalSettings(), clock=clock) as plane,
        first_process(plane, clock) as one,
    ):
        plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": 30}})
        await one.advance(2.0)
        await run_members(one, *reversed(member_names(one)))
        await one.advance(2.0)
        async with open_claims(plane=plane, clock=clock, ready=False) as other:
            told: dict[str, set[str]] = {name: set() for name in names}

            def note(_target: Target) -> bool:
                for name in names:
                    found = plane.store.find(CLAIMS, NS, name) or {}
                    bound = found.get("status", {}).get("sandbox", {}).get("name")
                    if bound:
                        told[name].add(bound)
                return False

            plane.fail_next("*", "*", 500, match=note)
            for name in names:
                plane.store.create(claim(name))
            for _ in range(3):
                await one.settle()
                await other.settle()
                await one.advance(2.0)
            owned: dict[str, list[str]] = {name: [] for name in names}
            for held in plane.store.list(SANDBOXES, NS):
                (owner,) = held["metadata"]["ownerReferences"]
                if owner["kind"] == "SandboxClaim":
                    owned[owner["name"]].append(held["metadata"]["name"])
            assert owned == {name: [bound_name(one, name)] for name in names}
            assert all(len(seen) == 1 for seen in told.values()), told
            for name in names:
                assert ready_of(one, name)[0] == "True"
            assert len(member_names(one)) == 30
