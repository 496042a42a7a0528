"""What the embedded server reads is what kube-apiserver says today."""

from __future__ import annotations

from lean_sandbox.local import recorded
from tests.controlplane import record
from tests.controlplane.plugin import REAL
from tests.controlplane.server import RealServer

pytestmark = REAL


def test_the_recording_is_what_the_server_says(real_server: RealServer) -> None:
    """``.ci/tasks record`` would change no file."""
    found = record.sections(real_server)
    assert found["schemas"] == recorded.schemas()
    assert found["descriptions"] == recorded.descriptions()
    assert found["discovery"] == recorded.discovery()
    assert found["columns"] == recorded.columns()
    assert found["roles"] == recorded.roles()
    assert found["protobuf"] == recorded.protobuf()
