"""recreate: failed Pods are deleted so that the controller makes the next, with a backoff."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lean_sandbox.companions.recreate import LONG_LIFE_S, PodFailures, counted, pause_s
from tests.companions.support import PREFIX, annotate, counts, notes, reports, warned_of
from tests.support.builders import placed
from tests.support.clock import FakeClock
from tests.support.extensions import open_claims, settings
from tests.support.names import TEMPLATES
from tests.support.suspension import suspend
from tests.support.world import (
    NS,
    World,
    controlled_by,
    open_world,
    pod_body,
    sandbox,
    tracking,
    write_pod_status,
)

Json = dict[str, Any]
POLICY = "agents.x-k8s.io/pod-failure-policy"
DISRUPTED = {"type": "DisruptionTarget", "status": "True"}


@asynccontextmanager
async def open_recreating(
    annotations: dict[str, str] | None = None, *, before: tuple[Json, ...] = (), **more: Any
) -> AsyncIterator[World]:
    """Open a world with the companion and a Sandbox that is Ready; one clock for all."""
    given_ = settings(companions=("recreate",), **more)
    async with open_world(given_, one_time=True, clock=FakeClock(), before=before) as world:
        metadata = {"annotations": annotations or {}}
        await world.ready_sandbox(sandbox(metadata=metadata))
        world.forget_requests()
        yield world


async def fail(world: World, reason: str = "Error", **status: Any) -> str:
    """Let the Pod fail as its kubelet reports it, and return its uid."""
    ended = {"terminated": {"exitCode": 1, "reason": reason}}
    container = {"name": "main", "image": "busybox", "imageID": "", "ready": False}
    states = [{**container, "restartCount": 0, "state": ended}]
    uid: str = world.pod()["metadata"]["uid"]
    await world.pod_status(phase="Failed", containerStatuses=states, **status)
    return uid


def uid_of_pod(world: World) -> str | None:
    """Return the uid of the Pod, None without one."""
    pod = world.find("pods")
    return None if pod is None else str(pod["metadata"]["uid"])


async def test_a_failed_pod_is_made_anew_after_ten_seconds() -> None:
    """The Sandbox counts the failure, the Pod goes, and the controller makes the next."""
    async with open_recreating({POLICY: "Recreate"}) as world:
        failed = await fail(world)
        await world.advance(9.0)
        assert uid_of_pod(world) == failed
        await world.advance(2.0)
        assert uid_of_pod(world) not in (None, failed)
        found = notes(world.get())
        assert found[PREFIX + "pod-failure-count"] == "1"
        assert found[PREFIX + "pod-failure-uid"] == failed
        note = 'Deleted failed Pod "sb-1" (Error) so that another is made: failure 1 in a row'
        assert ("Sandbox", "PodRecreated", note) in reports(world)
        assert warned_of(world) == []


@pytest.mark.parametrize(
    ("ends", "named"),
    [
        ((), ""),
        (({"exitCode": 0, "reason": "Completed"}, {"exitCode": 2, "reason": "Error"}), " (Error)"),
        (({"exitCode": 0, "reason": "Completed"}, {"exitCode": 2}), ""),
        (({"reason": "Completed"},), ""),
    ],
)
async def test_the_reason_that_is_told_is_that_of_a_container_that_failed(
    ends: tuple[Json, ...], named: str
) -> None:
    """Without one, none is told."""
    async with open_recreating({POLICY: "Recreate"}) as world:
        container = {"image": "busybox", "imageID": "", "ready": False, "restartCount": 0}
        states = [
            {**container, "name": f"c-{number}", "state": {"terminated": end}}
            for number, end in enumerate(ends)
        ]
        await world.pod_status(phase="Failed", containerStatuses=states)
        await world.advance(11.0)
        note = f'Deleted failed Pod "sb-1"{named} so that another is made: failure 1 in a row'
        assert ("Sandbox", "PodRecreated", note) in reports(world)


async def test_a_failure_costs_one_patch_and_one_delete() -> None:
    """Beside what the controller writes about any failed and any new Pod."""
    async with open_recreating({POLICY: "Recreate"}) as world:
        await fail(world)
        await world.advance(30.0)
        made = world.writes()
        assert made["patch sandboxes"] == 1
        assert made["delete pods"] == 1
        assert world.asked()["get sandboxes"] + world.asked()["get pods"] <= 2


@pytest.mark.parametrize("policy", [None, "Ignore"])
async def test_nothing_is_done_unasked(policy: str | None) -> None:
    """Without the annotation, or with Ignore, a failed Pod stays, and no request is made."""
    async with open_recreating({} if policy is None else {POLICY: policy}) as world:
        failed = await fail(world)
        await world.advance(3600.0)
        assert uid_of_pod(world) == failed
        assert set(world.writes()) <= {"patch sandboxes/status"}
        assert not reports(world)


async def test_each_failure_in_a_row_waits_twice_as_long() -> None:
    """10, 20 and 40 s: the count in the annotations goes on across Pods."""
    async with open_recreating({POLICY: "Recreate"}) as world:
        for pause_s in (10.0, 20.0, 40.0):
            failed = await fail(world)
            await world.advance(pause_s - 1.0)
            assert uid_of_pod(world) == failed
            await world.advance(2.0)
            assert uid_of_pod(world) not in (None, failed)
            await world.run_pod()
        assert notes(world.get())[PREFIX + "pod-failure-count"] == "3"


async def test_a_pod_that_lived_for_long_begins_a_new_row() -> None:
    """As the restarts of a container do after ten minutes."""
    async with open_recreating({POLICY: "Recreate"}) as world:
        await fail(world)
        await world.advance(15.0)
        await world.run_pod()
        await world.advance(LONG_LIFE_S + 1.0)
        await fail(world)
        await world.advance(11.0)
        assert notes(world.get())[PREFIX + "pod-failure-count"] == "1"


async def test_more_failures_than_the_limit_are_left_alone() -> None:
    """The Pod that failed last stays, and a Warning says which annotation keeps it."""
    wishes = {POLICY: "Recreate", PREFIX + "pod-failure-limit": "1"}
    async with open_recreating(wishes) as world:
        await fail(world)
        await world.advance(15.0)
        await world.run_pod()
        failed = await fail(world)
        await world.advance(3600.0)
        assert uid_of_pod(world) == failed
        (told,) = [note for _, reason, note in reports(world) if reason == "PodFailureLimitReached"]
        assert "pod-failure-limit" in told
        assert "delete the Pod" in told
        assert warned_of(world) == ["PodFailureLimitReached"]
        await annotate(world, "sandboxes", "sb-1", note="another look")
        assert counts(world, "recreate")["PodFailureLimitReached"] == 1


async def test_a_disruption_does_not_count() -> None:
    """An evicted Pod is made anew, by whichever comes first, and no annotation is written."""
    async with open_recreating({POLICY: "Recreate"}) as world:
        at = "2026-01-02T03:04:05Z"
        target = {**DISRUPTED, "lastTransitionTime": at}
        conditions = [*world.pod()["status"]["conditions"], target]
        failed = await fail(world, conditions=conditions)
        await world.advance(11.0)
        assert uid_of_pod(world) not in (None, failed)
        assert "patch sandboxes" not in world.writes()


async def test_a_pod_that_succeeded_is_left_alone() -> None:
    """Its work is done."""
    async with open_recreating({POLICY: "Recreate"}) as world:
        done = uid_of_pod(world)
        await world.pod_status(phase="Succeeded")
        await world.advance(600.0)
        assert uid_of_pod(world) == done


@pytest.mark.parametrize(
    ("wishes", "named", "fix"),
    [
        ({POLICY: "recreate"}, POLICY, "Recreate nor Ignore"),
        ({POLICY: "Recreate", PREFIX + "pod-failure-limit": "-1"}, "limit", "from 1 to"),
        ({POLICY: "Recreate", PREFIX + "pod-failure-limit": "9" * 40}, "limit", "from 1 to"),
        ({POLICY: "Recreate", PREFIX + "pod-failure-limit": ""}, "limit", "from 1 to"),
    ],
)
async def test_a_wrong_value_is_told_once_and_does_nothing(
    wishes: dict[str, str], named: str, fix: str
) -> None:
    """The Event names the annotation and what it may be; the Pod stays until that is mended."""
    async with open_recreating(wishes) as world:
        failed = await fail(world)
        await world.advance(60.0)
        assert uid_of_pod(world) == failed
        ((kind, reason, note),) = reports(world)
        assert (kind, reason) == ("Sandbox", "InvalidAnnotation")
        assert warned_of(world) == [reason]
        assert named in note
        assert fix in note
        mended = {POLICY: "Recreate", PREFIX + "pod-failure-limit": None}
        await world.patch("sandboxes", "sb-1", {"metadata": {"annotations": mended}})
        await world.advance(11.0)
        assert uid_of_pod(world) not in (None, failed)


async def test_wrong_values_are_told_before_any_pod_has_failed() -> None:
    """Whoever writes them learns it at once."""
    async with open_recreating({POLICY: "Always", PREFIX + "pod-failure-limit": "many"}) as world:
        assert counts(world, "recreate") == {"InvalidAnnotation": 2}


async def test_two_wrong_values_of_one_object_are_told_once_each() -> None:
    """However often somebody looks at it."""
    wrong = {POLICY: "Always", PREFIX + "pod-failure-limit": "many"}
    async with open_recreating(wrong) as world:
        await fail(world)
        for number in range(5):
            await annotate(world, "sandboxes", "sb-1", look=str(number))
        await world.advance(60.0)
        assert counts(world, "recreate") == {"InvalidAnnotation": 2}


async def test_the_template_asks_for_its_sandboxes_and_a_sandbox_for_itself() -> None:
    """The nearest annotation wins."""
    wanting = placed(metadata=None)
    wanting["metadata"]["annotations"] = {POLICY: "Recreate"}
    ref = {"agents.x-k8s.io/sandbox-template-ref": "tpl"}
    async with open_recreating(ref, before=(wanting,)) as world:
        failed = await fail(world)
        await world.advance(11.0)
        assert uid_of_pod(world) not in (None, failed)
        own = {"metadata": {"annotations": {POLICY: "Ignore"}}}
        await world.patch("sandboxes", "sb-1", own)
        await world.run_pod()
        failed = await fail(world)
        await world.advance(600.0)
        assert uid_of_pod(world) == failed


async def test_a_template_that_begins_to_ask_reaches_pods_that_have_failed_before() -> None:
    """Nobody has to touch each Sandbox."""
    ref = {"agents.x-k8s.io/sandbox-template-ref": "tpl"}
    async with open_recreating(ref, before=(placed(),)) as world:
        failed = await fail(world)
        await world.advance(60.0)
        wish = {"metadata": {"annotations": {POLICY: "Recreate"}}}
        await world.patch(TEMPLATES, "tpl", wish)
        await world.advance(11.0)
        assert uid_of_pod(world) not in (None, failed)


async def test_a_suspended_sandbox_and_a_foreign_pod_are_left_alone() -> None:
    """Suspension deletes the Pod itself; a Pod of somebody else is nobody's to delete."""
    async with open_recreating({POLICY: "Recreate"}) as world:
        await suspend(world)
        await world.advance(5.0)
        await world.advance(60.0)
        assert "patch sandboxes" not in world.writes()


