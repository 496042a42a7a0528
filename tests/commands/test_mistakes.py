"""Whatever is typed, the program ends with an exit code and a message, never with a traceback."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lean_sandbox.cli import main
from lean_sandbox.commands import COMMANDS
from lean_sandbox.config.sources import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE

PROGRAM = (sys.executable, "-m", "lean_sandbox")
FLAGS = {
    name: [flag for one in command.parser(name)._actions for flag in one.option_strings]
    for name, command in COMMANDS.items()
}
SANDBOX = {"kind": "Sandbox", "metadata": {"name": "a", "namespace": "b", "uid": "c"}, "spec": {}}
POD = {"kind": "Pod", "metadata": {"name": "p", "namespace": "b", "uid": "d"}, "spec": {}}
NODE = {"kind": "Node", "metadata": {"name": "n", "uid": "e"}, "spec": {}}


def log(path: Path, *objects: object) -> str:
    """Write a recorded watch and return its path."""
    lines = (json.dumps({"type": "ADDED", "object": one}) for one in objects)
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder to work in, without a cluster, a network and other processes."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "not here")

    for name in ("bind", "connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    for name in ("fork", "kill"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    for name in [name for name in os.environ if name.startswith(("KUBE", "XDG", "LEAN_SANDBOX"))]:
        monkeypatch.delenv(name)
    for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("neither: [YAML nor JSON")
    (tmp_path / "folder").mkdir()
    return tmp_path


def ended(words: list[str]) -> tuple[int | str | None, str, str]:
    """Run a command line on streams as a process has them; return its code and what it said."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", errors) for errors in ("strict", "replace")]
    code: int | str | None
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    said = []
    for stream in streams:
        stream.flush()
        said.append(stream.buffer.getvalue().decode())
    return code, said[0], said[1]


VALUES = st.sampled_from(
    [
        *("", "0", "-1", "1", "99999999999999999999", "nan", "x", "x y", "a=b", "[", "../x", "%s"),
        *("file", "file/x", "folder", "missing/x", "/dev/null", "sandbox", "json", "info", "5s"),
        *("http://[", "http://x:99999", "https://localhost", "Sandbox", "é", "\udcff", "--", "-"),
    ]
)


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """Draw a command with flags that it has, or has not, and values that suit them, or do not."""
    name = draw(st.sampled_from([*COMMANDS, "help", "local", "nonsense"]))
    words = name.split()
    flags = st.sampled_from([*FLAGS.get(name, ["--help"]), "--none", "-", "---"])
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.integers(0, 3))
        if kind == 0:
            words.append(draw(VALUES))
        elif kind == 1:
            words.append(draw(flags))
        elif kind == 2:
            # A value of two dashes after = is lost by argparse before Python 3.13.
            words.append(f"{draw(flags)}={draw(VALUES.filter('--'.__ne__))}")
        else:
            words += [draw(flags), draw(VALUES)]
    return words


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(words=lines())
def test_nothing_that_is_typed_ends_in_a_traceback(nowhere: Path, words: list[str]) -> None:
    """Any command, any flags, any values; without a network, a cluster or other processes."""
    code, out, err = ended(words)
    assert code in (EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED)
    assert "Traceback" not in err
    assert err or out or code == EXIT_OK


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), KeyError("x")])
def test_what_is_a_bug_of_the_controller_is_shown_whole(
    error: Exception, monkeypatch: pytest.MonkeyPatch, nowhere: Path
) -> None:
    """With all of its traceback, not in a sentence: neither a file nor a flag can mend it."""

    async def fail(*_: object, **__: object) -> bool:
        raise ExceptionGroup("tasks", [error])

    monkeypatch.setattr("lean_sandbox.manager.server.run_until_signalled", fail)
    with pytest.raises(ExceptionGroup) as shown:
        main(["run"])
    assert shown.value.exceptions == (error,)


