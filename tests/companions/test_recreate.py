"""recreate: failed Pods are deleted so that the controller makes the next, with a backoff."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lean_sandbox.companions.recreate import pause_s
from lean_sandbox.model.times import parse_rfc3339
from tests.companions.support import PREFIX, annotate, counts, notes, reports, warned_of
from tests.support.builders import placed, pool
from tests.support.clock import FakeClock
from tests.support.extensions import settings
from tests.support.names import TEMPLATES
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
    given_ = settings(**{"companions": ("recreate",), **more})
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
    # kube-apiserver stores null for a time that whoever writes a condition does not give.
    undated = {"type": "Checked", "status": "True", "lastTransitionTime": None}
    conditions = [*world.pod()["status"]["conditions"], undated]
    said = {"containerStatuses": states, "conditions": conditions, **status}
    await world.pod_status(phase="Failed", **said)
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
        await world.advance(400.0)
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


@pytest.mark.parametrize(("lived_s", "count"), [(590.0, "2"), (600.0, "1")])
async def test_a_pod_that_lived_for_long_begins_a_new_row(lived_s: float, count: str) -> None:
    """As the restarts of a container do after ten minutes."""
    async with open_recreating({POLICY: "Recreate"}) as world:
        await fail(world)
        await world.advance(15.0)
        await world.run_pod()
        made = parse_rfc3339(world.pod()["metadata"]["creationTimestamp"])
        await world.advance(lived_s - (world.clock.now() - made).total_seconds())
        await fail(world)
        await world.advance(11.0)
        assert notes(world.get())[PREFIX + "pod-failure-count"] == count


async def test_more_failures_than_the_limit_are_left_alone() -> None:
    """The Pod that failed last stays, and a Warning says which annotation keeps it."""
    wishes = {POLICY: "Recreate", PREFIX + "pod-failure-limit": "1"}
    async with open_recreating(wishes) as world:
        await fail(world)
        await world.advance(15.0)
        await world.run_pod()
        failed = await fail(world)
        await world.advance(400.0)
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
        await world.advance(400.0)
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


async def test_two_wrong_values_of_one_object_are_told_once_each() -> None:
    """Before any Pod has failed, however often somebody looks at it, and apart from others."""
    wrong = {POLICY: "Always", PREFIX + "pod-failure-limit": "many"}
    async with open_recreating(wrong, companions=("idle", "recreate")) as world:
        assert counts(world, "recreate") == {"InvalidAnnotation": 2}
        assert counts(world, "idle") == {}
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
        await world.advance(400.0)
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


@asynccontextmanager
async def open_made(case: str = "") -> AsyncIterator[World]:
    """Open a world in which another controller has made a Sandbox that asks for it, and its Pod."""
    given_ = settings(companions=("recreate",))
    async with open_world(given_, one_time=True, clock=FakeClock(), companions_only=True) as world:
        mode = "Suspended" if case == "suspended" else "Running"
        metadata: Json = {"annotations": {POLICY: "Recreate"}}
        if case == "free":
            owner = controlled_by(world.plane.store.create(pool()))
            metadata["ownerReferences"] = [owner]
        made = world.plane.store.create(sandbox(spec={"operatingMode": mode}, metadata=metadata))
        owners = () if case == "foreign" else (controlled_by(made),)
        world.plane.store.create(pod_body(owners=owners, labels=tracking()))
        world.forget_requests()
        yield world


@pytest.mark.parametrize("case", ["suspended", "free", "foreign"])
async def test_pods_that_are_not_made_anew_are_left_alone(case: str) -> None:
    """Of a suspended Sandbox, of a free member, which its pool replaces, and of somebody else."""
    async with open_made(case) as world:
        write_pod_status(world.plane, "sb-1", {"phase": "Failed"})
        await world.advance(60.0)
        assert not world.asked(events=True)


@pytest.mark.parametrize("is_disrupted", [True, False])
async def test_a_date_in_the_future_stops_nothing(*, is_disrupted: bool) -> None:
    """By the clock of a node that is ahead, or by a tenant: it counts as now."""
    soon = "2026-01-02T04:04:05Z"
    async with open_made() as world:
        uid = uid_of_pod(world)
        told = {"pod_failure_count": "1", "pod_failure_time": soon, "pod_failure_uid": uid}
        await annotate(world, "sandboxes", "sb-1", **told)
        conditions = [{**DISRUPTED, "lastTransitionTime": soon}] if is_disrupted else []
        write_pod_status(world.plane, "sb-1", {"phase": "Failed", "conditions": conditions})
        await world.advance(9.0)
        assert uid_of_pod(world) == uid
        await world.advance(12.0)
        assert uid_of_pod(world) is None
        why = "disruption" if is_disrupted else "failure 1 in a row"
        note = f'Deleted failed Pod "sb-1" so that another is made: {why}'
        assert reports(world) == [("Sandbox", "PodRecreated", note)]


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
