"""Companions on a real control plane, with the rights of the controller and of their component."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from tests.conformance.api import open_room
from tests.controlplane.objects import fill
from tests.controlplane.plugin import REAL
from tests.controlplane.scene import SWIFT, ensure, open_scene
from tests.controlplane.server import RealServer
from tests.manifests.files import objects
from tests.support.builders import of_image
from tests.support.extensions import ids

pytestmark = [pytest.mark.asyncio(loop_scope="module"), REAL]

Json = dict[str, Any]
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ROLLING = "companions.lean-sandbox/rolling-update"
_STATUS = "companions.lean-sandbox/rollout-status"


def _status(pool: Json) -> str:
    return str((pool["metadata"].get("annotations") or {}).get(_STATUS, ""))


async def test_a_pool_is_renewed_step_by_step(real_server: RealServer, tmp_path: Path) -> None:
    """All members are of the new template in the end, and the pool says so."""
    for body in objects("components/companions"):
        ensure(real_server, f"{_RBAC}/{body['kind'].lower()}s", body)
    settings = Settings(extensions=True, companions=("rollout",))
    async with (
        open_scene(real_server, tmp_path, settings, SWIFT) as stage,
        open_room(stage.room.api) as room,
    ):
        scene = dataclasses.replace(stage, room=room)
        await fill(scene, 4)
        old = ids(await scene.objects("sandboxes"))
        wish = {"metadata": {"annotations": {_ROLLING: "25%"}}}
        await scene.patch("sandboxwarmpools", "p", wish)
        await scene.patch("sandboxtemplates", "t", of_image("busybox:2"))
        await scene.until("sandboxwarmpools", lambda found: _status(found[0]) == "Complete")
        new = ids(await scene.objects("sandboxes"))
        assert len(new) == 4
        assert not old & new
