"""Names that tenants wrote and no object can have: nothing is asked for, and nobody is in doubt."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.builders import claim, pool
from tests.support.extensions import bound_name, get_claim, open_claims, ready_of
from tests.support.names import ANNOTATION, POD_NAME, SANDBOXES
from tests.support.world import CONTROLLER, World, condition, open_world, sandbox

Json = dict[str, Any]
ODD = [
    "p1/proxy/admin",
    "p1%2Flog",
    "x/status",
    "..",
    "../../secrets",
    "x?watch=1",
    "UPPER",
    "a b",
    "-",
    "x" * 100_000,
]
ids = [name[:20] for name in ODD]
# A path of a request for something that can exist, with its subresource.
PLAIN = re.compile(r"/(?:api/v1|apis/[a-z0-9./-]+)/[a-z0-9./-]+", re.ASCII)


def paths(world: World) -> list[str]:
    """Return the paths of the controller's requests."""
    return [entry.path for entry in world.plane.audit.select(user=CONTROLLER)]


def assert_plain(world: World) -> None:
    """Fail if a request was sent for a name that no object can have."""
    asked = paths(world)
    assert [path for path in asked if not PLAIN.fullmatch(path) or ".." in path] == []
    assert [path for path in asked if re.search("proxy|/log|/exec|secrets", path)] == []


@pytest.mark.parametrize("odd", ODD, ids=ids)
async def test_a_pod_of_an_impossible_name_is_a_pod_that_does_not_exist(odd: str) -> None:
    """The Sandbox gets a Pod of its own name and loses the annotation; one launch, no more.

    One that comes later goes as well: clients would look for their Pod by it.
    """
    named = {"annotations": {POD_NAME: odd}}
    async with open_world() as world:
        world.forget_requests()
        await world.ready_sandbox(sandbox(metadata=named))
        assert condition(world.get(), "Ready")["status"] == "True"
        assert POD_NAME not in world.get()["metadata"].get("annotations", {})
        assert world.writes()["create pods"] == 1
        assert_plain(world)
        world.forget_requests()
        await world.patch(SANDBOXES, "sb-1", {"metadata": named})
        await world.advance(600.0)
        assert POD_NAME not in world.get()["metadata"].get("annotations", {})
        assert world.asked() == {"patch sandboxes": 1}


@pytest.mark.parametrize("odd", ODD, ids=ids)
async def test_a_pool_of_an_impossible_name_is_a_pool_that_does_not_exist(odd: str) -> None:
    """The claim says WarmPoolNotFound and nobody asks the server for it."""
    async with open_claims() as world:
        world.forget_requests()
        await world.create(claim("c1", pool=odd))
        assert ready_of(world, "c1")[:2] == ("False", "WarmPoolNotFound")
        await world.advance(600.0)
        assert not world.requests("get", "sandboxwarmpools")
        assert_plain(world)


@pytest.mark.parametrize("odd", ODD, ids=ids)
async def test_a_template_of_an_impossible_name_is_a_template_that_does_not_exist(odd: str) -> None:
    """The pool tells of it in an Event, makes no members, and nobody asks the server for it."""
    async with open_claims() as world:
        world.forget_requests()
        await world.create(pool("other", 2, template=odd))
        await world.create(claim("c1", pool="other"))
        await world.advance(600.0)
        assert ready_of(world, "c1")[0] == "False"
        assert not world.requests("get", "sandboxtemplates")
        assert not world.requests("create", "sandboxes")
        assert_plain(world)


@pytest.mark.parametrize("odd", ODD, ids=ids)
async def test_a_claim_that_names_an_impossible_sandbox_starts_one_of_its_own(odd: str) -> None:
    """The annotation is removed, and the claim gets a Sandbox of its own name."""
    async with open_claims() as world:
        world.forget_requests()
        await world.create(claim("c1", metadata={"annotations": {ANNOTATION: odd}}))
        await world.advance(30.0)
        assert world.find("sandboxes", "c1") is not None
        assert ANNOTATION not in get_claim(world, "c1")["metadata"]["annotations"]
        await world.run_pod("c1")
        assert bound_name(world, "c1") == "c1"
        assert ready_of(world, "c1")[0] == "True"
        assert_plain(world)
