"""Processes of the bench: how they are started, asked, measured through /proc, and what they do.

Those with a role are started as ``python -m lean_sandbox.bench.workers ROLE ARGUMENT...``, say one
line of JSON once they serve, answer each line of their input with another, and end with it:
``api-server``, ``kubelet`` and ``floor``.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Final, TypeVar
from urllib.parse import urlencode

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.kube import errors
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.http1 import LineSplitter
from lean_sandbox.kube.kubeconfig import load
from lean_sandbox.kube.limits import Lane, Limits
from lean_sandbox.kube.resources import METADATA_ACCEPT, SANDBOXCLAIMS, SANDBOXES, Page, path
from lean_sandbox.kube.transport import Transport
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.kubelet import Kubelet, KubeletSettings
from lean_sandbox.model import names
from lean_sandbox.model.times import format_rfc3339

T = TypeVar("T")

KUBECONFIG: Final = "controller.kubeconfig"
NODE_PREFIX: Final = "lean-sandbox-bench"
NODES: Final = 4
_KUBELET_IN_FLIGHT: Final = 16
_AGENT: Final = "lean-sandbox"
# The children import what this process runs, also from a checkout that is not installed.
_ROOT: Final = str(Path(__file__).resolve().parents[2])
_LINE_BYTES: Final = 1 << 20
_ROOM: Final = 100_000
_END_S: Final = 10.0
_PATIENCE_S: Final = 90.0
TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


class BenchError(Exception):
    """The measurement could not be made; the message says why."""


# -- /proc -----------------------------------------------------------------------------------------


class Usage(msgspec.Struct, frozen=True):
    """CPU time of a process so far and its resident memory, at present and at its highest.

    None where /proc does not tell.
    """

    cpu_s: float | None = None
    rss_kib: float | None = None
    peak_kib: float | None = None


def process_usage(pid: int | None) -> Usage:
    """Read /proc. Raises BenchError when the process has ended though there is a /proc."""
    if pid is None or not os.path.isdir("/proc/self"):  # noqa: PTH112 - no Path made at 20 Hz
        return Usage()
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise BenchError(f"the process {pid} has ended") from error
    # The second field is the program's name in brackets, and may hold anything.
    ticks = stat.rpartition(")")[2].split()
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    try:
        rss, peak = (float(fields[name].split()[0]) for name in ("VmRSS", "VmHWM"))
    except KeyError as error:  # a process that has ended and was not waited for has no memory
        raise BenchError(f"the process {pid} has ended") from error
    return Usage((int(ticks[11]) + int(ticks[12])) * TICK_S, rss, peak)


# -- starting and asking ---------------------------------------------------------------------------


class Worker:
    """A running process that answers lines of JSON."""

    def __init__(self, started: Process, log: Path) -> None:
        self.started = started
        self._log = log
        assert started.stdout is not None
        self._lines = BufferedByteReceiveStream(started.stdout)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.started.pid

    def log(self) -> str:
        """Return what it has written to standard error so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    async def read(self, type_: type[T]) -> T:
        """Return its next line. Raises BenchError with the end of its log when there is none."""
        try:
            with anyio.fail_after(_PATIENCE_S):
                line = await self._lines.receive_until(b"\n", _LINE_BYTES)
        except (anyio.IncompleteRead, anyio.EndOfStream, TimeoutError) as error:
            raise self.failed("gave no answer") from error
        try:
            return msgspec.json.decode(line, type=type_)
        except msgspec.DecodeError as error:
            raise self.failed(f"answered {line[:80]!r}") from error

    async def ask(self, type_: type[T]) -> T:
        """Send an empty line and return the answer. Raises BenchError."""
        assert self.started.stdin is not None
        try:
            with anyio.fail_after(_PATIENCE_S):
                await self.started.stdin.send(b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, TimeoutError) as error:
            raise self.failed("took no question") from error
        return await self.read(type_)

    def failed(self, what: str) -> BenchError:
        """Return an error with the last lines of the log."""
        said = "\n".join(self.log().splitlines()[-8:])
        return BenchError(f"a process of the bench {what}; its log ends with\n{said}")


@asynccontextmanager
async def process(module: str, *arguments: str, log: Path) -> AsyncIterator[Worker]:
    """Run ``python -m module`` until the block ends; its standard error goes to ``log``."""
    with log.open("wb") as errors:
        started = await _start([sys.executable, "-m", module, *arguments], errors)
    try:
        yield Worker(started, log)
    finally:
        with anyio.CancelScope(shield=True):
            await _end(started)


