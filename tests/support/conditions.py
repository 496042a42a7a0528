"""What the conditions of a Sandbox say."""

from __future__ import annotations

from tests.support.world import World, condition


def says(world: World, type_: str = "Ready") -> tuple[str, str, str]:
    """Return status, reason and message of a condition of the Sandbox."""
    found = condition(world.get(), type_)
    return found["status"], found["reason"], found["message"]


def types(world: World) -> list[str]:
    """Return the types of the conditions of the Sandbox, sorted."""
    return sorted(one["type"] for one in world.get()["status"]["conditions"])
