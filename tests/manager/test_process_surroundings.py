"""The process in surroundings of other people's making: signals, time zones, locales, disks."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from anyio.abc import Process

from lean_sandbox.model.times import format_rfc3339
from tests.manager.processes import NS, Running, cluster
from tests.support.names import SANDBOXES
from tests.support.patience import PATIENCE_S
from tests.support.world import condition, sandbox

Json = dict[str, Any]
# Tells of every file that is opened to be written, and of every change of a folder.
_WATCHED = """
import os, sys
def note(event, told):
    writes = event == "open" and isinstance(told[2], int) and told[2] & (os.O_WRONLY | os.O_RDWR)
    if writes or event in ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink"):
        if told[0] != os.devnull:
            os.write(2, f"WROTE {event} {told[0]}\\n".encode())
sys.addaudithook(note)
sys.argv[0] = "lean-sandbox"
from lean_sandbox.cli import main
raise SystemExit(main(sys.argv[1:]))
"""

# Sends spans to a collector that never answers, and waits for it as long as it may.
_STUCK = """
import sys, threading, types
from opentelemetry.sdk.trace.export import SpanExporter
from lean_sandbox.cli import main
from lean_sandbox.runtime import tracing
class Stuck(SpanExporter):
    def export(self, spans):
        threading.Event().wait()
    def shutdown(self):
        threading.Event().wait()
name = "opentelemetry.exporter.otlp.proto.grpc.trace_exporter"
for package in ("opentelemetry.exporter", "opentelemetry.exporter.otlp", name):
    sys.modules[package] = types.ModuleType(package)
