"""Objects at the edge of what a server stores, and clocks that do not agree."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.api.resources import SANDBOXES
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.settings import Settings
from tests.support.clock import FakeClock
from tests.support.world import NS, condition, open_world, sandbox

Json = dict[str, Any]
# What the API server takes of annotations, all keys and values together.
ANNOTATION_BYTES = 256 * 1024


@pytest.mark.parametrize("form", ["table", "metadata", "full"])
async def test_a_sandbox_as_large_as_can_be_is_launched_like_any_other(form: str) -> None:
    """Annotations to the limit on Sandbox and template, a mebibyte in all: two writes, as ever."""
    settings = Settings(sandbox_status_window=1.0, watch_representation=form)
    filler = {f"example.com/{number}": "x" * 32_000 for number in range(8)}
    env = [{"name": f"V{number}", "value": "y" * 50_000} for number in range(10)]
    container = {"name": "main", "image": "busybox", "env": env}
    body = sandbox(
        metadata={"annotations": filler},
        template={"metadata": {"annotations": filler}},
        pod_spec={"containers": [container]},
    )
    async with open_world(settings) as world:
        world.forget_requests()
        await world.ready_sandbox(body)
        assert condition(world.get(), "Ready")["status"] == "True"
        assert world.writes() == {"create pods": 1, "patch sandboxes/status": 1}
        annotations = world.pod()["metadata"]["annotations"]
        assert {key: annotations[key] for key in filler} == filler
        assert sum(map(len, filler.values())) > 0.9 * ANNOTATION_BYTES
        world.forget_requests()
        await world.patch("sandboxes", "sb-1", {"metadata": {"annotations": {"other": "z"}}})
        await world.advance(60.0)
        assert not world.asked()


@pytest.mark.parametrize(
    ("name", "service"),
    [("n" * 63, True), ("n" * 63, None), ("n" * 63 + "." + "m" * 63, None), ("x.y" * 84, None)],
)
async def test_names_as_long_as_can_be_work(name: str, *, service: bool | None) -> None:
    """63 characters with a Service, up to 253 without one: Ready, with a tracked Pod."""
    spec = {} if service is None else {"service": service}
    async with open_world() as world:
        await world.ready_sandbox(sandbox(name, spec=spec))
        assert condition(world.get(name), "Ready")["status"] == "True"
        assert (world.find("services", name) is not None) == bool(service)


async def test_a_name_that_no_service_can_have_is_an_invalid_configuration() -> None:
    """A dot in the name and service true: the Pod runs, the refusal is told, nothing is repeated.

    (Longer names never get here: the definition refuses them.)
    """
    async with open_world() as world:
        await world.create(sandbox("a.b", spec={"service": True}))
        await world.run_pod("a.b")
        ready = condition(world.get("a.b"), "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "InvalidConfiguration")
        assert world.find("pods", "a.b") is not None
        await world.advance(5.0)
        world.forget_requests()
        await world.advance(3600.0)
        assert not world.asked()


async def test_an_object_whose_status_the_server_refuses_is_not_hot_looped() -> None:
    """An older object that breaks a newer rule fails every update: a few tries in an hour."""
    async with open_world() as world:
        world.plane.fail_next("patch", "sandboxes/status", 422, times=10_000)
        world.forget_requests()
        await world.create(sandbox())
        await world.run_pod()
        await world.advance(3600.0)
        assert 1 <= world.asked()["patch sandboxes/status"] <= 25
        assert world.asked()["create pods"] == 1
        world.plane.faults.clear()
        await world.patch("sandboxes", "sb-1", {"spec": {"shutdownPolicy": "Delete"}})
        await world.advance(1.0)
        assert condition(world.get(), "Ready")["status"] == "True"


@pytest.mark.parametrize("skew_s", [-3600.0, 3600.0])
async def test_only_the_controllers_own_clock_decides_about_expiry(skew_s: float) -> None:
    """The server's clock is an hour off: expiry follows the controller's, to the second."""
    theirs = FakeClock()
    await theirs.advance(3600.0 + skew_s)
    ours = FakeClock()
    await ours.advance(3600.0)
    async with ControlPlane(clock=theirs) as plane, open_world(plane=plane, clock=ours) as world:
        await world.ready_sandbox(sandbox(spec={"shutdownTime": "2026-01-02T04:05:05Z"}))
        await world.advance(59.0)
        assert condition(world.get(), "Ready")["status"] == "True"
        await world.advance(2.0)
        assert condition(world.get(), "Ready")["reason"] == "SandboxExpired"


async def test_times_far_away_are_taken_as_they_are() -> None:
    """The first and the last year there are: long gone, and never to come."""
    async with open_world() as world:
        await world.create(sandbox("old", spec={"shutdownTime": "0001-01-01T00:00:00Z"}))
        await world.create(sandbox("new", spec={"shutdownTime": "9999-12-31T23:59:59Z"}))
        await world.advance(1.0)
        assert condition(world.get("old"), "Ready")["reason"] == "SandboxExpired"
        assert world.find("pods", "old") is None
        assert world.find("pods", "new") is not None


async def test_fields_that_nobody_knows_reach_the_pod_or_are_dropped_by_the_server() -> None:
    """Unknown fields beside the spec disturb nothing; known Pod fields pass through untouched."""
    pod_spec: Json = {
        "hostname": "h",
        "terminationGracePeriodSeconds": 7,
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "securityContext": {"runAsUser": 1000},
        "madeUp": {"a": [1, 2, 3]},
    }
    body = sandbox(pod_spec=pod_spec, spec={"madeUp": True})
    async with open_world() as world:
        await world.admin.create(SANDBOXES, NS, body)
        await world.settle()
        await world.run_pod()
        spec = world.pod()["spec"]
        for key in ("hostname", "terminationGracePeriodSeconds", "securityContext"):
            assert spec[key] == pod_spec[key]
        assert pod_spec["tolerations"][0] in spec["tolerations"]
        assert "madeUp" not in spec
        assert condition(world.get(), "Ready")["status"] == "True"
