"""Worlds with companions, and what tests see of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.support.world import World

__all__ = ["PREFIX", "annotate", "notes", "reports", "writes_of"]

Json = dict[str, Any]
PREFIX = "companions.lean-sandbox/"
REPORTER = "lean-sandbox-companions"


async def annotate(world: World, resource: str, name: str, **annotations: str | None) -> None:
    """Annotate an object as a user; ``policy="x"`` writes the companions' own ``policy``."""
    written = {f"{PREFIX}{key.replace('_', '-')}": text for key, text in annotations.items()}
    await world.patch(resource, name, {"metadata": {"annotations": written}})


def notes(obj: Json) -> dict[str, str]:
    """Return the annotations of an object."""
    found: dict[str, str] = obj["metadata"].get("annotations") or {}
    return found


def reports(world: World) -> list[tuple[str, str, str]]:
    """Return kind, reason and note of the Events of companions."""
    return [
        (one["regarding"]["kind"], one["reason"], one["note"])
        for one in world.events()
        if one["reportingController"] == REPORTER
    ]


def writes_of(world: World) -> Counter[str]:
    """Return the writes of controllers and companions, Events included."""
    return world.writes(events=True)
