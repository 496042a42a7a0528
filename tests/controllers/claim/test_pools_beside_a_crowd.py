"""What a crowd of claims leaves to the pools and Sandboxes that it does not ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from lean_sandbox.local.controlplane import ControlPlane
from tests.support.builders import claim, placed, pool
from tests.support.crowd import ANSWER_S, VERBS
from tests.support.extensions import add_member, bound_name, is_ready, members, open_pools
from tests.support.names import CLAIMS, POOLS, TEMPLATES
from tests.support.tenants import open_tenants, step, there
from tests.support.world import NS, World, running_status, write_pod_status

Json = dict[str, Any]
MEMBERS = 44


async def test_claims_of_another_tenant_that_hang_do_not_slow_down_the_fill_of_a_pool() -> None:
    """Refills stand back for two seconds at most, and then go on until the pool is full."""
    async with open_tenants() as world:
        held = world.plane.hold("*", "*", match=lambda target: target.namespace == "burst")
        for number in range(5):
            world.plane.store.create(there(claim(f"burst-{number}")))
        while not held.waiting:
            await step(world)
        began_s = world.clock.monotonic()
        world.plane.store.create(pool("mine", replicas=20))
        while len(members(world, "mine")) < 20:
            await step(world)
            assert world.clock.monotonic() - began_s < 5.0
        held.release()


class Crowd:
    """Claims of a pool without members, which all start cold: more of them than are no crowd."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.made = 0

    def top_up(self, most: int = 60) -> None:
        """Create claims until so many are not served yet."""
        store = self.world.plane.store
        waiting = sum("status" not in one for one in store.list(CLAIMS, NS))
        for _ in range(max(0, most - waiting)):
            store.create(claim(f"c-{self.made}", pool="cold"))
            self.made += 1

    async def seconds_until(self, is_so: Any, *, most_s: float = 100.0) -> float:
        """Let time pass beside the crowd until something is so; return how much."""
        began_s = self.world.clock.monotonic()
        while not is_so() and self.world.clock.monotonic() - began_s < most_s:
            self.top_up()
            await self.world.moments(60)
            await self.world.clock.advance(ANSWER_S / 2)
        return self.world.clock.monotonic() - began_s


@asynccontextmanager
async def beside_a_crowd(strategy: str | None = None) -> AsyncIterator[tuple[World, Crowd]]:
    """Open a world with a full pool that nobody asks for, and a crowd of claims of another."""

    def prepare(plane: ControlPlane) -> None:
        plane.store.create(placed("other"))
        plane.store.create(pool("cold", 0, template="other"))
        plane.store.create(placed())
        plane.store.create(pool(replicas=MEMBERS, strategy=strategy))
        for number in range(MEMBERS):
            add_member(plane, f"m-{number}")

    async with open_pools(prepare=prepare) as world:
        for number in range(MEMBERS):
            write_pod_status(world.plane, f"m-{number}", running_status())
        await world.advance(3.0)
        world.forget_requests()
        for verb in VERBS:
            world.plane.delay(verb, "*", ANSWER_S)
        crowd = Crowd(world)
        await crowd.seconds_until(lambda: False, most_s=2.4)
        yield world, crowd
        for verb in VERBS:
            world.plane.delay(verb, "*", 0.0)


async def test_a_pool_that_grows_beside_a_crowd_grows_to_its_size() -> None:
    """Its user asks for twelve more: not only the first comes before the crowd is served."""
    async with beside_a_crowd() as (world, crowd):
        world.plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": MEMBERS + 12}})
        took_s = await crowd.seconds_until(lambda: len(members(world)) == MEMBERS + 12)
        assert took_s < 60.0


async def test_new_members_beside_a_crowd_are_launched_within_their_grace() -> None:
    """A pool with the shortest grace grows, and all Pods run at once: no member is replaced."""
    async with beside_a_crowd() as (world, crowd):
        store = world.plane.store
        grown = {"replicas": MEMBERS + 12, "readinessGracePeriodSeconds": 30}
        store.patch(POOLS, NS, "pool", {"spec": grown})

        claims = world.whole.claims
        assert claims is not None
        end = world.clock.monotonic() + 90.0
        while world.clock.monotonic() < end:
            in_hand = claims.queue.counts()
            for _ in range(45 - in_hand["running"] - in_hand["ready"]):
                store.create(claim(f"c-{crowd.made}", pool="cold"))
                crowd.made += 1
            await world.moments(60)
            await world.clock.advance(ANSWER_S / 2)
            for pod in store.list("pods", NS):
                if pod.get("status", {}).get("phase") != "Running":
                    write_pod_status(world.plane, pod["metadata"]["name"], running_status())
        assert len(members(world)) == MEMBERS + 12
        assert not world.requests("delete", "sandboxes")


async def test_a_pool_that_shrinks_beside_a_crowd_shrinks_to_its_size() -> None:
    """Its user asks for twelve less."""
    async with beside_a_crowd() as (world, crowd):
        world.plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": MEMBERS - 12}})
        took_s = await crowd.seconds_until(lambda: len(members(world)) == MEMBERS - 12)
        assert took_s < 60.0


async def test_a_rollout_does_not_wait_for_the_crowd_of_another_pool() -> None:
    """The template of a Recreate pool that no claim asks for gets a new image."""
    async with beside_a_crowd("Recreate") as (world, crowd):
        spec = {"containers": [{"name": "main", "image": "newer"}], "nodeName": "node-1"}
        world.plane.store.patch(TEMPLATES, NS, "tpl", {"spec": {"podTemplate": {"spec": spec}}})
        took_s = await crowd.seconds_until(lambda: len(members(world)) < MEMBERS, most_s=10.0)
        assert took_s < 10.0


async def test_a_changed_claim_reaches_its_pod_beside_a_crowd() -> None:
    """The labels that a user adds to a served claim reach its Pod soon."""
    async with beside_a_crowd() as (world, crowd):
        world.plane.store.create(claim("mine"))
        await crowd.seconds_until(lambda: is_ready(world, "mine"))
        bound = bound_name(world, "mine")
        await crowd.seconds_until(lambda: False, most_s=2.0)
        labels = {"sandbox.users.io/team": "blue"}
        world.plane.store.patch(
            CLAIMS, NS, "mine", {"spec": {"additionalPodMetadata": {"labels": labels}}}
        )

        def is_labelled() -> bool:
            held = world.pod(bound)["metadata"].get("labels") or {}
            return "sandbox.users.io/team" in held

        took_s = await crowd.seconds_until(is_labelled, most_s=60.0)
        assert took_s < 20.0


async def test_the_first_edit_of_a_claim_reaches_its_pod_beside_a_crowd() -> None:
    """One edit is enough: its Pod has the annotation within the minute, not after two."""
    async with beside_a_crowd() as (world, crowd):
        world.plane.store.create(claim("mine"))
        await crowd.seconds_until(lambda: is_ready(world, "mine"))
        name = bound_name(world, "mine")
        edit = {"spec": {"additionalPodMetadata": {"annotations": {"example.com/note": "x"}}}}
        world.plane.store.patch(CLAIMS, NS, "mine", edit)
        assert world.plane.store.get(CLAIMS, NS, "mine")["metadata"]["generation"] == 2

        def has_it() -> bool:
            annotations = world.pod(name)["metadata"].get("annotations") or {}
            return "example.com/note" in annotations

        assert await crowd.seconds_until(has_it) < 60.0
