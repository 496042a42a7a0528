"""Processes of the bench: how they are started, asked, measured through /proc, and what they do.

``python -m lean_sandbox.bench.workers ROLE ARGUMENT...`` answers each line of its input with a line
of JSON, numbers by name, once it serves.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from lean_sandbox.bench.load import Seen, following
from lean_sandbox.bench.options import BenchError
from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.kubeconfig import load as load_connection
from lean_sandbox.kube.limits import Lane, Limits
from lean_sandbox.kube.resources import METADATA_ACCEPT, SANDBOXCLAIMS, SANDBOXES
from lean_sandbox.kube.transport import Transport
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.kubelet import Kubelet, KubeletSettings
from lean_sandbox.model import names
from lean_sandbox.model.conditions import Condition
from lean_sandbox.model.meta import controller_reference
from lean_sandbox.model.times import format_rfc3339

KUBECONFIG: Final = "controller.kubeconfig"
NODE_PREFIX: Final = "lean-sandbox-bench"
NODES: Final = 4
_KUBELET_IN_FLIGHT: Final = 16
_AGENT: Final = "lean-sandbox"
# The children import what this process runs, also from a checkout that is not installed.
_ROOT: Final = str(Path(__file__).resolve().parents[2])
_LINE_BYTES: Final = 1 << 20
_END_S: Final = 10.0
_PATIENCE_S: Final = 90.0
TICK_MS: Final = 1000 / os.sysconf("SC_CLK_TCK")


class Usage(msgspec.Struct, frozen=True):
    """CPU time so far, resident memory now and at its highest; None where /proc does not tell."""

    cpu_ms: float | None = None
    rss_mib: float | None = None
    peak_mib: float | None = None


def process_usage(pid: int | None) -> Usage:
    """Read /proc. Raises BenchError when the process has ended though there is a /proc."""
    if pid is None or not os.path.isdir("/proc/self"):  # noqa: PTH112 - no Path made at 20 Hz
        return Usage()
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        # The second field is the program's name in brackets, and may hold anything.
        ticks = stat.rpartition(")")[2].split()
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        rss, peak = (round(float(fields[name].split()[0]) / 1024, 1) for name in ("VmRSS", "VmHWM"))
    except (OSError, KeyError) as error:  # one that ended and was not waited for has no memory
        raise BenchError(f"the process {pid} has ended") from error
    return Usage((int(ticks[11]) + int(ticks[12])) * TICK_MS, rss, peak)


# -- starting and asking ---------------------------------------------------------------------------


class Worker:
    """A running process that answers lines of JSON."""

    def __init__(self, started: Process, log: Path) -> None:
        self.started = started
        self.pid = started.pid
        self._log = log
        assert started.stdout is not None
        self._lines = BufferedByteReceiveStream(started.stdout)

    def log(self) -> str:
        """Return what it has written to standard error so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    async def ask(self) -> dict[str, int]:
        """Return its answer, which comes once it serves. Raises BenchError."""
        assert self.started.stdin is not None
        try:
            with anyio.fail_after(_PATIENCE_S):
                await self.started.stdin.send(b"\n")
                line = await self._lines.receive_until(b"\n", _LINE_BYTES)
            return msgspec.json.decode(line, type=dict[str, int])
        except (
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
            anyio.IncompleteRead,
            msgspec.DecodeError,
            TimeoutError,
        ) as error:
            raise self.failed("gave no answer") from error

    def failed(self, what: str) -> BenchError:
        """Return an error with the last lines of the log."""
        said = "\n".join(self.log().splitlines()[-8:])
        return BenchError(f"a process of the bench {what}; its log ends with\n{said}")


@asynccontextmanager
async def process(module: str, *arguments: str, log: Path) -> AsyncIterator[Worker]:
    """Run ``python -m module`` until the block ends; its standard error goes to ``log``."""
    search = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
    # An installed controller has its bytecode; compiling all anew would count as its start.
    changed = {"PYTHONPATH": search, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": ""}
    with log.open("wb") as errors:
        started = await anyio.open_process(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **changed},
            # Ctrl-C on the terminal is for this process, which then ends its children in order.
            start_new_session=True,
        )
    try:
        yield Worker(started, log)
    finally:
        # It is killed when the time is over.
        with anyio.CancelScope(shield=True), anyio.move_on_after(_END_S):
            if started.returncode is None:
                started.terminate()
            await started.aclose()


@asynccontextmanager
async def worker(role: str, *arguments: str, folder: Path) -> AsyncIterator[Worker]:
    """Run a process of one of the roles until the block ends; yields once it serves."""
    log = folder / f"{role}.log"
    async with process("lean_sandbox.bench.workers", role, *arguments, log=log) as started:
        await started.ask()
        yield started


