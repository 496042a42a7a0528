"""Laws of the commands that are printed: each can be pasted where it was printed."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lean_sandbox.commands import _metrics_of
from lean_sandbox.config.sources import UsageError

NAME = "lean-sandbox"
PRINT = "from lean_sandbox.program import called; print(called(elsewhere={elsewhere}))"


def script(folder: Path, text: str) -> Path:
    """Write the program as pip installs it into a folder, which does this instead."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return path


def said(line: str, folder: Path, *, path: str) -> str:
    """Run a line in a shell in a folder, and return what it prints."""
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(  # noqa: S602 -- a shell finds programs
        line,
        shell=True,
        cwd=folder,
        env={"PATH": path, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("folder", ["bin", "with space", "."])
def test_a_program_without_the_path_is_called_by_its_own(
    tmp_path: Path, folder: str, *, elsewhere: bool
) -> None:
    """As it was typed; for another terminal, which may be in another folder, from the root."""
    path = script(tmp_path / folder, PRINT.format(elsewhere=elsewhere))
    typed = shlex.quote(f"./{folder}/{NAME}")
    told = said(typed, tmp_path, path="/usr/bin:/bin")
    assert told == (shlex.quote(str(path)) if elsewhere else typed)


def test_what_the_list_of_commands_tells_to_type_can_be_typed(tmp_path: Path) -> None:
    """It is the first that a newcomer sees, perhaps without an active environment."""
    script(tmp_path / "bin", "from lean_sandbox.cli import main; main()")
    told = said(f"bin/{NAME} help", tmp_path, path="/usr/bin:/bin")
    assert "`bin/lean-sandbox help COMMAND`" in told
    assert "`bin/lean-sandbox demo`" in told


def test_a_program_on_the_path_is_called_by_its_name(tmp_path: Path) -> None:
    """Whether it was typed so or with its path."""
    path = script(tmp_path / "bin", PRINT.format(elsewhere=True))
    for typed in (NAME, str(path), f"bin/{NAME}"):
        assert said(typed, tmp_path, path=f"{path.parent}:/usr/bin") == NAME


def test_another_program_of_the_name_on_the_path_is_not_meant(tmp_path: Path) -> None:
    """An older one that is installed is not what was tried."""
    script(tmp_path / "old", "raise SystemExit(1)")
    script(tmp_path / "new", PRINT.format(elsewhere=False))
    assert said(f"new/{NAME}", tmp_path, path=f"{tmp_path}/old:/usr/bin") == f"new/{NAME}"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_of_a_virtual_environment_another_terminal_knows_nothing(
    tmp_path: Path, *, elsewhere: bool
) -> None:
    """Here it is active and the name is found; there the path is needed."""
    text = f"import sys; sys.prefix = {str(tmp_path)!r}; {PRINT.format(elsewhere=elsewhere)}"
    path = script(tmp_path / "bin", text)
    told = said(NAME, tmp_path, path=f"{path.parent}:/usr/bin")
    assert told == (str(path) if elsewhere else NAME)


@pytest.mark.parametrize("typed", ["name", "path", "own path"])
def test_a_module_is_called_by_the_python_that_was_typed(tmp_path: Path, typed: str) -> None:
    """By its name only where the shell finds that very Python."""
    (tmp_path / "env").symlink_to(sys.prefix)
    own = Path("env", Path(sys.executable).relative_to(sys.prefix))
    name = Path(sys.executable).name
    python = {"name": name, "path": sys.executable, "own path": str(own)}[typed]
    # The answer to an unknown command names one that exists.
    line = f"{python} -m lean_sandbox zzzzzzzz 2>&1 || true"
    told = said(line, tmp_path, path=f"{Path(sys.executable).parent}:/usr/bin:/bin")
    assert f"`{own if typed == 'own path' else name} -m lean_sandbox help` lists" in told


@pytest.mark.parametrize(
    ("flags", "url", "is_given"),
    [
        ([], "http://127.0.0.1:8080", False),
        (["--metrics-bind-address=:9090"], "http://127.0.0.1:9090", True),
        (["--metrics-bind-address=10.0.0.1:9090"], "http://10.0.0.1:9090", True),
        (["--metrics-bind-address=[::1]:9090"], "http://[::1]:9090", True),
        (
            ["--metrics-bind-address=:9090", "--metrics-secure-serving", "--metrics-cert-dir=x"],
            "https://127.0.0.1:9090",
            True,
        ),
        (["--metrics-bind-address=0"], "", True),
    ],
)
def test_where_a_controller_serves_its_metrics_follows_from_its_flags(
    flags: list[str], url: str, *, is_given: bool
) -> None:
    """Nowhere, if that is switched off."""
    assert _metrics_of(flags) == (url, is_given)


def test_help_among_the_flags_of_a_controller_is_found_where_they_are() -> None:
    """As in `lean-sandbox local up -- --help`."""
    with pytest.raises(UsageError, match="see `lean-sandbox run --help`"):
        _metrics_of(["--help"])


def test_a_port_that_the_system_chooses_is_told_by_the_log() -> None:
    """And so says the line that is shown for it."""
    url, _ = _metrics_of(["--metrics-bind-address=:0"])
    assert url == "http://127.0.0.1:PORT  # `metrics` of the line `listening` in the log"
