"""Controllers beside others and with fewer rights, as the pages install them."""

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


@pytest.mark.parametrize(
    ("component", "gives"),
    [("companions", "--companions="), ("scrape-annotations", "prometheus.io/scrape")],
)
def test_a_component_reaches_the_controllers_of_shards(
    tmp_path: Path, component: str, gives: str
) -> None:
    """They are a StatefulSet; kustomize is silent about a patch that finds nothing."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    parts = {"resources": ["overlays/shards"], "components": [f"components/{component}"]}
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests", symlinks=True)
    (tmp_path / "manifests/kustomization.yaml").write_text(yaml.safe_dump(parts))
    found = rendered(tmp_path / "manifests", tmp_path)
    assert gives in str(found["StatefulSet", "agent-sandbox-system", "agent-sandbox-controller"])


def of_page(page: str, folder: str, home: Path) -> dict[tuple[str, str, str], Json]:
    """Return the objects of the kustomization that a page writes into a folder."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    shutil.copytree(ROOT / "manifests", home / "manifests", symlinks=True)
    begin = f"cat > {folder}/kustomization.yaml <<'EOF'\n"
    (script,) = (one.text for one in blocks(ROOT / "docs" / page, "sh") if begin in one.text)
    (home / folder).mkdir()
    file = script.partition(begin)[2].partition("EOF\n")[0]
    (home / folder / "kustomization.yaml").write_text(file)
    return rendered(home / folder, home)


def test_the_second_controller_shares_nothing_with_the_first(tmp_path: Path) -> None:
    """Each object of it is another one; what grants rights grants them to its own account."""
    second = of_page("recipes.md", "canary", tmp_path)
    first = rendered(tmp_path / "manifests/overlays/drop-in-extensions", tmp_path)
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


def test_the_controller_of_some_namespaces_has_no_right_in_the_cluster(tmp_path: Path) -> None:
    """But for its own Lease it has no right beside those that the page gives it by namespace."""
    found = of_page("install.md", "some", tmp_path)
    kinds = sorted(kind for kind, _, _ in found)
    assert kinds == [
        "Deployment",
        "Namespace",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
    ]
    (role,) = (one for key, one in found.items() if key[0] == "Role")
    assert {name for rule in role["rules"] for name in rule["resources"]} == {"leases"}