@asynccontextmanager
async def open_client(
    connection: Connection, clock: Clock, *, agent: str, in_flight: int = 1
) -> AsyncIterator[Client]:
    """Open a client of ``in_flight`` connections; the audit log knows it by ``agent``."""
    limits = Limits(max_in_flight=in_flight, reserved_for_client=0)
    transport = Transport(connection, clock=clock, limits=limits, user_agent=agent)
    try:
        yield Client(transport, timeout_s=60.0, field_manager=agent)
    finally:
        await transport.aclose()


# -- the roles -------------------------------------------------------------------------------------


async def _answer(said: Callable[[], Mapping[str, int]]) -> None:
    """Say a line for each line of the input until it ends."""
    async for _ in anyio.wrap_file(sys.stdin):
        sys.stdout.write(msgspec.json.encode(said()).decode() + "\n")
        sys.stdout.flush()


async def serve_api(folder: str) -> None:
    """Serve the Kubernetes API from memory, with a kubeconfig in ``folder``.

    Answers what controllers asked since the last question, without watches and Leases.
    """
    async with ControlPlane() as plane:
        plane.kubeconfig(Path(folder) / KUBECONFIG)

        def asked() -> Mapping[str, int]:
            requests = plane.audit.counts(user_agent=_AGENT)
            plane.audit.reset()
            return {what: number for what, number in requests.items() if "leases" not in what}

        await plane.settled()
        await _answer(asked)


async def run_kubelet(kubeconfig: str, context: str) -> None:
    """Move Pods as Nodes would, for a server that has none."""
    clock, in_flight = SystemClock(), _KUBELET_IN_FLIGHT
    settings = KubeletSettings(nodes=NODES, node_prefix=NODE_PREFIX, max_in_flight=in_flight)
    connection = load_connection(kubeconfig or None, context or None, clock=clock)
    async with open_client(connection, clock, agent="bench-kubelet", in_flight=in_flight) as client:
        kubelet = Kubelet(client, settings, clock=clock, chance=random.Random())  # noqa: S311
        async with anyio.create_task_group() as group:
            await group.start(kubelet.run)
            await _answer(dict)
            group.cancel_scope.cancel()


async def run_floor(
    kubeconfig: str, context: str, namespace: str, pool_uid: str, in_flight: str
) -> None:
    """Bind the namespace's claims by the three requests a bind needs, to one member after another.

    What their latencies lack to those of the controller's claims is what the controller adds.
    Answers how many requests were made.
    """
    clock, at_once = SystemClock(), anyio.CapacityLimiter(int(in_flight))
    connection = load_connection(kubeconfig or None, context or None, clock=clock)
    agent, known = "bench-floor", set[str]()

    async def bind(name: str, member: str) -> None:
        async with at_once:
            await _bind(client, clock, namespace, name, member, pool_uid)

    def see(claim: Seen) -> None:
        name = claim.metadata.name
        if name not in known:
            group.start_soon(bind, name, f"n{len(known)}")
            known.add(name)

    def done() -> Mapping[str, int]:
        counted = client.transport.counted.requests.items()
        return {"requests": sum(n for (_, verb, *_), n in counted if verb in ("get", "patch"))}

    async with (
        open_client(connection, clock, agent=agent, in_flight=int(in_flight)) as client,
        anyio.create_task_group() as group,
        following(client, clock, SANDBOXCLAIMS, namespace, see, accept=METADATA_ACCEPT),
    ):
        await _answer(done)
        group.cancel_scope.cancel()


async def _bind(
    client: Client, clock: Clock, namespace: str, name: str, member: str, pool_uid: str
) -> None:
    """GET the claim, PATCH the Sandbox, guarded by its owner, and PATCH the claim's status."""
    claim = await client.get(SANDBOXCLAIMS, namespace, name, Seen, lane=Lane.CLIENT)
    owner = controller_reference(SANDBOXCLAIMS.kind, name, claim.metadata.uid)
    operations = [
        {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": pool_uid},
        {"op": "replace", "path": "/metadata/ownerReferences/0", "value": owner},
    ]
    await client.patch(SANDBOXES, namespace, member, operations, bytes, lane=Lane.CLIENT)
    ready = Condition(
        names.READY, names.TRUE, "Ready", lastTransitionTime=format_rfc3339(clock.now())
    )
    status = {"status": {"sandbox": {"name": member}, "conditions": [ready]}}
    await client.patch(
        SANDBOXCLAIMS, namespace, name, status, bytes, subresource="status", lane=Lane.CLIENT
    )


ROLES: Final[Mapping[str, Callable[..., Awaitable[None]]]] = {
    "api-server": serve_api,
    "kubelet": run_kubelet,
    "floor": run_floor,
}

if __name__ == "__main__":
    anyio.run(ROLES[sys.argv[1]], *sys.argv[2:])
