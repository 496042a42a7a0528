"""What is recorded of the tests, and which of them are asked."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mutants.copies import ROOT
from tests.mutants.reach import LEFT_OUT, folders_of


@pytest.mark.parametrize("name", sorted(LEFT_OUT))
def test_what_is_not_asked_is_there(name: str) -> None:
    """A file or a folder that has another name now would be asked."""
    assert list((ROOT / "tests").glob(f"**/{name}"))


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("lean_sandbox/controllers/claim/bind.py", "tests/controllers/claim/"),
        ("lean_sandbox/log.py", "tests/log/"),
        ("filters/columns.py", "tests/filters/"),
        ("lean_sandbox/watch/resources/pod.py", "tests/watch/"),
        ("lean_sandbox/controllers/metrics.py", "tests/metrics/"),
    ],
)
def test_a_modules_own_tests_are_asked_first(path: str, folder: str) -> None:
    """They are in the folder of its package, or in one of its name."""
    assert folder in folders_of(path)
    assert (ROOT / folder).is_dir()


def test_tests_in_the_background_can_send_signals() -> None:
    """A shell lets what it starts there ignore them, and programs inherit that."""
    program = (
        "import signal\n"
        "from tests.mutants.copies import heed_signals\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "heed_signals()\n"
        "assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL\n"
        "assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)  # noqa: S603 -- our own
