"""Every flag of the reference: its name, its default, and what becomes of it here."""

from __future__ import annotations

import json

import pytest

from lean_sandbox.cli import main
from lean_sandbox.config.flags import IDLE, REMOVED, TRANSLATED
from lean_sandbox.config.sources import EXIT_OK, EXIT_USAGE, effective, scan
from lean_sandbox.errors import ConfigError
from tests.config.strategies import OPTIONS

# Of v1.0.8, in its words; of leader-elect and allowed-label-domains see the README.
REFERENCE = {
    "kubeconfig": "",
    "cluster-domain": "cluster.local",
    "metrics-bind-address": ":8080",
    "health-probe-bind-address": ":8081",
    "leader-election-namespace": "",
    "extensions": "false",
    "enable-tracing": "false",
    "enable-pprof": "false",
    "enable-pprof-debug": "false",
    "kube-api-qps": "-1",
    "kube-api-burst": "10",
    "sandbox-concurrent-workers": "100",
    "cache-label-selectors": "false",
    "sandbox-write-behind-window": "0s",
    "sandbox-claim-concurrent-workers": "50",
    "sandbox-warm-pool-concurrent-workers": "1",
    "sandbox-template-concurrent-workers": "1",
    "sandbox-warm-pool-max-batch-size": "300",
    "sandbox-warm-pool-replenish-delay": "0s",
    "sandbox-warm-pool-max-refill-rate": "0",
    "sandbox-warm-pool-readiness-grace-period": "5m0s",
    "sandbox-warm-pool-unschedulable-recheck-interval": "1m0s",
    "sandbox-claim-warm-candidate-grace-period": "2s",
    "enable-warm-pool-eviction": "true",
    "disable-sandbox-events": "false",
    "disable-claim-events": "false",
    "disable-claim-observability-annotations": "false",
    "metrics-secure-serving": "false",
    "metrics-cert-dir": "",
    "tls-min-version": "",
    "tls-cipher-suites": "",
    "enable-rest-client-metrics": "false",
}


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_a_flag_of_the_reference_has_its_name_and_default(name: str) -> None:
    """Whoever gives no flags gets what the reference would have done."""
    option = OPTIONS[name.replace("-", "_")]
    assert option.form.write(option.default) == REFERENCE[name]


IDLE_FLAGS = [
    "--api-connections=4",
    "--separate-watch-connection",
    "--pprof-block-profile-rate=-9223372036854775808",
    "--pprof-mutex-profile-fraction=0",
    "--zap-stacktrace-level=panic",
    "--zap-time-encoding=RFC3339Nano",
]


@pytest.mark.parametrize("flag", IDLE_FLAGS)
def test_a_flag_without_meaning_costs_one_warning(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is accepted, changes nothing, and the one warning names it and says why."""
    name = flag.partition("=")[0]
    assert main(["config", flag, flag]) == EXIT_OK
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert line.startswith(f"lean-sandbox: warning: {name}: {IDLE[name[2:]].help}")
    assert main(["config"]) == EXIT_OK
    assert told.out == capsys.readouterr().out


def test_the_controller_logs_the_warning_before_it_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line of the log for each flag, with the flag and the reason as fields."""
    main(["run", "--kubeconfig=/nowhere/config", "--log-format=json", *IDLE_FLAGS])
    lines = capsys.readouterr().err.splitlines()
    warnings = [json.loads(line) for line in lines if "flag_warning" in line]
    assert [one["flag"] for one in warnings] == [flag.partition("=")[0] for flag in IDLE_FLAGS]
    assert all(one["level"] == "warning" and one["why"] for one in warnings)


def test_every_flag_without_meaning_is_among_those_tested() -> None:
    """A flag added to the table is added to its test."""
    assert {flag[2:].partition("=")[0] for flag in IDLE_FLAGS} == set(IDLE)


@pytest.mark.parametrize(
    ("given", "level", "form"),
    [
        (["--zap-log-level=debug"], "debug", "auto"),
        (["--zap-log-level=INFO"], "info", "auto"),
        (["--zap-log-level=error"], "error", "auto"),
        (["--zap-log-level=panic"], "error", "auto"),
        (["--zap-log-level=5"], "debug", "auto"),
        (["--zap-encoder=JSON"], "info", "json"),
        (["--zap-encoder=console"], "info", "console"),
        (["--zap-devel"], "debug", "console"),
        (["--zap-devel=false"], "info", "auto"),
        (["--zap-devel", "--zap-encoder=json"], "debug", "json"),
        (["--zap-log-level=error", "--zap-devel"], "error", "console"),
        (["--zap-devel", "--log-level=info", "--log-format=auto"], "info", "auto"),
    ],
)
def test_the_log_is_set_up_in_the_words_of_the_reference(
    given: list[str], level: str, form: str
) -> None:
    """Level and encoder are translated; the development mode changes only their defaults."""
    found = effective(scan(given), {})
    assert (found.settings.log_level, found.settings.log_format) == (level, form)
    assert not found.remarks


@pytest.mark.parametrize("text", ["", "loud", "0", "-1", "1.5", "1e9"])
def test_a_level_of_the_reference_that_is_none_is_refused(text: str) -> None:
    """Neither a word of the list nor a verbosity above 0; the words are told."""
    with pytest.raises(ConfigError, match="debug, info, error, panic, nor a verbosity above 0"):
        effective(scan([f"--zap-log-level={text}"]), {})


def test_the_namespaces_have_the_name_that_is_proposed_for_the_reference() -> None:
    """`--watch-namespaces` is `--namespaces`."""
    assert effective(scan(["--watch-namespaces=a,b"]), {}).settings.namespaces == ("a", "b")
    both = ["--namespaces=a", "--watch-namespaces=a"]
    assert effective(scan(both), {}).settings.namespaces == ("a",)


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_a_flag_that_was_removed_is_refused_as_the_reference_does(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 as for any unknown flag, and words on why and what to do."""
    assert main(["run", f"--{name}=x"]) == EXIT_USAGE
    told = capsys.readouterr().err
    assert f"unknown flag --{name}: v1.0.0 removed it" in told
    assert "leave it out" in told


def test_no_flag_is_in_two_tables() -> None:
    """A name has one meaning."""
    names = [*(name.replace("_", "-") for name in OPTIONS), *TRANSLATED, *IDLE, *REMOVED]
    assert len(names) == len(set(names))