@asynccontextmanager
async def worker(role: str, *arguments: str, folder: Path) -> AsyncIterator[Worker]:
    """Run a process of one of the roles until the block ends."""
    log = folder / f"{role}.log"
    async with process("lean_sandbox.bench.workers", role, *arguments, log=log) as started:
        yield started


async def _start(command: list[str], errors: IO[bytes]) -> Process:
    search = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
    return await anyio.open_process(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        # An installed controller has its bytecode; compiling all anew would count as its start.
        env={
            **os.environ,
            "PYTHONPATH": search,
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "",
        },
        # Ctrl-C on the terminal is for this process, which then ends its children in order.
        start_new_session=True,
    )


async def _end(started: Process) -> None:
    if started.returncode is None:
        started.terminate()
        with anyio.move_on_after(_END_S):
            await started.wait()
    if started.returncode is None:
        started.kill()
    await started.aclose()


@asynccontextmanager
async def open_client(
    kubeconfig: str, context: str, clock: Clock, *, agent: str, in_flight: int
) -> AsyncIterator[Client]:
    """Open a client with ``in_flight`` connections that calls itself ``agent``.

    The audit log must not take it for the controller. Raises ConfigError.
    """
    connection = load(kubeconfig or None, context or None, clock=clock)
    async with connected(connection, clock, agent=agent, in_flight=in_flight) as client:
        yield client


@asynccontextmanager
async def connected(
    connection: Connection, clock: Clock, *, agent: str, in_flight: int = 1
) -> AsyncIterator[Client]:
    """Open a client as :func:`open_client` does, with what was read before."""
    limits = Limits(max_in_flight=in_flight, reserved_for_client=0)
    transport = Transport(connection, clock=clock, limits=limits, user_agent=agent)
    try:
        yield Client(transport, timeout_s=60.0, field_manager=agent)
    finally:
        await transport.aclose()


# -- the roles -------------------------------------------------------------------------------------


async def _answer(said: Callable[[], msgspec.Struct]) -> None:
    """Say a line, and another for each line of the input until it ends."""

    def say() -> None:
        sys.stdout.write(msgspec.json.encode(said()).decode() + "\n")
        sys.stdout.flush()

    say()
    async for _ in anyio.wrap_file(sys.stdin):
        say()


class Asked(msgspec.Struct, frozen=True):
    """What controllers asked the embedded server for since the last question, by ``verb kind``.

    From its audit log; without watches and what is about Leases.
    """

    requests: dict[str, int] = {}


async def serve_api(folder: str) -> None:
    """Serve the Kubernetes API from memory, with a kubeconfig in ``folder``."""
    async with ControlPlane() as plane:
        plane.kubeconfig(Path(folder) / KUBECONFIG)

        def asked() -> Asked:
            requests = Counter(
                entry.what
                for entry in plane.audit.select(user_agent=_AGENT)
                if entry.verb != "watch" and entry.resource != "leases"
            )
            plane.audit.reset()
            return Asked(dict(requests.most_common()))

        await plane.settled()
        await _answer(asked)


class Serving(msgspec.Struct, frozen=True):
    """The Nodes that Pods can be bound to."""

    nodes: int


async def run_kubelet(kubeconfig: str, context: str) -> None:
    """Move Pods as Nodes would, for a server that has none."""
    clock = SystemClock()
    settings = KubeletSettings(
        nodes=NODES, node_prefix=NODE_PREFIX, max_in_flight=_KUBELET_IN_FLIGHT
    )
    async with open_client(
        kubeconfig, context, clock, agent="bench-kubelet", in_flight=_KUBELET_IN_FLIGHT
    ) as client:
        kubelet = Kubelet(client, settings, clock=clock, chance=random.Random())  # noqa: S311
        async with anyio.create_task_group() as group:
            await group.start(kubelet.run)
            await _answer(lambda: Serving(NODES))
            group.cancel_scope.cancel()


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    uid: str = ""


