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


async def fail_for_long(world: World, body: Json, made: str) -> None:
    """Create an object for which nothing can be made, and let time pass; then it could be."""
    deny(world, f"create {made.partition('.')[0]}", BY_POLICY)
    await world.create(body)
    await world.advance(1200.0)
    world.plane.faults.clear()
    # The next try fails as well, whatever it begins with.
    world.plane.fail_next("*", "*", 500, times=1, match=lambda asked: asked.resource != "events")


@pytest.mark.parametrize("act", ["edited", "made anew"])
@pytest.mark.parametrize(
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
async def test_there_is_no_pause_for_what_failed_before(
    resource: str, body: Json, edit: Json, made: str, act: str
) -> None:
    """Twenty minutes of failures are over, and the first try after the act fails once more.

    What is made anew at once, without a reconcile in between, has no pause of its predecessor. Four
    seconds are the longest that a pool waits.
    """
    async with open_pools(placed(), pool(replicas=0)) as world:
        before = len(world.plane.store.list(made, NS))
        await fail_for_long(world, body, made)
        name = body["metadata"]["name"]
        if act == "edited":
            world.plane.store.patch(resource, NS, name, {"spec": edit})
        else:
            world.plane.store.delete(resource, NS, name, grace_s=0)
            world.plane.store.create(body)
        await world.advance(4.1)
        assert len(world.plane.store.list(made, NS)) > before
