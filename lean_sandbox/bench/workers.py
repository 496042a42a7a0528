"""Processes of the bench: how they are started, asked, measured through /proc, and what they do.

``python -m lean_sandbox.bench.workers ROLE ARGUMENT...`` says that it serves and does so until its
input ends, which is also the end of the process that started it.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import Process

from lean_sandbox.bench.load import Seen, following
from lean_sandbox.bench.options import BenchError
from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.kube.client import Client, PatchType
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.kubeconfig import load as load_connection
from lean_sandbox.kube.limits import Limits
from lean_sandbox.kube.resources import PODS, SANDBOXCLAIMS, SANDBOXES, PartialObject
from lean_sandbox.kube.transport import Transport
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.kubelet.kubelet import Kubelet
from lean_sandbox.local.kubelet.pods import KubeletSettings
from lean_sandbox.model import names
from lean_sandbox.model.conditions import Condition
from lean_sandbox.model.meta import controller_reference
from lean_sandbox.model.times import format_rfc3339
from lean_sandbox.turns import RANK, Rank

KUBECONFIG: Final = "controller.kubeconfig"
NODE_PREFIX: Final = "lean-sandbox-bench"
NODES: Final = 4
_KUBELET_IN_FLIGHT: Final = 16
_SERVES: Final = "serving"
# The children import what this process runs, also from a checkout that is not installed.
_ROOT: Final = str(Path(__file__).resolve().parents[2])
_POLL_S: Final = 0.05
_END_S: Final = 10.0
_PATIENCE_S: Final = 90.0
TICK_MS: Final = 1000 / os.sysconf("SC_CLK_TCK")


class ProcessUsage(msgspec.Struct, frozen=True):
    """CPU time so far, resident memory now and at its highest; None where /proc does not tell."""

    cpu_ms: float | None = None
    rss_mib: float | None = None
    peak_mib: float | None = None


def process_usage(pid: int | None) -> ProcessUsage:
    """Read /proc. Raises BenchError when the process has ended though there is a /proc."""
    if pid is None or not os.path.isdir("/proc/self"):  # noqa: PTH112 - no Path made at 20 Hz
        return ProcessUsage()
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        # The second field is the program's name in brackets, and may hold anything.
        ticks = stat.rpartition(")")[2].split()
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        rss, peak = (round(float(fields[name].split()[0]) / 1024, 1) for name in ("VmRSS", "VmHWM"))
    except (OSError, KeyError) as error:  # one that ended and was not waited for has no memory
        raise BenchError(f"the process {pid} has ended") from error
    return ProcessUsage((int(ticks[11]) + int(ticks[12])) * TICK_MS, rss, peak)


class Worker:
    """A running process with a log."""

    def __init__(self, started: Process, log: Path) -> None:
        self.pid = started.pid
        self._started = started
        self._log = log

    async def until_logged(self, event: str) -> dict[str, Any]:
        """Wait for a line of JSON in its log. Raises BenchError with the end of the log."""
        lines: list[str] = []
        has_ended = False
        with anyio.move_on_after(_PATIENCE_S):
            while not has_ended:
                has_ended = self._started.returncode is not None
                lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
                if found := next((line for line in lines if f'"{event}"' in line), ""):
                    return msgspec.json.decode(found, type=dict[str, Any])
                await anyio.sleep(_POLL_S)
        said = "\n".join(lines[-8:])
        raise BenchError(f"a process of the bench did not say {event!r}; its log ends with\n{said}")


@asynccontextmanager
async def process(module: str, *arguments: str, log: Path) -> AsyncIterator[Worker]:
    """Run ``python -m module`` until the block ends; what it says goes to ``log``."""
    search = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
    # An installed controller has its bytecode; compiling all anew would count as its start.
    changed = {"PYTHONPATH": search, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": ""}
    with log.open("wb") as output:
        started = await anyio.open_process(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
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
        await started.until_logged(_SERVES)
        yield started


@asynccontextmanager
async def open_client(
    connection: Connection, clock: Clock, *, agent: str, in_flight: int = 1
) -> AsyncIterator[Client]:
    """Open a client of ``in_flight`` connections; the audit log knows it by ``agent``."""
    limits = Limits(max_in_flight=in_flight, max_spare=in_flight)
    transport = Transport(connection, clock=clock, limits=limits, user_agent=agent)
    try:
        yield Client(transport, timeout_s=60.0, field_manager=agent)
    finally:
        await transport.aclose()


async def _serve() -> None:
    """Say so, and wait for the end of the input."""
    print(f'{{"event": "{_SERVES}"}}')  # noqa: T201
    async for _ in anyio.wrap_file(sys.stdin):
        pass


async def serve_api(folder: str) -> None:
    """Serve the Kubernetes API from memory, with a kubeconfig in ``folder``."""
    async with ControlPlane() as plane:
        plane.kubeconfig(Path(folder) / KUBECONFIG)
        await plane.settled()
        await _serve()


async def run_kubelet(kubeconfig: str, context: str) -> None:
    """Move Pods as Nodes would, for a server that has none."""
    clock = SystemClock()
    in_flight = _KUBELET_IN_FLIGHT
    settings = KubeletSettings(nodes=NODES, node_prefix=NODE_PREFIX, max_in_flight=in_flight)
    connection = load_connection(kubeconfig or None, context or None, clock=clock)
    async with open_client(connection, clock, agent="bench-kubelet", in_flight=in_flight) as client:
        kubelet = Kubelet(client, settings, clock=clock, chance=random.Random())  # noqa: S311
        async with anyio.create_task_group() as group:
            await group.start(kubelet.run)
            await _serve()
            group.cancel_scope.cancel()


async def run_floor(
    kubeconfig: str, context: str, namespace: str, pool_uid: str, in_flight: str
) -> None:
    """Bind the namespace's claims by the four requests a bind needs, to one member after another.

    What their latencies lack to those of the controller's claims is what the controller adds.
    """
    clock = SystemClock()
    at_once = anyio.CapacityLimiter(int(in_flight))
    connection = load_connection(kubeconfig or None, context or None, clock=clock)
    agent = "bench-floor"
    known = set[str]()

    async def bind(name: str, member: str) -> None:
        RANK.set(Rank.CLIENT)
        async with at_once:
            claim = await client.get(SANDBOXCLAIMS, name, Seen, namespace=namespace)
            assert claim is not None
            owner = controller_reference(SANDBOXCLAIMS.kind, name, claim.metadata.uid)
            guarded = [
                {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": pool_uid},
                {"op": "replace", "path": "/metadata/ownerReferences/0", "value": owner},
            ]
            await client.patch(
                SANDBOXES, member, guarded, bytes, namespace=namespace, patch_type=PatchType.JSON
            )
            taken = {
                "labels": {names.WARM_POOL_LABEL: None, names.CLAIM_UID_LABEL: claim.metadata.uid},
                "annotations": {names.SAFE_TO_EVICT_ANNOTATION: None},
            }
            changed = {"metadata": taken}
            await client.patch(PODS, member, changed, bytes, namespace=namespace)
            at = format_rfc3339(clock.now())
            ready = Condition(names.READY, names.TRUE, "Ready", lastTransitionTime=at)
            status = {"status": {"sandbox": {"name": member}, "conditions": [ready]}}
            await client.patch(
                SANDBOXCLAIMS, name, status, bytes, namespace=namespace, subresource="status"
            )

    def see(claim: PartialObject) -> None:
        name = claim.metadata.name
        if name not in known:
            group.start_soon(bind, name, f"n{len(known)}")
            known.add(name)

    async with (
        open_client(connection, clock, agent=agent, in_flight=int(in_flight)) as client,
        anyio.create_task_group() as group,
        following(client, clock, SANDBOXCLAIMS, namespace, PartialObject, see),
    ):
        await _serve()
        group.cancel_scope.cancel()


ROLES: Final[Mapping[str, Callable[..., Awaitable[None]]]] = {
    "api-server": serve_api,
    "kubelet": run_kubelet,
    "floor": run_floor,
}

if __name__ == "__main__":
    anyio.run(ROLES[sys.argv[1]], *sys.argv[2:])
