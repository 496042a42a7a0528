"""Two controllers in one cluster, as docs/recipes.md installs the second."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT, blocks
from tests.support.patience import PATIENCE_S

Json = dict[str, Any]


def rendered(folder: Path, home: Path) -> dict[tuple[str, str, str], Json]:
    """Return the objects of a kustomization by kind, namespace and name."""
    done = subprocess.run(  # noqa: S603 -- our own manifests
        ["kubectl", "kustomize", str(folder)],  # noqa: S607
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one
        for one in yaml.safe_load_all(done.stdout)
    }


def test_the_second_controller_shares_nothing_with_the_first(tmp_path: Path) -> None:
    """Each object of it is another one; what grants rights grants them to its own account."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests", symlinks=True)
    (script,) = (
        one.text for one in blocks(ROOT / "docs/recipes.md", "sh") if "nameSuffix" in one.text
    )
    file = script.partition("<<'EOF'\n")[2].partition("EOF\n")[0]
    (tmp_path / "canary").mkdir()
    (tmp_path / "canary/kustomization.yaml").write_text(file)
    first = rendered(tmp_path / "manifests/overlays/drop-in-extensions", tmp_path)
    second = rendered(tmp_path / "canary", tmp_path)
    assert first.keys().isdisjoint(second)
    for (kind, namespace, _), one in second.items():
        if kind.endswith("Binding"):
            (subject,) = one["subjects"]
            assert (subject["kind"], subject["namespace"], subject["name"]) in second
            at = namespace if one["roleRef"]["kind"] == "Role" else ""
            assert (one["roleRef"]["kind"], at, one["roleRef"]["name"]) in second
    (deployment,) = (one for key, one in second.items() if key[0] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "--namespaces=canary" in container["args"]
