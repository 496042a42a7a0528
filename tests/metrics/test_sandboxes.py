"""What is counted of the lives of Sandboxes: suspends, resumes, ends and expiries."""

from __future__ import annotations

import pytest

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.metrics.scrape import Scraped, scraping
from tests.support.clock import FakeClock
from tests.support.world import NS, World, open_world, sandbox

SUSPENDS = "agent_sandbox_suspend_total"
RESUMES = "agent_sandbox_resume_total"
FINISHED = "agent_sandbox_finished_total"
EXPIRED = "agent_sandbox_expired_total"
SUSPEND_MS = "agent_sandbox_suspend_latency_ms"
RESUME_MS = "agent_sandbox_resume_latency_ms"
LABELS = {"namespace": NS, "sandbox_template": "unknown", "owned_by": "None"}


def results(found: Scraped, name: str) -> dict[str, float]:
    """Return a counter by its result."""
    return {labels["result"]: value for labels, value in found.find(name, **LABELS)}


async def set_mode(world: World, mode: str) -> None:
    """Ask for an operating mode."""
    await world.patch("sandboxes", "sb-1", {"spec": {"operatingMode": mode}})


async def end_pod(world: World) -> None:
    """End a Pod that was told to, as its kubelet does."""
    await world.delete("pods", "sb-1")


async def test_a_suspend_is_counted_from_the_request_to_the_end_of_the_pod() -> None:
    """Requested at the first reconcile, pod_terminated with Suspended=True; the time in between."""
    async with open_world() as world:
        await world.ready_sandbox()
        before = await scraping(world)
        await set_mode(world, "Suspended")
        await world.advance(2.5)
        during = await scraping(world)
        await end_pod(world)
        after = await scraping(world)
    assert SUSPENDS not in before.families
    assert results(during, SUSPENDS) == {"requested": 1.0}
    assert after.value(f"{SUSPEND_MS}_count", **LABELS) == 1
    assert after.value(f"{SUSPEND_MS}_sum", **LABELS) == 2500
    assert results(after, SUSPENDS) == {"requested": 1.0, "pod_terminated": 1.0}
    assert RESUMES.removesuffix("_total") not in after.families


async def test_a_resume_is_counted_from_the_request_to_ready() -> None:
    """Requested at the first reconcile after Suspended=True, ready with Ready=True."""
    async with open_world() as world:
        await world.ready_sandbox()
        await set_mode(world, "Suspended")
        await end_pod(world)
        await set_mode(world, "Running")
        during = await scraping(world)
        await world.advance(4.0)
        await world.run_pod()
        after = await scraping(world)
    assert results(during, RESUMES) == {"requested": 1.0}
    assert results(after, RESUMES) == {"requested": 1.0, "ready": 1.0}
    assert after.value(f"{RESUME_MS}_sum", **LABELS) == 4000
    assert after.value(f"{RESUME_MS}_bucket", **LABELS, le="2500") == 0
    assert after.value(f"{RESUME_MS}_bucket", **LABELS, le="5000") == 1


async def test_a_first_start_is_no_resume() -> None:
    """Neither becoming ready for the first time nor again after a lost Pod counts."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.delete("pods", "sb-1")
        await world.run_pod()
        found = await scraping(world)
    assert {SUSPENDS, RESUMES}.isdisjoint(f"{name}_total" for name in found.families)


async def test_a_change_of_mind_is_no_resume() -> None:
    """Running again before the Pod was gone: no resume, and no latency of the given-up suspend."""
    async with open_world() as world:
        await world.ready_sandbox()
        await set_mode(world, "Suspended")
        await set_mode(world, "Running")
        await end_pod(world)
        await world.run_pod()
        found = await scraping(world)
    assert results(found, SUSPENDS) == {"requested": 1.0}
    assert RESUMES.removesuffix("_total") not in found.families
    assert SUSPEND_MS not in found.families


async def test_failed_reconciles_of_a_suspend_are_counted() -> None:
    """A Pod that cannot be deleted counts as error each time, and only while it is tried."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.plane.fail_next("delete", "pods", 500, times=2)
        await set_mode(world, "Suspended")
        await world.advance(60.0)
        await end_pod(world)
        found = await scraping(world)
    assert results(found, SUSPENDS) == {"requested": 1.0, "error": 2.0, "pod_terminated": 1.0}