async def test_the_pods_of_free_members_are_left_alone() -> None:
    """The pool replaces the whole member."""
    async with open_claims(
        "m-1", companions=("recreate",), clock=FakeClock(), one_time=True
    ) as world:
        wish = {"metadata": {"annotations": {POLICY: "Recreate"}}}
        await world.patch("sandboxes", "m-1", wish)
        world.forget_requests()
        await world.pod_status("m-1", phase="Failed")
        await world.advance(15.0)
        assert world.writes()["patch sandboxes"] == 0
        assert not reports(world)


async def test_a_policy_that_drops_the_count_makes_no_loop() -> None:
    """One PATCH a failure, even where somebody takes the annotations off again at once."""
    async with open_recreating({POLICY: "Recreate"}) as world:

        async def drop() -> None:
            names = ("pod_failure_count", "pod_failure_time", "pod_failure_uid")
            await annotate(world, "sandboxes", "sb-1", **dict.fromkeys(names))

        failed = await fail(world)
        await drop()
        await world.advance(5.0)
        await drop()
        await world.advance(6.0)
        assert uid_of_pod(world) not in (None, failed)
        assert world.writes()["patch sandboxes"] == 1


@pytest.mark.parametrize("is_disrupted", [True, False])
async def test_a_date_in_the_future_stops_nothing(*, is_disrupted: bool) -> None:
    """By the clock of a node that is ahead, or by a tenant: it counts as now."""
    soon = "2026-01-02T04:04:05Z"
    given_ = settings(companions=("recreate",))
    async with open_world(given_, one_time=True, clock=FakeClock(), companions_only=True) as world:
        owner = world.plane.store.create(sandbox(metadata={"annotations": {POLICY: "Recreate"}}))
        body = pod_body(owners=(controlled_by(owner),), labels=tracking())
        uid = world.plane.store.create(body)["metadata"]["uid"]
        told = {"pod_failure_count": "1", "pod_failure_time": soon, "pod_failure_uid": uid}
        await annotate(world, "sandboxes", "sb-1", **told)
        conditions = [{**DISRUPTED, "lastTransitionTime": soon}] if is_disrupted else []
        write_pod_status(world.plane, "sb-1", {"phase": "Failed", "conditions": conditions})
        await world.advance(9.0)
        assert uid_of_pod(world) == uid
        await world.advance(12.0)
        assert uid_of_pod(world) is None
        ((_, _, note),) = reports(world)
        assert note.endswith(" made: disruption" if is_disrupted else " made: failure 1 in a row")


