"""What a user changes of a claim beside a crowd does not wait for the crowd to be served."""

from __future__ import annotations

from tests.controllers.claim.test_crowd import is_ready
from tests.controllers.claim.test_pools_beside_a_crowd import beside_a_crowd
from tests.support.builders import claim
from tests.support.extensions import bound_name
from tests.support.names import CLAIMS
from tests.support.world import NS


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