async def test_failed_reconciles_of_a_resume_are_counted() -> None:
    """A Pod that cannot be created on resume counts as error; failures later on do not."""
    async with open_world() as world:
        await world.ready_sandbox()
        await set_mode(world, "Suspended")
        await end_pod(world)
        world.plane.fail_next("create", "pods", 500, times=1)
        await set_mode(world, "Running")
        await world.advance(1.0)
        await world.run_pod()
        await world.delete("pods", "sb-1")
        found = await scraping(world)
    assert results(found, RESUMES) == {"requested": 1.0, "error": 1.0, "ready": 1.0}


async def test_a_restart_counts_nothing_twice() -> None:
    """A suspend whose beginning another process saw ends as one, and has no latency."""
    async with ControlPlane(LocalSettings(), clock=FakeClock()) as plane:
        async with open_world(plane=plane) as world:
            await world.ready_sandbox()
            await set_mode(world, "Suspended")
        async with open_world(plane=plane) as world:
            during = await scraping(world)
            await end_pod(world)
            after = await scraping(world)
        async with open_world(plane=plane) as world:
            again = await scraping(world)
    assert SUSPENDS.removesuffix("_total") not in during.families
    assert results(after, SUSPENDS) == {"pod_terminated": 1.0}
    assert SUSPEND_MS not in after.families
    assert SUSPENDS.removesuffix("_total") not in again.families


async def test_a_successor_of_the_same_name_starts_anew() -> None:
    """Nothing of a Sandbox that was deleted while it resumed is left for the next of its name."""
    async with open_world() as world:
        await world.ready_sandbox()
        await set_mode(world, "Suspended")
        await end_pod(world)
        await set_mode(world, "Running")
        await world.delete("sandboxes", "sb-1")
        await world.ready_sandbox()
        found = await scraping(world)
        assert not world.whole.sandboxes._context.metrics._under_way
    assert results(found, RESUMES) == {"requested": 1.0}


@pytest.mark.parametrize(
    ("phase", "reason"), [("Succeeded", "PodSucceeded"), ("Failed", "PodFailed")]
)
async def test_a_pod_that_ran_to_its_end_is_counted_once(phase: str, reason: str) -> None:
    """Finished counts when it is published, and not again however often it is reconciled."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.pod_status(phase=phase)
        await world.poke()
        found = await scraping(world)
    assert found.find(FINISHED) == [({**LABELS, "reason": reason}, 1.0)]


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
async def test_an_expiry_is_counted_once_with_its_policy(policy: str) -> None:
    """A Sandbox that reached its time counts under what happens to it then."""
    async with open_world() as world:
        spec = {"shutdownTime": "2026-01-02T03:05:05Z", "shutdownPolicy": policy}
        await world.ready_sandbox(sandbox(spec=spec))
        await world.advance(300.0)
        found = await scraping(world)
    assert found.find(EXPIRED) == [({**LABELS, "shutdown_policy": policy}, 1.0)]


async def test_owner_and_template_are_told() -> None:
    """The labels of a life's counters come from owner reference and annotation."""
    async with open_world() as world:
        owner = world.foreign_owner(kind="SandboxClaim")
        owner["apiVersion"] = "extensions.agents.x-k8s.io/v1alpha1"
        note = {"agents.x-k8s.io/sandbox-template-ref": "python"}
        metadata = {"ownerReferences": [owner], "annotations": note}
        await world.create(sandbox(metadata=metadata))
        await world.advance(1.0)
        await world.pod_status(phase="Failed")
        found = await scraping(world)
    wanted = {"namespace": NS, "sandbox_template": "python", "owned_by": "SandboxClaim"}
    assert found.value(FINISHED, **wanted, reason="PodFailed") == 1