async def test_a_pod_that_a_finalizer_keeps_is_deleted_once() -> None:
    """Though the watch is behind, and others write to the Sandbox."""
    async with open_recreating({POLICY: "Recreate"}) as world:
        world.plane.store.patch("pods", NS, "sb-1", {"metadata": {"finalizers": ["example.com/a"]}})
        await fail(world)
        held = world.plane.hold_events("pods")
        await world.advance(11.0)
        await annotate(world, "sandboxes", "sb-1", look="again")
        await world.advance(5.0)
        held.release()
        assert counts(world, "recreate") == {"PodRecreated": 1}


@pytest.mark.parametrize(
    ("count", "pause"), [(0, 10.0), (1, 10.0), (2, 20.0), (5, 160.0), (6, 300.0), (10**9, 300.0)]
)
def test_a_pause_is_twice_as_long_as_the_one_before(count: int, pause: float) -> None:
    """But never longer than five minutes."""
    assert pause_s(count) == pause


@given(lived=st.floats(0.0, 1e6), count=st.integers(0, 1000))
@example(lived=LONG_LIFE_S, count=1)
def test_a_row_grows_by_one_or_begins_anew(lived: float, count: int) -> None:
    """Nothing else becomes of the count."""
    after = counted(PodFailures(count), "uid", lived_s=lived, now_s=0.0)
    assert after.count == (1 if lived >= LONG_LIFE_S else count + 1)
