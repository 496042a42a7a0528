"""The page on running code: its runtime and its agent meet as they stand there, without a node."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import yaml

from tests.client.cluster import is_ready
from tests.client.embedded import open_embedded
from tests.docs.pages import ROOT, files
from tests.support.names import CLAIMS
from tests.support.patience import PATIENCE_S

PAGE = ROOT / "docs" / "run-code.md"


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def test_the_agent_of_the_page_runs_a_command_in_the_runtime_of_the_page(tmp_path: Path) -> None:
    """The official SDK finds the claim's Sandbox, its command is run, the claim goes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    written = files(PAGE, tmp_path)
    for name in ("runtime.py", "agent.py"):
        written[name].write_text(written[name].read_text().replace("8888", str(port)))
    with (
        open_embedded(tmp_path) as cluster,
        subprocess.Popen(  # noqa: S603 -- our own page
            [sys.executable, written["runtime.py"]], stderr=subprocess.DEVNULL
        ) as runtime,
    ):
        try:
            for manifest in ("runtime.yaml", "job.yaml"):
                for one in yaml.safe_load_all(written[manifest].read_text()):
                    cluster.create({**one, "metadata": {**one["metadata"], "namespace": "default"}})
            cluster.until("a claim is Ready", lambda: is_ready(cluster.all(CLAIMS, "default")[0]))
            cluster.until("the runtime listens", lambda: _listens(port))
            done = subprocess.run(  # noqa: S603 -- our own page
                [sys.executable, written["agent.py"]],
                env={**os.environ, "KUBECONFIG": cluster.kubeconfig},
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE_S,
            )
        finally:
            runtime.kill()
        assert done.stdout.strip() == "42", done.stderr
        cluster.until("the claim is gone", lambda: not cluster.all(CLAIMS, "default"))
