"""docs/run-code.md: its runtime and its agent meet as they stand there, without a node."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.client.embedded import open_embedded
from tests.docs.pages import ROOT, blocks
from tests.support.names import CLAIMS
from tests.support.patience import PATIENCE_S
from tests.support.process import listens
from tests.support.stored import is_ready

PAGE = ROOT / "docs" / "run-code.md"
EXAMPLES = ROOT / "examples"


def test_the_agent_of_the_page_runs_a_command_in_the_runtime_of_the_page(tmp_path: Path) -> None:
    """The official SDK finds the claim's Sandbox, its command is run, the claim goes."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (agent,) = (one.text for one in blocks(PAGE, "python"))
    (tmp_path / "agent.py").write_text(agent.replace("8888", str(port)))
    (typed,) = (one.text for one in blocks(PAGE, "sh") if "> runtime.py" in one.text)
    fetch, _ = typed.splitlines()
    with open_embedded(tmp_path) as cluster:
        for manifest in ("runtime.yaml", "job.yaml"):
            for one in yaml.safe_load_all((EXAMPLES / manifest).read_text()):
                cluster.create({**one, "metadata": {**one["metadata"], "namespace": "default"}})
        environment = {**os.environ, "KUBECONFIG": cluster.kubeconfig}
        subprocess.run(  # noqa: S603 -- our own page
            ["bash", "-euc", fetch.replace("sed '", f"sed 's/8888/{port}/; ")],  # noqa: S607
            cwd=tmp_path,
            env=environment,
            check=True,
            timeout=PATIENCE_S,
        )
        runtime = subprocess.Popen(  # noqa: S603 -- our own page
            [sys.executable, tmp_path / "runtime.py"], stderr=subprocess.DEVNULL
        )
        try:
            cluster.until("a claim is Ready", lambda: is_ready(cluster.all(CLAIMS, "default")[0]))
            cluster.until("the runtime listens", lambda: listens(port))
            done = subprocess.run(  # noqa: S603 -- our own page
                [sys.executable, tmp_path / "agent.py"],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE_S,
            )
        finally:
            runtime.kill()
            runtime.wait()
        assert done.stdout.strip() == "42", done.stderr
        cluster.until("the claim is gone", lambda: not cluster.all(CLAIMS, "default"))
