"""Help lists every command in groups, explains each with examples, and finds what was meant."""

from __future__ import annotations

import re
import shlex
import sys

import pytest

from lean_sandbox.cli import main
from lean_sandbox.commands import COMMANDS, GROUPS
from lean_sandbox.config.sources import EXIT_CONFIG, EXIT_OK, EXIT_USAGE


def typed(line: str) -> int | str | None:
    """Run a command line, and return the exit code of the process."""
    try:
        return main(shlex.split(line))
    except SystemExit as end:
        return end.code


@pytest.mark.parametrize(("line", "code"), [("", EXIT_USAGE), ("help", EXIT_OK), ("-h", EXIT_OK)])
def test_help_lists_every_command_under_its_group(
    line: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each with a line of its own, none wider than a terminal; the exit codes stand below."""
    assert typed(line) == code
    told = capsys.readouterr().out
    at = 0
    for title, commands in GROUPS.items():
        at = told.index(f"\n{title}:\n", at)
        for name, command in commands.items():
            at = told.index(f"\n  {name} ", at)
            assert command.summary in told[at:]
    assert max(map(len, told.splitlines())) <= 80
    for exit_code in ("0  ", "1  ", "2  ", "130"):
        assert f"\n  {exit_code}  " in told


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_says_how_it_is_used(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``help VERB`` is ``VERB --help``: usage, meaning, examples, on standard output."""
    monkeypatch.setenv("COLUMNS", "100")
    assert typed(f"help {name}") == EXIT_OK
    told = capsys.readouterr().out
    assert typed(f"{name} --help") == EXIT_OK
    assert capsys.readouterr().out == told
    assert told.startswith(f"usage: lean-sandbox {name}")
    assert max(map(len, told.splitlines())) <= 100
    if name != "version":
        examples = told.split("examples:\n")[1].splitlines()
        assert f"lean-sandbox {name}" in examples[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_says_what_it_is(name: str) -> None:
    """In words of its own: neither a default nor a list of choices tells what they are for."""
    for action in COMMANDS[name].parser(name)._actions:
        meaning = re.sub(r"\(default: .*\)", "", action.help or "")
        assert len(meaning.split()) > 1, action.dest


def test_the_help_of_run_begins_with_the_flags_that_are_needed_most(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Among sixty, of which the defaults do."""
    assert typed("run --help") == EXIT_OK
    before, options = capsys.readouterr().out.split("Uses the kubeconfig", 1)
    named = re.findall("--[a-z-]+", before)
    assert named == ["--context", "--extensions", "--namespaces", "--companions"]
    for flag in named:
        assert f"\n  {flag} " in options or f"\n  {flag}\n" in options


@pytest.mark.parametrize("name", COMMANDS)
def test_an_example_is_a_command_line_that_is_understood(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every word before its help is a command or a flag that exists."""
    for example in COMMANDS[name].examples:
        own = (
            example.partition("lean-sandbox ")[2].partition(" |")[0].partition(" >")[0].rstrip(")")
        )
        before, _, after = own.partition(" -- ")
        assert typed(f"{before} --help -- {after}") == EXIT_OK, example
        assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("rnu", "run"),
        ("demos", "demo"),
        ("explian x", "explain"),
        ("local donw", "local "),
        ("help versoin", "version"),
        ("zzzzzzzz", "`lean-sandbox help`"),
        ("local foo", "`lean-sandbox help`"),
    ],
)
def test_a_command_that_is_none_is_answered_with_the_nearest(
    line: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage, and which one may be meant."""
    assert typed(line) == EXIT_USAGE
    words = meant if meant.startswith("`") else f"did you mean {meant}"
    assert f"unknown command {line.removeprefix('help ').partition(' x')[0]}; {words}" in (
        capsys.readouterr().err
    )


def test_the_first_word_of_several_commands_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that begin with it and no others; asked for by help, it is no mistake."""
    assert typed("local") == EXIT_USAGE
    told = capsys.readouterr().out
    assert "  local up " in told
    assert "  demo " not in told
    assert typed("help local") == EXIT_OK
    assert capsys.readouterr().out == told


@pytest.mark.parametrize(
    "line",
    [
        "demo --sandbox 3",
        "local up --nod 3",
        "bench --cou 3",
        "trace claim c --namesp x",
        "explain --kin Pod -",
        "trace claim --out json",
        "crds --out x",
    ],
)
def test_the_beginning_of_a_flag_is_no_flag(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No command guesses: what is one flag today may be two tomorrow."""
    assert typed(line) == EXIT_USAGE
    flag = next(word for word in line.split() if word.startswith("--"))
    told = capsys.readouterr().err
    assert told.startswith("usage: lean-sandbox ")
    assert flag in told
    if not line.startswith("bench"):
        assert f"did you mean {flag}" in told


@pytest.mark.parametrize(
    ("line", "library"),
    [
        ("demo", "aiohttp"),
        ("local up", "aiohttp"),
        ("bench one", "aiohttp"),
        ("completion bash", "shtab"),
    ],
)
def test_without_an_extra_the_way_to_it_is_told(
    line: str, library: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that names the library and an installation that works from a checkout."""
    for name in [*sys.modules]:
        if name.startswith(("lean_sandbox.local", "lean_sandbox.demo", "lean_sandbox.bench")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    assert typed(line) == EXIT_CONFIG
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"lean-sandbox {line.removesuffix(' one').removesuffix(' bash')} needs {library}" in told
    assert "pip install '.[local]' in a checkout" in told


@pytest.mark.parametrize("line", ["crds foo", "version foo"])
def test_a_word_too_many_is_not_called_a_flag(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named as what it is."""
    assert typed(line) == EXIT_USAGE
    assert "foo is not expected" in capsys.readouterr().err


def test_a_scenario_that_is_like_none_is_answered_with_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No far-fetched guess."""
    assert typed("bench nosuch") == EXIT_USAGE
    assert "there are floor, one, burst" in capsys.readouterr().err
