"""How many watches a controller opens, as docs/scale.md says."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.local.controlplane import ControlPlane
from tests.support.volumes import volume
from tests.support.world import NS, World, open_world, sandbox

TWO = {"namespaces": (NS, "other")}
ALL_BUT_ONE = {"exclude_namespaces": ("other",)}


def with_other_namespace(plane: ControlPlane) -> None:
    """Create a second namespace."""
    plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})


def watches(world: World) -> int:
    """Return how many watches are open."""
    return world.controller.activity().streams


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({}, 3),
        ({"extensions": True}, 7),
        (TWO, 6),
        ({**TWO, "extensions": True}, 14),
        (ALL_BUT_ONE, 3),
        ({**ALL_BUT_ONE, "extensions": True}, 7),
    ],
)
async def test_three_watches_for_each_namespace_and_seven_with_extensions(
    given: dict[str, Any], count: int
) -> None:
    """One of each kind, for all namespaces at once or for each that is named."""
    async with open_world(Settings(**given), prepare=with_other_namespace) as world:
        assert watches(world) == count


@pytest.mark.parametrize(("given", "more"), [({}, 1), (TWO, 2)])
async def test_claims_for_volumes_are_watched_once_there_are_any(
    given: dict[str, Any], more: int
) -> None:
    """One watch more for each namespace, opened by the first Sandbox that asks for a volume."""
    async with open_world(Settings(**given), prepare=with_other_namespace) as world:
        before = watches(world)
        await world.create(sandbox())
        assert watches(world) == before
        await world.create(sandbox("sb-2", spec={"volumeClaimTemplates": [volume()]}))
        assert watches(world) == before + more
