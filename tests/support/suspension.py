"""Sandboxes that are suspended and resumed."""

from __future__ import annotations

from tests.support.conditions import says
from tests.support.world import World

SUSPENDED = {"operatingMode": "Suspended"}
SUSPEND = {"spec": SUSPENDED}


async def suspend(world: World, name: str = "sb-1") -> None:
    """Ask for suspension."""
    await world.patch("sandboxes", name, SUSPEND)


async def resume(world: World, name: str = "sb-1") -> None:
    """Ask for the Sandbox to run again."""
    await world.patch("sandboxes", name, {"spec": {"operatingMode": "Running"}})


SUSPENDING = (
    ("False", "PodTerminating", "Pod is terminating. Sandbox is suspending"),
    ("False", "SandboxSuspended", "Sandbox is suspending"),
)
IS_SUSPENDED = (
    ("True", "PodTerminated", "Pod has been terminated. Sandbox is suspended"),
    ("False", "SandboxSuspended", "Sandbox is suspended"),
)


def state(world: World) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
    """Return what Suspended and Ready say."""
    return says(world, "Suspended"), says(world)
