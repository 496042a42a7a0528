"""What a launch and a claim cost in bytes: bodies of answers and events, without bookmarks."""

from __future__ import annotations

import pytest

from tests.support.builders import claim
from tests.support.extensions import bound_name, open_claims
from tests.support.world import (
    CONTROLLER,
    NS,
    World,
    condition,
    open_world,
    running_status,
    sandbox,
    watched,
    write_pod_status,
)


def received(world: World, *, pods: bool = False) -> int:
    """Return the bytes that the controller was sent so far, or those of the watch of Pods."""
    # Watches that began before requests were counted anew are still under way.
    entries = {id(one): one for one in (*world.plane.audit.entries, *world.plane.pending)}
    return sum(
        one.response_bytes
        for one in entries.values()
        if one.user == CONTROLLER and (not pods or (one.verb, one.resource) == ("watch", "pods"))
    )


async def run_pods(world: World) -> None:
    """Take all Pods to Ready in one write each; nothing asks the server for bookmarks."""
    for pod in world.plane.store.list("pods", NS):
        name = pod["metadata"]["name"]
        if pod.get("status", {}).get("phase") != "Running":
            write_pod_status(world.plane, name, running_status())
    await world.moments(300)
    await world.clock.advance(2.0)
    await world.moments(300)


async def launch(world: World, name: str) -> None:
    """Take a Sandbox to Ready."""
    world.plane.store.create(sandbox(name, pod_spec={"nodeName": "node-1"}))
    await world.until(lambda: world.find("pods", name))
    await world.moments(300)
    await run_pods(world)
    assert condition(world.get(name), "Ready")["status"] == "True"


async def cost_of_a_launch(form: str) -> tuple[int, int]:
    """Return the bytes of one launch, and those of the watch of Pods among them.

    The first launch is left out: its events name the columns and describe them.
    """
    async with open_world(watched(form)) as world:
        await launch(world, "sb-1")
        before = received(world), received(world, pods=True)
        await launch(world, "sb-2")
        return received(world) - before[0], received(world, pods=True) - before[1]


@pytest.mark.parametrize(
    ("form", "most", "most_for_pods"),
    [("table", 13_400, 3_600), ("full", 13_100, 6_200)],
)
async def test_a_launch_takes_so_many_bytes_at_most(
    form: str, most: int, most_for_pods: int
) -> None:
    """Budget: what the forms of the watch cost, a tenth more than measured."""
    cost = await cost_of_a_launch(form)
    assert 0 < cost[0] <= most, cost
    assert 0 < cost[1] <= most_for_pods, cost


async def test_a_warm_claim_takes_so_many_bytes_at_most() -> None:
    """Budget: the claim, its member and the replacement until that is Ready."""
    async with open_claims("m1") as world:
        before = received(world)
        world.plane.store.create(claim())
        await world.until(lambda: bound_name(world))
        await world.moments(300)
        await world.clock.advance(2.0)
        await world.moments(300)
        await run_pods(world)
        assert 0 < received(world) - before <= 47_400


async def test_a_response_is_metadata_unless_that_would_hide_what_others_wrote() -> None:
    """Statuses and new Pods come back as metadata; a Sandbox is launched from its whole response.

    So are what binds and the claim's annotations: somebody may have written more just before.
    """
    async with open_claims("m1") as world:
        world.forget_requests()
        await world.create(claim())
        await world.advance(0.5)
        await run_pods(world)
        await world.advance(5.0)
        writes: dict[bool, set[str]] = {True: set(), False: set()}
        for one in world.plane.audit.entries:
            if one.user == CONTROLLER and one.verb in ("create", "patch"):
                writes["as=PartialObjectMetadata" in one.accept].add(one.what)
        statuses = {f"patch {kind}/status" for kind in ("sandboxes", "sandboxclaims")}
        assert writes[True] == {"create pods", "create events", *statuses}
        bound = {"patch sandboxes", "patch pods", "patch sandboxclaims"}
        assert writes[False] == {"create sandboxes", *bound}
