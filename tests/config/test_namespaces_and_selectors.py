"""What is outside of the chosen namespaces and labels is never sent and never touched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from filters import parse_labels
from lean_sandbox.config.options import Settings
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.support.clock import FakeClock
from tests.support.names import SANDBOXES
from tests.support.world import CONTROLLER, NS, World, condition, open_world, sandbox

Json = dict[str, Any]
OTHER = "elsewhere"


def settings(**changes: Any) -> Settings:
    """Return settings whose statuses do not wait."""
    return Settings(sandbox_status_window=1.0, sandbox_status_step_window=0.0, **changes)


def with_other_namespace(plane: ControlPlane) -> None:
    """Make the second namespace."""
    plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER}})


@asynccontextmanager
async def excluding() -> AsyncIterator[World]:
    """Open a world whose second namespace is excluded and has a Sandbox."""
    async with open_world(
        settings(exclude_namespaces=(OTHER,), extensions=True), prepare=with_other_namespace
    ) as world:
        yield world


def touched(world: World, wanted: Callable[[Any], bool]) -> list[str]:
    """Return what the controller asked about objects that fit."""
    entries = world.plane.audit.select(user=CONTROLLER)
    return [f"{entry.verb} {entry.resource}" for entry in entries if wanted(entry)]


async def test_an_excluded_namespace_is_left_alone() -> None:
    """A Sandbox there gets no Pod and no status, while its neighbour is served."""
    async with excluding() as world:
        world.plane.store.create(sandbox(namespace=OTHER))
        made = await world.create(sandbox())
        await world.run_pod(made["metadata"]["name"])
        assert condition(world.get(), "Ready")["status"] == "True"
        left = world.plane.store.get(SANDBOXES, OTHER, "sb-1")
        assert not left.get("status")
        assert not world.plane.store.list("pods", OTHER)
        assert not touched(world, lambda entry: entry.namespace == OTHER)


async def test_every_list_and_watch_leaves_the_excluded_namespaces_to_the_server() -> None:
    """The server filters: nothing of an excluded namespace is sent, of any kind."""
    async with excluding() as world:
        asked = [
            entry
            for entry in world.plane.audit.select(user=CONTROLLER)
            if entry.verb in ("list", "watch")
        ]
        assert {entry.resource for entry in asked} >= {"sandboxes", "pods", "sandboxclaims"}
        for entry in asked:
            assert entry.query["fieldSelector"] == f"metadata.namespace!={OTHER}"


async def test_what_was_begun_before_the_exclusion_stays_as_it_is() -> None:
    """Excluding a namespace deletes nothing of what the controller once made there."""
    async with ControlPlane(LocalSettings(), clock=FakeClock()) as plane:
        async with open_world(settings(), prepare=with_other_namespace, plane=plane) as world:
            plane.store.create(sandbox(namespace=OTHER))
            await world.settle()
        before = plane.store.list("pods", OTHER)
        assert len(before) == 1
        async with open_world(settings(exclude_namespaces=(OTHER,)), plane=plane) as world:
            plane.store.patch(SANDBOXES, OTHER, "sb-1", {"spec": {"operatingMode": "Suspended"}})
            await world.advance(60.0)
            assert plane.store.list("pods", OTHER) == before


LABELLED = {"labels": {"team": "red"}}


@asynccontextmanager
async def selecting(text: str = "team in (blue,red)") -> AsyncIterator[World]:
    """Open a world that serves only Sandboxes of some teams."""
    async with open_world(settings(sandbox_label_selector=parse_labels(text))) as world:
        yield world


async def relabel(world: World, team: str | None) -> None:
    """Give the Sandbox to another team, or to none."""
    await world.patch("sandboxes", "sb-1", {"metadata": {"labels": {"team": team}}})


async def test_only_selected_sandboxes_are_served() -> None:
    """One without the label is never heard of; its list and watch carry the selector."""
    async with selecting() as world:
        await world.create(sandbox("other", metadata={"labels": {"team": "green"}}))
        await world.create(sandbox("none"))
        await world.create(sandbox(metadata=LABELLED))
        assert [pod["metadata"]["name"] for pod in world.plane.store.list("pods", NS)] == ["sb-1"]
        assert not world.find("sandboxes", "other").get("status")  # type: ignore[union-attr]
        for entry in (*world.requests("list", "sandboxes"), *world.requests("watch", "sandboxes")):
            assert entry.query["labelSelector"] == "team in (blue,red)"


@pytest.mark.parametrize("team", ["green", None])
async def test_a_sandbox_that_leaves_the_selector_is_forgotten_and_nothing_deleted(
    team: str | None,
) -> None:
    """Pod and status stay as they were, whatever happens to them from then on."""
    async with selecting() as world:
        await world.ready_sandbox(sandbox(metadata=LABELLED))
        world.forget_requests()
        await relabel(world, team)
        before = world.get()
        assert not world.asked(events=True)
        assert world.find("pods") is not None
        await world.run_pod(ready=False)
        await world.delete("pods", "sb-1")
        await world.advance(60.0)
        assert not world.writes(events=True)
        assert world.get() == before
        assert world.controller.activity().cached["sandboxes"] == 0


async def test_a_sandbox_that_comes_back_into_the_selector_is_served_again() -> None:
    """It is found as it is: a Pod that is still there costs no write, a lost one is replaced."""
    async with selecting() as world:
        await world.ready_sandbox(sandbox(metadata=LABELLED))
        await relabel(world, None)
        world.forget_requests()
        await relabel(world, "blue")
        assert not world.writes(events=True)
        await world.delete("pods", "sb-1")
        await world.run_pod()
        assert condition(world.get(), "Ready")["status"] == "True"


async def test_a_sandbox_that_leaves_during_a_reconcile_is_forgotten_all_the_same() -> None:
    """The answer to a write that shows it outside is believed, although its watch is older."""
    async with selecting() as world:

        def leave() -> None:
            patch = {"metadata": {"labels": {"team": "green"}}}
            world.plane.store.patch(SANDBOXES, NS, "sb-1", patch)

        world.meanwhile("patch", "sandboxes/status", leave)
        await world.create(sandbox(metadata=LABELLED))
        await world.advance(2.0)
        assert world.get()["metadata"]["labels"] == {"team": "green"}
        world.forget_requests()
        await world.run_pod()
        await world.delete("pods", "sb-1")
        await world.advance(60.0)
        assert not world.writes(events=True)
        assert world.controller.activity().cached["sandboxes"] == 0
