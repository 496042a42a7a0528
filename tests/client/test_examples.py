"""The examples, applied with kubectl as a reader does it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.client.cluster import Cluster, Room
from tests.docs.pages import EXAMPLES
from tests.support.names import CLAIMS, POOLS, SANDBOXES
from tests.support.patience import PATIENCE_S
from tests.support.stored import is_ready

Json = dict[str, Any]

# Which example makes what another one needs.
_NEEDED = {
    **dict.fromkeys(("claim", "keep-claim"), "pool"),
    **dict.fromkeys(("autosize", "claim-defaults", "rolling"), "pool"),
    "values-claim": "values",
    "job": "runtime",
}
_RESOURCES = {"Sandbox": SANDBOXES, "SandboxClaim": CLAIMS, "SandboxWarmPool": POOLS}


def _kubectl(cluster: Cluster, room: Room, words: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    home = str(Path(cluster.kubeconfig).parent)
    return subprocess.run(  # noqa: S603 -- our own words
        ["kubectl", "-n", room.name, *words.split()],  # noqa: S607
        env={"PATH": os.environ["PATH"], "KUBECONFIG": cluster.kubeconfig, "HOME": home},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def _apply(cluster: Cluster, room: Room, file: Path) -> None:
    done = _kubectl(cluster, room, f"apply --validate=strict -f {file}")
    assert done.returncode == 0, done.stderr


def _file(name: str) -> Path:
    return next(one for one in EXAMPLES if one.stem == name)


def _is_served(obj: Json) -> bool:
    if obj.get("status", {}).get("readyReplicas", -1) == obj.get("spec", {}).get("replicas"):
        return True
    return is_ready(obj)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda one: one.stem)
def test_every_example_is_taken_and_served(cluster: Cluster, file: Path) -> None:
    """The server refuses nothing of it, and its Sandboxes, claims and pools become ready."""
    room = cluster.room()
    if needed := _NEEDED.get(file.stem):
        _apply(cluster, room, file.with_stem(needed))
    _apply(cluster, room, file)
    for one in yaml.safe_load_all(file.read_text()):
        if resource := _RESOURCES.get(one["kind"]):
            cluster.until_object(resource, room.name, one["metadata"]["name"], _is_served)


@pytest.mark.parametrize("words", ["exec {} -- true", "logs {}", "port-forward pod/{} :80"])
def test_a_backend_may_do_what_its_role_names(cluster: Cluster, words: str) -> None:
    """Kubectl looks at the Pod first; no container of these servers runs what it asks for then."""
    room = cluster.room()
    for name in ("pool", "claim", "backend-role"):
        _apply(cluster, room, _file(name))
    claim = cluster.until_object(CLAIMS, room.name, "mine", is_ready)
    account = f"{room.name}:backend"
    bound = f"create rolebinding backend --role=sandbox-user --serviceaccount={account}"
    assert _kubectl(cluster, room, bound).returncode == 0
    asked = words.format(claim["status"]["sandbox"]["name"])
    done = _kubectl(cluster, room, f"--as=system:serviceaccount:{account} {asked}")
    assert "orbidden" not in done.stderr


def test_the_values_of_a_claim_are_on_its_pod_when_it_is_ready(cluster: Cluster) -> None:
    """They reach a member that ran already: the Pod is as old as before, and its files follow."""
    room = cluster.room()
    file = _file("values")
    _apply(cluster, room, file)
    cluster.until_object(POOLS, room.name, "values", _is_served)
    waiting = {one["metadata"]["uid"] for one in cluster.all("pods", room.name)}
    _apply(cluster, room, file.with_stem("values-claim"))
    claim = cluster.until_object(CLAIMS, room.name, "for-alice", is_ready)
    pod = room.pod(claim["status"]["sandbox"]["name"])
    assert pod["metadata"]["uid"] in waiting
    wanted = claim["spec"]["additionalPodMetadata"]
    for kind in ("annotations", "labels"):
        assert wanted[kind].items() <= pod["metadata"][kind].items()
