"""The official SDK: the test that its source brings, as it is."""

from __future__ import annotations

from pathlib import Path

from tests.client.cluster import VOLUME, Room
from tests.integrations.environments import environment
from tests.integrations.program import run
from tests.integrations.standin import StandIn
from tests.support.names import CLAIMS


def test_the_test_client_of_the_sdk_passes(room: Room, standin: StandIn, tmp_path: Path) -> None:
    """It claims, runs commands, moves files, adds a volume, comes back, deletes; nothing is left.

    An error in its later half does not end it: it is printed.
    """
    installed = environment("k8s-agent-sandbox")
    workspace = {**VOLUME, "metadata": {"name": "workspace"}}
    room.template(volumeClaimTemplates=[workspace], volumeClaimTemplatesPolicy="Allowed")
    room.pool()
    test = installed.source(tmp_path) / "test_client.py"
    said = run(
        installed,
        str(test),
        "--warmpool-name=pool",
        f"--namespace={room.name}",
        f"--api-url={standin.url}",
        # The claim asks for it by name: the embedded server has no default class.
        KUBECONFIG=room.cluster.kubeconfig,
        SANDBOX_TEST_STORAGE_CLASS="standard",
    )
    assert "An error occurred" not in said, said
    assert "--- delete_all Test Passed ---" in said, said
    room.cluster.until("no claim is left", lambda: not room.cluster.all(CLAIMS, room.name))
