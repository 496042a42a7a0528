"""The tools that install: kubectl and helm, as the administrator of a real server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.controlplane.binaries import find_helm
from tests.controlplane.server import RealServer
from tests.manifests.files import ROOT
from tests.support.patience import PATIENCE_S


class Run(Protocol):
    """Runs a tool with arguments, and returns what it prints, or why it refuses."""

    def __call__(self, *arguments: str | Path, refused: bool = False) -> str:
        """Fail the test where the tool fails, or does not although it should refuse."""


def _tool(program: str, home: Path, config: Path | None = None) -> Run:
    def run(*arguments: str | Path, refused: bool = False) -> str:
        done = subprocess.run(  # noqa: S603 -- commands of these tests
            [program, *map(str, arguments)],
            env={"KUBECONFIG": str(config), "PATH": os.environ["PATH"], "HOME": str(home)},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert (done.returncode != 0) == refused, done.stdout + done.stderr
        return done.stderr if refused else done.stdout

    return run


@pytest.fixture(scope="module")
def kubectl(real_server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Give a function that runs kubectl, and take away at the end what it applied."""
    assert shutil.which("kubectl") is not None, "kubectl is not installed"
    home = tmp_path_factory.mktemp("kubectl")
    run = _tool("kubectl", home, real_server.kubeconfig(home / "kubeconfig", real_server.token))
    yield run
    for overlay in ("shards", "drop-in-extensions", "sidecar"):
        run("delete", "--ignore-not-found", "-k", ROOT / "overlays" / overlay)


@pytest.fixture(scope="module")
def helm(real_server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Give a function that runs helm."""
    program = find_helm(os.environ)
    if program is None:
        pytest.skip("there is no helm: `.ci/tasks programs` compiles it")
    home = tmp_path_factory.mktemp("helm")
    config = real_server.kubeconfig(home / "kubeconfig", real_server.token)
    return _tool(str(program), home, config)
