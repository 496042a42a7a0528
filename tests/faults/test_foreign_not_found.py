"""A 404 that is not the server's own word about an object is no proof that the object is gone.

For an object that it does not have, kube-apiserver sends a Status of reason NotFound. Anything else
with that code comes from a proxy in front of it, or says that the path is unknown.
"""

from __future__ import annotations

import pytest

from tests.support.builders import claim, placed, pool
from tests.support.extensions import (
    bound_name,
    change_pool,
    fill,
    members,
    open_claims,
    open_pools,
    pool_status,
    ready_of,
    rest,
    run_all,
)
from tests.support.suspension import suspend
from tests.support.world import World, condition, open_world, sandbox

LONG_S = 60.0
BODIES = {
    "text": b"404 page not found\n",
    "html": b"<html><head><title>404 Not Found</title></head><body>nginx</body></html>",
    "json": b'{"message":"no Route matched with those values"}',
    "empty": b"",
}
each_body = pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)


def misroute(world: World, asked: str, body: bytes = BODIES["text"], *, times: int = 1) -> None:
    """Have a proxy answer the next requests of this kind, which do not reach the server."""
    verb, resource = asked.split()
    world.plane.fail_next(verb, resource, 404, body=body, times=times)


@each_body
@pytest.mark.parametrize("asked", ["get sandboxes", "patch sandboxes/status", "get pods"])
async def test_a_launch_beside_foreign_404s_ends_ready(asked: str, body: bytes) -> None:
    """The Sandbox is not forgotten, and its Pod is created once."""
    async with open_world() as world:
        misroute(world, asked, body)
        await world.create(sandbox())
        await world.advance(LONG_S)
        await world.run_pod()
        await world.advance(LONG_S)
        assert condition(world.get(), "Ready")["status"] == "True"
        assert world.asked()["create pods"] == 1


@each_body
async def test_a_sandbox_is_suspended_when_its_pod_has_gone(body: bytes) -> None:
    """A deletion that did not reach the server is repeated; until then Suspended is not True."""
    async with open_world() as world:
        await world.ready_sandbox()
        misroute(world, "delete pods", body)
        await suspend(world)
        await world.advance(2.0)
        assert "deletionTimestamp" in world.pod()["metadata"]
        assert condition(world.get(), "Suspended")["status"] == "False"
        await world.delete("pods", "sb-1")
        assert condition(world.get(), "Suspended")["status"] == "True"


@pytest.mark.parametrize("asked", ["delete sandboxes", "patch sandboxes/status"])
async def test_an_expired_sandbox_is_deleted(asked: str) -> None:
    """Neither its mark nor its deletion is taken for done."""
    async with open_world() as world:
        await world.ready_sandbox()
        misroute(world, asked)
        spec = {"shutdownTime": "2020-01-01T00:00:00Z", "shutdownPolicy": "Delete"}
        await world.patch("sandboxes", "sb-1", {"spec": spec})
        await world.advance(LONG_S)
        assert world.find("sandboxes") is None


@each_body
@pytest.mark.parametrize("asked", ["patch sandboxes", "patch sandboxclaims/status"])
async def test_a_claim_gets_the_ready_member(asked: str, body: bytes) -> None:
    """A write of the binding that did not reach the server loses neither claim nor member."""
    async with open_claims("m1") as world:
        misroute(world, asked, body)
        await world.create(claim())
        await world.advance(3.0)
        assert (bound_name(world), ready_of(world)[0]) == ("m1", "True")
        assert world.find("sandboxes", "c") is None


async def test_a_claim_does_not_report_a_pool_as_missing() -> None:
    """The GET of a pool that no watch has shown yet is repeated until the server answers."""
    async with open_pools() as world:
        held = world.plane.hold_events("sandboxwarmpools")
        await world.create(placed())
        world.plane.store.create(pool(replicas=0))
        misroute(world, "get sandboxwarmpools", times=2)
        await world.create(claim())
        await world.advance(5.0)
        assert bound_name(world) == "c"
        held.release()


@pytest.mark.parametrize("asked", ["patch sandboxwarmpools/status", "delete sandboxes"])
async def test_a_pool_shrinks_beside_foreign_404s(asked: str) -> None:
    """Members are deleted and counted in the end."""
    async with open_pools() as world:
        await fill(world)
        misroute(world, asked)
        await change_pool(world, {"replicas": 1})
        await rest(world, LONG_S)
        await run_all(world)
        assert len(members(world)) == 1
        assert pool_status(world)["replicas"] == 1


async def test_what_is_known_stays_while_no_list_arrives() -> None:
    """Watches that end and lists that lose their way: no object counts as deleted."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.cut_watches()
        for resource in ("sandboxes", "pods", "services"):
            misroute(world, f"list {resource}", times=3)
        world.plane.compact()
        world.forget_requests()
        await world.recover()
        await world.advance(LONG_S)
        assert condition(world.get(), "Ready")["status"] == "True"
        assert not world.writes()
