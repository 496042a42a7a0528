"""`lean-sandbox config` prints what is in effect, and help says what could be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings

from lean_sandbox.cli import main
from lean_sandbox.config.forms import BOOLEAN, DURATION, INTEGER, NUMBER
from lean_sandbox.config.options import Settings, flag_of
from lean_sandbox.config.render import as_file
from lean_sandbox.config.sources import (
    EXIT_CONFIG,
    EXIT_OK,
    ConfigMap,
    Effective,
    effective,
    scan,
)
from tests.settings.strategies import OPTIONS, assignments


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Set one option by each source; return the command line."""
    file = tmp_path / "config.yaml"
    file.write_text("page-size: 7\nsandbox-status-window: 90s\n")
    monkeypatch.setenv("LEAN_SANDBOX_NAMESPACES", "a,b")
    return [f"--config={file}", "--extensions"]


def test_what_is_in_effect_is_told_with_value_unit_and_source(
    sources: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line for each setting, on standard output; what was remarked stands beside it."""
    assert main(["config", *sources, "--separate-watch-connection"]) == EXIT_OK
    told = capsys.readouterr()
    lines = told.out.splitlines()
    names = [name.replace("_", "-") for name in OPTIONS]
    assert [line.removeprefix("# ").partition(":")[0] for line in lines] == names
    file = tmp_path / "config.yaml"
    for line in (
        f"page-size: 7  # file {file} line 1, objects",
        f"sandbox-status-window: 1m30s  # file {file} line 2, duration",
        'namespaces: "a,b"  # environment LEAN_SANDBOX_NAMESPACES',
        "extensions: true  # flag --extensions",
        "# kube-api-qps: -1  # default, requests/s",
        "# leader-elect: automatic  # default",
    ):
        assert line in lines
    assert "--separate-watch-connection: " in told.err


def test_no_name_of_a_file_breaks_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed is read back the same, and acts on no terminal."""
    file = tmp_path / "a\npage-size: 9 \x1b[2J\x9b"
    file.write_text('page-size: 7\nsandbox-label-selector: "a"\n')
    assert main(["config", f"--config={file}"]) == EXIT_OK
    told = capsys.readouterr().out
    assert yaml.safe_load(told)["page-size"] == 7
    assert told.replace("\n", "").isprintable()


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(values=assignments())
def test_what_is_told_is_a_config_file_that_gives_the_same_settings(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    """Whatever is in effect can be kept in a file."""
    file = tmp_path / "config.yaml"
    file.write_text(as_file(Effective(Settings(**values), {}, ())))
    assert effective(scan([f"--config={file}"]), {}).settings == Settings(**values)


def test_what_is_kept_leaves_the_defaults_to_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file made of what is in effect beats the ConfigMap of all controllers only where asked."""
    assert main(["config", "--page-size=100", "--extensions=false"]) == EXIT_OK
    told = capsys.readouterr().out
    assert yaml.safe_load(told) == {"page-size": 100, "extensions": False}
    assert "# sandbox-concurrent-workers: 100" in told
    file = tmp_path / "config.yaml"
    file.write_text(told)
    shared = ConfigMap("agent-sandbox-config", {"sandbox-concurrent-workers": "7"})
    found = effective(scan([f"--config={file}"]), {}, config_map=shared)
    assert found.settings == Settings(page_size=100, sandbox_concurrent_workers=7)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--cluster-domain=a b", "must be a DNS name"),
        ("--leader-election-namespace=A_b", "must be a DNS name"),
        ("--config-map-namespace=A_b", "must be a DNS name"),
    ],
)
def test_a_name_that_no_server_takes_is_refused(
    flag: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once, with the flag: not by a loop of refused requests."""
    assert main(["config", flag]) == EXIT_CONFIG
    assert f"{flag.partition('=')[0]} {said}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flag", ["--sandbox-write-behind-window=5s", "--allowed-label-domains=a.io,x y"]
)
def test_a_value_that_does_not_do_what_it_says_is_told(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused it is not: the reference takes it as well."""
    assert main(["config", flag]) == EXIT_OK
    assert f"warning: {flag.partition('=')[0]}: " in capsys.readouterr().err


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


def test_every_number_has_a_unit_and_nothing_else_has() -> None:
    """A number without a unit says nothing; a duration brings its own."""
    for option in OPTIONS.values():
        is_number = option.form in (INTEGER, NUMBER)
        assert bool(option.unit) is is_number, option.name
        if option.form in (BOOLEAN, DURATION):
            assert option.form.metavar in ("BOOL", "DURATION")
