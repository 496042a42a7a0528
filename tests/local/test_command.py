"""Laws of ``lean-sandbox local`` as a command: what it refuses, and its life in the background."""

from __future__ import annotations

import os
import pwd
import re
import select
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from lean_sandbox.cli import main
from lean_sandbox.local import command
from lean_sandbox.local.files import LocalCluster, listed
from tests.support.patience import PATIENCE_S

COMMAND = (sys.executable, "-m", "lean_sandbox", "local")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "list"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def taken() -> Iterator[int]:
    """Give a port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def local(*words: str) -> tuple[int, str]:
    """Run the command in a process; return its exit code and what it said."""
    done = subprocess.run(  # noqa: S603
        [*COMMAND, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--port", "99999"), "from 0 to 65535"),
        (("--port", "http"), "from 0 to 65535"),
        (("--nodes", "-1"), "from 1 to 1000000"),
        (("--", "--page-sise=3"), "did you mean --page-size?"),
        (("--", "--page-size=many"), "it is not a whole number"),
        (("--", "--help"), "lean-sandbox run --help"),
        (("stray",), "stray is not a flag"),
        (("--no-controller", "--", "--page-size=3"), "=3 is for the controller, which --no-con"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_understood_is_refused_before_anything_starts(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the usage and code 2."""
    with pytest.raises(SystemExit) as caught:
        main(["local", "up", *words])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--state", "notes"), "notes: this is not a saved state"),
        (("--state", "notes/x"), "notes/x: the state cannot be saved"),
        (("--state", "."), "the state cannot be read: Is a directory"),
        (("--kubeconfig", "notes"), "notes: this is not a kubeconfig"),
        (("--kubeconfig", "notes/x"), "notes/x: the kubeconfig cannot be written"),
        (("--kubeconfig", "loop"), "loop: the kubeconfig cannot be written: Too many levels"),
    ],
    ids=" ".join,
)
def test_a_file_that_cannot_be_used_is_named_and_left_alone(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, with the way out and code 1."""
    Path("notes").write_text("my notes\n")
    Path("loop").symlink_to("loop")
    assert main(["local", "up", "--port", "0", *words]) == 1
    told = capsys.readouterr().err
    assert said in told
    assert "To fix" in told
    assert Path("notes").read_text() == "my notes\n"


def test_a_port_that_is_taken_is_named(taken: int, capsys: pytest.CaptureFixture[str]) -> None:
    """With what to do about it."""
    assert main(["local", "up", "--port", str(taken)]) == 1
    assert f"cannot listen on 127.0.0.1:{taken}: Address already in use" in capsys.readouterr().err


def test_a_cluster_lives_in_the_background_until_it_is_stopped() -> None:
    """`up -d` returns when it is up, `status` lists it, `down` ends it and its controller."""
    code, greeting = local("up", "-d", "--port", "0", "--tls", "--state", "state.json")
    assert code == 0, greeting
    assert "export KUBECONFIG=" in greeting
    code, listed = local("status")
    assert code == 0
    port = listed.partition(": ")[0].rpartition(":")[2]
    assert f"https://127.0.0.1:{port}" in greeting
    assert f"-m lean_sandbox local down --port {port}` stops it" in greeting
    metrics = listed.partition("  metrics: ")[2].partition("\n")[0]
    assert f"code-interpreter --url {metrics}\n" in greeting
    assert httpx.get(f"{metrics}/metrics").status_code == 200
    kubeconfig = Path("lean-sandbox.kubeconfig").absolute()
    assert f"kubeconfig: {kubeconfig}" in listed
    written = kubeconfig.read_text()
    cluster = f"of the cluster at https://127.0.0.1:{port}"
    code, told = local("up", "-d", "--port", "0")
    assert (code, f"{kubeconfig}: this is the kubeconfig {cluster}" in told) == (1, True)
    assert kubeconfig.read_text() == written
    code, told = local(
        "up", "-d", "--port", "0", "--kubeconfig=other", "--state=list/../state.json"
    )
    assert (code, f"state.json: this is the state {cluster}" in told) == (1, True)
    assert local("down", "--port", port) == (0, f"Stopped https://127.0.0.1:{port}.\n")
    # As the next start finds it.
    socket.create_server(("127.0.0.1", int(port))).close()
    assert local("status")[0] == 0
    code, told = local("down", "--port", port)
    assert (code, told.partition(". ")[0]) == (0, f"No local cluster runs on port {port}")
    logs = [one.read_text() for one in Path("list/lean-sandbox").glob("local-*.log")]
    (log,) = (one for one in logs if "State saved to state.json" in one)
    assert '"msg":"stopping"' in log


def test_a_start_in_the_background_that_fails_says_so(taken: int) -> None:
    """What the process has said is printed, with its exit code; no file is left."""
    code, told = local("up", "-d", "--port", "0", "--", f"--metrics-bind-address=:{taken}")
    assert not [path for path in Path().rglob("*") if path.is_file()]
    assert code == 1
    assert f"cannot listen on :{taken}" in told
    assert "the controller ended with code 1" in told
    assert "local up -- --metrics-bind-address=" in told


def test_a_start_in_the_background_ends_with_the_command_that_is_interrupted() -> None:
    """No cluster that nobody waits for comes up later; no file is left."""
    ends, inherited = os.pipe()
    words = (*COMMAND, "up", "-d", "--port", "0", "--nodes", "100000")
    with subprocess.Popen(words, pass_fds=(inherited,)) as started:  # noqa: S603
        os.close(inherited)
        until = time.monotonic() + PATIENCE_S
        while not list(Path("list").rglob("local-*.log")):
            assert time.monotonic() < until
        started.terminate()
        assert started.wait(PATIENCE_S) == 130
    # Whoever still runs has the other end.
    assert select.select([ends], [], [], PATIENCE_S)[0] == [ends]
    os.close(ends)
    assert not [path for path in Path().rglob("*") if path.is_file()]


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Before anything starts, in one line, with what to do about it."""
    (tmp_path / "list").mkdir()
    # A folder that is there, and in which nobody can make a file.
    (tmp_path / "list/lean-sandbox").symlink_to("/proc")
    code, said = local("up", "-d")
    assert code == 1
    assert said.count("\n") == 1
    assert re.match(r"lean-sandbox: \S+\.log: the log cannot be written: .*To fix: name", said)


def test_a_start_in_the_background_that_cannot_say_why_it_fails_is_told() -> None:
    """As on a full disk, where not even its log can be written."""
    start = shlex.join([*COMMAND, "up", "-d", "--port", "0"])
    done = subprocess.run(["sh", "-c", f"ulimit -f 0; {start}"], capture_output=True, text=True)  # noqa: S603, S607, PLW1510
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "has ended with code 1, and nothing of why could be written" in done.stderr
    assert done.stderr.endswith("name another place with the variable XDG_STATE_HOME\n")


def test_a_start_that_fails_leaves_the_log_of_the_cluster_that_has_the_port() -> None:
    """It goes on writing there, and `status` says where that is."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    words = ("up", "-d", "--port", port, "--no-controller", "--kubeconfig")
    assert local(*words, "first")[0] == 0
    log = Path(local("status")[1].partition("  log: ")[2].strip())
    written = log.read_text()
    assert local(*words, "second")[0] == 1
    assert log.read_text() == written
    assert local("down", "--port", port)[0] == 0
    assert "stopping" in log.read_text()


@pytest.mark.parametrize("words", [("status",), ("down",)], ids=" ".join)
def test_looking_for_clusters_makes_nothing(words: tuple[str, ...]) -> None:
    """So it does where nothing can be made, as for a user whose home is read-only."""
    assert main(["local", *words]) == 0
    assert not list(Path().iterdir())


def test_a_user_without_a_home_is_told_which_variable_names_another_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a container whose user the system does not know."""
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert main(["local", "status"]) == 1
    assert "has no home folder. To fix: name another place" in capsys.readouterr().err


def test_metrics_get_another_port_where_theirs_is_taken(taken: int) -> None:
    """The one that is wanted as long as nobody listens there."""
    assert command._free_port(taken) not in (0, taken)
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    assert command._free_port(free) == free


def test_whoever_stops_a_cluster_is_told_that_kubectl_still_looks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the variable of kubectl names the file of this cluster.

    It was started by a job without input and output.
    """
    start = shlex.join([*COMMAND, "up", "-d", "--port", "0", "--no-controller"])
    subprocess.run(["sh", "-c", f"{start} <&- >&-"], check=True)  # noqa: S603, S607
    port = local("status")[1].partition(": ")[0].rpartition(":")[2]
    monkeypatch.setenv("KUBECONFIG", str(Path("lean-sandbox.kubeconfig").absolute()))
    assert "unset KUBECONFIG\n" in local("down", "--port", port)[1]


@pytest.mark.parametrize("is_served", [True, False])
def test_who_chose_where_the_metrics_are_is_told_so(taken: int, *, is_served: bool) -> None:
    """In the greeting and in the list; where there are none, nothing points at them."""
    # Another host of the loopback has the port free.
    address = f"127.0.0.2:{taken}"
    flag = f"--metrics-bind-address={address if is_served else '0'}"
    code, greeting = local("up", "-d", "--port", "0", "--", flag)
    assert code == 0, greeting
    listed = local("status")[1]
    port = listed.partition(": ")[0].rpartition(":")[2]
    assert local("down", "--port", port)[0] == 0
    assert (f"code-interpreter --url http://{address}\n" in greeting) is is_served
    assert (f"  metrics: http://{address}\n" in listed) is is_served
    assert ("metrics" in listed or "trace" in greeting) is is_served


def test_a_cluster_outlives_whoever_reads_its_output() -> None:
    """`local up | head -1` ends the pipe, not the cluster."""
    with subprocess.Popen([*COMMAND, "up", "--port", "0"], stdout=subprocess.PIPE) as process:  # noqa: S603
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"Cluster is up at ")
        process.stdout.close()
        process.terminate()
        assert process.wait(timeout=PATIENCE_S) == 0


def test_a_cluster_that_is_killed_leaves_no_controller_behind() -> None:
    """It would serve the next cluster on this port, beside the controller of that."""
    with subprocess.Popen([*COMMAND, "up", "--port", "0"], stdout=subprocess.PIPE) as process:  # noqa: S603
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"Cluster is up at ")
        process.kill()
        # Ends once nobody can write to it any more.
        process.communicate(timeout=PATIENCE_S)


def test_a_cluster_that_does_not_end_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its process, and what ends that in any case."""
    monkeypatch.setattr(command, "_PATIENCE_S", 0.05)
    with subprocess.Popen(["sleep", "60"]) as process:  # noqa: S607
        url = "http://127.0.0.1:7443"
        with listed(LocalCluster(process.pid, 7443, url, "k", nodes=1, has_controller=False)):
            assert main(["local", "down"]) == 1
    said = capsys.readouterr().err
    assert (
        f"process {process.pid} has not ended after 0.05 s. To fix: kill -9 {process.pid}" in said
    )


def test_a_process_that_was_killed_is_not_listed(tmp_path: Path) -> None:
    """Nobody holds the lock of what it has left behind."""
    folder = tmp_path / "list" / "lean-sandbox"
    folder.mkdir(parents=True)
    (folder / "local-7443.json").write_text(f'{{"pid":{os.getpid()}}}')
    code, told = local("status")
    assert (code, told.partition("`")[0]) == (0, "No local cluster runs. ")
    assert told.endswith(" -m lean_sandbox local up` starts one.\n")


@pytest.mark.parametrize("name", ["sandbox", "pool", "claim"])
def test_examples_are_manifests(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each prints objects that kubectl can apply."""
    assert main(["local", "example", name]) == 0
    for found in yaml.safe_load_all(capsys.readouterr().out):
        assert found["apiVersion"].endswith("agents.x-k8s.io/v1beta1")
