"""Without the programs of a real control plane its tests do not pass for run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


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
