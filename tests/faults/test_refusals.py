"""Requests that fail: told where a user looks, repeated as the server asks, never lost."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from tests.support.clock import FakeClock, on_clock
from tests.support.suspension import suspend
from tests.support.volumes import VOLUME_SPEC, WHOLE
from tests.support.world import NS, World, condition, controlled_by, open_world, sandbox, tracking

Json = dict[str, Any]


async def launch(world: World) -> None:
    """Create a Sandbox with everything it can have and take it to Ready, whatever fails."""
    await world.create(sandbox(spec=WHOLE))
    await world.advance(2.0)
    await world.run_pod()
    await world.advance(2.0)
    assert world.is_ready()
    assert condition(world.get(), "Ready")["message"] == "Pod is Ready; Service Exists"
    assert len(world.plane.store.list("pods", NS)) == 1


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("get", "sandboxes"),
        ("get", "pods"),
        ("create", "pods"),
        ("create", "services"),
        ("create", "persistentvolumeclaims"),
        ("patch", "sandboxes/status"),
        ("create", "events"),
    ],
)
@pytest.mark.parametrize("code", [500, 503, 504, 401, 409])
async def test_any_request_of_a_launch_may_fail_once(verb: str, resource: str, code: int) -> None:
    """A refusal of each kind of request, once: the launch ends Ready, with one Pod."""
    async with open_world() as world:
        world.plane.fail_next(verb, resource, code)
        await launch(world)
        # What was refused once was asked for again, and not much more often than that.
        assert world.asked()["create pods"] <= 2
        assert world.writes()["patch sandboxes/status"] <= 4


@pytest.mark.parametrize("code", [500, 401, 429])
async def test_claims_that_cannot_be_listed_at_first_are_made_later(code: int) -> None:
    """The first Sandbox with claims waits for their list; it is told why, and then goes on."""
    async with open_world() as world:
        world.plane.fail_next("list", "persistentvolumeclaims", code, times=3)
        world.plane.store.create(sandbox(spec=WHOLE))
        await world.until(lambda: len(world.controller.seen_versions()) == 4)
        for _ in range(120):
            await world.clock.advance(0.5)
            await world.until(lambda: not world.controller.activity().in_flight)
        await world.recover()
        await world.run_pod()
        await world.advance(2.0)
        assert world.is_ready()
        assert world.find("persistentvolumeclaims", "data-sb-1") is not None
        assert world.asked()["create persistentvolumeclaims"] == 1


@pytest.mark.parametrize("code", [500, 401, 429])
async def test_suspension_survives_a_failed_delete(code: int) -> None:
    """The failed DELETE is told and repeated; the Pod goes, and Suspended becomes True."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.plane.fail_next("delete", "pods", code, retry_after=1)
        await suspend(world)
        await world.advance(2.0)
        assert "deletionTimestamp" in world.pod()["metadata"]
        await world.delete("pods", "sb-1")
        assert condition(world.get(), "Suspended")["status"] == "True"
        assert condition(world.get(), "Ready")["reason"] == "SandboxSuspended"


@pytest.mark.parametrize(
    ("asked", "answers", "options", "deadline_s"),
    [
        ("get sandboxes", False, {}, 15.0),
        ("create pods", False, {}, 15.0),
        ("create pods", True, {}, 15.0),
        ("create pods", True, {"request_timeout": 3.0}, 3.0),
        ("get pods", False, {}, 15.0),
        ("patch sandboxes/status", False, {}, 15.0),
    ],
)
@on_clock
async def test_a_request_that_is_never_answered_ends_at_its_deadline(
    clock: FakeClock, asked: str, *, answers: bool, options: Json, deadline_s: float
) -> None:
    """Carried out or not, the reconcile gives up after the flag's time, and the next succeeds."""
    settings = Settings(sandbox_status_window=0.0, **options)
    async with open_world(settings, clock=clock) as world:
        world.plane.hold(*asked.split(), answers=answers, times=1)
        world.plane.store.create(sandbox())
        if asked == "get pods":
            await world.until(lambda: world.find("pods"))
            await world.run_pod()
        await world.pass_time(deadline_s - 0.5)
        assert not any(report.error for report in world.reports)
        await world.pass_time(1.0)
        assert any(report.error for report in world.reports)
        await world.settle()
        await world.advance(2.0)
        await world.run_pod()
        await world.advance(2.0)
        assert world.is_ready()
        assert len(world.plane.store.list("pods", NS)) == 1


@on_clock
async def test_a_hung_request_holds_up_nobody_else(clock: FakeClock) -> None:
    """Other Sandboxes are launched while one Sandbox's request gets no answer."""
    async with open_world(Settings(sandbox_status_window=0.0), clock=clock) as world:
        world.plane.hold("create", "pods", answers=False, times=1)
        world.plane.store.create(sandbox("stuck"))
        await world.until(lambda: world.plane.faults.waiting)
        for number in range(20):
            world.plane.store.create(sandbox(f"sb-{number}"))
        await world.pass_time(0.0)
        assert len(world.plane.store.list("pods", NS)) == 20
        assert world.find("pods", "stuck") is None
        await world.pass_time(16.0)
        assert world.find("pods", "stuck") is not None


@pytest.mark.parametrize("kind", ["Pod", "Service", "PersistentVolumeClaim"])
async def test_a_child_that_appears_while_it_is_created_is_taken_as_it_is(kind: str) -> None:
    """AlreadyExists: what came in between and is the Sandbox's own is used; it is no error."""
    plural = {
        "Pod": "pods",
        "Service": "services",
        "PersistentVolumeClaim": "persistentvolumeclaims",
    }[kind]
    name = "data-sb-1" if kind == "PersistentVolumeClaim" else "sb-1"
    specs: dict[str, Json] = {
        "Pod": {"containers": [{"name": "main", "image": "busybox"}]},
        "Service": {"clusterIP": "None", "selector": tracking()},
        "PersistentVolumeClaim": VOLUME_SPEC,
    }
    async with open_world() as world:

        def somebody_was_faster() -> None:
            world.plane.store.create(
                {
                    "apiVersion": "v1",
                    "kind": kind,
                    "metadata": {
                        "name": name,
                        "namespace": NS,
                        "labels": tracking(),
                        "ownerReferences": [controlled_by(world.get())],
                    },
                    "spec": specs[kind],
                }
            )

        world.meanwhile("create", plural, somebody_was_faster)
        await launch(world)
        assert all(report.error is None for report in world.reports)
        assert sum(world.conflicts().values()) <= 1
