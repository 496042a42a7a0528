"""``lean-sandbox completion``: the shells complete commands, flags and choices by its scripts."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lean_sandbox.cli import main
from lean_sandbox.commands import COMMANDS
from lean_sandbox.config.flags import FLAGS
from lean_sandbox.config.sources import EXIT_OK

# Completes the words of its arguments as bash does when the last of them is followed by a tab.
_ASK_BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
found=$(complete -p lean-sandbox); found=${found##*-F }
"${found%% *}" lean-sandbox "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(params=["bash", "fish"])
def completed(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], set[str]]:
    """Return what asks a shell, which has loaded its script, how a line may go on."""
    shell = shutil.which(request.param)
    if shell is None:
        pytest.skip(f"there is no {request.param} here")
    assert main(["completion", request.param]) == EXIT_OK
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)

    def ask(line: str) -> set[str]:
        program = 'source $argv[1]; complete -C "$argv[2]"'
        command = [shell, "--no-config", "-c", program, str(script), line]
        if request.param == "bash":
            command = [shell, "--norc", "-c", _ASK_BASH, "bash", str(script), *line.split(" ")]
        ended = subprocess.run(  # noqa: S603 -- our own script
            command, check=True, capture_output=True, text=True, cwd=tmp_path
        )
        assert not ended.stderr
        return {one.split("\t")[0] for one in ended.stdout.splitlines()}

    return ask


def test_commands_flags_and_choices_are_completed(completed: Callable[[str], set[str]]) -> None:
    """Every command, the actions of one, every flag of `run`, the words that a flag takes."""
    assert completed("lean-sandbox ") >= {name.split()[0] for name in COMMANDS}
    assert completed("lean-sandbox local ") == {"up", "status", "down", "example"}
    assert completed("lean-sandbox run --") >= {f"--{name}" for name in FLAGS}
    assert completed("lean-sandbox run --log-level ") == {"debug", "info", "warning", "error"}
    assert completed("lean-sandbox trace claim --output ") == {"table", "json"}
    assert completed("lean-sandbox bench --plo") == {"--plots"}


def test_zsh_reads_its_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It names its command for `fpath`, and its syntax is right."""
    assert main(["completion", "zsh"]) == EXIT_OK
    script = capsys.readouterr().out
    assert script.startswith("#compdef lean-sandbox\n")
    assert "--extensions" in script
    shell = shutil.which("zsh")
    if shell is not None:
        ended = subprocess.run(  # noqa: S603 -- our own script
            [shell, "-n"], input=script, text=True, capture_output=True, check=True
        )
        assert not ended.stderr
