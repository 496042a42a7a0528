"""A restart over many Sandboxes with which everything is in order."""

from __future__ import annotations

from datetime import timedelta
from math import ceil
from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.model.names import name_hash
from lean_sandbox.model.times import format_rfc3339
from lean_sandbox.watch.kind import Representation
from tests.support.clock import EPOCH, FakeClock
from tests.support.world import (
    CONTROLLER,
    NS,
    World,
    controlled_by,
    open_world,
    pod_conditions,
    sandbox,
    tracking,
)

Json = dict[str, Any]
MANY = 1000
PAGE = 500
FIRST_PAGE = 25
PAST = format_rfc3339(EPOCH - timedelta(hours=1))


def told(
    plane: ControlPlane, body: Json, *conditions: tuple[str, str, str, str], **status: Any
) -> Json:
    """Store a Sandbox with the status that an earlier controller left."""
    at = format_rfc3339(EPOCH)
    listed = [
        {
            "type": type_,
            "status": value,
            "reason": reason,
            "message": message,
            "lastTransitionTime": at,
            "observedGeneration": 1,
        }
        for type_, value, reason, message in conditions
    ]
    return plane.store.create({**body, "status": {"conditions": listed, **status}})


NOT_SUSPENDED = ("Suspended", "False", "NotSuspended", "Sandbox is not suspended")
SCHEDULED = ("PodScheduled", "True", "PodScheduled", "")


def with_pod(
    plane: ControlPlane, name: str, phase: str, *conditions: tuple[str, str, str, str]
) -> None:
    """Store a Sandbox with these conditions, and its Pod as a kubelet left it."""
    made = told(
        plane,
        sandbox(name),
        NOT_SUSPENDED,
        SCHEDULED,
        *conditions,
        selector=f"agents.x-k8s.io/sandbox-name-hash={name_hash(name)}",
        podIPs=["10.244.0.5"],
        nodeName="node-1",
    )
    status = {
        "phase": phase,
        "podIP": "10.244.0.5",
        "podIPs": [{"ip": "10.244.0.5"}],
        "conditions": pod_conditions(ready=phase == "Running"),
    }
    metadata = {
        "name": name,
        "namespace": NS,
        "labels": tracking(name),
        "ownerReferences": [controlled_by(made)],
    }
    spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "busybox"}]}
    body = {"metadata": metadata, "spec": spec, "status": status}
    plane.store.create({"apiVersion": "v1", "kind": "Pod", **body})


def healthy(plane: ControlPlane, name: str) -> None:
    """Store a Sandbox that is Ready, with its Pod."""
    with_pod(plane, name, "Running", ("Ready", "True", "DependenciesReady", "Pod is Ready"))


def suspended(plane: ControlPlane, name: str) -> None:
    """Store a Sandbox whose suspension is complete."""
    told(
        plane,
        sandbox(name, spec={"operatingMode": "Suspended"}),
        ("Suspended", "True", "PodTerminated", "Pod has been terminated. Sandbox is suspended"),
        ("Ready", "False", "SandboxSuspended", "Sandbox is suspended"),
        selector=f"agents.x-k8s.io/sandbox-name-hash={name_hash(name)}",
    )


def expired(plane: ControlPlane, name: str) -> None:
    """Store a retained Sandbox whose teardown is complete."""
    told(
        plane,
        sandbox(name, spec={"shutdownTime": PAST}),
        NOT_SUSPENDED,
        ("Ready", "False", "SandboxExpired", "Sandbox has expired"),
    )


def finished(plane: ControlPlane, name: str) -> None:
    """Store a Sandbox whose Pod ran to its end."""
    ended = ("PodSucceeded", "Pod completed successfully")
    with_pod(plane, name, "Succeeded", ("Ready", "False", *ended), ("Finished", "True", *ended))


STATES = {"healthy": healthy, "suspended": suspended, "expired": expired, "finished": finished}


def spent(world: World) -> dict[str, int]:
    """Return everything that was asked, Events and reads included."""
    return dict(world.asked(events=True))


def pages_of(objects: int, page: int) -> int:
    """Return how many pages a list of small objects has: the first one is always short."""
    return 1 + ceil(max(0, objects - FIRST_PAGE) / page)


@pytest.mark.parametrize("form", ["table", "metadata", "full"])
async def test_a_restart_over_a_thousand_healthy_sandboxes_costs_list_pages_only(form: str) -> None:
    """Budget: pages of lists, no GET, no write, one reconcile each; then an hour of nothing."""
    settings = Settings(
        sandbox_status_window=1.0, page_size=PAGE, watch_representation=Representation(form)
    )

    def store(plane: ControlPlane) -> None:
        for number in range(MANY):
            healthy(plane, f"sb-{number}")

    async with open_world(settings, prepare=store) as world:
        pages = pages_of(MANY, PAGE)
        assert pages == 3
        assert spent(world) == {"list sandboxes": pages, "list pods": pages, "list services": 1}
        assert len(world.reports) == MANY
        world.forget_requests()
        await world.advance(3600.0)
        assert not spent(world)
        assert not world.reports


@pytest.mark.parametrize("state", sorted(STATES))
async def test_a_restart_over_sandboxes_at_rest_costs_list_pages_only(state: str) -> None:
    """Budget: suspended, expired and finished Sandboxes are no reason for a GET or a write."""

    def store(plane: ControlPlane) -> None:
        for number in range(100):
            STATES[state](plane, f"sb-{number}")

    async with open_world(prepare=store) as world:
        pods = pages_of(len(world.plane.store.list("pods")), PAGE)
        assert spent(world) == {"list sandboxes": 2, "list pods": pods, "list services": 1}
        world.forget_requests()
        await world.advance(600.0)
        assert not spent(world)


async def test_idle_there_are_watches_and_nothing_else() -> None:
    """Budget: over an hour every request is a watch, as often as the server ends them (290 s)."""

    def store(plane: ControlPlane) -> None:
        for state, put in STATES.items():
            put(plane, f"sb-{state}")

    clock = FakeClock()
    async with (
        ControlPlane(LocalSettings(), clock=clock) as plane,
        open_world(plane=plane, clock=clock, prepare=store) as world,
    ):
        world.forget_requests()
        while clock.monotonic() < 3600.0:
            await clock.advance(10.0)
            await world.recover()
        assert not spent(world)
        watches = plane.audit.select(user=CONTROLLER, verb="watch")
        # Three kinds, each with a new watch every 290 s and up to a tenth more.
        assert 3 * 10 <= len(watches) <= 3 * 13
        assert not world.reports
