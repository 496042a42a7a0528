"""Settings of the extension controllers whose effect no other test shows."""

from __future__ import annotations

import pytest

from tests.support.builders import claim
from tests.support.extensions import bound_name, open_claims
from tests.support.world import NS


@pytest.mark.parametrize(("grace_s", "waits_s"), [(0.0, 0.0), (5.0, 4.9)])
async def test_a_claim_waits_for_members_as_long_as_it_is_told(
    grace_s: float, waits_s: float
) -> None:
    """``--sandbox-claim-warm-candidate-grace-period``: then it is given a Sandbox of its own."""
    async with open_claims(
        "m1", ready=False, sandbox_claim_warm_candidate_grace_period=grace_s
    ) as world:
        await world.create(claim())
        if waits_s:
            await world.advance(waits_s)
            assert world.find("sandboxes", "c") is None
            await world.advance(0.2)
        assert bound_name(world) == "c"


async def test_no_template_workers_means_one() -> None:
    """As with the reference, which checks the workers of every kind but this."""
    async with open_claims("m1", sandbox_template_concurrent_workers=0) as world:
        assert world.plane.store.list("networkpolicies.networking.k8s.io", NS)
