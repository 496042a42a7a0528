"""From the reference controller to this one and back, with everything alive.

What is written at the take-over is what ``manifests/migration.md`` says.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import textwrap
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from lean_sandbox.clock import SystemClock
from lean_sandbox.run.leader import Elector
from lean_sandbox.run.lease import LEASE_NAME
from lean_sandbox.settings import Settings
from tests.conformance.api import open_room
from tests.controlplane.objects import all_ready, condition, extension, sandbox
from tests.controlplane.plugin import REAL
from tests.controlplane.reference import DOMAIN, NEW, OLD, VOLUME, Reference, owner
from tests.controlplane.scene import (
    HOME,
    SWIFT,
    Scene,
    Spent,
    controllers_client,
    controlling,
    open_stage,
)
from tests.controlplane.server import RealServer

pytestmark = REAL

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
    async with controlling(scene.server, folder, SETTINGS):
        return await scene.spent()


@pytest.mark.parametrize("version", [NEW, OLD])
async def test_what_the_reference_left_in_order_is_not_touched(
    real_server: RealServer, tmp_path: Path, version: str
) -> None:
    """No write, at the first start and at the second; nothing has another version afterwards."""
    async with reference_scene(real_server, tmp_path) as scene:
        made = Reference(scene)
        await made.sandbox("plain", version=version)
        await made.sandbox(
            "full",
            version=version,
            service=True,
            volumeClaimTemplates=[VOLUME],
            template={"labels": {"team": "blue"}, "annotations": {"note": "n"}},
        )
        await made.sandbox(
            "asleep",
            version=version,
            operatingMode="Suspended",
            volumeClaimTemplates=[VOLUME],
        )
        await made.expired("over")
        await made.template("t", version)
        for strategy in ("Recreate", "OnReplenish"):
            pool = await made.pool(f"p-{strategy.lower()}", "t", 2, strategy)
            name = pool["metadata"]["name"]
            await made.member(pool, f"{name}-own", version=version)
            await made.member(pool, f"{name}-odd", version=version, stamp="0badcafe")
            await made.claim(f"warm-{name}", pool, sandbox=f"{name}-taken", version=version)
            await made.claim(f"cold-{name}", pool, sandbox=f"cold-{name}", version=version)
        before = versions(await everything(scene))
        for _ in range(2):
            spent = await taken_over(scene, tmp_path)
            # Members of the pool that replaces outdated ones: their stamps are not ours.
            assert spent.asked == {"get sandboxes": 2}
            assert not spent.refused
            assert spent.events == 0
            assert versions(await everything(scene)) == before


# ---------------------------------------------------------------------- written once


async def pooled(made: Reference) -> Json:
    """Make a template and a pool of one member ``m``."""
    await made.template("t")
    pool = await made.pool("p", "t", 1, "OnReplenish")
    await made.member(pool, "m")
    return pool


async def without_label(made: Reference) -> None:
    """Before the template got its label."""
    await made.template("t")
    change = {"metadata": {"labels": {f"{DOMAIN}/sandbox-template-ref-hash": None}}}
    await made.scene.patch("sandboxtemplates", "t", change)


async def without_policy(made: Reference) -> None:
    """Before there were policies of templates."""
    await made.template("t")
    await made.scene.delete("networkpolicies", "t-network-policy")


async def with_other_rules(made: Reference) -> None:
    """The rules of another release, or of an edit that nobody saw."""
    await made.template("t")
    await made.scene.patch("networkpolicies", "t-network-policy", {"spec": {"egress": None}})


async def with_a_policy_of_its_own(made: Reference) -> None:
    """Before policies were those of templates."""
    claim = await made.claim("c", await pooled(made), sandbox="s")
    await made.policy("c-network-policy", owner(claim, OLD), {"podSelector": {}})


async def named_by_label(made: Reference) -> None:
    """Before the annotation took the place of the label."""
    await made.claim("c", await pooled(made), sandbox="s")
    key = f"{DOMAIN}/sandbox-name"
    change = {"metadata": {"labels": {key: "s"}, "annotations": {key: None}}}
    await made.scene.patch("sandboxclaims", "c", change)


async def never_stamped(made: Reference) -> None:
    """Before claims were stamped."""
    await made.claim("c", await pooled(made), sandbox="s")
    change = {"metadata": {"annotations": {f"{DOMAIN}/claim-first-ready-at": None}}}
    await made.scene.patch("sandboxclaims", "c", change)


async def without_address_in_the_claim(made: Reference) -> None:
    """Before v1.0."""
    await made.claim("c", await pooled(made), sandbox="s", service=True)
    await made.tell("sandboxclaims", "c", {"sandbox": {"serviceFQDN": None}})


async def claimed_without_launch_type(made: Reference) -> None:
    """Before Sandboxes said how they were launched."""
    await made.claim("c", await pooled(made), sandbox="s")
    change = {"metadata": {"labels": {f"{DOMAIN}/launch-type": None}}}
    await made.scene.patch("sandboxes", "s", change)


async def member_without_launch_type(made: Reference) -> None:
    """The same, in a pool."""
    await pooled(made)
    change = {"metadata": {"labels": {f"{DOMAIN}/launch-type": None}}}
    await made.scene.patch("sandboxes", "m", change)


async def without_node(made: Reference) -> None:
    """Before the status named the node."""
    await made.sandbox("s")
    await made.tell("sandboxes", "s", {"nodeName": None})


async def asleep_with_a_pod_name(made: Reference) -> None:
    """The reference stopped between deleting the Pod and forgetting its name."""
    await made.sandbox("s", operatingMode="Suspended")
    change = {"metadata": {"annotations": {f"{DOMAIN}/pod-name": "s"}}}
    await made.scene.patch("sandboxes", "s", change)


async def pod_without_a_label(made: Reference) -> None:
    """An edit that nobody saw."""
    await pooled(made)
    change = {"metadata": {"labels": {f"{DOMAIN}/warm-pool-sandbox": None}}}
    await made.scene.patch("pods", "m", change)


async def pool_without_generation(made: Reference) -> None:
    """Before pools said which generation they counted for."""
    await pooled(made)
    await made.tell("sandboxwarmpools", "p", {"observedGeneration": None})


ONCE: dict[str, Callable[[Reference], Awaitable[None]]] = {
    "a template without the hash of its name": without_label,
    "a template without its NetworkPolicy": without_policy,
    "a NetworkPolicy with other rules than its template's": with_other_rules,
    "a NetworkPolicy of one claim": with_a_policy_of_its_own,
    "a claim that names its Sandbox in a label": named_by_label,
    "a Ready claim without `claim-first-ready-at`": never_stamped,
    "a claim's status without `serviceFQDN`": without_address_in_the_claim,
    "a claimed Sandbox without `launch-type`": claimed_without_launch_type,
    "a member without `launch-type`": member_without_launch_type,
    "a Sandbox's status without `nodeName`": without_node,
    "a suspended Sandbox with `pod-name`": asleep_with_a_pod_name,
    "a Pod without a label of its Sandbox": pod_without_a_label,
    "a pool's status without `observedGeneration`": pool_without_generation,
}


def promised() -> dict[str, Counter[str]]:
    """Return what the page says is written for what is found."""
    section = PAGE.read_text().partition("## Written once")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:2] == "| "]
    return {row[0]: Counter(row[-1].strip("`").split("`, `")) for row in rows[1:]}


async def test_what_is_missing_is_written_once(real_server: RealServer, tmp_path: Path) -> None:
    """Each lack costs what the page says; Pods and Sandboxes stay; a second start is silent."""
    async with open_stage(real_server, tmp_path, SWIFT) as stage, AsyncExitStack() as stack:
        scenes = {what: await stack.enter_async_context(room_of(stage)) for what in ONCE}
        for what, build in ONCE.items():
            await build(Reference(scenes[what]))
        before = {what: await everything(scene) for what, scene in scenes.items()}
        first, second = await twice(real_server, tmp_path, scenes)
        assert {what: spent.writes for what, spent in first.items()} == promised()
        assert {what: spent.writes for what, spent in second.items()} == {what: {} for what in ONCE}
        for what, scene in scenes.items():
            after = await everything(scene)
            for name, held in before[what].items():
                if name != "networkpolicies c-network-policy":
                    assert after[name]["metadata"]["uid"] == held["metadata"]["uid"]


async def twice(
    server: RealServer, folder: Path, scenes: dict[str, Scene]
) -> list[dict[str, Spent]]:
    """Start the controller twice and return what each start cost in each namespace."""
    found = []
    for _ in range(2):
        for scene in scenes.values():
            scene.begin()
        async with controlling(server, folder, SETTINGS):
            *others, last = scenes.items()
            # What is written to claims behind everything else comes last.
            spent = {last[0]: await last[1].spent()}
            found.append(spent | {what: scene.spent_so_far() for what, scene in others})
    assert all(not spent.refused for start in found for spent in start.values())
    return found


# ---------------------------------------------------------------------- left half-way


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
        async with controlling(scene.server, tmp_path, SETTINGS):
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


# ---------------------------------------------------------------------- the Lease


async def test_the_lease_of_the_reference_is_taken_when_it_has_run_out(
    real_server: RealServer, tmp_path: Path
) -> None:
    """The same object by the rights of the manifests; given back, the reference can take it."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases"
    async with controllers_client(real_server, tmp_path) as client:
        left = real_server.ask("POST", path, _lease_of_the_reference())
        elector = Elector(client, namespace=HOME, identity="ours", clock=SystemClock())
        with anyio.fail_after(20):
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
            "leaseDurationSeconds": 2,
            "acquireTime": "2026-10-01T08:00:00.000000Z",
            "renewTime": "2026-10-01T09:00:00.000000Z",
            "leaseTransitions": 3,
        },
    }


