"""A namespace with objects of the reference and nobody who works for them, and a take-over."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lean_sandbox.config.options import Settings
from tests.conformance.api import open_room
from tests.controlplane.scene import SWIFT, Scene, Spent, open_stage, permitted
from tests.controlplane.server import RealServer

__all__ = [
    "PAGE",
    "PLURALS",
    "ROOT",
    "SETTINGS",
    "everything",
    "named",
    "reference_scene",
    "room_of",
    "taken_over",
    "versions",
]

Json = dict[str, Any]

PLURALS = (
    "sandboxes",
    "sandboxclaims",
    "sandboxtemplates",
    "sandboxwarmpools",
    "pods",
    "services",
    "persistentvolumeclaims",
    "networkpolicies",
)
SETTINGS = Settings(extensions=True)
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "manifests" / "migration.md"


@asynccontextmanager
async def reference_scene(server: RealServer, folder: Path) -> AsyncIterator[Scene]:
    """Give a namespace and Pods that come up, and nobody who works for the reference's objects."""
    async with open_stage(server, folder, SWIFT) as stage, room_of(stage) as scene:
        yield scene


@asynccontextmanager
async def room_of(stage: Scene) -> AsyncIterator[Scene]:
    """Give a namespace of its own to a part of a test."""
    async with open_room(stage.room.api) as room:
        yield dataclasses.replace(stage, room=room)


async def everything(scene: Scene) -> dict[str, Json]:
    """Return all objects of the namespace, by kind and name."""
    return {
        f"{plural} {one['metadata']['name']}": one
        for plural in PLURALS
        for one in await scene.objects(plural)
    }


def named(found: list[Json]) -> set[str]:
    """Return the names of objects."""
    return {one["metadata"]["name"] for one in found}


def versions(found: dict[str, Json]) -> dict[str, tuple[str, str]]:
    """Return uid and version of each object."""
    return {
        what: (one["metadata"]["uid"], one["metadata"]["resourceVersion"])
        for what, one in found.items()
    }


async def taken_over(scene: Scene, folder: Path) -> Spent:
    """Let our controller start and do what it finds to do; return what that cost."""
    scene.begin()
    async with permitted(scene.server, folder, SETTINGS):
        return await scene.spent()
