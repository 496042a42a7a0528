"""The command line of the bench: what it refuses, in what words, and with which code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lean_sandbox.bench.command import main, measure, parse, wanted
from lean_sandbox.bench.options import BenchOptions
from lean_sandbox.bench.report import Screen
from lean_sandbox.bench.scenarios import SCENARIOS
from lean_sandbox.cli import main as cli
from lean_sandbox.clock import SystemClock
from lean_sandbox.config.sources import EXIT_CONFIG, EXIT_USAGE, UsageError
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bursts"], "unknown scenario 'bursts'.*burst"),
        (["burst", "--pool", "10"], "--pool at least as large as --count"),
        (["--count", "700"], "a pool of 600 cannot serve a burst of 700"),
        (["one", "--against", "1"], "--against needs"),
        (["one", "--against", "me", "--kubeconfig", "f"], "--against me"),
        (["one", "--against", "1", "--against", "2", "--kubeconfig", "f"], "--against 2"),
        (["floor", "--against", "1", "--kubeconfig", "f"], "floor needs to start and stop"),
        (["restart", "--against", "1", "--kubeconfig", "f"], "restart needs to start and stop"),
        (
            ["one", "--against=1", "--kubeconfig=f", "--controller-flag=--extensions"],
            "--controller-flag",
        ),
        (["one", "--kubelet"], "--kubelet is for --kubeconfig"),
        (["sustained", "--seconds", "1"], "--seconds must be at least 2"),
        (["memory", "--against", "1", "--kubeconfig", "f"], "memory needs to start and stop"),
        (["one", "--plots", "x"], "--plots draws burst and memory"),
        (["one", "--json", "/no/such/folder/x.json"], "no folder /no/such/folder"),
        (["one", "--json", "/"], "--json: / cannot be written: it is a folder"),
        (["burst", "--plots", __file__], "--plots: .* is not a folder"),
    ],
)
def test_what_cannot_be_is_refused_in_words(words: list[str], said: str) -> None:
    """Before anything is started; the message names the flag."""
    with pytest.raises(UsageError, match=said):
        parse(words)


def test_a_report_that_cannot_be_kept_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its file may not be written; one that may be is not made before."""
    place = Path("report.json")
    assert parse(["one", "--json", str(place)]).json == place
    monkeypatch.setattr(os, "access", lambda _place, mode: mode != os.W_OK)
    with pytest.raises(UsageError, match=r"--json: .* cannot be written: you may not"):
        parse(["one", "--json", str(place)])
    assert not place.exists()


def test_a_failure_is_told_under_the_name_of_the_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As that of every other command: what is searched for in a log is one name."""
    assert main(["one", "--kubeconfig", "/no/such/file"]) == EXIT_USAGE
    assert capsys.readouterr().err.startswith("lean-sandbox: /no/such/file: the kubeconfig does")


def test_the_form_of_the_report_has_a_short_flag() -> None:
    """As that of every other command: -o is --output."""
    assert parse(["one", "-o", "json"]) == parse(["one", "--output=json"])


@pytest.mark.parametrize(
    "words",
    [
        ["--count", "0"],
        ["--count", "many"],
        ["--rate", "0"],
        ["--rate", "2,,3"],
        ["--rate", "inf"],
        ["--sizes", "0,-1"],
        ["--seconds", "nan"],
        ["--turns", "99999999999999999999"],
        ["--sizes", "10,1e400"],
        ["--count", "1000001"],
        ["--quiet", "-1"],
        ["--no-such-flag"],
    ],
)
def test_a_value_that_is_none_ends_with_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """As every command does with a line it cannot read."""
    with pytest.raises(SystemExit) as ended:
        parse(words)
    assert ended.value.code == EXIT_USAGE
    assert words[0] in capsys.readouterr().err


def test_the_program_ends_with_2_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown scenario, a missing kubeconfig and a server that does not listen."""
    assert cli(["bench", "nonsense"]) == EXIT_USAGE
    assert "nonsense" in capsys.readouterr().err
    missing = tmp_path / "missing"
    assert cli(["bench", "one", "--kubeconfig", str(missing)]) == EXIT_USAGE
    assert str(missing) in capsys.readouterr().err
    nobody = tmp_path / "nobody.kubeconfig"
    nobody.write_text(
        '{"apiVersion": "v1", "kind": "Config", "current-context": "c",'
        ' "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],'
        ' "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}]}'
    )
    assert main(["one", "--kubeconfig", str(nobody)]) == EXIT_USAGE
    assert "http://127.0.0.1:1 cannot be reached" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("missing", "line", "code", "said"),
    [
        ("aiohttp", "bench one", EXIT_CONFIG, ("aiohttp", "pip install '.[local]'")),
        (
            "matplotlib",
            "bench burst --plots x",
            EXIT_USAGE,
            ("install the extra bench",),
        ),
    ],
)
def test_without_a_library_its_extra_is_named_before_anything_runs(
    missing: str, line: str, code: int, said: tuple[str, ...]
) -> None:
    """The default install has neither the embedded server's nor those that draw."""
    program = (
        f"import sys; sys.modules[{missing!r}] = None;"
        f"from lean_sandbox.cli import main; sys.exit(main({line.split()}))"
    )
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == code
    assert all(text in ended.stderr for text in said)


async def test_a_server_without_the_kinds_is_refused(tmp_path: Path) -> None:
    """The message says how to install them."""
    async with ControlPlane(LocalSettings(), crds=()) as plane:
        file = str(plane.kubeconfig(tmp_path / "admin.kubeconfig"))
        options = BenchOptions(scenarios=("one",), kubeconfig=file)
        with pytest.raises(UsageError, match=r"sandboxes.agents.x-k8s.io: lean-sandbox crds"):
            await measure(options, SystemClock(), Screen(quiet=True))


def test_the_help_names_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    """And the exit codes."""
    with pytest.raises(SystemExit) as ended:
        cli(["bench", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for scenario in SCENARIOS.values():
        assert f"  {scenario.name} " in text
        assert scenario.text in text
    assert "exit codes" in text


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["one"], "floor one"),
        (["burst"], "floor burst"),
        (["burst", "--turns", "2"], "floor burst floor burst"),
        (["cold"], "pods cold"),
        (["sustained"], "sustained"),
        (["restart", "memory", "idle"], "memory idle restart"),
        ([], "floor one burst fill sustained pods cold idle restart"),
        (["burst", "--against=1", "--kubeconfig=f"], "burst"),
        (["cold", "--against=1", "--kubeconfig=f"], "pods cold"),
        (["--against=1", "--kubeconfig=f"], "one burst fill sustained pods cold idle"),
    ],
)
def test_what_bounds_are_multiples_of_is_measured_in_the_same_run(
    words: list[str], names: str
) -> None:
    """A floor cannot be measured beside a controller that stays, bare Pods can."""
    assert wanted(parse(words)) == names.split()


def test_every_scenario_can_be_asked_for_by_its_name() -> None:
    """And all of them together."""
    assert all(name in wanted(parse([name])) for name in SCENARIOS)
    assert set(wanted(parse(["all", "search", "soak", "memory"]))) == set(SCENARIOS)


def test_pools_are_as_large_as_their_scenario_needs_unless_told() -> None:
    """600 for a burst, 80 under sustained load, what is given for both."""
    assert (parse([]).burst_pool, parse([]).sustained_pool) == (600, 80)
    told = parse(["--pool", "400"])
    assert (told.burst_pool, told.sustained_pool) == (400, 400)