# ---------------------------------------------------------------------- old owner references


async def test_owner_references_of_an_old_version_are_renewed_by_the_page(
    real_server: RealServer, tmp_path: Path
) -> None:
    """With them nothing goes with its owner on a server without that version; then all does."""
    _, script = blocks("## Before")
    async with reference_scene(real_server, tmp_path) as scene:
        made = Reference(scene)
        for name, version in (("new", NEW), ("old", OLD)):
            await made.sandbox(name, version=version, service=True)
            await scene.delete("sandboxes", name)
        await scene.until("services", lambda found: named(found) == {"old"})
        await made.template("t", OLD)
        pool = await made.pool("p", "t", 1, "OnReplenish")
        await made.member(pool, "m", version=OLD)
        await made.claim("c", pool, sandbox="s", version=OLD, service=True)
        before = await everything(scene)
        assert "pods old" in before
        # Twice: there is nothing left to do for the second.
        for _ in range(2):
            said = await carry_out(real_server, script, tmp_path)
        assert not said
        after = await everything(scene)
        # The garbage collector looks again at what it could not follow, but in its own time.
        assert before.keys() - after.keys() <= {"pods old", "services old"}
        for what, held in after.items():
            assert held["metadata"]["uid"] == before[what]["metadata"]["uid"]
            references = held["metadata"].get("ownerReferences", [])
            assert all(one["apiVersion"].endswith(f"/{NEW}") for one in references)
        assert not (await taken_over(scene, tmp_path)).writes
        for plural, name in (("sandboxclaims", "c"), ("sandboxwarmpools", "p")):
            await scene.delete(plural, name)
        await scene.delete("sandboxtemplates", "t")
        for plural in PLURALS:
            await scene.until(plural, lambda found: named(found) <= {"old"})


