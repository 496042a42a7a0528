"""Users, kubelets and failing networks in any order: a fresh controller finds nothing to mend."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.errors import StatusError
from tests.support.clock import FakeClock
from tests.support.names import SANDBOXES
from tests.support.world import (
    CONTROLLER,
    HASH_LABEL,
    NS,
    World,
    controlled_by,
    open_world,
    pod_body,
    pod_conditions,
    sandbox,
    tracking,
)

Json = dict[str, Any]
# Longer than any status is held back.
LONG_S = 310.0


def spec(**change: Any) -> Callable[[World], object]:
    """Return the edit of the Sandbox's spec."""
    body = {"spec": change}
    return lambda world: world.plane.store.patch(SANDBOXES, NS, "sb-1", body)


def pod(**change: Any) -> Callable[[World], object]:
    """Return the edit of the Pod's metadata."""
    return lambda world: world.plane.store.patch("pods", NS, "sb-1", {"metadata": change})


def pod_is(phase: str, *, ready: bool = False, ip: str = "10.244.0.5") -> Callable[[World], object]:
    """Return what a kubelet writes."""
    running = {"state": {"running": {}}, "ready": ready, "restartCount": 0}
    status = {
        "phase": phase,
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": pod_conditions(ready=ready),
        "containerStatuses": [{"name": "main", "image": "x", "imageID": "", **running}],
    }
    body = {"status": status}
    return lambda world: world.plane.store.patch("pods", NS, "sb-1", body, subresource="status")


def gone(
    resource: str, *, grace_s: int | None = 0, name: str = "sb-1"
) -> Callable[[World], object]:
    """Return the deletion of an object, at once or by its grace."""
    return lambda world: world.plane.store.delete(resource, NS, name, grace_s=grace_s)


def second_pod(world: World) -> object:
    """Make another Pod that the Sandbox controls."""
    owner = controlled_by(world.get())
    return world.plane.store.create(pod_body("other", labels=tracking(), owners=(owner,)))


def labelled(**labels: str) -> Json:
    """Return a template's metadata."""
    return {"metadata": {"labels": labels or None}}


ACTIONS: dict[str, Callable[[World], object]] = {
    "create": lambda world: world.plane.store.create(sandbox(pod_spec={"nodeName": "node-1"})),
    "delete": gone(SANDBOXES, grace_s=None),
    "suspend": spec(operatingMode="Suspended"),
    "resume": spec(operatingMode="Running"),
    "service on": spec(service=True),
    "service off": spec(service=False),
    "service unset": spec(service=None),
    "team red": spec(podTemplate=labelled(team="red")),
    "team none": spec(podTemplate={"metadata": None}),
    "expire": spec(shutdownTime="2020-01-01T00:00:00Z"),
    "live on": spec(shutdownTime=None),
    "pod runs": pod_is("Running"),
    "pod ready": pod_is("Running", ready=True),
    "pod ready elsewhere": pod_is("Running", ready=True, ip="10.244.0.6"),
    "pod succeeds": pod_is("Succeeded"),
    "pod fails": pod_is("Failed"),
    "pod deleted": gone("pods", grace_s=30),
    "pod gone": gone("pods"),
    "pod untracked": pod(labels={HASH_LABEL: None}),
    "pod labelled": pod(labels={"team": "mine", "other": "x"}),
    "service gone": gone("services"),
    "service drifts": lambda world: world.plane.store.patch(
        "services", NS, "sb-1", {"spec": {"selector": {"app": "x"}}}
    ),
    "second pod": second_pod,
    "second pod gone": gone("pods", name="other"),
    "a request fails": lambda world: world.plane.fail_next("*", "pods", 500, times=1),
    "a status fails": lambda world: world.plane.fail_next("patch", "sandboxes/status", 500),
    "watches cut": lambda world: world.plane.drop_watches(),
    "history lost": lambda world: world.plane.compact(),
}
RESTS = ("none", "a moment", "until quiet", "two seconds")
STEPS = st.lists(
    st.tuples(st.sampled_from(sorted(ACTIONS)), st.sampled_from(RESTS)), min_size=3, max_size=14
)


async def rest(world: World, how: str) -> None:
    """Give the controller more or less time."""
    if how == "a moment":
        for _ in range(7):
            await anyio.lowlevel.checkpoint()
    elif how == "until quiet":
        await world.recover()
    elif how == "two seconds":
        await world.recover()
        await world.advance(2.0)


def seen(world: World) -> list[Json]:
    """Return everything there is, versions and all."""
    resources = (SANDBOXES, "pods", "services")
    return [obj for resource in resources for obj in world.plane.store.list(resource, NS)]


def end_what_is_over(world: World) -> None:
    """Let the Pod of a suspended Sandbox come to its end, as a kubelet does.

    What becomes of such a Pod before it goes is not asked for: only its end matters.
    """
    found = world.find("sandboxes")
    if found is None or found["spec"]["operatingMode"] != "Suspended":
        return
    for one in world.plane.store.list("pods", NS):
        if "deletionTimestamp" in one["metadata"]:
            gone("pods", name=one["metadata"]["name"])(world)


def refused(world: World) -> set[str]:
    """Return which requests of the controller were all refused as conflicts."""
    answers: dict[str, set[int]] = {}
    for entry in world.plane.audit.select(user=CONTROLLER):
        answers.setdefault(entry.what, set()).add(entry.code)
    return {what for what, codes in answers.items() if codes == {409}}


async def play(steps: list[tuple[str, str]]) -> None:
    """Do the steps, wait, and start another controller over what came of them."""
    clock = FakeClock()
    async with ControlPlane(clock=FakeClock()) as plane:
        async with open_world(plane=plane, clock=clock) as world:
            for action, how in [("create", "none"), *steps]:
                # An action that does not apply at the moment is none.
                with suppress(StatusError):
                    ACTIONS[action](world)
                await rest(world, how)
            plane.faults.clear()
            await world.recover()
            end_what_is_over(world)
            await world.advance(LONG_S)
            before = seen(world)
            world.kill()
        plane.audit.reset()
        async with open_world(plane=plane, clock=clock) as fresh:
            await fresh.advance(LONG_S)
            assert seen(fresh) == before, dict(fresh.writes())
            # What stands in the way is tried again, and refused again; all else is in order.
            assert set(fresh.writes()) <= refused(fresh)


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
@example([("pod ready", "none"), ("pod untracked", "none"), ("watches cut", "a moment")])
@example([("pod ready", "until quiet"), ("suspend", "none"), ("resume", "a moment")])
@example([("pod ready", "until quiet"), ("pod deleted", "none"), ("pod ready elsewhere", "none")])
@example([("second pod", "until quiet"), ("pod gone", "none"), ("second pod gone", "none")])
@example([("a request fails", "two seconds"), ("pod untracked", "none"), ("second pod", "none")])
@example([("pod succeeds", "until quiet"), ("suspend", "none"), ("pod gone", "none")])
@example([("expire", "none"), ("live on", "a moment"), ("pod gone", "none")])
@example(
    [("watches cut", "none"), ("delete", "none"), ("create", "none"), ("history lost", "none")]
)
def test_whatever_happens_a_fresh_controller_has_nothing_to_add(
    steps: list[tuple[str, str]],
) -> None:
    """After any sequence of edits, Pod events and faults, what is stored is what should be.

    A controller that starts anew, with nothing but what the server tells, writes nothing.
    """
    anyio.run(play, steps)
