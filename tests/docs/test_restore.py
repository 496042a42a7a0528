"""The page on back-ups: what its commands save and restore comes back with its owners."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import anyio
import pytest

from lean_sandbox.local.controlplane import ControlPlane
from tests.client.embedded import with_nodes
from tests.docs.pages import ROOT, blocks
from tests.support.names import SANDBOXES

_MARK = "<!-- run by: tests/docs/test_restore.py -->"
_FILL = """
kubectl apply -f examples/pool.yaml
kubectl wait sandboxwarmpool/python --for=jsonpath='{.status.readyReplicas}'=5
kubectl apply -f examples/claim.yaml
kubectl wait --for=condition=Ready sandboxclaim/mine
"""
_LOSE = "kubectl delete sandboxes,sandboxtemplates,sandboxwarmpools,sandboxclaims --all"
_CHECK = """
kubectl wait --for=condition=Ready sandboxclaim/mine
kubectl wait sandboxwarmpool/python --for=jsonpath='{.status.readyReplicas}'=5
"""


async def _type(script: str, folder: Path) -> None:
    """Run commands as a reader types them, with the kubeconfig of a folder."""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": tools, "HOME": str(folder), "KUBECONFIG": str(folder / "admin")}
    await anyio.run_process(["bash", "-euo", "pipefail", "-c", script], env=env, cwd=folder)


def _owners(plane: ControlPlane) -> dict[str, str]:
    """Return the kind of the owner of each Sandbox, by the Sandbox's name."""
    held = plane.store.list(SANDBOXES, "default")
    return {one["metadata"]["name"]: one["metadata"]["ownerReferences"][0]["kind"] for one in held}


async def test_what_is_restored_as_the_page_says_has_its_owners_again(tmp_path: Path) -> None:
    """The claim has its own Sandbox and takes no other, and the pool has its members."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    page = blocks(ROOT / "docs" / "recipes.md", "sh")
    save, create, label = (one.text for one in page if one.mark == _MARK)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    async with ControlPlane() as plane, with_nodes(plane) as controller:
        plane.kubeconfig(tmp_path / "admin")
        async with controller():
            await _type(_FILL, tmp_path)
            before = _owners(plane)
            await _type(save, tmp_path)
        await _type(f"{_LOSE}\n{create}\n{label}", tmp_path)
        async with controller():
            await _type(_CHECK, tmp_path)
        after = _owners(plane)
    assert before.items() <= after.items()
    assert list(before.values()).count("SandboxClaim") == 1
    assert list(after.values()).count("SandboxClaim") == 1
