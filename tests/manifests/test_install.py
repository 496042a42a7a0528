"""The commands of docs/install.md and docs/upgrade.md that the embedded server has no tools for."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.controlplane.binaries import find_helm
from tests.controlplane.plugin import REAL
from tests.controlplane.server import RealServer
from tests.docs.pages import ROOT, blocks
from tests.support.patience import PATIENCE_S

pytestmark = REAL

NAMESPACE = "agent-sandbox-system"
MARK = "<!-- run by: tests/manifests/test_install.py -->"
INSTALL, UPGRADE = (
    [one.text for one in blocks(ROOT / "docs" / page, "sh") if one.mark == MARK]
    for page in ("install.md", "upgrade.md")
)
"""By Helm, from one file, as a sidecar; an upgrade by Helm, the end of what one file installed."""


class Shell:
    """Runs commands of the pages at the top of the project, as the administrator."""

    def __init__(self, server: RealServer, home: Path) -> None:
        self.config = server.kubeconfig(home / "kubeconfig", server.token)
        self.home = home

    def __call__(self, script: str) -> str:
        """Run a block but its waits: the controller of Deployments is not there."""
        helm = find_helm(os.environ)
        tools = [str(helm.parent)] if helm is not None else []
        lines = [line for line in script.splitlines() if "rollout status" not in line]
        done = subprocess.run(  # noqa: S603 -- our own pages
            ["bash", "-euc", "\n".join(lines)],  # noqa: S607 -- as a reader's shell
            env={
                "PATH": os.pathsep.join([*tools, os.environ["PATH"]]),
                "HOME": str(self.home),
                "KUBECONFIG": str(self.config),
            },
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def shell(real_server: RealServer, tmp_path: Path) -> Shell:
    """Give a shell in a cluster where no controller is installed."""
    given = Shell(real_server, tmp_path)
    given("kubectl delete --ignore-not-found -k manifests/overlays/drop-in-extensions")
    return given


def test_helm_installs_and_upgrades(shell: Shell) -> None:
    """As the pages say it; the values of the installation stay, and the definitions, too."""
    if find_helm(os.environ) is None:
        pytest.skip("there is no helm: `.ci/tasks programs` compiles it")
    shell(INSTALL[0])
    shell(UPGRADE[0])
    spec = "jsonpath={.spec.template.spec.containers[0]['image', 'args']}"
    said = shell(f"kubectl -n {NAMESPACE} get deployment agent-sandbox-controller -o {spec!r}")
    assert said == 'registry.example.com/lean-sandbox:0.1.0 ["--leader-elect=true","--extensions"]'
    shell("helm uninstall lean-sandbox")
    shell("kubectl get crd sandboxes.agents.x-k8s.io")


def test_one_file_installs_and_what_it_installed_goes(shell: Shell) -> None:
    """As the pages say it; afterwards nothing of the controller is left, but the definitions."""
    shell(INSTALL[1])
    shell(UPGRADE[1])
    kinds = "deployments,services,roles,rolebindings,clusterroles,clusterrolebindings"
    # Other tests leave some whose names only end like that.
    assert "/agent-sandbox" not in shell(f"kubectl get {kinds} -A -o name")
    left = yaml.safe_load(shell("kubectl get -k manifests/crds -o yaml"))["items"]
    assert len(left) == 4


def test_the_sidecar_joins_a_deployment(shell: Shell) -> None:
    """As the page says it, with the names of its reader; what the Pod had before stays."""
    names = {"NAMESPACE": "sidecars", "NAME": "host", "ACCOUNT": "hosts"}

    def with_names(script: str) -> str:
        return re.sub("|".join(names), lambda found: names[found[0]], script)

    shell("kubectl create namespace sidecars; kubectl -n sidecars create serviceaccount hosts")
    shell("kubectl -n sidecars create deployment host --image=busybox")
    shell(with_names(INSTALL[2]))
    pod = "{.spec.template.spec.containers[*].name} {.spec.template.spec.volumes[*].name}"
    said = shell(f"kubectl -n sidecars get deployment host -o jsonpath='{pod}'")
    assert said == "busybox lean-sandbox lean-sandbox-config"
    may = (
        "kubectl auth can-i --as=system:serviceaccount:sidecars:hosts -n {} patch sandboxes/status"
    )
    assert shell(may.format("sidecars")) == "yes\n"
    assert shell(may.format("default") + " || true") == "no\n"
    claims = may.replace("sandboxes", "sandboxclaims").format("sidecars")
    assert shell(claims + " || true") == "no\n"
    shell(with_names(INSTALL[3]))
    assert shell(claims) == "yes\n"
    added = "{.spec.template.spec.containers[1].env[*].name}"
    said = shell(f"kubectl -n sidecars get deployment host -o jsonpath='{added}'")
    assert said == "POD_NAMESPACE LEAN_SANDBOX_EXTENSIONS"
    shell("kubectl delete namespace sidecars --wait=false")
