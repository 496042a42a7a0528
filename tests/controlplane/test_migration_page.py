"""The commands of ``manifests/migration.md``, carried out as they stand there."""

from __future__ import annotations

import json
import os
import re
import textwrap
from pathlib import Path
from typing import Any

import anyio

from lean_sandbox.version import __version__
from tests.controlplane.handover import (
    PAGE,
    PLURALS,
    ROOT,
    everything,
    named,
    reference_scene,
    taken_over,
)
from tests.controlplane.plugin import REAL
from tests.controlplane.reference import NEW, OLD, Reference
from tests.controlplane.scene import HOME
from tests.controlplane.server import RealServer

pytestmark = REAL

Json = dict[str, Any]

# What the manifest of the client's router, which shares the namespace, says of its Pods.
_ROUTER: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "router", "namespace": HOME},
    "spec": {
        "securityContext": {"runAsUser": 1000, "runAsGroup": 1000},
        "containers": [{"name": "router", "image": "busybox"}],
    },
}
# What v0.5 has in its definitions.
_CONVERTED = """
kubectl patch customresourcedefinition sandboxes.agents.x-k8s.io --type=merge --patch='
{"spec": {"conversion": {"strategy": "Webhook", "webhook": {
  "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://webhook.invalid/convert"}}}}}'
"""


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
        # Objects of other tests, in other namespaces, may go while the commands run.
        here = script.replace("--all-namespaces", f"--namespace={scene.room.name}")
        assert here != script
        # Twice: there is nothing left to do for the second.
        for _ in range(2):
            said = await carry_out(real_server, here, tmp_path)
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


async def test_the_steps_of_the_page_go_there_and_back(
    real_server: RealServer, tmp_path: Path
) -> None:
    """Our Deployment takes the place of the reference's, which then takes it again, whole.

    Whoever shares the namespace is admitted all the time.
    """
    theirs = tmp_path / "reference.yaml"
    theirs.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": _release()}))
    deployment = f"/apis/apps/v1/namespaces/{HOME}/deployments/agent-sandbox-controller"
    check, _ = blocks("## Before")
    shown = (await carry_out(real_server, check, tmp_path)).splitlines()
    assert len(shown) == 4
    assert all(line.endswith("   [v1beta1]") for line in shown)

    await carry_out(real_server, f"kubectl apply -f {theirs}", tmp_path)
    before = real_server.ask("GET", deployment)["spec"]
    await carry_out(real_server, _CONVERTED, tmp_path)
    assert _conversion(real_server) == "Webhook"
    for block in blocks("## There"):
        # No Pods come of a Deployment here: the controller that makes them does not run.
        lines = [line for line in block.splitlines() if "rollout status" not in line]
        await carry_out(real_server, "\n".join(lines), tmp_path)
    ours = real_server.ask("GET", deployment)["spec"]
    assert _conversion(real_server) == "None"
    assert ours["replicas"] == 1
    real_server.ask("POST", f"/api/v1/namespaces/{HOME}/pods?dryRun=All", _ROUTER)
    (container,) = ours["template"]["spec"]["containers"]
    assert container["image"] == f"registry.example.com/lean-sandbox:{__version__}"
    assert container["args"] == ["--leader-elect=true", "--extensions"]
    for block in blocks("## Back"):
        await carry_out(real_server, block, tmp_path, tmp_path)
    assert real_server.ask("GET", deployment)["spec"] == before
    real_server.ask("POST", f"/api/v1/namespaces/{HOME}/pods?dryRun=All", _ROUTER)
    real_server.ask("DELETE", deployment)


def _conversion(server: RealServer) -> str:
    """Return how the server converts Sandboxes between versions."""
    name = "customresourcedefinitions/sandboxes.agents.x-k8s.io"
    found = server.ask("GET", f"/apis/apiextensions.k8s.io/v1/{name}")
    return str(found["spec"]["conversion"]["strategy"])


def _release() -> list[Json]:
    """Return a Namespace and a Deployment as a release of the reference has them."""
    name = "agent-sandbox-controller"
    labels = {"app": name}
    container = {
        "name": name,
        "image": "registry.k8s.io/agent-sandbox/agent-sandbox-controller:v1.0.12",
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
