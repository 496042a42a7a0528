"""The manifests as kubectl renders them, applied to a real server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.plugin import REAL
from tests.manifests.conftest import Run
from tests.manifests.files import ROOT

pytestmark = REAL

Json = dict[str, Any]
NAME = "agent-sandbox-controller"
NAMESPACE = "agent-sandbox-system"
FOLDERS = (
    "crds",
    "overlays/drop-in",
    "overlays/drop-in-extensions",
    "overlays/sidecar",
    "overlays/minikube",
    "overlays/shards",
)
IN_ITS_NAMESPACE = ("drop-in", "drop-in-extensions", "minikube", "shards")
ENFORCE = "pod-security.kubernetes.io/enforce"
BARE = {"containers": [{"name": "main", "image": "busybox"}]}
# What the manifest of the client's router says of its Pods.
ROUTER = {**BARE, "securityContext": {"runAsUser": 1000, "runAsGroup": 1000}}
# Its kind is of an operator that is not there.
UNSERVED = {"service-monitor", "alerts"}


def versions(kubectl: Run, folder: Path) -> dict[str, str]:
    """Return the version of each object that a folder renders to.

    Namespaces are left out: one that says nothing but its name gets a new version when it is
    applied again, for the server's notes of who manages what.
    """
    items = json.loads(kubectl("get", "-k", folder, "-o", "json"))["items"]
    return {
        f"{one['kind']} {one['metadata']['name']}": one["metadata"]["resourceVersion"]
        for one in items
        if one["kind"] != "Namespace"
    }


def apply(kubectl: Run, folder: Path) -> None:
    """Apply a folder as the README says, unknown fields being errors."""
    kubectl("apply", "--server-side", "--validate=strict", "-k", folder)


def combined(folder: Path, components: list[str], overlay: str) -> Path:
    """Write a kustomization of an overlay with components, and return its folder."""
    body = {
        "resources": [os.path.relpath(ROOT / "overlays" / overlay, folder)],
        "components": [os.path.relpath(ROOT / "components" / name, folder) for name in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(body))
    return folder


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_second_application_changes_nothing(kubectl: Run, folder: str) -> None:
    """Each overlay is taken by the server, and taken again without a new version of anything."""
    apply(kubectl, ROOT / folder)
    first = versions(kubectl, ROOT / folder)
    assert first
    apply(kubectl, ROOT / folder)
    assert versions(kubectl, ROOT / folder) == first


def test_the_definitions_are_taken_as_plain_files_too(kubectl: Run) -> None:
    """`kubectl apply -f manifests/crds` finds nothing in the folder but the definitions."""
    kubectl("apply", "--server-side", "-f", ROOT / "crds")


def test_all_components_together_are_taken(kubectl: Run, tmp_path: Path) -> None:
    """The drop-in with every component for it: all renders, and what is served is taken."""
    names = sorted(
        path.name for path in (ROOT / "components").iterdir() if "sidecar" not in path.name
    )
    rendered = yaml.safe_load_all(kubectl("kustomize", combined(tmp_path, names, "drop-in")))
    deployment = next(one for one in rendered if one["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    companions = "--companions=autosize,defaults,idle,recreate,rollout"
    assert container["args"] == ["--leader-elect=true", companions, "--extensions"]
    assert deployment["spec"]["replicas"] == 2
    folder = combined(tmp_path, [name for name in names if name not in UNSERVED], "drop-in")
    apply(kubectl, folder)
    first = versions(kubectl, folder)
    apply(kubectl, folder)
    assert versions(kubectl, folder) == first


@pytest.mark.parametrize("overlay", IN_ITS_NAMESPACE)
def test_whoever_shares_the_namespace_is_admitted_as_before(
    kubectl: Run, tmp_path: Path, overlay: str
) -> None:
    """The client's router sets only a user, the Pod of a Sandbox often nothing.

    What somebody else said of the namespace stays said.
    """
    theirs = tmp_path / "theirs.yaml"
    theirs.write_text(yaml.safe_dump(_namespace()))
    kubectl("apply", "-f", theirs)
    kubectl("label", "--overwrite", "namespace", NAMESPACE, f"{ENFORCE}=privileged", "team=red")
    apply(kubectl, ROOT / "overlays" / overlay)
    labels = json.loads(kubectl("get", "namespace", NAMESPACE, "-o", "json"))["metadata"]["labels"]
    assert (labels["team"], labels[ENFORCE]) == ("red", "privileged")
    kubectl("label", "namespace", NAMESPACE, f"{ENFORCE}-", "team-")
    for spec in (ROUTER, BARE):
        admitted(kubectl, tmp_path, spec)


def test_the_component_admits_the_controller_and_no_pod_with_more_rights(
    kubectl: Run, tmp_path: Path
) -> None:
    """The controller runs under the restricted standard, and the server holds others to it."""
    folder = combined(tmp_path, ["pod-security"], "drop-in-extensions")
    apply(kubectl, folder)
    admitted(kubectl, tmp_path, _pod(kubectl))
    for spec in (ROUTER, BARE):
        said = admitted(kubectl, tmp_path, spec, refused=True)
        assert 'violates PodSecurity "restricted:latest"' in said
    apply(kubectl, ROOT / "overlays/drop-in-extensions")
    admitted(kubectl, tmp_path, ROUTER)


@pytest.mark.parametrize("overlay", IN_ITS_NAMESPACE)
def test_the_policy_goes_with_every_overlay_and_selects_its_pods_alone(
    kubectl: Run, tmp_path: Path, overlay: str
) -> None:
    """Metrics for labelled namespaces, the other port for no Pod; nothing is shut without it."""
    plain = kubectl("kustomize", ROOT / "overlays" / overlay)
    assert "NetworkPolicy" not in {one["kind"] for one in yaml.safe_load_all(plain)}
    text = kubectl("kustomize", combined(tmp_path, ["network-policy"], overlay))
    found = {one["kind"]: one for one in yaml.safe_load_all(text)}
    policy = found["NetworkPolicy"]["spec"]
    pods = (found.get("Deployment") or found["StatefulSet"])["spec"]["template"]
    assert policy["podSelector"]["matchLabels"] == pods["metadata"]["labels"]
    (container,) = pods["spec"]["containers"]
    (rule,) = policy["ingress"]
    assert rule["ports"] == [{"port": "metrics", "protocol": "TCP"}]
    assert {one["name"] for one in container["ports"]} == {"metrics", "healthz"}


def admitted(kubectl: Run, folder: Path, spec: Json, *, refused: bool = False) -> str:
    """Ask the server for a Pod in the controller's namespace, and return what it says."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": NAMESPACE}}
    (folder / "pod.json").write_text(json.dumps({**pod, "spec": spec}))
    create = ("create", "--dry-run=server", "-f", folder / "pod.json")
    return kubectl(*create, refused=refused)


