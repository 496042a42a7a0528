"""OpenSandbox: its server with the provider ``agent-sandbox``, used by its client."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.client.cluster import SANDBOXES, Room
from tests.integrations.environments import Environment, environment
from tests.integrations.program import run
from tests.support.process import listens

STEPS = str(Path(__file__).with_name("opensandbox_steps.py"))
CONFIG = """\
[server]
host = "127.0.0.1"
port = {port}
[runtime]
type = "kubernetes"
execd_image = "execd"
[store]
path = "{folder}/server.db"
[kubernetes]
kubeconfig_path = "{kubeconfig}"
namespace = "{namespace}"
workload_provider = "agent-sandbox"
[agent_sandbox]
shutdown_policy = "{policy}"
"""


@contextmanager
def serving(installed: Environment, room: Room, folder: Path, policy: str) -> Iterator[str]:
    """Run the server and give its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = folder / "server.toml"
    kubeconfig = room.cluster.kubeconfig
    config.write_text(
        CONFIG.format(
            port=port, folder=folder, kubeconfig=kubeconfig, namespace=room.name, policy=policy
        )
    )
    program = [str(installed.python), "-m", "opensandbox_server.cli", f"--config={config}"]
    variables = {**os.environ, "OPENSANDBOX_INSECURE_SERVER": "YES"}
    log = folder / "server.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(  # noqa: S603 -- pinned
            program, env=variables, cwd=folder, stdout=output, stderr=output
        ) as server,
    ):
        try:
            room.cluster.until("the server listens", lambda: listens(port) or server.poll())
            assert server.returncode is None, log.read_text()
            yield f"127.0.0.1:{port}"
        finally:
            server.kill()


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_sandboxes_live_as_the_server_says(room: Room, tmp_path: Path, policy: str) -> None:
    """Created, renewed, paused, resumed, expired, deleted; one and eight at once; none is left."""
    installed = environment("opensandbox-server")
    with serving(installed, room, tmp_path, policy) as domain:
        run(installed, STEPS, domain, policy)
    room.cluster.until("none is left", lambda: not room.cluster.all(SANDBOXES, room.name))
