"""Where the programs of the real control plane are looked for; needs none of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane.binaries import (
    HELM,
    PROGRAMS,
    MissingProgramsError,
    cache_folder,
    find_helm,
    provide,
)

ROOT = Path(__file__).resolve().parents[2]


def install(folder: Path, *names: str) -> None:
    """Put programs into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / name
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)


def test_the_assets_of_the_user_come_first(tmp_path: Path) -> None:
    """KUBEBUILDER_ASSETS beats what was compiled; what it lacks is taken from there."""
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path / "a"), "XDG_CACHE_HOME": str(tmp_path / "c")}
    install(tmp_path / "a", "etcd", "kube-apiserver")
    install(cache_folder(environment), *PROGRAMS)
    found = provide(environment)
    assert found.etcd == tmp_path / "a" / "etcd"
    assert found.apiserver == tmp_path / "a" / "kube-apiserver"
    assert found.controller_manager == cache_folder(environment) / "kube-controller-manager"


def test_a_file_that_cannot_be_run_is_no_program(tmp_path: Path) -> None:
    """A folder or a file without the right to execute is passed over."""
    install(tmp_path, "etcd", "kube-apiserver")
    (tmp_path / "etcd").chmod(0o644)
    (tmp_path / "kube-controller-manager").mkdir()
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "c")}
    with pytest.raises(
        MissingProgramsError, match="needs etcd, kube-controller-manager, kube-scheduler: not in"
    ):
        provide(environment | {"PATH": ""})


def test_helm_is_the_one_that_was_compiled_before_that_of_the_machine(tmp_path: Path) -> None:
    """Without either there is none: the tests of the chart are left out, and all others run."""
    environment = {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "c")}
    assert find_helm(environment) is None
    install(tmp_path / "bin", "helm")
    assert find_helm(environment) == tmp_path / "bin" / "helm"
    compiled = cache_folder(environment, f"helm-{HELM}")
    install(compiled, "helm")
    assert find_helm(environment) == compiled / "helm"


def test_without_programs_and_go_the_run_fails_and_says_so(tmp_path: Path) -> None:
    """``pytest -m controlplane`` names what is missing, runs nothing and skips nothing."""
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "controlplane", "tests/conformance/test_access.py"],
        cwd=ROOT,
        env={"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode not in (0, 5)
    assert "needs etcd, kube-apiserver, kube-controller-manager, kube-scheduler" in finished.stderr
    assert "Install Go, or set KUBEBUILDER_ASSETS" in finished.stderr
    assert "skipped" not in finished.stdout
    assert "passed" not in finished.stdout