def test_a_module_that_is_missing_and_of_no_extra_is_a_bug(
    monkeypatch: pytest.MonkeyPatch, nowhere: Path
) -> None:
    """No installation of an extra brings it."""
    monkeypatch.setitem(sys.modules, "filters.replay", None)
    with pytest.raises(ModuleNotFoundError, match=r"filters\.replay"):
        main(["explain", "x"])


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in which `lean-sandbox` is this program."""
    program = f'lean-sandbox() {{ {shlex.join(PROGRAM)} "$@"; }}\nset -o pipefail\n{line}'
    return subprocess.run(  # noqa: S603 -- our own lines
        ["bash", "-c", program],  # noqa: S607
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "line", ["explain log", "config", "crds", "help run", "demo --pool 1 --claims 0 --sandboxes 1"]
)
def test_output_that_cannot_be_written_is_told_as_that(line: str, tmp_path: Path) -> None:
    """Of a full disk one line, and nothing of what was read; of a reader that left nothing."""
    log(tmp_path / "log", *(SANDBOX for _ in range(2000)))
    full = run(f"lean-sandbox {line} > /dev/full", tmp_path)
    assert (full.returncode, full.stderr) == (
        EXIT_FAILED,
        "lean-sandbox: No space left on device\n",
    )
    left = run(f"lean-sandbox {line} | head -n 1", tmp_path)
    assert (left.returncode, left.stderr) == (EXIT_OK, "")
    assert left.stdout.count("\n") == 1


def test_an_input_that_the_caller_has_closed_is_empty(tmp_path: Path) -> None:
    """As of a job without a terminal."""
    done = run("lean-sandbox explain - <&-", tmp_path)
    assert (done.returncode, done.stderr) == (EXIT_OK, "")
    assert done.stdout.startswith("0 events")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("explain nothing", "nothing: No such file or directory"),
        ("explain folder", "folder: Is a directory"),
        ("explain text", "text is not a log of a watch. To fix: record one with kubectl get"),
        ("explain yaml", "yaml is not a log of a watch. To fix: record one with kubectl get"),
        ("explain log --kind Node", "Node is not watched. To fix: use "),
        ("crds -o text/x", "text/x: Not a directory"),
        ("trace claim c --url http://127.0.0.1:9", "http://127.0.0.1:9 cannot be reached: "),
    ],
)
def test_a_mistake_costs_one_line_that_names_it(line: str, told: str, nowhere: Path) -> None:
    """The file or the address, and what is wrong with it in words, without numbers of errors."""
    (nowhere / "text").write_text("a: b\nc: d\n")
    # As kubectl writes what was applied.
    (nowhere / "yaml").write_text(f"a: |\n  {json.dumps(SANDBOX)}\nb: c\n")
    log(nowhere / "log", SANDBOX)
    code, _, err = ended(line.split())
    assert code == EXIT_FAILED
    assert err.startswith(f"lean-sandbox: {told}")
    assert err.count("\n") == 1
    assert "Errno" not in err


def test_a_word_without_dashes_ends_the_flags_and_a_warning_says_so(nowhere: Path) -> None:
    """As in the reference, which says nothing; the flag that may be meant is named."""
    code, _, err = ended(["config", "extensions", "--page-size=3", "--bogus"])
    assert code == EXIT_OK
    assert "warning: extensions --page-size=3 --bogus: ignored: flags end at" in err
    assert "did you mean --extensions?" in err


@pytest.mark.parametrize("kind", ["Pod", "pod", "pods", "sandboxclaims"])
def test_a_kind_may_be_named_as_kubectl_names_it(kind: str, nowhere: Path) -> None:
    """In the plural, in small letters; `trace` understands the same."""
    path = log(nowhere / "log", {"kind": "PartialObjectMetadata", "metadata": POD["metadata"]})
    assert ended(["explain", path, "--kind", kind])[0] == EXIT_OK


def test_an_object_is_explained_by_the_kind_that_it_names(nowhere: Path) -> None:
    """``--kind`` is for what names none; a kind that is not watched is told where it stands.

    A watch that has shown nothing is one.
    """
    assert ended(["explain", log(nowhere / "log")])[0] == EXIT_OK
    path = log(nowhere / "log", SANDBOX, POD, NODE)
    code, out, _ = ended(["explain", path, "--kind", "SandboxClaim"])
    assert code == EXIT_OK
    told = out.splitlines()
    assert [line.split()[1] for line in told[:3]] == ["passed", "passed", "broken"]
    assert "Node is not watched" in told[2]
    items = {"kind": "List", "items": [{**SANDBOX, "kind": None}]}
    assert ended(["explain", log(nowhere / "log", items)])[0] == EXIT_OK


ASCII = "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        (f"{ASCII} lean-sandbox run --kubeconfig Größe", EXIT_USAGE, "cannot be read in this loc"),
        (f"{ASCII} LEAN_SANDBOX_KUBECONFIG=Größe lean-sandbox run", EXIT_FAILED, "set LC_ALL=C.UT"),
        (f"{ASCII} KUBECONFIG=Größe lean-sandbox run", EXIT_FAILED, "9fe: the kubeconfig does no"),
        (r"lean-sandbox run --kubeconfig $'\xff'", EXIT_USAGE, r"'\udcff' is not valid UTF-8"),
        (r"KUBECONFIG=$'\xff' lean-sandbox run", EXIT_FAILED, r"\udcff: the kubeconfig does not"),
        (
            r"LEAN_SANDBOX_CONTEXT=$'\xff' lean-sandbox config",
            EXIT_FAILED,
            "SANDBOX_CONTEXT: '\\ud",
        ),
    ],
)
def test_a_text_that_is_none_here_is_told(line: str, code: int, told: str, tmp_path: Path) -> None:
    """Whether the locale cannot read it or nobody can: one line that says which."""
    done = run(line, tmp_path)
    assert done.returncode == code
    assert told in done.stderr
    assert done.stderr.startswith("lean-sandbox: ")
    assert done.stderr.count("\n") == 1
