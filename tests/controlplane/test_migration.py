"""Our controller takes over what the reference left, with everything alive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

from lean_sandbox.clock import SystemClock
from lean_sandbox.manager.leaderelection import Elector
from lean_sandbox.manager.preflight import LEASE_NAME
from tests.controlplane.handover import SETTINGS, everything, reference_scene, taken_over, versions
from tests.controlplane.objects import all_ready, condition, extension, sandbox
from tests.controlplane.plugin import REAL
from tests.controlplane.reference import DOMAIN, NEW, OLD, Reference
from tests.controlplane.scene import HOME, controllers_client, permitted
from tests.controlplane.server import RealServer
from tests.support.patience import PATIENCE_S
from tests.support.volumes import VOLUME

pytestmark = REAL

Json = dict[str, Any]


async def test_what_the_reference_left_in_order_is_not_touched(
    real_server: RealServer, tmp_path: Path
) -> None:
    """No write, at the first start and at the second; nothing has another version afterwards."""
    async with reference_scene(real_server, tmp_path) as scene:
        for version in (NEW, OLD):
            await leave(Reference(scene), version)
        before = versions(await everything(scene))
        for _ in range(2):
            spent = await taken_over(scene, tmp_path)
            # Members of the pools that replace outdated ones: their stamps are not ours.
            assert spent.asked == {"get sandboxes": 4}
            assert not spent.refused
            assert spent.events == 0
            assert versions(await everything(scene)) == before


async def leave(made: Reference, version: str) -> None:
    """Make one of everything; ``version`` is that of the owner references."""
    await made.sandbox(f"plain-{version}", version=version)
    await made.sandbox(
        f"full-{version}",
        version=version,
        service=True,
        volumeClaimTemplates=[VOLUME],
        template={"labels": {"team": "blue"}, "annotations": {"note": "n"}},
    )
    await made.sandbox(
        f"asleep-{version}",
        version=version,
        operatingMode="Suspended",
        volumeClaimTemplates=[VOLUME],
    )
    await made.expired(f"over-{version}")
    await made.template(f"t-{version}", version)
    for strategy in ("Recreate", "OnReplenish"):
        name = f"p-{strategy.lower()}-{version}"
        pool = await made.pool(name, f"t-{version}", 2, strategy)
        await made.member(pool, f"{name}-own", version=version)
        await made.member(pool, f"{name}-odd", version=version, stamp="0badcafe")
        await made.claim(f"warm-{name}", pool, sandbox=f"{name}-taken", version=version)
        await made.claim(f"cold-{name}", pool, sandbox=f"cold-{name}", version=version)


async def test_what_the_reference_left_half_way_is_finished(
    real_server: RealServer, tmp_path: Path
) -> None:
    """Members made by it serve claims with their Pods; what was begun ends where it was to end."""
    async with reference_scene(real_server, tmp_path) as scene:
        made = Reference(scene)
        await made.template("t")
        pool = await made.pool("p", "t", 2, "Recreate")
        await made.member(pool, "own", version=OLD)
        await made.member(pool, "odd", version=OLD, stamp="0badcafe")
        for name in ("first", "second"):
            body = extension("SandboxClaim", name, warmPoolRef={"name": "p"})
            await scene.create("sandboxclaims", body)
        await made.member(await made.pool("q", "t", 1, "OnReplenish"), "named", version=OLD)
        body = extension("SandboxClaim", "assigned", warmPoolRef={"name": "q"})
        # It stopped between noting the Sandbox and taking it.
        body["metadata"]["annotations"] = {f"{DOMAIN}/sandbox-name": "named"}
        await scene.create("sandboxclaims", body)
        await made.sandbox("falling-asleep")
        await scene.patch("sandboxes", "falling-asleep", {"spec": {"operatingMode": "Suspended"}})
        await scene.create("sandboxes", sandbox("unbegun"))
        before = await everything(scene)
        async with permitted(scene.server, tmp_path, SETTINGS):
            claims = await scene.until("sandboxclaims", all_ready(3))
            await scene.until("sandboxes", lambda found: settled(found, 8))
            spent = await scene.spent()
        assert not spent.refused
        bound = {one["metadata"]["name"]: one["status"]["sandbox"]["name"] for one in claims}
        assert bound.pop("assigned") == "named"
        assert set(bound.values()) == {"own", "odd"}
        after = await everything(scene)
        for what in before.keys() - {"pods falling-asleep"}:
            assert after[what]["metadata"]["uid"] == before[what]["metadata"]["uid"]
        assert "pods falling-asleep" not in after
        assert spent.writes["create sandboxes"] == 3
        assert spent.writes["delete pods"] == 1
        assert spent.writes["delete sandboxes"] == 0


def settled(found: list[Json], count: int) -> bool:
    """Tell whether so many Sandboxes are Ready, or suspended as they are to be."""
    return len(found) == count and all(
        condition(one, "Suspended" if one["metadata"]["name"] == "falling-asleep" else "Ready")
        == "True"
        for one in found
    )


async def test_the_lease_of_the_reference_is_taken_when_it_has_run_out(
    real_server: RealServer, tmp_path: Path
) -> None:
    """The same object by the rights of the manifests; given back, the reference can take it."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases"
    async with controllers_client(real_server, tmp_path) as client:
        left = real_server.ask("POST", path, _lease_of_the_reference())
        elector = Elector(client, namespace=HOME, identity="ours", clock=SystemClock())
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as group:
                group.start_soon(elector.run)
                await elector.acquired.wait()
                taken = real_server.ask("GET", f"{path}/{LEASE_NAME}")
                await elector.release()
    assert taken["metadata"]["uid"] == left["metadata"]["uid"]
    assert taken["spec"]["holderIdentity"] == "ours"
    assert taken["spec"]["leaseTransitions"] == 4
    given = real_server.ask("GET", f"{path}/{LEASE_NAME}")
    real_server.ask("DELETE", f"{path}/{LEASE_NAME}")
    assert given["spec"].get("holderIdentity", "") == ""
    assert given["spec"]["leaseDurationSeconds"] == 1


def _lease_of_the_reference() -> Json:
    """Return what a process that is gone left: held, and renewed for the last time long ago."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE_NAME, "namespace": HOME},
        "spec": {
            "holderIdentity": "agent-sandbox-controller-6d5f8b7c9-x2x4z_7b1c",
            # The reference says 15; the test need not wait so long.
            "leaseDurationSeconds": 1,
            "acquireTime": "2026-10-01T08:00:00.000000Z",
            "renewTime": "2026-10-01T09:00:00.000000Z",
            "leaseTransitions": 3,
        },
    }
