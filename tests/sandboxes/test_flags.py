"""The flags of the command line: what is refused, with which exit code, and in which words."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import pytest
import structlog

from lean_sandbox.cli import EXIT_CONFIG, EXIT_OK, EXIT_USAGE, main
from lean_sandbox.version import __version__


@pytest.fixture(autouse=True)
def untouched_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what a command does to its process: the log it sets up, the modules it bans."""
    monkeypatch.setitem(sys.modules, "rich", importlib.import_module("rich"))
    yield
    structlog.reset_defaults()


@pytest.mark.case(142)
@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--kube-api-burst", "0"),
        ("--kube-api-burst", "-1"),
        ("--sandbox-concurrent-workers", "0"),
        ("--max-requests-in-flight", "0"),
        ("--page-size", "0"),
        ("--sandbox-write-behind-window", "-1s"),
        ("--sandbox-status-window", "-1ms"),
        ("--sandbox-write-behind-window", "soon"),
        ("--kube-api-qps", "fast"),
        ("--kube-api-qps", "nan"),
        ("--sandbox-concurrent-workers", "1.5"),
        ("--request-timeout", "0s"),
        ("--reconcile-deadline", "0"),
        ("--shutdown-grace", "-1s"),
        ("--watch-representation", "picture"),
        ("--log-level", "loud"),
    ],
)
def test_values_that_cannot_work_are_refused_before_anything_starts(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case 142: the process ends with the code for refused configuration and names the flag."""
    assert main(["run", f"{flag}={value}"]) == EXIT_CONFIG
    assert flag in capsys.readouterr().err


@pytest.mark.case(142)
def test_an_unknown_flag_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Case 142: an unknown flag ends the process with code 2 and the usage on stderr."""
    with pytest.raises(SystemExit) as ended:
        main(["run", "--no-such-flag"])
    assert ended.value.code == EXIT_USAGE
    assert "usage:" in capsys.readouterr().err


@pytest.mark.case(142)
def test_the_version_is_printed_and_that_is_all(capsys: pytest.CaptureFixture[str]) -> None:
    """Case 142: ``--version`` prints the version and ends with code 0."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == EXIT_OK
    assert __version__ in capsys.readouterr().out


@pytest.mark.case(142)
def test_a_kubeconfig_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Case 142: without a way to a server the process ends at once and says which file it wants."""
    assert main(["run", "--kubeconfig=/nowhere/config"]) == EXIT_CONFIG
    assert "/nowhere/config" in capsys.readouterr().err
