"""What the command line refuses, with which exit code, and in which words."""

from __future__ import annotations

import platform
import sys

import pytest

from lean_sandbox.cli import main
from lean_sandbox.config.sources import EXIT_CONFIG, EXIT_FAILED, EXIT_OK, EXIT_USAGE
from lean_sandbox.version import __version__, revision_and_date


@pytest.mark.case(142)
@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--kube-api-burst", "0"),
        ("--kube-api-burst", "-1"),
        ("--sandbox-concurrent-workers", "0"),
        ("--sandbox-claim-concurrent-workers", "0"),
        ("--sandbox-warm-pool-concurrent-workers", "-1"),
        ("--sandbox-warm-pool-max-batch-size", "0"),
        ("--sandbox-warm-pool-max-refill-rate", "NaN"),
        ("--sandbox-warm-pool-max-refill-rate", "+Inf"),
        ("--sandbox-warm-pool-max-refill-rate", "-1"),
        ("--sandbox-warm-pool-readiness-grace-period", "0"),
        ("--sandbox-warm-pool-unschedulable-recheck-interval", "-1m"),
        ("--sandbox-claim-warm-candidate-grace-period", "-1s"),
        ("--sandbox-write-behind-window", "-1s"),
        ("--sandbox-status-window", "-1ms"),
        ("--sandbox-status-step-window", "-1ms"),
        ("--kube-api-qps", "nan"),
        ("--max-requests-in-flight", "0"),
        ("--page-size", "0"),
        ("--request-timeout", "0s"),
        ("--trace-entries", "-1"),
        ("--leader-election-lease", "Upper"),
        ("--leader-election-lease", "a..b"),
        ("--leader-election-lease", "a" * 254),
    ],
)
@pytest.mark.parametrize("command", ["run", "config"])
def test_values_that_cannot_work_are_refused_before_anything_starts(
    command: str, flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case 142: the process ends with 1, as the reference's, and names the flag."""
    assert main([command, f"{flag}={value}"]) == EXIT_CONFIG == EXIT_FAILED == 1
    told = capsys.readouterr()
    assert flag in told.err
    assert not told.out


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--sandbox-write-behind-window", "soon"),
        ("--sandbox-write-behind-window", "1"),
        ("--sandbox-write-behind-window", ""),
        ("--kube-api-qps", "fast"),
        ("--sandbox-concurrent-workers", "1.5"),
        ("--sandbox-concurrent-workers", " 1"),
        ("--sandbox-concurrent-workers", "9223372036854775808"),
        ("--extensions", "yes"),
        ("--watch-representation", "picture"),
        ("--log-level", "loud"),
        ("--log-level", "INFO"),
        ("--zap-log-level", "0"),
        ("--zap-encoder", "xml"),
        ("--api-connections", "many"),
        ("--namespaces", "a,B"),
        ("--exclude-namespaces", "a_b"),
        ("--sandbox-label-selector", "a in b"),
        ("--sandbox-label-selector", "a=b c"),
        ("--sandbox-label-selector", "a,,b"),
        ("--shard", "2"),
        ("--shard", "0/0"),
        ("--shard", "-1/2"),
        ("--shard", "01/2"),
        ("--shard", "0/0x8000"),
        ("--shard", "0/0x0000000000000000"),
        ("--shard", "0/0x8000000000000000,0x8000000000000000"),
        ("--shard", "0/0x8000000000000000,2"),
    ],
)
def test_values_that_cannot_be_read_are_wrong_usage(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A text that is no value of the flag ends the process with 2, as the reference's."""
    assert main(["run", f"{flag}={value}"]) == EXIT_USAGE
    told = capsys.readouterr().err
    assert told.startswith("usage: lean-sandbox run")
    assert f"{flag}: {value!r} is not valid" in told


@pytest.mark.case(142)
@pytest.mark.parametrize("command", ["run", "config"])
@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--no-such-flag", "unknown flag --no-such-flag; `lean-sandbox run --help` lists all"),
        ("--namespace=a", "unknown flag --namespace; did you mean --namespaces?"),
        ("-page-sise", "unknown flag --page-sise; did you mean --page-size?"),
        # A part of a name is another name.
        ("--extension", "unknown flag --extension; did you mean --extensions?"),
    ],
)
def test_an_unknown_flag_is_wrong_usage(
    command: str, flag: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case 142: the process ends with code 2 and the usage on stderr, and the nearest is told."""
    assert main([command, flag, "3"]) == EXIT_USAGE
    told = capsys.readouterr().err
    assert told.startswith("usage:")
    assert said in told


@pytest.mark.case(142)
@pytest.mark.parametrize("command", ["run", "config"])
def test_the_version_is_printed_and_that_is_all(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case 142: ``--version`` prints what is running and ends with code 0, anywhere.

    One line with version and revision, then rows with their values in column 21.
    """
    assert main(["--version", "--extensions"]) == EXIT_OK
    assert main([command, "--version", "--kubeconfig=/nowhere/config"]) == EXIT_OK
    told = capsys.readouterr().out
    assert main(["config", "--version=false"]) == EXIT_OK
    assert "revision" not in capsys.readouterr().out
    assert told[: len(told) // 2] == told[len(told) // 2 :]
    first, *rows = told[: len(told) // 2].splitlines()
    assert first == f"lean-sandbox, version v{__version__} (revision: {revision_and_date()[0]})"
    names = [row[:20].strip() for row in rows]
    assert names == ["build date:", "go version:", "compiler:", "platform:"]
    assert all(row.startswith("  ") and row[19] == " " and row[20] != " " for row in rows)
    assert rows[1][20:] == f"python{platform.python_version()}"
    assert rows[3][20:].partition("/")[0] == sys.platform


@pytest.mark.case(142)
@pytest.mark.parametrize(
    ("file", "said"),
    [("/nowhere/config", "the kubeconfig does not exist"), ("/etc", "this is a folder")],
)
def test_a_kubeconfig_that_is_none_is_refused(
    file: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case 142: without a way to a server the process ends at once and says which file it wants."""
    assert main(["run", f"--kubeconfig={file}"]) == EXIT_CONFIG
    assert f"{file}: {said}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (
            ["--namespaces=a,b", "--exclude-namespaces=c,b"],
            ["--namespaces", "--exclude-namespaces", "b cannot"],
        ),
        (["--shard=0/2", "--namespaces=a"], ["--shard", "--namespaces"]),
        (
            ["--sandbox-label-selector=team=a", "--extensions"],
            ["--sandbox-label-selector", "--extensions"],
        ),
        (["--log-level=info", "--zap-log-level=debug"], ["--log-level", "--zap-log-level"]),
        (["--zap-encoder=json", "--log-format=console"], ["--log-format", "--zap-encoder"]),
        (["--metrics-secure-serving"], ["--metrics-secure-serving", "--metrics-cert-dir"]),
        (["--namespaces=c,a,b", "--exclude-namespaces=b,c,a"], ["a, b, c cannot be both in"]),
        (
            ["--companions=rollout,idle,defaults,autosize"],
            ["--companions=autosize,defaults,rollout needs --extensions"],
        ),
        (["--watch-namespaces=a", "--exclude-namespaces=a"], ["--namespaces"]),
        (["--watch-namespaces=a", "--namespaces=b"], ["--namespaces", "--watch-namespaces"]),
    ],
)
def test_flags_that_contradict_each_other_are_both_named(
    given: list[str], named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be had together is refused, naming both, whatever their order, in one order."""
    for order in (given, given[::-1]):
        assert main(["run", *order]) == EXIT_CONFIG
        told = capsys.readouterr().err
        for name in named:
            assert name in told


def test_without_a_companion_there_is_nothing_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    """The command says which there are."""
    assert main(["companions", "--extensions"]) == EXIT_CONFIG
    assert "--companions names none. To fix: name some of autosize, " in capsys.readouterr().err


def test_two_names_that_agree_are_no_contradiction(capsys: pytest.CaptureFixture[str]) -> None:
    """Saying the same thing twice is allowed."""
    assert main(["config", "--log-level=debug", "--zap-log-level=3"]) == EXIT_OK
    assert main(["config", "--namespaces=a", "--exclude-namespaces=b"]) == EXIT_OK
    assert not capsys.readouterr().err