sys.modules[name].OTLPSpanExporter = Stuck
tracing._LAST_SPANS_S = 1e6
raise SystemExit(main(sys.argv[1:]))
"""


@asynccontextmanager
async def started(
    running: Running,
    *program: str,
    flags: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
    stderr: int = subprocess.PIPE,
) -> AsyncIterator[Process]:
    """Run a controller that contends for the Lease; what is left of it at the end is killed."""
    elects = ("--leader-elect=true", f"--leader-election-namespace={NS}", "--log-format=json")
    listeners = ("--metrics-bind-address=0", "--health-probe-bind-address=0")
    begin = program or (sys.executable, "-m", "lean_sandbox")
    command = [*begin, "run", f"--kubeconfig={running.kubeconfig}", *elects, *listeners, *flags]
    env = {**os.environ, **(environment or {})}
    async with await anyio.open_process(command, stdout=None, stderr=stderr, env=env) as process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()


async def ended(process: Process) -> str:
    """Tell a process to end, which it does with 0, and return its log."""
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    assert process.stderr is not None
    return b"".join([part async for part in process.stderr]).decode()


async def serve(running: Running, body: Json) -> Json:
    """Create a Sandbox and wait for its Pod and its first status; return the Sandbox."""
    name = running.plane.store.create(body, NS)["metadata"]["name"]
    await running.until(lambda: running.plane.store.get(SANDBOXES, NS, name).get("status"))
    return running.plane.store.get(SANDBOXES, NS, name)


def plain(name: str = "sb-1", **spec: Any) -> Json:
    """Return a Sandbox for the namespace of the processes."""
    return sandbox(name, spec=spec, namespace=NS)


async def test_a_hangup_ends_the_process_as_a_request_to_end_does(tmp_path: Path) -> None:
    """The terminal is closed: the Lease is released, so that the next need not wait for it."""
    async with cluster(tmp_path) as running, started(running) as process:
        await running.until(lambda: running.holder)
        process.send_signal(signal.SIGHUP)
        assert await process.wait() == 0
        assert running.holder == ""


async def test_a_hangup_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """Whoever starts it with nohup may close the terminal."""
    nohup = ("nohup", sys.executable, "-m", "lean_sandbox")
    async with cluster(tmp_path) as running, started(running, *nohup) as process:
        await running.until(lambda: running.holder)
        process.send_signal(signal.SIGHUP)
        assert (await serve(running, plain()))["status"]
        await ended(process)
        assert running.holder == ""


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/St_Johns", ":/nowhere"])
async def test_times_are_utc_whatever_the_time_zone_of_the_process(
    tmp_path: Path, zone: str
) -> None:
    """What has expired is expired, what has not is not, and what is written is of this minute."""
    now = datetime.now(UTC)
    soon, past = (format_rfc3339(now + timedelta(minutes=one)) for one in (30, -30))
    async with cluster(tmp_path) as running, started(running, environment={"TZ": zone}) as process:
        alive = await serve(running, plain("alive", shutdownTime=soon))
        expired = await serve(running, plain("expired", shutdownTime=past))
        log = await ended(process)
    assert condition(alive, "Ready")["reason"] == "DependenciesNotReady"
    told = condition(expired, "Ready")
    assert told["reason"] == "SandboxExpired"
    at = datetime.fromisoformat(told["lastTransitionTime"])
    assert now - timedelta(seconds=2) <= at <= datetime.now(UTC)
    first = datetime.fromisoformat(json.loads(log.splitlines()[0])["ts"])
    assert now - timedelta(seconds=2) <= first <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("folder", "environment"),
    [
        ("Größe", {"LC_ALL": "C"}),
        ("plain", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    ],
)
async def test_a_locale_without_unicode_changes_nothing(
    tmp_path: Path, folder: str, environment: dict[str, str]
) -> None:
    """A kubeconfig with words of any language is read, and such a message is logged."""
    (tmp_path / folder).mkdir()
    async with cluster(tmp_path / folder) as running:
        content = yaml.safe_load(running.kubeconfig.read_text(encoding="utf-8"))
        text = f"# für Größe\n{json.dumps(content, ensure_ascii=False)}\n"
        running.kubeconfig.write_text(text, encoding="utf-8")
        body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "nicht für dich"}
        running.plane.fail_next("create", "pods", 403, body=body)
        async with started(running, environment=environment) as process:
            await serve(running, plain())
            await running.until(lambda: running.plane.store.find("pods", NS, "sb-1"))
            log = await ended(process)
    assert "nicht f" in log
    assert all(json.loads(line) for line in log.splitlines())


async def test_a_process_writes_no_file(tmp_path: Path) -> None:
    """So a root file system that is read-only is enough, as the manifests have it."""
    environment = {"PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nowhere", "TMPDIR": "/nowhere"}
    program = (sys.executable, "-c", _WATCHED)
    async with (
        cluster(tmp_path) as running,
        started(running, *program, environment=environment) as process,
    ):
        await serve(running, plain())
        log = await ended(process)
    assert re.findall("^WROTE .*", log, re.MULTILINE) == []


async def test_a_log_that_nobody_reads_any_more_ends_nothing(tmp_path: Path) -> None:
    """The reader of the pipe has gone: lines are dropped, and the work goes on to a good end."""
    reader, writer = os.pipe()
    async with cluster(tmp_path) as running, started(running, stderr=writer) as process:
        os.close(writer)
        await running.until(lambda: running.holder)
        os.close(reader)
        assert (await serve(running, plain()))["status"]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert running.holder == ""


async def test_a_low_limit_of_open_files_is_raised_as_far_as_it_may_be(tmp_path: Path) -> None:
    """Each watch has a connection: the usual limit of 1024 files is for programs of another age."""
    spaces = [NS, *(f"team-{number}" for number in range(20))]
    lower = f'ulimit -Sn 32; exec {sys.executable} -m lean_sandbox "$@"'
    flags = (f"--namespaces={','.join(spaces)}",)
    async with (
        cluster(tmp_path) as running,
        started(running, "sh", "-c", lower, "sh", flags=flags) as process,
    ):
        watched = set[str]()

        def is_everything_watched() -> bool:
            seen = running.plane.audit.select(verb="watch", resource="pods")
            watched.update(entry.namespace for entry in seen)
            return watched == set(spaces)

        await running.until(is_everything_watched)
        log = await ended(process)
    assert "watch_interrupted" not in log


async def test_after_a_second_signal_no_collector_is_waited_for(tmp_path: Path) -> None:
    """What it has not taken by then is lost."""
    program = (sys.executable, "-c", _STUCK)
    async with (
        cluster(tmp_path) as running,
        started(running, *program, flags=("--enable-tracing",)) as process,
    ):
        await running.until(lambda: running.holder)
        running.plane.delay("create", "pods", 1000.0)
        running.plane.store.create(plain(), NS)
        await running.until(lambda: running.plane.audit.select(verb="get", resource="sandboxes"))
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        with anyio.fail_after(PATIENCE_S):
            assert await process.wait() == 1


async def test_a_log_whose_reader_has_stopped_reading_ends_nothing(tmp_path: Path) -> None:
    """As with ``| less``: lines are dropped, the Lease is renewed, and the work goes on."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    flags = ("--log-level=debug",)
    async with (
        cluster(tmp_path) as running,
        started(running, flags=flags, stderr=writer) as process,
    ):
        os.close(writer)
        for number in range(10):
            assert (await serve(running, plain(f"sb-{number}")))["status"]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert running.holder == ""
    told = os.read(reader, 8192).decode().splitlines()
    os.close(reader)
    assert all(json.loads(line) for line in told[:-1])
