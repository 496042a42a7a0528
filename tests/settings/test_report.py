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
from lean_sandbox.config.render import as_yaml
from lean_sandbox.config.sources import EXIT_OK, EXIT_USAGE, Effective, effective, scan
from tests.settings.strategies import OPTIONS, assignments


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Set one option by each source; return the command line."""
    file = tmp_path / "config.yaml"
    file.write_text("page-size: 7\nsandbox-status-window: 90s\n")
    monkeypatch.setenv("LEAN_SANDBOX_NAMESPACES", "a,b")
    return [f"--config={file}", "--extensions"]


def test_the_table_says_value_unit_and_source(
    sources: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line for each setting."""
    assert main(["config", *sources]) == EXIT_OK
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["SETTING", "VALUE", "UNIT", "SOURCE"]
    rows = {line.split()[0]: line.split(maxsplit=3)[1:] for line in lines}
    assert set(rows) == {name.replace("_", "-") for name in OPTIONS}
    file = tmp_path / "config.yaml"
    assert rows["page-size"] == ["7", "objects", f"file {file} line 1"]
    assert rows["sandbox-status-window"] == ["1m30s", "duration", f"file {file} line 2"]
    assert rows["namespaces"] == ["a,b", "-", "environment LEAN_SANDBOX_NAMESPACES"]
    assert rows["extensions"] == ["true", "-", "flag --extensions"]
    assert rows["kube-api-qps"] == ["-1", "requests/s", "default"]
    assert rows["leader-elect"] == ["automatic", "-", "default"]


@pytest.mark.parametrize("asked", [["-o", "yaml"], ["--output=yaml"], ["-o=table", "-o=yaml"]])
def test_the_last_output_asked_for_is_given(
    asked: list[str], sources: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A config file on standard output, with what was remarked beside it."""
    assert main(["config", *sources, *asked, "--separate-watch-connection"]) == EXIT_OK
    told = capsys.readouterr()
    settings = yaml.safe_load(told.out)
    assert settings["namespaces"] == "a,b"
    assert settings["page-size"] == 7
    assert settings["sandbox-status-window"] == "1m30s"
    assert "leader-elect" not in settings
    assert "--separate-watch-connection: " in told.err


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(values=assignments())
def test_yaml_is_a_config_file_that_gives_the_same_settings(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    """Whatever is in effect can be kept in a file."""
    file = tmp_path / "config.yaml"
    file.write_text(as_yaml(Effective(Settings(**values), {}, ())))
    assert effective(scan([f"--config={file}"]), {}).settings == Settings(**values)


def test_an_unknown_form_of_output_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """The forms are told; `run` has no output to choose."""
    assert main(["config", "-o", "xml"]) == EXIT_USAGE
    assert " -o: 'xml' is not valid: it is none of table, yaml" in capsys.readouterr().err
    assert main(["run", "-o", "yaml"]) == EXIT_USAGE


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
