"""A namespace that ends under the controllers: refused once, it is left alone by all of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.kube.limits import Limits
from lean_sandbox.model.template import policy_name
from tests.support.builders import claim, placed, pool
from tests.support.extensions import member_names, open_pools, start
from tests.support.names import CLAIMS, POLICIES, POOLS, SANDBOXES, TEMPLATES
from tests.support.world import NS, World, condition, open_world, sandbox

Json = dict[str, Any]
REFUSAL: Json = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "Forbidden",
    "code": 403,
    "message": "unable to create new content in namespace ns because it is being terminated",
    "details": {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]},
}
GONE: Json = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "NotFound",
    "code": 404,
    "message": 'namespaces "ns" not found',
    "details": {"name": "ns", "kind": "namespaces"},
}
MANY = 12


def end(world: World, refusal: Json = REFUSAL) -> None:
    """Refuse every create, as in a namespace that ends, or has ended."""
    world.plane.fail_next("create", "*", refusal["code"], times=100_000, body=refusal)


def creates(world: World) -> int:
    """Return how many creates were asked for, of whatever kind, Events included."""
    asked = world.asked(events=True)
    return sum(count for what, count in asked.items() if what.startswith("create "))


def start_all(world: World) -> None:
    """Let all Pods run that do not yet."""
    for pod in world.plane.store.list("pods", NS):
        if pod.get("status", {}).get("phase") != "Running":
            start(world, pod["metadata"]["name"])


@pytest.mark.parametrize("refusal", [REFUSAL, GONE])
async def test_pods_that_go_one_by_one_cost_one_create_in_half_a_minute(refusal: Json) -> None:
    """Each end of a Pod wakes its Sandbox; only the first is asked for again, none is fetched."""
    async with open_world() as world:
        for number in range(MANY):
            await world.ready_sandbox(sandbox(f"sb-{number}"))
        end(world, refusal)
        world.forget_requests()
        for number in range(MANY):
            await world.delete("pods", f"sb-{number}")
            await world.advance(1.0)
        assert world.asked(events=True) == {"get sandboxes": 1, "create pods": 1}
        await world.advance(600.0)
        assert 600 / 30 - 1 <= creates(world) <= 600 / 30 + 1
        assert sum(world.asked().values()) <= 2 * creates(world)
        assert not world.writes()["patch sandboxes/status"]
        world.plane.faults.clear()
        await world.advance(31.0)
        assert len(world.plane.store.list("pods", NS)) == MANY


async def test_sandboxes_pools_and_claims_share_what_one_of_them_was_told() -> None:
    """A refused Pod holds up the pool's members and the claim's Sandbox as well."""
    async with open_pools(placed()) as world:
        await world.ready_sandbox()
        end(world)
        world.forget_requests()
        await world.delete("pods", "sb-1")
        assert creates(world) == 1
        world.plane.store.patch(
            "sandboxes.agents.x-k8s.io", NS, "sb-1", {"metadata": {"labels": {"a": "b"}}}
        )
        await world.advance(29.0)
        assert creates(world) == 1
        await world.advance(300.0)
        assert creates(world) <= 1 + 300 / 30


@pytest.mark.parametrize("first", ["pool", "claim"])
async def test_whoever_is_refused_first_asks_for_all(first: str) -> None:
    """The pool and its claims wake each other; together they ask once in half a minute."""
    async with open_pools(placed(), sandbox_claim_warm_candidate_grace_period=0.0) as world:
        end(world)
        world.forget_requests()
        bodies = [pool(replicas=5), *(claim(f"c{number}") for number in range(5))]
        for body in bodies if first == "pool" else reversed(bodies):
            # Made by someone else, each shows the namespace to be alive and is tried once.
            await world.create(body)
        assert 1 <= creates(world) <= len(bodies)
        world.forget_requests()
        await world.advance(600.0)
        assert 600 / 30 - 2 <= creates(world) <= 600 / 30 + 1
        refused = Counter(dict(world.plane.audit.codes(at_least=403)))
        assert refused.total() == creates(world)


@pytest.mark.parametrize("first", ["pods", "sandboxes"])
async def test_refusals_do_not_grow_with_what_is_in_the_namespace(first: str) -> None:
    """All at once, in either order: what was in flight is refused, and nothing is asked again."""
    # So many Sandboxes, members of a pool and claims: far more than may be in flight.
    many = 24
    async with open_pools(placed()) as world:
        for number in range(many):
            world.plane.store.create(sandbox(f"sb-{number}", pod_spec={"nodeName": "node-1"}))
        await world.create(pool(replicas=many))
        for number in range(many):
            world.plane.store.create(claim(f"c{number}"))
        for _ in range(5):
            start_all(world)
            await world.advance(2.0)
        assert len(world.plane.store.list("pods", NS)) == 3 * many
        end(world)
        world.forget_requests()
        order = ["pods", SANDBOXES] if first == "pods" else [SANDBOXES, "pods"]
        for kind in (*order, CLAIMS, POOLS, TEMPLATES, POLICIES):
            for one in world.plane.store.list(kind, NS):
                name = one["metadata"]["name"]
                # What the controller deletes meanwhile is gone.
                if world.plane.store.find(kind, NS, name) is not None:
                    world.plane.store.delete(kind, NS, name, grace_s=0)
            await world.advance(1.0)
        await world.advance(300.0)
        asked = world.asked()
        # Those whose Pod went before the first refusal, as many as there are workers.
        assert asked.pop("get sandboxes", 0) <= 1.125 * Settings().sandbox_concurrent_workers
        # However many claims and members there are.
        assert asked.total() <= Limits().max_in_flight + 2
        refused = Counter(dict(world.plane.audit.codes(at_least=400)))
        assert 0 < refused.total() <= Limits().max_in_flight


async def test_claims_take_no_more_members_where_the_namespace_ends() -> None:
    """The server deletes thousands one after the other: no claim replaces a Sandbox that went."""
    async with open_pools(placed()) as world:
        names = await _bound(world, claims=MANY, spare=2 * MANY)
        end(world)
        await world.delete(SANDBOXES, member_names(world)[0])
        await world.advance(2.0)
        assert creates(world) > 0
        world.forget_requests()
        for name in names:
            await world.delete(SANDBOXES, name)
            await world.advance(0.5)
        asked = world.asked()
        assert asked["patch sandboxes"] == asked["patch sandboxclaims/status"] == 0, asked


async def test_pods_that_end_are_not_reported_where_the_namespace_ends() -> None:
    """Each takes its time to end, and its Sandbox is deleted next: no status is written of it."""
    async with open_pools(placed()) as world:
        names = await _bound(world, claims=MANY, spare=1)
        end(world)
        await world.delete("pods", member_names(world)[0])
        await world.advance(2.0)
        assert creates(world) > 0
        world.forget_requests()
        for name in names:
            world.plane.store.delete("pods", NS, name, grace_s=20)
            await world.advance(0.5)
        assert world.asked().total() == 0


async def _bound(world: World, *, claims: int, spare: int) -> list[str]:
    """Serve claims from a pool that has some members left then; return what they were given."""
    await world.create(pool(replicas=spare))
    for number in range(claims):
        await world.create(claim(f"c{number}"))
    for _ in range(4):
        start_all(world)
        await world.advance(3.0)
    found = [one["status"]["sandbox"]["name"] for one in world.plane.store.list(CLAIMS, NS)]
    assert len(member_names(world)) == spare
    return found


async def test_a_namespace_made_anew_is_served_at_once() -> None:
    """What appears in it after the refusal shows that it is another one of the same name."""
    settings = Settings(sandbox_status_window=1.0)
    async with open_world(settings) as world:
        await world.ready_sandbox()
        await world.create(sandbox("held", metadata={"finalizers": ["example.com/hold"]}))
        end(world)
        await world.delete("pods", "sb-1")
        assert creates(world) > 0
        world.plane.faults.clear()
        await world.advance(5.0)
        await world.ready_sandbox(sandbox("fresh"))
        assert condition(world.get("fresh"), "Ready")["status"] == "True"


async def test_a_template_of_a_namespace_made_anew_has_its_policy_at_once() -> None:
    """Its pool and claims wait for the policy, and would for half a minute."""
    async with open_pools(placed()) as world:
        await world.settle()
        (policy,) = world.plane.store.list(POLICIES, NS)
        end(world)
        world.forget_requests()
        await world.delete(POLICIES, policy["metadata"]["name"])
        assert creates(world) == 1
        world.plane.faults.clear()
        await world.advance(5.0)
        await world.create(placed("fresh"))
        assert world.find(POLICIES, policy_name("fresh")) is not None


async def test_another_namespace_is_not_concerned() -> None:
    """Where nothing ends, creates go on."""
    async with open_world() as world:
        metadata = {"name": "other"}
        world.plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        await world.ready_sandbox()
        world.plane.fail_next(
            "create", "*", 403, times=1000, body=REFUSAL, match=lambda asked: asked.namespace == NS
        )
        await world.delete("pods", "sb-1")
        await world.create(sandbox("sb-2", namespace="other"))
        assert world.plane.store.find("pods", "other", "sb-2") is not None
        assert world.find("pods", "sb-1") is None


async def test_events_about_what_was_in_a_namespace_that_is_gone_are_tried_once() -> None:
    """Those that wait for their turn are not asked for one after the other."""
    async with open_world() as world:
        held = world.plane.hold("create", "events")
        for number in range(MANY):
            await world.ready_sandbox(sandbox(f"sb-{number}"))
        end(world, GONE)
        world.forget_requests()
        held.release()
        await world.advance(29.0)
        assert world.asked(events=True)["create events"] <= 2


async def test_a_real_namespace_deletion_ends_quietly() -> None:
    """A whole namespace goes under the controller: nothing fails for good, nothing is left over."""
    async with open_world() as world:
        for number in range(10):
            await world.ready_sandbox(sandbox(f"sb-{number}", spec={"service": True}))
        world.forget_requests()
        world.plane.store.delete("namespaces", "", NS)
        for _ in range(3):
            await world.settle()
            for pod in world.plane.store.list("pods", NS):
                world.plane.store.delete("pods", NS, pod["metadata"]["name"], grace_s=0)
        await world.advance(120.0)
        assert world.plane.store.find("namespaces", "", NS) is None
        assert not world.plane.store.list("pods", NS)
        assert sum(world.asked().values()) <= 40
        world.forget_requests()
        await world.advance(600.0)
        assert not world.asked()
