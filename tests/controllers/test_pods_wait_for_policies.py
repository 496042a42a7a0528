"""No Pod starts before the NetworkPolicy of its template is there."""

from __future__ import annotations

import pytest

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.model.names import name_hash
from tests.controllers.policies import NAME, UNMANAGED, policy, theirs
from tests.support.builders import claim, placed, pool
from tests.support.clock import FakeClock
from tests.support.extensions import change_template, fill, members, open_pools, pool_events, rest
from tests.support.names import CLAIMS, POLICIES, REF_HASH, SANDBOXES, TEMPLATES
from tests.support.world import CONTROLLER, NS, condition, controlled_by


@pytest.mark.template_case(39)
async def test_a_name_too_long_for_a_policy_starts_no_pods() -> None:
    """Template case 39: the label is set; no request is wasted; pool and claim say what helps."""
    name = "t" * 239
    async with open_pools() as world:
        await world.create(placed(name))
        await world.create(pool(replicas=2, template=name))
        await world.create(claim())
        await world.advance(60.0)
        stored = world.plane.store.get(TEMPLATES, NS, name)
        assert stored["metadata"]["labels"][REF_HASH] == name_hash(name)
        assert not world.requests("create", "networkpolicies")
        assert not world.plane.store.list("pods", NS)
        told = condition(world.plane.store.get(CLAIMS, NS, "c"), "Ready")
        assert (told["status"], told["reason"]) == ("False", "InvalidConfiguration")
        (event,) = pool_events(world)
        assert event[:2] == ("Warning", "WarmPoolNotProgressing")
        for text in (told["message"], event[2]):
            assert "metadata.name has 239 characters" in text
            assert "at most 238" in text
            assert "spec.networkPolicyManagement" in text
        await change_template(world, UNMANAGED, name)
        await rest(world)
        assert len(members(world)) == 2
        assert world.plane.store.get(CLAIMS, NS, "c")["status"]["sandbox"]["name"]


async def test_the_longest_name_that_a_policy_can_follow_is_served() -> None:
    """238 characters are enough for a policy, and so for Pods."""
    name = "t" * 238
    async with open_pools() as world:
        await world.create(placed(name))
        await world.create(pool(replicas=1, template=name))
        await rest(world)
        assert len(members(world)) == 1


@pytest.mark.template_case(40)
@pytest.mark.parametrize("code", [403, 500])
async def test_pods_wait_for_the_policy_of_their_template(code: int) -> None:
    """Template case 40: the label is set; pool and claim say that they wait, and go on at once.

    The policy is tried with backoff, and nobody polls for it.
    """
    async with open_pools() as world:
        world.plane.fail_next("create", "networkpolicies", code, times=1000)
        await world.create(placed())
        await world.create(pool(replicas=2))
        await world.create(claim())
        await world.advance(60.0)
        assert not members(world)
        assert not world.plane.store.list("pods", NS)
        told = condition(world.plane.store.get(CLAIMS, NS, "c"), "Ready")
        assert (told["status"], told["reason"]) == ("False", "SandboxNotReady")
        assert told["message"].startswith(f'waiting for NetworkPolicy "{NAME}"; ')
        assert told["message"].endswith('the Events of SandboxTemplate "tpl" say why')
        waiting = ("Warning", "WarmPoolNotProgressing", told["message"])
        assert pool_events(world) == [waiting]
        stored = world.plane.store.get(TEMPLATES, NS, "tpl")
        assert stored["metadata"]["labels"][REF_HASH] == name_hash("tpl")
        assert len(world.requests("create", "networkpolicies")) <= 16
        await world.create(theirs(ownerReferences=[controlled_by(stored)]))
        assert world.plane.store.get(CLAIMS, NS, "c")["status"]["sandbox"]["name"]
        await rest(world)
        assert len(members(world)) == 2
        assert [event[1] for event in pool_events(world)][-1] == "WarmPoolProgressing"


async def test_pods_start_once_the_server_takes_the_policy() -> None:
    """The policy that our own retry creates wakes pools and claims; policy before Pods, always."""
    async with open_pools() as world:
        world.plane.fail_next("create", "networkpolicies", 500, times=3)
        await world.create(placed())
        await world.create(pool(replicas=2))
        await world.create(claim())
        await world.advance(10.0)
        assert len(members(world)) == 2
        assert world.plane.store.get(CLAIMS, NS, "c")["status"]["sandbox"]["name"]
        order = [
            entry.what
            for entry in world.plane.audit.select(user=CONTROLLER, verb="create")
            if entry.code < 400
        ]
        assert order.index("create networkpolicies") < order.index("create sandboxes")
        assert not pool_events(world)


@pytest.mark.parametrize("name", ["tpl", "t" * 239])
async def test_a_claim_waits_for_no_policy_of_a_template_that_is_gone(name: str) -> None:
    """Whether the policy was on its way or could never be: it misses the template at once."""
    async with open_pools() as world:
        world.plane.fail_next("create", "networkpolicies", 500, times=1000)
        await world.create(placed(name))
        await world.create(pool(replicas=0, template=name))
        await world.create(claim())
        await world.advance(2.0)
        before = condition(world.plane.store.get(CLAIMS, NS, "c"), "Ready")
        assert "NetworkPolicy" in before["message"]
        await world.delete(TEMPLATES, name)
        told = condition(world.plane.store.get(CLAIMS, NS, "c"), "Ready")
        assert (told["status"], told["reason"]) == ("False", "TemplateNotFound")


async def test_a_warm_claim_does_not_wait_for_a_policy() -> None:
    """Its Pod runs already; only what is new waits."""
    async with open_pools() as world:
        await fill(world, pool(replicas=1))
        world.plane.fail_next("create", "networkpolicies", 500, times=1000)
        world.plane.store.delete(POLICIES, NS, NAME)
        (member,) = members(world)
        await world.create(claim())
        bound = world.plane.store.get(CLAIMS, NS, "c")["status"]["sandbox"]["name"]
        assert bound == member["metadata"]["name"]
        await rest(world)
        assert not members(world)


async def test_pods_run_under_a_policy_of_somebody_else() -> None:
    """A foreign object of the policy's name is not touched, and holds up neither pool nor claim."""
    async with open_pools(theirs()) as world:
        before = policy(world)
        await world.create(placed())
        await world.create(pool(replicas=2))
        await world.create(claim())
        await rest(world)
        assert len(world.plane.store.list("pods", NS)) == 3
        assert policy(world) == before


async def test_a_restart_makes_members_without_waiting_for_what_is_there() -> None:
    """Policies are known before the first reconcile: members that are missing are made, no more."""
    clock = FakeClock()
    async with ControlPlane(LocalSettings(), clock=clock) as plane:
        async with open_pools(plane=plane, clock=clock) as first:
            await fill(first, pool(replicas=2))
            (gone, _) = members(first)
        plane.store.delete(SANDBOXES, NS, gone["metadata"]["name"])
        async with open_pools(plane=plane, clock=clock) as second:
            second.forget_requests()
            await rest(second)
            assert len(members(second)) == 2
            assert not second.requests("create", "networkpolicies")
            assert not pool_events(second)
