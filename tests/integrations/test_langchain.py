"""langchain-k8s: the integration tests that its source brings, in its own namespace."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from tests.client.cluster import CLAIMS, Cluster
from tests.integrations.environments import environment
from tests.integrations.program import run
from tests.integrations.standin import StandIn
from tests.support.patience import PATIENCE_S

NAMESPACE = "agent-sandbox-system"
# Dozens of tests one after the other, each of which waits for several processes.
LIMIT_S = 4 * PATIENCE_S
KUBECTL = Path(__file__).with_name("kubectl.py")


def command(path: Path, *words: str) -> None:
    """Write a command that runs another one, with further arguments."""
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    path.chmod(0o755)


@pytest.mark.timeout(LIMIT_S + PATIENCE_S)
def test_the_integration_tests_pass(cluster: Cluster, standin: StandIn, tmp_path: Path) -> None:
    """All 42. No Sandbox has a /tmp of its own here: they use the folder that stands for it."""
    installed = environment("langchain-k8s")
    source = installed.source(tmp_path)
    for name in ("sandbox-template.yaml", "sandbox-warmpool.yaml"):
        cluster.create(yaml.safe_load((source / "k8s" / name).read_text()))
    tests = source / "tests" / "integration" / "test_kind.py"
    tests.write_text(tests.read_text().replace("/tmp", str(standin.tmp)))
    commands = tmp_path / "commands"
    commands.mkdir()
    command(commands / "kind", "sh", "-c", "echo langchain-k8s")
    command(commands / "kubectl", sys.executable, str(KUBECTL), standin.url.rpartition(":")[2])
    said = run(
        installed,
        *("-m", "pytest", "-q", "-c", str(source / "pyproject.toml"), "-o", "log_cli=false"),
        str(tests),
        limit_s=LIMIT_S,
        KUBECONFIG=cluster.kubeconfig,
        PATH=f"{commands}{os.pathsep}{os.environ['PATH']}",
    )
    assert "\n42 passed in " in said, said
    # One of them leaves its claim, and says so: skip_cleanup.
    cluster.until("all other claims are gone", lambda: len(cluster.all(CLAIMS, NAMESPACE)) == 1)
