"""autosize on a real control plane, whose server guards, refuses and stores what it writes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from tests.conformance.api import open_room
from tests.controlplane.objects import extension, fill
from tests.controlplane.plugin import REAL
from tests.controlplane.scene import SWIFT, Scene, ensure, open_scene
from tests.controlplane.server import RealServer
from tests.manifests.files import objects

pytestmark = [pytest.mark.asyncio(loop_scope="module"), REAL]

Json = dict[str, Any]
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_MIN = "companions.lean-sandbox/min-replicas"
_MAX = "companions.lean-sandbox/max-replicas"


async def test_a_pool_is_sized_until_an_autoscaler_names_it(
    real_server: RealServer, tmp_path: Path
) -> None:
    """The scale is written at the version that was read, and not beside an autoscaler."""
    for body in objects("components/companions"):
        ensure(real_server, f"{_RBAC}/{body['kind'].lower()}s", body)
    settings = Settings(extensions=True, companions=("autosize",))
    async with (
        open_scene(real_server, tmp_path, settings, SWIFT) as stage,
        open_room(stage.room.api) as room,
    ):
        scene = dataclasses.replace(stage, room=room)
        await fill(scene, 1)
        await scene.patch("sandboxwarmpools", "p", _wish(2))
        await scene.until("sandboxwarmpools", lambda found: found[0]["spec"]["replicas"] == 2)
        for number in range(4):
            body = extension("SandboxClaim", f"c-{number}", warmPoolRef={"name": "p"})
            await scene.create("sandboxclaims", body)
        await scene.until("sandboxwarmpools", lambda found: found[0]["spec"]["replicas"] >= 5)
        path = f"/apis/autoscaling/v2/namespaces/{room.name}/horizontalpodautoscalers"
        (await room.api.post(path, _autoscaler())).ok()
        await _told(scene, "PoolResized")
        await scene.patch("sandboxwarmpools", "p", _wish(20))
        await _told(scene, "AutosizeStandsBack")
        (pool,) = await scene.objects("sandboxwarmpools")
        assert pool["spec"]["replicas"] < 20


def _wish(least: int) -> Json:
    return {"metadata": {"annotations": {_MIN: str(least), _MAX: "20"}}}


def _autoscaler() -> Json:
    ref = {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool"}
    target = {"type": "AverageValue", "averageValue": "1"}
    external = {"metric": {"name": "claims"}, "target": target}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "scaler"},
        "spec": {
            "scaleTargetRef": {**ref, "name": "p"},
            "minReplicas": 1,
            "maxReplicas": 19,
            "metrics": [{"type": "External", "external": external}],
        },
    }


async def _told(scene: Scene, reason: str) -> None:
    await scene.until("events", lambda found: any(one.get("reason") == reason for one in found))