# ---------------------------------------------------------------------- the steps of the page


def blocks(section: str) -> list[str]:
    """Return the commands of a section of the page."""
    text = PAGE.read_text().partition(f"{section}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^ *```sh\n(.*?)^ *```$", text, flags=re.MULTILINE | re.DOTALL)
    assert found
    return [textwrap.dedent(block) for block in found]


async def carry_out(server: RealServer, script: str, home: Path, folder: Path = ROOT) -> str:
    """Run commands as the administrator, and return what they say."""
    config = server.kubeconfig(home / "admins", server.token)
    environment = {**os.environ, "KUBECONFIG": str(config)}
    done = await anyio.run_process(["sh", "-ec", script], env=environment, cwd=folder)
    return done.stdout.decode()


async def test_the_steps_of_the_page_go_there_and_back(
    real_server: RealServer, tmp_path: Path
) -> None:
    """Our Deployment takes the place of the reference's, which then takes it again, whole."""
    theirs = tmp_path / "sandbox-with-extensions.yaml"
    theirs.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": _release()}))
    deployment = f"/apis/apps/v1/namespaces/{HOME}/deployments/agent-sandbox-controller"
    check, _ = blocks("## Before")
    shown = (await carry_out(real_server, check, tmp_path)).splitlines()
    assert len(shown) == 4
    assert all(line.endswith("   [v1beta1]") for line in shown)

    await carry_out(real_server, f"kubectl apply -f {theirs}", tmp_path)
    before = real_server.ask("GET", deployment)["spec"]
    for block in blocks("## There"):
        # No Pods come of a Deployment here: the controller that makes them does not run.
        lines = [line for line in block.splitlines() if "rollout status" not in line]
        await carry_out(real_server, "\n".join(lines), tmp_path)
    ours = real_server.ask("GET", deployment)["spec"]
    assert ours["replicas"] == 1
    (container,) = ours["template"]["spec"]["containers"]
    assert container["image"].startswith("lean-sandbox:")
    assert container["args"] == ["--leader-elect=true", "--extensions"]
    for block in blocks("## Back"):
        await carry_out(real_server, block, tmp_path, tmp_path)
    assert real_server.ask("GET", deployment)["spec"] == before
    real_server.ask("DELETE", deployment)


def _release() -> list[Json]:
    """Return a Namespace and a Deployment as a release of the reference has them."""
    name = "agent-sandbox-controller"
    labels = {"app": name}
    container = {
        "name": name,
        "image": "registry.k8s.io/agent-sandbox/agent-sandbox-controller:v1.0.8",
        "args": ["--leader-elect=true", "--extensions"],
        "ports": [
            {"name": "metrics", "containerPort": 8080},
            {"name": "healthz", "containerPort": 8081},
        ],
    }
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": HOME, "labels": labels},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"serviceAccountName": name, "containers": [container]},
                },
            },
        },
    ]
