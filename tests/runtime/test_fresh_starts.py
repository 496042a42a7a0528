"""What failed before says nothing of another spec, nor of another object of the name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import claim, placed, pool
from tests.support.extensions import open_pools
from tests.support.names import CLAIMS, POLICIES, POOLS, SANDBOXES, TEMPLATES
from tests.support.refusals import BY_POLICY, deny
from tests.support.world import NS, World, sandbox

Json = dict[str, Any]

POLICY_EDIT = {"networkPolicy": {"egress": [{"ports": [{"port": 443}]}]}}
kinds = pytest.mark.parametrize(
    ("resource", "body", "edit", "made"),
    [
        pytest.param(SANDBOXES, sandbox(), {"service": True}, "pods", id="Sandbox"),
        pytest.param(
            CLAIMS, claim(), {"lifecycle": {"shutdownPolicy": "Retain"}}, SANDBOXES, id="claim"
        ),
        pytest.param(POOLS, pool("p", 1), {"replicas": 2}, SANDBOXES, id="pool"),
        pytest.param(TEMPLATES, placed("fresh"), POLICY_EDIT, POLICIES, id="template"),
    ],
)


async def fail_for_an_hour(world: World, body: Json, made: str) -> None:
    """Create an object for which nothing can be made, and let time pass; then it could be."""
    plural = made.partition(".")[0]
    deny(world, f"create {plural}", BY_POLICY)
    await world.create(body)
    await world.advance(3600.0)
    world.plane.faults.clear()
    # The next try fails as well, whatever it begins with.
    world.plane.fail_next("*", "*", 500, times=1, match=lambda asked: asked.resource != "events")


async def is_made_soon(world: World, made: str, before: int) -> bool:
    """Tell whether something is made within the longest pause of a pool, four seconds."""
    await world.advance(4.1)
    return len(world.plane.store.list(made, NS)) > before


@kinds
async def test_an_edited_object_has_no_pause_for_what_failed_before(
    resource: str, body: Json, edit: Json, made: str
) -> None:
    """An hour of failures is ended by an edit, whose first try fails as well."""
    async with open_pools(placed(), pool(replicas=0)) as world:
        before = len(world.plane.store.list(made, NS))
        await fail_for_an_hour(world, body, made)
        await world.patch(resource, body["metadata"]["name"], {"spec": edit})
        assert await is_made_soon(world, made, before)


@kinds
async def test_an_object_made_anew_has_no_pause_of_its_predecessor(
    resource: str, body: Json, edit: Json, made: str
) -> None:
    """It was deleted and made again at once, so that no reconcile came between."""
    del edit
    async with open_pools(placed(), pool(replicas=0)) as world:
        before = len(world.plane.store.list(made, NS))
        await fail_for_an_hour(world, body, made)
        world.plane.store.delete(resource, NS, body["metadata"]["name"], grace_s=0)
        world.plane.store.create(body)
        assert await is_made_soon(world, made, before)
