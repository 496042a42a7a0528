"""The examples of docs/companions.md do what the page says."""

from __future__ import annotations

from typing import Any

import yaml

from tests.companions.rolling import images, make_ready
from tests.companions.support import reasons
from tests.docs.pages import ROOT
from tests.support.builders import claim, placed
from tests.support.clock import FakeClock
from tests.support.extensions import get_claim, settings
from tests.support.names import CLAIMS, POOLS, SANDBOXES, TEMPLATES
from tests.support.world import NS, open_world

Json = dict[str, Any]


def example(name: str) -> Json:
    """Return a file that the page shows, in the namespace of the tests."""
    body: Json = yaml.safe_load((ROOT / "examples" / name).read_text())
    return {**body, "metadata": {**body["metadata"], "namespace": NS}}


async def test_the_pool_of_the_page_that_sizes_itself_has_members_for_its_claims() -> None:
    """At least two; after ten claims at once some more than that came, or more after misses."""
    given = settings(companions=("autosize",))
    before = (placed("python"), example("autosize.yaml"))
    async with open_world(given, clock=FakeClock(), one_time=True, before=before) as world:

        def size() -> int:
            found: int = world.plane.store.get(POOLS, NS, "sized")["spec"]["replicas"]
            return found

        await world.advance(10.0)
        assert size() == 2
        for number in range(10):
            world.plane.store.create(claim(f"c-{number}", pool="sized"))
        await world.advance(10.0)
        assert 11 <= size() <= 15
        assert "PoolResized" in reasons(world)


async def test_the_pool_of_the_page_ends_its_claims() -> None:
    """The claim ends after its lifetime of eight hours."""
    given = settings(companions=("defaults",))
    before = (placed("python"), example("claim-defaults.yaml"))
    async with open_world(given, clock=FakeClock(), one_time=True, before=before) as world:
        await world.create(claim(pool="ending"))
        await world.advance(10.0)
        lifecycle = get_claim(world)["spec"]["lifecycle"]
        assert lifecycle["ttlSecondsAfterFinished"] == 60
        assert lifecycle["shutdownPolicy"] == "Delete"
        assert reasons(world) == ["ClaimDefaultsApplied"]
        await world.advance(28800.0)
        assert world.find(CLAIMS, "c") is None


async def test_the_sandbox_of_the_page_that_nobody_uses_is_suspended() -> None:
    """After an hour."""
    given = settings(companions=("idle",))
    before = (example("idle.yaml"),)
    async with open_world(given, clock=FakeClock(), one_time=True, before=before) as world:
        await world.advance(3590.0)
        assert reasons(world) == []
        await world.advance(20.0)
        found = world.plane.store.get(SANDBOXES, NS, "notebook")
        assert found["spec"]["operatingMode"] == "Suspended"
        assert reasons(world) == ["IdleSuspended"]


async def test_the_sandbox_of_the_page_whose_pod_fails_gets_another_five_times() -> None:
    """The sixth failure in a row stays."""
    given = settings(companions=("recreate",))
    before = (example("recreate.yaml"),)
    async with open_world(given, clock=FakeClock(), one_time=True, before=before) as world:
        for _ in range(5):
            failed = world.pod("agent")["metadata"]["uid"]
            await world.pod_status("agent", phase="Failed")
            await world.advance(310.0)
            assert world.pod("agent")["metadata"]["uid"] != failed
        await world.pod_status("agent", phase="Failed")
        await world.advance(600.0)
        assert world.pod("agent")["status"]["phase"] == "Failed"
        assert "PodFailureLimitReached" in reasons(world)


async def test_the_pool_of_the_page_is_renewed_by_a_quarter_at_a_time() -> None:
    """Two of eight members are missing at most."""
    given = settings(companions=("rollout",))
    before = (placed("python"), example("rolling.yaml"))
    async with open_world(given, clock=FakeClock(), one_time=True, before=before) as world:
        await make_ready(world)
        spec = placed("python", image="busybox:2")["spec"]
        await world.patch(TEMPLATES, "python", {"spec": spec})
        for number in range(4):
            await world.advance(10.0)
            assert len(images(world)) == 8
            assert images(world).count("busybox:2") == 2 * number + 2
            await make_ready(world)
        await world.advance(10.0)
        assert sorted(reasons(world)) == ["MemberRenewed", "RolloutComplete"]
