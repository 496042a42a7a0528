"""`lean-sandbox config` prints what is in effect, and help says what could be."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given

from lean_sandbox.cli import main
from lean_sandbox.config.declare import flag_of
from lean_sandbox.config.forms import BOOLEAN, DURATION, INTEGER, NUMBER
from lean_sandbox.config.options import Settings
from lean_sandbox.config.render import as_yaml
from lean_sandbox.config.sources import EXIT_CONFIG, EXIT_OK, Effective, effective, scan
from tests.config.strategies import OPTIONS, assignments


def test_what_is_in_effect_is_told_with_value_unit_and_source(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line for each setting, on standard output; what was remarked stands beside it."""
    monkeypatch.setenv("LEAN_SANDBOX_NAMESPACES", "a,b")
    monkeypatch.setenv("LEAN_SANDBOX_SANDBOX_STATUS_WINDOW", "90s")
    flags = ["--page-size=7", "--extensions", "--separate-watch-connection"]
    # A default that is given stays where defaults change.
    flags.append("--kube-api-burst=10")
    assert main(["config", *flags]) == EXIT_OK
    told = capsys.readouterr()
    lines = told.out.splitlines()
    names = [name.replace("_", "-") for name in OPTIONS]
    assert [line.removeprefix("# ").partition(":")[0] for line in lines] == names
    for line in (
        "page-size: 7  # flag --page-size, objects",
        "sandbox-status-window: 1m30s  # environment LEAN_SANDBOX_SANDBOX_STATUS_WINDOW, duration",
        'namespaces: "a,b"  # environment LEAN_SANDBOX_NAMESPACES',
        "extensions: true  # flag --extensions",
        "kube-api-burst: 10  # flag --kube-api-burst, requests",
        "# kube-api-qps: -1  # default, requests/s",
        "# leader-elect: automatic  # default",
    ):
        assert line in lines
    assert "--separate-watch-connection: " in told.err


@given(values=assignments())
def test_what_is_told_is_yaml_of_the_same_values(values: dict[str, Any]) -> None:
    """Whatever is in effect: the defaults are comments, and no value breaks a line."""
    told = as_yaml(Effective(Settings(**values), {}, ()))
    read = yaml.safe_load(told) or {}
    flags = [f"--{name}={_word(value)}" for name, value in read.items()]
    assert effective(scan(flags), {}).settings == Settings(**values)
    assert len(told.splitlines()) == len(OPTIONS)
    assert told.replace("\n", "").isprintable()


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--cluster-domain=a b", "must be a DNS name"),
        ("--leader-election-namespace=A_b", "must be a DNS name"),
        ("--leader-election-namespace=a.b", "must be the name of a namespace"),
        (f"--leader-election-namespace={64 * 'a'}", "must be the name of a namespace"),
    ],
)
def test_a_name_that_no_server_takes_is_refused(
    flag: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once, with the flag: not by a loop of refused requests."""
    assert main(["config", flag]) == EXIT_CONFIG
    assert f"{flag.partition('=')[0]} {said}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "config"])
def test_help_says_of_every_flag_what_it_does_its_unit_and_default(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the heads of their topics, on standard output, with code 0, as wide as the terminal."""
    monkeypatch.setenv("COLUMNS", "100")
    assert main([command, "--help"]) == EXIT_OK
    told = capsys.readouterr().out
    words = " ".join(told.split())
    at = 0
    for option in OPTIONS.values():
        if option.topic:
            at = told.index(f"\n{option.topic}:\n", at)
        at = told.index(f"\n  {flag_of(option.name)}", at)
        assert option.help in words
        default = f"{option.shown(option.default)} {option.unit}".rstrip()
        assert f"(default: {default})" in words
    assert max(map(len, told.splitlines())) <= 100


def test_the_help_has_the_flags_by_topic(capsys: pytest.CaptureFixture[str]) -> None:
    """Each head stands before the first flag of its topic, in the order of what a user sets up."""
    assert main(["run", "--help"]) == EXIT_OK
    heads = re.findall(r"^(\S.*):\n  (--[\w-]+)", capsys.readouterr().out, re.MULTILINE)
    assert heads[:8] == [
        ("API server", "--kubeconfig"),
        ("what is watched, and how", "--namespaces"),
        ("Sandboxes", "--cluster-domain"),
        ("claims, templates and pools", "--extensions"),
        ("companions", "--companions"),
        ("replicas", "--leader-elect"),
        ("metrics, health, profiles and traces", "--metrics-bind-address"),
        ("log", "--log-level"),
    ]


def test_every_number_has_a_unit_and_nothing_else_has() -> None:
    """A number without a unit says nothing; a duration brings its own."""
    for option in OPTIONS.values():
        is_number = option.form in (INTEGER, NUMBER)
        assert bool(option.unit) is is_number, option.name
        if option.form in (BOOLEAN, DURATION):
            assert option.form.metavar in ("BOOL", "DURATION")


@pytest.mark.parametrize(
    ("flags", "doubted"),
    [
        ("--kube-api-qps=0 --kube-api-burst=1", ""),
        ("--kube-api-qps=1 --kube-api-burst=151", "--kube-api-burst"),
        ("--kube-api-qps=1 --kube-api-burst=152", ""),
        ("--sandbox-concurrent-workers=948", ""),
        ("--sandbox-concurrent-workers=949", "--sandbox-concurrent-workers"),
        ("--sandbox-write-behind-window=1s", ""),
        ("--sandbox-write-behind-window=1.5s", "--sandbox-write-behind-window"),
        ("--allowed-label-domains=a.io", ""),
        ("--allowed-label-domains=a.io,x_y", "--allowed-label-domains"),
        ("--metrics-secure-serving --metrics-cert-dir=x --tls-min-version=x", ""),
        ("--tls-min-version=VersionTLS13", "--tls-min-version"),
        ("--tls-cipher-suites=TLS_AES_128_GCM_SHA256", "--tls-cipher-suites"),
        ("--metrics-cert-dir=x", "--metrics-cert-dir"),
        ("--metrics-bind-address=0 --enable-pprof", "--enable-pprof"),
        ("--metrics-bind-address=0 --enable-pprof-debug", "--enable-pprof-debug"),
        ("--metrics-bind-address=0 --trace-entries=1", "--trace-entries"),
        (
            "--metrics-bind-address=0 --metrics-secure-serving --metrics-cert-dir=x",
            "--metrics-secure-serving",
        ),
        ("--metrics-bind-address=:1 --enable-pprof --trace-entries=1", ""),
        ("--leader-elect=false --leader-election-lease=a", "--leader-election-lease"),
        ("--leader-elect --leader-election-lease=a", ""),
    ],
)
def test_what_works_and_is_probably_not_meant_is_remarked_upon(
    flags: str, doubted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused it is not, as the reference takes it as well. A value at a bound is none of it."""
    assert main(["config", *flags.split()]) == EXIT_OK
    told = capsys.readouterr().err
    assert told.startswith(f"lean-sandbox: warning: {doubted}: " if doubted else "")
    assert told.count("\n") == bool(doubted)