def test_the_drop_in_takes_the_place_of_another_deployment_and_gives_it_back(
    kubectl: Run, tmp_path: Path
) -> None:
    """Applied over the reference's objects nothing of theirs is left, and the other way round."""
    theirs = tmp_path / "theirs.yaml"
    theirs.write_text(yaml.safe_dump_all([_namespace(), _deployment()]))
    kubectl("delete", "--ignore-not-found", "deployment", NAME, "--namespace", NAMESPACE)
    kubectl("apply", "-f", theirs)
    before = _pod(kubectl)
    apply(kubectl, ROOT / "overlays/drop-in")
    ours = _pod(kubectl)
    (container,) = ours["containers"]
    assert container["args"] == ["--leader-elect=true"]
    assert container["image"].startswith("lean-sandbox:")
    assert [one["name"] for one in ours["volumes"]] == ["config-volume"]
    kubectl("apply", "--server-side", "-f", theirs)
    after = _pod(kubectl)
    assert after["containers"] == before["containers"]
    assert after["volumes"] == before["volumes"]


def _pod(kubectl: Run) -> Json:
    text = kubectl("get", "deployment", NAME, "--namespace", NAMESPACE, "-o", "json")
    found: Json = json.loads(text)["spec"]["template"]["spec"]
    return found


def _namespace() -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def _deployment() -> Json:
    """Return what the reference's published Deployment says, with its extensions."""
    labels = {"app": NAME}
    container = {
        "name": NAME,
        "image": "registry.k8s.io/agent-sandbox/agent-sandbox-controller:v1.0.12",
        "args": ["--leader-elect=true", "--extensions"],
        "ports": [
            {"name": "metrics", "containerPort": 8080, "protocol": "TCP"},
            {"name": "healthz", "containerPort": 8081, "protocol": "TCP"},
        ],
        "volumeMounts": [
            {"name": "config-volume", "mountPath": "/etc/sandbox-config", "readOnly": True}
        ],
    }
    config = {"name": "agent-sandbox-config", "optional": True}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": NAME,
                    "containers": [container],
                    "volumes": [{"name": "config-volume", "configMap": config}],
                },
            },
        },
    }
