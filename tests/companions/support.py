"""Worlds with companions, and what tests see of them."""

from __future__ import annotations

from typing import Any

from lean_sandbox.metrics.families import COMPANION_REPORTS
from lean_sandbox.metrics.registry import Exposition
from tests.support.world import World

__all__ = ["PREFIX", "annotate", "counts", "notes", "reasons", "reports", "warned_of"]

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


def reasons(world: World) -> list[str]:
    """Return the reasons of the Events of companions."""
    return [reason for _, reason, _ in reports(world)]


def warned_of(world: World) -> list[str]:
    """Return the reasons of the Events of companions that are Warnings."""
    warnings = [one for one in world.events() if one["type"] == "Warning"]
    return [one["reason"] for one in warnings if one["reportingController"] == REPORTER]


def counts(world: World, companion: str) -> dict[str, float]:
    """Return how often a companion reported what, by the metric."""
    found = Exposition()
    world.whole.collect(found)
    _, series = found.families[COMPANION_REPORTS.name]
    return {labels[1]: float(str(number)) for labels, number in series if labels[0] == companion}
