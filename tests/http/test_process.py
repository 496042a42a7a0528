"""The process: flags of its listeners, profiles, and a log whose reader has gone."""

from __future__ import annotations

import fcntl
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import httpx
import pytest
import structlog

from lean_sandbox import log
from lean_sandbox.bench.workers import process_usage
from lean_sandbox.cli import main
from lean_sandbox.config.options import Settings
from lean_sandbox.config.sources import EXIT_CONFIG, effective, scan
from lean_sandbox.errors import ConfigError
from lean_sandbox.http.server import bind
from lean_sandbox.manager.server import Listeners, process_metrics
from lean_sandbox.metrics.registry import Exposition
from tests.metrics.scrape import scraping, serving
from tests.support.patience import PATIENCE_S
from tests.support.world import open_world, sandbox

# -- flags -----------------------------------------------------------------------------------------


@pytest.mark.case(142)
@pytest.mark.parametrize("flag", ["--metrics-bind-address", "--health-probe-bind-address"])
def test_a_port_in_use_ends_the_start(
    flag: str, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process ends before it asks the server anything, naming flag and address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        others = {"--metrics-bind-address": "0", "--health-probe-bind-address": "0", flag: address}
        given = [f"{name}={value}" for name, value in others.items()]
        assert main(["run", f"--kubeconfig={kubeconfig}", *given]) == EXIT_CONFIG
    assert f"{flag}: cannot listen on {address}" in capsys.readouterr().err


async def test_listeners_can_be_switched_off() -> None:
    """0 opens none; an empty health address, too, as the reference has it, where metrics go on."""
    async with open_world() as world:
        async with serving(world, metrics_bind_address="0") as scraper:
            assert list(scraper.listeners.ports) == ["health"]
        async with serving(world, health_probe_bind_address="0") as scraper:
            assert list(scraper.listeners.ports) == ["metrics"]
            assert (await scraper.get("/metrics")).status_code == 200
    empty = effective(scan(["--metrics-bind-address=", "--health-probe-bind-address="]), {})
    assert empty.settings == Settings(health_probe_bind_address="0")


@pytest.mark.parametrize("path", ["//", "/index.html", "/metrics/", "/metrics/x", "/healthz"])
async def test_the_metrics_listener_has_nothing_else(path: str) -> None:
    """Every other path is 404 in words."""
    async with open_world() as world, serving(world) as scraper:
        answer = await scraper.get(path)
    assert answer.status_code == 404
    assert path in answer.text


# -- profiles --------------------------------------------------------------------------------------

_PROFILES = ("", "cmdline", "heap", "allocs", "goroutine")


@pytest.mark.case(144)
async def test_without_the_flags_there_are_no_profiles() -> None:
    """Case 144: every /debug path is 404, on both listeners."""
    async with open_world() as world, serving(world) as scraper:
        for name in ("profile", *_PROFILES):
            for listener in ("metrics", "health"):
                assert (await scraper.get(f"/debug/pprof/{name}", listener)).status_code == 404


@pytest.mark.case(144)
async def test_the_first_flag_serves_the_cpu_profile_only() -> None:
    """Case 144: with --enable-pprof everything but /debug/pprof/profile is 404."""
    async with open_world() as world, serving(world, enable_pprof=True) as scraper:
        for seconds in ("soon", "nan", "0", "60.1"):
            refused = await scraper.get(f"/debug/pprof/profile?seconds={seconds}")
            assert refused.status_code == 400
        for name in (*_PROFILES, "trace", "mutex"):
            assert (await scraper.get(f"/debug/pprof/{name}")).status_code == 404
        assert (await scraper.get("/metrics")).status_code == 200


@pytest.mark.case(144)
async def test_the_second_flag_serves_what_has_a_meaning() -> None:
    """Case 144: tasks, objects and the command line; what only Go has is 404 and says so."""
    async with open_world() as world, serving(world, enable_pprof_debug=True) as scraper:
        found = {name: await scraper.get(f"/debug/pprof/{name}") for name in _PROFILES}
        assert (await scraper.get("/debug/pprof/nonsense")).status_code == 404
        for name in ("trace", "mutex", "block", "symbol", "threadcreate"):
            answer = await scraper.get(f"/debug/pprof/{name}")
            assert answer.status_code == 404
            assert "no meaning in Python" in answer.text
    assert all(answer.status_code == 200 for answer in found.values())
    assert found["cmdline"].text == "\0".join(sys.orig_argv)
    assert "http/server.py" in found["goroutine"].text
    assert "builtins.dict" in found["heap"].text
    # A head, and the hundred types that take most.
    assert len(found["heap"].text.splitlines()) == 101
    assert found[""].text.split() == ["profile", *_PROFILES[1:]]


@pytest.mark.parametrize(("query", "seconds"), [("?seconds=60", 60.0), ("", 30.0)])
async def test_the_longest_profile_is_answered(query: str, seconds: float) -> None:
    """Its minute is within the time that an answer may take; half of one is taken by default."""
    answers: list[httpx.Response] = []
    async with (
        open_world() as world,
        serving(world, enable_pprof=True) as scraper,
        anyio.create_task_group() as group,
    ):

        async def ask() -> None:
            answers.append(await scraper.get(f"/debug/pprof/profile{query}"))

        group.start_soon(ask)
        while not any(signal.getitimer(signal.ITIMER_PROF)):
            await anyio.lowlevel.checkpoint()
        await world.clock.advance(seconds - 1.0)
        assert not answers
        await world.clock.advance(1.0)
    assert [answer.status_code for answer in answers] == [200]


def test_a_cpu_profile_shows_where_time_goes() -> None:
    """A busy function has most of the samples, in the folded form; a second profile is refused."""
    program = """
import anyio, time
from lean_sandbox.clock import SystemClock
from lean_sandbox.http.server import Request
from lean_sandbox.http.pprof import profiles

def burn():
    until = time.process_time() + 0.02
    while time.process_time() < until:
        pass

async def main():
    handle = profiles(SystemClock(), everything=False)
    done = anyio.Event()
    async def profile():
        answer = await handle(Request("/debug/pprof/profile", {"seconds": "0.4"}))
        print(answer.body.decode())
        done.set()
    async with anyio.create_task_group() as group:
        group.start_soon(profile)
        await anyio.sleep(0)
        second = await handle(Request("/debug/pprof/profile", {"seconds": "1"}))
        assert second.code == 500, second
        while not done.is_set():
            burn()
            await anyio.sleep(0)

anyio.run(main)
"""
    ended = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    samples = {
        stack: int(count)
        for stack, _, count in (line.rpartition(" ") for line in ended.stdout.splitlines() if line)
    }
    busy = sum(count for stack, count in samples.items() if "__main__.burn" in stack)
    assert busy > sum(samples.values()) / 2


# -- the log ---------------------------------------------------------------------------------------


class _Full(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(28, "No space left on device")


def _closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [_Full(), _closed(), None], ids=["full", "closed", "none"])
@pytest.mark.parametrize("form", ["json", "console"])
def test_a_line_that_cannot_be_written_is_counted(
    stream: io.StringIO | None, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, a closed stream and no stream at all drop the line; what logs goes on."""
    log.configure("info", form)
    monkeypatch.setattr("sys.stderr", stream)
    before = log.dropped_lines()
    structlog.get_logger().info("lost", kind="Sandbox")
    structlog.get_logger().debug("below the level")
    assert log.dropped_lines() == before + 1


def test_a_process_whose_log_reader_has_gone_goes_on(tmp_path: Path) -> None:
    """With standard error a broken pipe each line is dropped, and counted once."""
    program = (
        "import sys; sys.modules['rich'] = None\n"
        "import structlog; from lean_sandbox import log\n"
        "sys.stdin.readline(); log.configure('info', 'json')\n"
        "for n in range(1000): structlog.get_logger().info('line', number=n, filling='x' * 100)\n"
        "print(log.dropped_lines())\n"
    )
    reader, writer = os.pipe()
    with subprocess.Popen(  # noqa: S603 -- our own program
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=writer,
        text=True,
    ) as started:
        os.close(writer)
        os.close(reader)
        said, _ = started.communicate("go\n", timeout=PATIENCE_S)
    assert started.returncode == 0
    assert int(said) == 1000


def test_a_reader_that_has_stopped_reading_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a fifth of a second, and again once it has gone on: not for each line that it misses."""
    answers = [[(2, select.POLLOUT)], [], [], [(2, select.POLLOUT)], [], []]
    waited_ms = []

    class Poll:
        def register(self, *_: int) -> None:
            pass

        def poll(self, timeout_ms: int) -> list[tuple[int, int]]:
            waited_ms.append(timeout_ms)
            return answers[len(waited_ms) - 1]

    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as read, os.fdopen(writer, "w") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setattr(select, "poll", Poll)
        monkeypatch.setattr(log._LineWriter, "_is_stuck", log._LineWriter._is_stuck)
        log.configure("info", "json")
        before = log.dropped_lines()
        for number in range(6):
            structlog.get_logger().info("line", number=number)
        assert log.dropped_lines() == before + 4
        monkeypatch.undo()
        stream.close()
        assert [json.loads(line)["number"] for line in read] == [0, 3]
    assert waited_ms == [200, 200, 0, 0, 200, 0]


def test_a_line_that_was_cut_is_ended_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that goes on reading after a while finds each later line whole, on its own."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    with os.fdopen(reader, "rb") as read, os.fdopen(writer, "w") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setattr(log, "_PATIENCE_MS", 0)
        log.configure("info", "json")
        before = log.dropped_lines()
        for _ in range(3):
            structlog.get_logger().info("long", first="x" * 4000, second="y" * 4000)
        assert log.dropped_lines() == before + 3
        assert len(read.read(4096)) == 4096
        structlog.get_logger().info("short")
        assert log.dropped_lines() == before + 3
        monkeypatch.undo()
        stream.close()
        cut, short = read.read().splitlines()
    assert cut == b""
    assert json.loads(short)["msg"] == "short"


async def test_dropped_lines_are_a_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller works without a reader of its log, and tells how much of it was lost."""
    monkeypatch.setattr("sys.stderr", _closed())
    log.configure("info", "json")
    async with open_world() as world:
        before = await scraping(world)
        structlog.get_logger().info("lost")
        await world.ready_sandbox(sandbox())
        after = await scraping(world)
    name = "lean_sandbox_log_lines_dropped_total"
    assert after.value(name) > before.value(name)
    assert after.find("agent_sandboxes", ready_condition="true")


# -- the process itself ----------------------------------------------------------------------------


async def test_the_process_tells_of_itself() -> None:
    """Memory, CPU, files and start are those of this very process."""
    async with open_world() as world:
        found = await scraping(world)
    rss_bytes = (process_usage(os.getpid()).rss_mib or 0.0) * 1024 * 1024
    assert found.value("process_resident_memory_bytes") == pytest.approx(rss_bytes, rel=0.2)
    assert found.value("process_cpu_seconds_total") > 0
    assert 3 < found.value("process_open_fds") < found.value("process_max_fds")
    ((build, _),) = found.find("agent_sandbox_build_info")
    assert build["go_version"].startswith("python3.")
    assert build["platform"].startswith(sys.platform)


def test_without_proc_less_is_told_and_nothing_fails(tmp_path: Path) -> None:
    """Where there is no /proc, or a torn one, only CPU time is told."""
    for content in (None, "", "1 (x) S\n"):
        if content is not None:
            (tmp_path / "self").mkdir(exist_ok=True)
            (tmp_path / "self/stat").write_text(content)
            (tmp_path / "stat").write_text(content)
        found = Exposition()
        process_metrics(found, tmp_path)
        assert "process_cpu_seconds_total" in found.families
        assert "process_resident_memory_bytes" not in found.families


@pytest.mark.parametrize("limits", ["", "Max open files            unlimited  unlimited  files"])
def test_a_number_of_files_without_a_limit_is_not_told(limits: str, tmp_path: Path) -> None:
    """There is no number for it; how many are open is told."""
    (tmp_path / "self/fd").mkdir(parents=True)
    (tmp_path / "self/fd/0").touch()
    (tmp_path / "self/stat").write_text(f"1 (a) b) S {' '.join(map(str, range(40)))}\n")
    (tmp_path / "stat").write_text("cpu 1\nbtime 1000\n")
    (tmp_path / "self/limits").write_text(f"Max core file size 0 0 bytes\n{limits}\n")
    found = Exposition()
    process_metrics(found, tmp_path)
    assert found.families["process_open_fds"][1] == [((), 1)]
    assert "process_max_fds" not in found.families


async def test_a_port_that_is_taken_leaves_the_other_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag of the one that is taken is named, and nothing stays bound."""
    bound: list[socket.socket] = []

    def binding(flag: str, address: str) -> socket.socket:
        bound.append(bind(flag, address))
        return bound[-1]

    monkeypatch.setattr("lean_sandbox.manager.server.bind", binding)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = Settings(
            metrics_bind_address="127.0.0.1:0",
            health_probe_bind_address=f"127.0.0.1:{taken.getsockname()[1]}",
        )
        async with open_world() as world:
            with pytest.raises(ConfigError, match="--health-probe-bind-address"):
                Listeners(world.whole, settings, world.clock)
    assert [one.fileno() for one in bound] == [-1]


def test_run_serves_and_logs_its_ports_as_json(kubeconfig: Path) -> None:
    """``lean-sandbox run`` listens before its caches are in sync, and is alive but not ready."""
    program = [
        *(sys.executable, "-m", "lean_sandbox", "run", "--log-format=json"),
        *(f"--kubeconfig={kubeconfig}", "--metrics-bind-address=127.0.0.1:0"),
        *("--health-probe-bind-address=127.0.0.1:0", "--enable-rest-client-metrics"),
    ]
    with subprocess.Popen(  # noqa: S603 -- our own program
        program, stderr=subprocess.PIPE, text=True
    ) as started:
        try:
            assert started.stderr is not None
            ports = next(
                said for said in map(json.loads, started.stderr) if said["msg"] == "listening"
            )
            alive = _ask(ports["health"], "/healthz")
            ready = _ask(ports["health"], "/readyz")
            metrics = _ask(ports["metrics"], "/metrics")
        finally:
            started.terminate()
            started.communicate(timeout=PATIENCE_S)
    assert alive.startswith("HTTP/1.1 200 OK")
    assert ready.startswith("HTTP/1.1 500 ")
    assert "agent_sandbox_build_info" in metrics


def _ask(port: int, path: str) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        parts = iter(lambda: connection.recv(65536), b"")
        return b"".join(parts).decode()