class _Object(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta = _Meta()


class _Event(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    object: _Object = _Object()


class Bound(msgspec.Struct, frozen=True):
    """How many Sandboxes were free at the start and how many claims were bound since."""

    free: int
    bound: int
    requests: int


class _Binder:
    """Binds claims by the three requests a bind needs, and does no more.

    GET claim, PATCH Sandbox (guarded by the uid of the pool that owns it), PATCH claim status. New
    claims come from a metadata watch. What is between the latencies of these claims and those of
    the controller's is what the controller adds.
    """

    def __init__(self, client: Client, clock: Clock, namespace: str, pool_uid: str) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._pool_uid = pool_uid
        self._free: list[str] = []
        self._first_free = 0
        self._bound = 0

    async def prepare(self) -> str:
        """List the free Sandboxes; return the version to watch claims from."""
        token = ""
        while True:
            page = await self._client.list_page(
                SANDBOXES, self._namespace, Page[_Object], continue_=token or None
            )
            self._free += [item.metadata.name for item in page.items]
            token = page.metadata.continue_
            if not token:
                break
        self._first_free = len(self._free)
        claims = await self._client.list_page(SANDBOXCLAIMS, self._namespace, Page[_Object])
        return claims.metadata.resourceVersion

    def done(self) -> Bound:
        """Return what was done so far."""
        requests = sum(
            number
            for (_, verb, _, _), number in self._client.transport.counted.requests.items()
            if verb in ("get", "patch")
        )
        return Bound(self._first_free, self._bound, requests)

    async def watch(self, version: str, found: MemoryObjectSendStream[str]) -> None:
        """Hand on the name of each new claim until the watch ends."""
        query = urlencode({"watch": "1", "resourceVersion": version, "timeoutSeconds": "3600"})
        decode = msgspec.json.Decoder(_Event).decode
        splitter = LineSplitter()
        async with self._client.transport.stream(
            f"{path(SANDBOXCLAIMS, self._namespace)}?{query}",
            headers={"Accept": METADATA_ACCEPT},
            asked=errors.Asked("watch", SANDBOXCLAIMS.qualified),
        ) as stream:
            while True:
                # The load that waits for its claims has the deadline.
                for line in splitter.feed(await stream.receive()):
                    event = decode(line)
                    if event.type == "ADDED":
                        found.send_nowait(event.object.metadata.name)

    async def bind(self, claims: MemoryObjectReceiveStream[str]) -> None:
        """Bind claims one after another."""
        async for name in claims:
            await self._bind(name)

    async def _bind(self, name: str) -> None:
        client, namespace = self._client, self._namespace
        claim = await client.get(SANDBOXCLAIMS, namespace, name, _Object, lane=Lane.CLIENT)
        member = self._free.pop()
        owner = {
            "apiVersion": SANDBOXCLAIMS.api_version,
            "kind": SANDBOXCLAIMS.kind,
            "name": name,
            "uid": claim.metadata.uid,
            "controller": True,
        }
        operations = [
            {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": self._pool_uid},
            {"op": "replace", "path": "/metadata/ownerReferences/0", "value": owner},
        ]
        await client.patch(SANDBOXES, namespace, member, operations, bytes, lane=Lane.CLIENT)
        ready = {
            "type": names.READY,
            "status": names.TRUE,
            "reason": "Ready",
            "message": "",
            "lastTransitionTime": format_rfc3339(self._clock.now()),
        }
        status = {"status": {"sandbox": {"name": member}, "conditions": [ready]}}
        await client.patch(
            SANDBOXCLAIMS, namespace, name, status, bytes, subresource="status", lane=Lane.CLIENT
        )
        self._bound += 1


async def run_floor(
    kubeconfig: str, context: str, namespace: str, pool_uid: str, in_flight: str
) -> None:
    """Bind the namespace's claims without a controller, at most ``in_flight`` at once."""
    clock, tasks = SystemClock(), int(in_flight)
    send, receive = anyio.create_memory_object_stream[str](_ROOM)
    async with (
        send,
        receive,
        open_client(kubeconfig, context, clock, agent="bench-floor", in_flight=tasks) as client,
        anyio.create_task_group() as group,
    ):
        binder = _Binder(client, clock, namespace, pool_uid)
        version = await binder.prepare()
        group.start_soon(binder.watch, version, send)
        for _ in range(tasks):
            group.start_soon(binder.bind, receive)
        await _answer(binder.done)
        group.cancel_scope.cancel()


ROLES: Final[Mapping[str, Callable[..., Awaitable[None]]]] = {
    "api-server": serve_api,
    "kubelet": run_kubelet,
    "floor": run_floor,
}

if __name__ == "__main__":
    anyio.run(ROLES[sys.argv[1]], *sys.argv[2:])
