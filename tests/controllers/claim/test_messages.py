"""What claims tell in corners where a text or an annotation of the wrong case would mislead."""

from __future__ import annotations

from datetime import timedelta

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.model.times import format_rfc3339
from tests.support.builders import claim
from tests.support.clock import EPOCH
from tests.support.extensions import bound_name, get_claim, open_claims, ready_of
from tests.support.names import ANNOTATION, CLAIMS, POOLS
from tests.support.world import NS, sandbox


async def test_a_dead_reference_of_an_old_release_leaves_nothing_behind() -> None:
    """The label goes, the claim starts cold, and no annotation says that it came from a pool."""
    async with open_claims(replicas=0) as world:
        metadata = {"labels": {ANNOTATION: "gone"}}
        await world.create(claim(metadata=metadata))
        await world.run_pod("c")
        await world.advance(5.0)
        assert bound_name(world) == "c"
        held = get_claim(world)["metadata"]
        assert ANNOTATION not in held.get("labels", {})
        assert ANNOTATION not in held["annotations"]


async def test_a_bound_claim_whose_pool_is_gone_says_just_that() -> None:
    """Also when it asks for metadata, which cannot be compared without a template."""
    async with open_claims("m1") as world:
        asked = {"annotations": {"example.com/note": "x"}}
        await world.create(claim(additionalPodMetadata=asked))
        await world.advance(3.0)
        assert ready_of(world)[0] == "True"
        world.plane.store.delete(POOLS, NS, "pool", grace_s=0)
        await world.advance(1.0)
        await world.patch(CLAIMS, "c", {"metadata": {"labels": {"touched": "1"}}})
        await world.patch(CLAIMS, "c", {"spec": {"lifecycle": {"shutdownPolicy": "Retain"}}})
        await world.advance(3.0)
        assert ready_of(world)[1:] == ("WarmPoolNotFound", 'SandboxWarmPool "pool" not found')


async def test_an_expired_claim_does_not_say_that_a_foreign_namesake_is_cleaned_up() -> None:
    """The Sandbox of the claim's name is somebody else's: it stays, and the claim says so."""

    def more(plane: ControlPlane) -> None:
        plane.store.create(sandbox("c"))

    async with open_claims(replicas=0, prepare=more) as world:
        at = format_rfc3339(EPOCH + timedelta(seconds=5))
        lifecycle = {"shutdownTime": at, "shutdownPolicy": "Retain"}
        await world.create(claim(lifecycle=lifecycle))
        await world.advance(20.0)
        _, reason, message = ready_of(world)
        assert reason == "ClaimExpired"
        assert message.startswith("Claim expired. sandbox not owned by this claim: ")
        assert message.endswith("; deletion skipped.")
        assert world.find("sandboxes", "c") is not None
