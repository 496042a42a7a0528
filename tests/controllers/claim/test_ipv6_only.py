"""Pods of a cluster that has IPv6 alone."""

from __future__ import annotations

from tests.support.builders import claim
from tests.support.extensions import bound_name, get_claim, open_claims, ready_of
from tests.support.world import condition, open_world, sandbox

ONLY = "fd00:10:244::5"


async def test_a_sandbox_with_a_pod_of_ipv6_alone_is_ready_with_its_address() -> None:
    """The address is reported as the kubelet spells it, and the only one."""
    async with open_world() as world:
        await world.create(sandbox())
        await world.run_pod(ips=(ONLY,))
        assert condition(world.get(), "Ready")["status"] == "True"
        assert world.get()["status"]["podIPs"] == [ONLY]


async def test_a_member_of_ipv6_alone_is_handed_out() -> None:
    """It counts as a member with an address; the claim names it."""
    async with open_claims("m1", ready=False) as world:
        await world.run_pod("m1", ips=(ONLY,))
        await world.advance(2.0)
        await world.create(claim())
        assert bound_name(world) == "m1"
        assert ready_of(world)[0] == "True"
        assert get_claim(world)["status"]["sandbox"]["podIPs"] == [ONLY]
