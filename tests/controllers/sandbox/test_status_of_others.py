"""A status that somebody else wrote: what the other controllers are told of it, and when."""

from __future__ import annotations

from lean_sandbox.model.sandbox import SandboxStatus
from lean_sandbox.watch.resources.sandbox import SandboxEntry
from tests.support.world import World, condition, open_world, sandbox


def heard(world: World) -> list[str]:
    """Return a list that grows by the reason of Ready of each status that others are told."""
    told: list[str] = []

    def note(_: SandboxEntry, new: SandboxStatus) -> None:
        told.extend(one.reason for one in new.conditions if one.type == "Ready")

    world.whole.wakes.status.append(note)
    return told


async def test_a_reconcile_that_writes_no_status_tells_nobody() -> None:
    """Whoever follows a Sandbox is not woken by each reconcile of it."""
    async with open_world() as world:
        await world.ready_sandbox()
        told = heard(world)
        reconciles = len(world.reports)
        for _ in range(3):
            await world.poke()
        assert len(world.reports) - reconciles == 3
        assert told == []


async def test_a_status_of_somebody_else_is_told_once() -> None:
    """The event shows that it was written and not what it says: a GET tells that, and the cure."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox())
        told = heard(world)
        forged = {**condition(world.get(), "Ready"), "reason": "Forged", "status": "False"}
        others = [one for one in world.get()["status"]["conditions"] if one["type"] != "Ready"]
        status = {"status": {"conditions": [*others, forged]}}
        await world.patch("sandboxes", "sb-1", status, subresource="status")
        await world.advance(5.0)
        assert condition(world.get(), "Ready")["reason"] == "DependenciesReady"
        first = list(told)
        assert first
        assert set(first) <= {"Forged", "DependenciesReady"}
        for _ in range(3):
            await world.poke()
        assert told == first
