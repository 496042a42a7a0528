"""What one request costs the client: CPU time and rate, for each way of sending it.

Run as ``python -m tests.bench.transport_bench [rounds]``. A bare asyncio server in a process of its
own answers every request with the same 2.2 kB object, and a watch with as many of them as there are
requests in a round, a piece each, a thousand a second. All clients live in this process and take
turns in short rounds, so that noise of the machine hits all alike; the table shows medians of the
CPU time of this process (milliseconds a request, or a piece of the watch) and of the rate. The bare
loop sends bytes that are ready and looks for nothing but the end of the answer: what any client of
non-blocking sockets costs here.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import anyio
import lightkube
import msgspec
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User
from lightkube.core.resource import NamespacedResourceG
from lightkube.generic_resource import create_namespaced_resource
from lightkube.types import PatchType

from lean_sandbox.kube.auth import Auth
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection, tls_context
from lean_sandbox.kube.errors import Asked
from lean_sandbox.kube.limits import Limits
from lean_sandbox.kube.resources import SANDBOXES, PartialObject
from lean_sandbox.kube.transport import Transport
from tests.kube.certificates import Certificates, make

REQUESTS_A_ROUND = 320
PATCH = {"status": {"conditions": [{"type": "Ready", "status": "True"}], "podIPs": ["10.0.0.1"]}}

Call = Callable[[], Awaitable[Any]]


def sandbox() -> bytes:
    """Return an object of about 2.2 kB, managed fields included."""
    fields: dict[str, Any] = {f"f:field{number}": {} for number in range(60)}
    value = {
        "apiVersion": SANDBOXES.api_version,
        "kind": SANDBOXES.kind,
        "metadata": {
            "name": "sandbox",
            "namespace": "default",
            "uid": "0b8f3c1e-0000-4000-8000-000000000000",
            "resourceVersion": "12345",
            "labels": {f"label-{number}": "value" for number in range(4)},
            "managedFields": [{"manager": "lean", "operation": "Update", "fieldsV1": fields}],
        },
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "a", "image": "i" * 600}]}}},
    }
    return msgspec.json.encode(value)


class Answering(asyncio.Protocol):
    """Answers each request with the same bytes."""

    body = sandbox()
    answer = (
        b"HTTP/1.1 200 OK\r\nAudit-Id: 7d1f9b2e-0000-4000-8000-000000000000\r\n"
        b"Cache-Control: no-cache, private\r\nContent-Type: application/json\r\n"
        b"X-Kubernetes-Pf-Flowschema-Uid: 7d1f9b2e-0000-4000-8000-000000000000\r\n"
        b"X-Kubernetes-Pf-Prioritylevel-Uid: 7d1f9b2e-0000-4000-8000-000000000000\r\n"
        b"Date: Fri, 02 Jan 2026 03:04:05 GMT\r\nContent-Length: %d\r\n\r\n" % len(body)
    ) + body

    watch = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    piece = b"%x\r\n%b\n\r\n" % (len(body) + 1, body)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        """Answer every whole request."""
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            at = head.find(b"content-length:")
            size = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.buffer) < end + 4 + size:
                return
            self.buffer = self.buffer[end + 4 + size :]
            assert isinstance(self.transport, asyncio.WriteTransport)
            if b"watch=1" in head:
                self.transport.write(self.watch)
                self.tick(REQUESTS_A_ROUND)
            else:
                self.transport.write(self.answer)

    def tick(self, left: int) -> None:
        """Send the pieces of a watch, one after the other."""
        assert isinstance(self.transport, asyncio.WriteTransport)
        self.transport.write(self.piece if left else b"0\r\n\r\n")
        if left:
            asyncio.get_running_loop().call_later(0.001, self.tick, left - 1)


async def _serve(pipe: Pipe, context: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    plain = await loop.create_server(Answering, "127.0.0.1", 0)
    secure = await loop.create_server(Answering, "127.0.0.1", 0, ssl=context)
    pipe.send([server.sockets[0].getsockname()[1] for server in (plain, secure)])
    await asyncio.gather(plain.serve_forever(), secure.serve_forever())


def server_process(pipe: Pipe, folder: str) -> None:
    """Run the server until the process is ended."""
    asyncio.run(_serve(pipe, Certificates(Path(folder)).server_context()))


def lightkube_calls(url: str, authority: Path) -> dict[str, Call]:
    """Return the calls of a stock lightkube client."""
    config = KubeConfig.from_one(
        cluster=Cluster(server=url, certificate_auth=str(authority)), user=User(token="t")
    )
    client = lightkube.AsyncClient(config=config.get(), namespace="default")
    kind: type[NamespacedResourceG] = create_namespaced_resource(
        SANDBOXES.group, SANDBOXES.version, SANDBOXES.kind, SANDBOXES.plural
    )

    async def patch() -> None:
        await client.patch(kind, "sandbox", PATCH, patch_type=PatchType.MERGE)

    return {"GET": lambda: client.get(kind, "sandbox"), "PATCH": patch}


def lean_calls(transport: Transport) -> dict[str, Call]:
    """Return the calls of our own client: typed, metadata decoded."""
    client = Client(transport)
    return {
        "GET": lambda: client.get(SANDBOXES, "sandbox", PartialObject, namespace="default"),
        "PATCH": lambda: client.patch(
            SANDBOXES, "sandbox", PATCH, PartialObject, namespace="default", subresource="status"
        ),
    }


def raw_calls(transport: Transport) -> dict[str, Call]:
    """Return bare calls of our transport: bytes in, bytes out."""
    target = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes/sandbox"
    body = msgspec.json.encode(PATCH)
    headers = {"Accept": "application/json"}
    patching = headers | {"Content-Type": "application/merge-patch+json"}
    return {
        "GET": lambda: transport.request("GET", target, headers=headers),
        "PATCH": lambda: transport.request("PATCH", target, body=body, headers=patching),
    }


def bare_calls(port: int, context: ssl.SSLContext | None) -> dict[str, Call]:
    """Return the calls of a loop that does nothing but send, wait and receive."""
    idle: list[socket.socket] = []
    head = b" /apis/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer t\r\n"
    body = msgspec.json.encode(PATCH)
    patch = b"PATCH" + head + b"Content-Length: %d\r\n\r\n" % len(body) + body

    def connect() -> socket.socket:
        connected = socket.create_connection(("127.0.0.1", port))
        if context is not None:
            connected = context.wrap_socket(connected, server_hostname="localhost")
        connected.setblocking(False)  # noqa: FBT003 -- the name says what is set
        return connected

    async def call(data: bytes) -> None:
        connection = idle.pop() if idle else connect()
        connection.send(data)
        answer = b""
        while len(answer) < len(Answering.answer):
            try:
                answer += connection.recv(65536)
            except (BlockingIOError, ssl.SSLWantReadError):
                await anyio.wait_readable(connection)
        idle.append(connection)

    return {"GET": lambda: call(b"GET" + head + b"\r\n"), "PATCH": lambda: call(patch)}


async def one_watch(transport: Transport) -> float:
    """Return the CPU milliseconds that a piece of a watch costs."""
    pieces: list[int] = []
    asked = Asked("watch", "sandboxes")
    async with transport.stream("/apis/x?watch=1", asked=asked) as stream:
        cpu = time.process_time()
        await stream.feed(lambda piece: pieces.append(len(piece)))
        return (time.process_time() - cpu) * 1000 / len(pieces)


async def one_round(call: Call, concurrency: int) -> tuple[float, float]:
    """Return CPU milliseconds a request, and requests a second."""
    left = [REQUESTS_A_ROUND]

    async def work() -> None:
        while left[0] > 0:
            left[0] -= 1
            await call()

    started = time.perf_counter()
    cpu = time.process_time()
    async with anyio.create_task_group() as group:
        for _ in range(concurrency):
            group.start_soon(work)
    used = time.process_time() - cpu
    return used * 1000 / REQUESTS_A_ROUND, REQUESTS_A_ROUND / (time.perf_counter() - started)


async def measure(ports: list[int], authority: Path, rounds: int) -> list[str]:
    """Measure every cell and return the lines of the table."""
    lines = []
    for scheme, port in zip(("http", "TLS"), ports, strict=True):
        url = f"{'https' if scheme == 'TLS' else 'http'}://127.0.0.1:{port}"
        context = tls_context(file=authority) if scheme == "TLS" else None
        # As the stock client, ours has all 16 in flight: none of them waits for a slot.
        credential = Connection(url, context, auth=Auth("Bearer t"))
        transport = Transport(credential, limits=Limits(max_spare=32))
        ways = {
            "a bare loop": bare_calls(port, context),
            "lightkube, stock": lightkube_calls(url, authority),
            "our client": lean_calls(transport),
            "our transport, bytes": raw_calls(transport),
        }
        for verb in ("GET", "PATCH"):
            cells: dict[str, list[str]] = {name: [] for name in ways}
            for concurrency in (1, 16):
                found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
                for number in range(rounds + 1):
                    for name, calls in ways.items():
                        result = await one_round(calls[verb], concurrency)
                        if number:  # The first round opens connections and fills caches.
                            found[name].append(result)
                for name, results in found.items():
                    cpu = statistics.median(result[0] for result in results)
                    rate = statistics.median(result[1] for result in results)
                    cells[name].append(f"{cpu:.3f} / {rate:.0f}")
            lines += [
                f"{verb:5} {scheme:4}  {name:28}{a:>14}{b:>16}" for name, (a, b) in cells.items()
            ]
        pieces = [await one_watch(transport) for _ in range(rounds)]
        lines.append(
            f"WATCH {scheme:4}  {'our transport, a piece':28}{statistics.median(pieces):8.3f}"
        )
        await transport.aclose()
    return lines


def main() -> None:
    """Print the table: CPU milliseconds a request / requests a second."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    ours, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        authority = make(Path(folder)).authority
        process = multiprocessing.get_context("spawn").Process(
            target=server_process, args=(theirs, folder), daemon=True
        )
        process.start()
        try:
            lines = anyio.run(measure, ours.recv(), authority, rounds)
        finally:
            process.terminate()
            process.join()
    print(f"{'':41}{'c=1':>10}{'c=16':>16}", *lines, sep="\n")  # noqa: T201 -- it is a script


if __name__ == "__main__":
    main()
