"""The page docs/local.md: its commands are typed, its program is run."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.support.patience import PATIENCE_S

PAGE = ROOT / "docs" / "local.md"
# The ports of the page may be taken on this machine.
SHELL = """
lean-sandbox() {
  case "$1 $2" in
    "local up") command lean-sandbox "$@" --port $PORT -- --metrics-bind-address=:$METRICS ;;
    "local down") command lean-sandbox "$@" --port $PORT ;;
    "trace "*) command lean-sandbox "$@" --url http://127.0.0.1:$METRICS ;;
    *) command lean-sandbox "$@" ;;
  esac
}
curl() { command curl "${@//8080/$METRICS}"; }
trap 'command lean-sandbox local down --port $PORT' EXIT
"""


def ours(*languages: str) -> str:
    """Return the blocks that are run here."""
    found = blocks(PAGE, *languages)
    return "\n".join(block.text for block in found if "run by" in block.mark)


def environment(folder: Path) -> dict[str, str]:
    """Return variables with free ports, this program first on the path, and a home apart."""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("", 0)) as other:
        ports = {"PORT": str(one.getsockname()[1]), "METRICS": str(other.getsockname()[1])}
    return {"PATH": tools, "HOME": str(folder), **ports}


def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    """From the start of a cluster to its end, in one shell."""
    if shutil.which("kubectl") is None or shutil.which("curl") is None:
        pytest.skip("kubectl or curl is not installed")
    done = subprocess.run(  # noqa: S603
        ["bash", "-euxo", "pipefail", "-c", SHELL + ours("sh")],  # noqa: S607
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "\nagent_sandbox_claim_creation_total{" in done.stdout
    assert re.search(r"^sandboxclaim\S+/mine +True +python-", done.stdout, flags=re.MULTILINE)


def test_the_program_of_the_page_gets_the_failure_that_it_asks_for(tmp_path: Path) -> None:
    """The embedded server answers 503 once."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", ours("python")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("as asked: ")
