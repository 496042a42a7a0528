"""Metadata patches on a Sandbox's own Pod may wait a little; nothing else ever does."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from tests.support.world import World, condition, open_world, pod_body, sandbox

Json = dict[str, Any]
DEFERRED = Settings(sandbox_status_window=1.0, sandbox_write_behind_window=3600.0)
AT_ONCE = Settings(sandbox_status_window=1.0)
TEAM = {"spec": {"podTemplate": {"metadata": {"labels": {"team": "red"}}}}}


def drift(team: str) -> Json:
    """Return the edit that gives the template a label of this value."""
    return {"spec": {"podTemplate": {"metadata": {"labels": {"team": team}}}}}


def patches(world: World) -> int:
    """Return how many patches of Pods were asked for."""
    return len(world.requests("patch", "pods"))


def team_of(world: World) -> str | None:
    """Return the propagated label of the Pod."""
    labels: dict[str, str] = world.pod()["metadata"]["labels"]
    return labels.get("team")


async def drifted(world: World) -> Json:
    """Bring a Sandbox to Ready, change a label of its template; return its status."""
    await world.ready_sandbox()
    world.forget_requests()
    await world.patch("sandboxes", "sb-1", drift("red"))
    status: Json = world.get()["status"]
    return status


@pytest.mark.case(135)
async def test_a_deferred_patch_is_the_same_patch_a_second_later() -> None:
    """Case 135: a window longer than a second is one second; the status does not wait for it."""
    async with open_world(AT_ONCE) as world:
        expected_status = await drifted(world)
        expected_pod = world.pod()["metadata"]
    async with open_world(DEFERRED) as world:
        status = await drifted(world)
        assert patches(world) == 0
        assert status == expected_status
        await world.advance(0.5)
        await world.poke()
        assert patches(world) == 0
        await world.advance(0.499)
        assert patches(world) == 0
        await world.advance(0.001)
        assert patches(world) == 1
        pod = world.pod()["metadata"]
        assert (pod["labels"], pod["annotations"]) == (
            expected_pod["labels"],
            expected_pod["annotations"],
        )
        world.forget_requests()
        await world.advance(60.0)
        assert not world.asked()


@pytest.mark.case(135)
async def test_the_late_patch_shows_the_newest_template_and_the_window_then_starts_anew() -> None:
    """Case 135: edits within one window cost one patch; a later edit gets a window of its own."""
    async with open_world(DEFERRED) as world:
        await drifted(world)
        await world.advance(0.5)
        await world.patch("sandboxes", "sb-1", drift("blue"))
        await world.advance(0.5)
        assert (patches(world), team_of(world)) == (1, "blue")
        await world.patch("sandboxes", "sb-1", drift("green"))
        await world.advance(0.9)
        assert (patches(world), team_of(world)) == (1, "blue")
        await world.advance(0.1)
        assert (patches(world), team_of(world)) == (2, "green")


@pytest.mark.case(136)
async def test_without_a_window_the_patch_comes_at_once() -> None:
    """Case 136: zero, the default, defers nothing."""
    async with open_world(AT_ONCE) as world:
        await drifted(world)
        assert (patches(world), team_of(world)) == (1, "red")


@pytest.mark.case(137)
async def test_an_adoption_is_never_deferred() -> None:
    """Case 137: taking a Pod into ownership is not a matter of its metadata."""
    pod = pod_body(labels={"agents.x-k8s.io/adoptable": "true"})
    async with open_world(DEFERRED, before=(pod,)) as world:
        made = await world.create(sandbox(template={"metadata": {"labels": {"team": "red"}}}))
        assert world.pod()["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
        assert (patches(world), team_of(world)) == (1, "red")


@pytest.mark.case(138)
async def test_a_restart_within_the_window_starts_it_again() -> None:
    """Case 138: the memory of the drift is lost with the process, the patch is not."""
    async with open_world(DEFERRED) as first:
        await drifted(first)
        await first.advance(0.9)
        assert patches(first) == 0
        plane = first.plane
        first.scope.cancel()
        async with open_world(DEFERRED, plane=plane) as second:
            await second.advance(0.9)
            assert patches(second) == 0
            await second.advance(0.1)
            assert (patches(second), team_of(second)) == (1, "red")


@pytest.mark.case(135)
async def test_a_drift_undone_within_the_window_costs_no_patch() -> None:
    """Case 135: what is computed at the end of the window is what counts."""
    async with open_world(DEFERRED) as world:
        await drifted(world)
        undo = {"spec": {"podTemplate": {"metadata": None}}}
        await world.patch("sandboxes", "sb-1", undo)
        await world.advance(10.0)
        assert patches(world) == 0
        assert condition(world.get(), "Ready")["observedGeneration"] == 3
