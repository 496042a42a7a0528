"""A Pod that failed because of its node is not the end of the work: another Pod follows.

A kubelet whose node is shut down or short of memory or disk leaves such a Pod behind: phase Failed,
the condition DisruptionTarget True, and no deletion.
"""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.metrics.scrape import scraping
from tests.support.builders import claim
from tests.support.clock import FakeClock
from tests.support.conditions import types
from tests.support.extensions import bound_name, open_claims, ready_of
from tests.support.refusals import BY_POLICY
from tests.support.world import condition, open_world, pod_conditions, write_pod_status

Json = dict[str, Any]
FORMS = [
    pytest.param(LocalSettings(), id="columns"),
    pytest.param(LocalSettings(tables=False), id="metadata"),
    pytest.param(LocalSettings(tables=False, partial_metadata=False), id="full"),
]
KUBELET = "TerminationByKubelet"
DRAIN = "EvictionByEvictionAPI"


def ended(phase: str = "Failed", *, target: str = "True", reason: str = KUBELET) -> Json:
    """Return the status of a Pod that ended while a disruption was meant for it."""
    at = pod_conditions(ready=False)[0]["lastTransitionTime"]
    disruption = {
        "type": "DisruptionTarget",
        "status": target,
        "reason": reason,
        "lastTransitionTime": at,
    }
    conditions = [disruption, *pod_conditions(ready=False)]
    return {"phase": phase, "reason": "Terminated", "conditions": conditions}


@pytest.mark.parametrize("server", FORMS)
async def test_a_pod_that_failed_by_a_disruption_is_replaced_and_never_finished(
    server: LocalSettings,
) -> None:
    """It is deleted once, the next is made under its name, and Finished is reported at no time."""
    async with open_world(local=server) as world:
        await world.ready_sandbox()
        old = world.pod()["metadata"]["uid"]
        world.forget_requests()
        await world.pod_status(**ended())
        await world.advance(1.0)
        assert world.pod()["metadata"]["uid"] != old
        assert types(world) == ["PodScheduled", "Ready", "Suspended"]
        assert world.asked()["delete pods"] == world.asked()["create pods"] == 1
        await world.run_pod(ips=("10.244.0.6",))
        assert condition(world.get(), "Ready")["status"] == "True"
        found = await scraping(world)
    assert not found.find("agent_sandbox_finished_total")


async def test_a_disruption_found_at_the_start_is_followed_by_another_pod() -> None:
    """It happened while no controller ran."""
    async with ControlPlane(clock=FakeClock()) as plane:
        async with open_world(plane=plane) as world:
            await world.ready_sandbox()
            old = world.pod()["metadata"]["uid"]
        write_pod_status(plane, "sb-1", ended())
        async with open_world(plane=plane) as world:
            await world.advance(1.0)
            assert world.pod()["metadata"]["uid"] != old


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (ended("Succeeded"), "PodSucceeded"),
        (ended(target="False"), "PodFailed"),
        (ended(target="Unknown"), "PodFailed"),
    ],
)
async def test_what_ended_otherwise_is_finished(status: Json, reason: str) -> None:
    """Work that was completed in spite of a disruption, or failed after one that did not come."""
    async with open_world() as world:
        await world.ready_sandbox()
        old = world.pod()["metadata"]["uid"]
        await world.pod_status(**status)
        await world.advance(60.0)
        assert condition(world.get(), "Finished")["reason"] == reason
        assert world.pod()["metadata"]["uid"] == old


@pytest.mark.parametrize("reason", [KUBELET, DRAIN])
async def test_a_disruption_after_the_end_does_not_undo_it(reason: str) -> None:
    """A node that is drained marks the Pods that have ended on it as well."""
    async with open_world() as world:
        await world.ready_sandbox()
        old = world.pod()["metadata"]["uid"]
        await world.pod_status(phase="Failed", conditions=pod_conditions(ready=False))
        assert condition(world.get(), "Finished")["reason"] == "PodFailed"
        await world.pod_status(**ended(reason=reason))
        await world.advance(60.0)
        assert condition(world.get(), "Finished")["reason"] == "PodFailed"
        assert world.pod()["metadata"]["uid"] == old


async def test_a_disruption_that_has_not_ended_the_pod_changes_nothing() -> None:
    """The condition comes before the containers stop, and may be taken back."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.forget_requests()
        conditions = [*ended()["conditions"][:1], *pod_conditions(ready=True)]
        await world.pod_status(conditions=conditions)
        await world.advance(60.0)
        assert condition(world.get(), "Ready")["status"] == "True"
        assert not world.writes()


async def test_a_disrupted_pod_that_may_not_be_deleted_is_tried_again() -> None:
    """The Sandbox says so, and is not Finished."""
    async with open_world() as world:
        await world.ready_sandbox()
        old = world.pod()["metadata"]["uid"]
        world.plane.fail_next("delete", "pods", 403, times=3)
        await world.pod_status(**ended())
        assert condition(world.get(), "Ready")["reason"] == "ReconcilerError"
        assert "Finished" not in types(world)
        await world.advance(5.0)
        assert world.pod()["metadata"]["uid"] != old


async def test_a_disrupted_pod_goes_although_nobody_may_write_to_it() -> None:
    """A policy refuses the label that its template has got meanwhile."""
    async with open_world() as world:
        await world.ready_sandbox()
        old = world.pod()["metadata"]["uid"]
        world.plane.fail_next("patch", "pods", 422, times=1000, body=BY_POLICY)
        labels = {"podTemplate": {"metadata": {"labels": {"team": "blue"}}}}
        await world.patch("sandboxes", "sb-1", {"spec": labels})
        await world.pod_status(**ended())
        await world.advance(5.0)
        assert world.pod()["metadata"]["uid"] != old
        assert world.pod()["metadata"]["labels"]["team"] == "blue"


async def test_a_claim_outlives_the_disruption_of_its_pod() -> None:
    """Its time to live after the end does not begin."""
    async with open_claims("m1") as world:
        await world.create(claim(lifecycle={"ttlSecondsAfterFinished": 10}))
        assert bound_name(world) == "m1"
        await world.pod_status("m1", **ended())
        await world.advance(2.0)
        await world.run_pod("m1")
        await world.advance(60.0)
        assert ready_of(world)[0] == "True"
        assert bound_name(world) == "m1"
