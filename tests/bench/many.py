"""The controller over 100,000 Sandboxes: memory, and the time until it is in sync.

Run as ``python -m tests.bench.many [SANDBOXES NAMESPACES]``. A bare asyncio server in a process
of its own answers the lists with copies of one Sandbox and its Pod, which a controller and an
embedded API server have made Ready before, holds watches open, and counts what is asked. It takes
as long for a page as kube-apiserver does, one page at a time. The same pages are read once without
being decoded, one after the other, for a measure.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio

from lean_sandbox.clock import SystemClock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.kubeconfig import load
from lean_sandbox.kube.resources import PODS, SANDBOXES, Resource
from lean_sandbox.kube.transport import Transport
from lean_sandbox.model.names import name_hash
from tests.support.world import NS, condition, open_world, running_status, sandbox, write_pod_status

Json = dict[str, Any]

PAGE_SIZE = 250
# What differs between two Sandboxes, in the one that is copied. Lengths are those of the copies.
NAME = "sandbox-000000"
SPACE = NS
UIDS = {"sandboxes": "11111111-1111-4000-8000-", "pods": "22222222-1111-4000-8000-"}
VERSION = 1_000_000
# What kube-apiserver 1.36.3 takes for a page of 250: 0.32 s for the eight pages of 2,000 with their
# Pods, 20 to 30 ms where other work shares its cores.
PAGE_S = 0.02
QUIET_S = 5.0


async def launched() -> dict[str, bytes]:
    """Return the Sandbox and its Pod as they are once Ready, by the plural of their kind."""
    async with open_world() as world:
        world.plane.store.create(sandbox(NAME, pod_spec={"nodeName": "node-1"}))
        await world.until(lambda: world.find("pods", NAME))
        write_pod_status(world.plane, NAME, running_status())
        await world.until(
            lambda: (
                "status" in world.get(NAME)
                and condition(world.get(NAME), "Ready")["status"] == "True"
            )
        )
        await world.advance(5.0)
        found = {"sandboxes": world.get(NAME), "pods": world.find("pods", NAME)}
    uids = {obj["metadata"]["uid"]: UIDS[plural] for plural, obj in found.items() if obj}
    return {plural: _template(json.dumps(obj), uids) for plural, obj in found.items()}


def _template(text: str, uids: dict[str, str]) -> bytes:
    for uid, copied in uids.items():
        text = text.replace(uid, f"{copied}%(number)")
    text = re.sub(r'"resourceVersion": "\d+"', '"resourceVersion": "%(version)"', text)
    for what, mark in ((NAME, "name"), (name_hash(NAME), "hash"), (f'"{SPACE}"', "space")):
        text = text.replace(what, f"%({mark})")
    return text.replace("%(space)", '"%(space)"').encode()


class Copies:
    """The objects of one kind, made anew whenever they are listed."""

    def __init__(self, template: bytes, count: int, namespaces: int) -> None:
        """Cut the template where the copies differ."""
        self._parts = re.split(rb"%\((\w+)\)", template)
        self._count = count
        self._namespaces = namespaces

    def page(self, start: int, limit: int) -> bytes:
        """Return one page of the list, in the order of namespaces."""
        end = min(start + limit, self._count)
        metadata = {"resourceVersion": str(VERSION + self._count)}
        if end < self._count:
            metadata["continue"] = str(end)
        items = b",".join(self._object(number) for number in range(start, end))
        return b'{"metadata":%s,"items":[%s]}' % (json.dumps(metadata).encode(), items)

    def _object(self, number: int) -> bytes:
        name = f"sandbox-{number:06d}"
        values = {
            b"name": name.encode(),
            b"hash": name_hash(name).encode(),
            b"number": b"%012d" % number,
            b"version": b"%d" % (VERSION + number),
            b"space": b"team-%04d" % (number * self._namespaces // self._count),
        }
        parts = list(self._parts)
        parts[1::2] = [values[mark] for mark in parts[1::2]]
        return b"".join(parts)


class Server(asyncio.Protocol):
    """One connection; requests have no bodies but those that are refused."""

    def __init__(self, kinds: dict[str, Copies], asked: Counter[str]) -> None:
        """Share the objects and the counts with the other connections."""
        self._kinds = kinds
        self._asked = asked
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where to answer."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each complete request."""
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
            self._answer(method, urlsplit(target).path, parse_qs(urlsplit(target).query))

    def _answer(self, method: str, path: str, query: dict[str, list[str]]) -> None:
        assert self._transport is not None
        plural = path.rpartition("/")[2]
        if "watch" in query:
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            return
        code = "200 OK"
        body = b'{"metadata":{"resourceVersion":"%d"},"items":[]}' % VERSION
        if method == "GET" and "limit" in query:
            self._asked[f"list {plural}"] += 1
            if plural in self._kinds:
                ready_at = time.monotonic() + PAGE_S
                start = int(query.get("continue", ["0"])[0])
                body = self._kinds[plural].page(start, int(query["limit"][0]))
                time.sleep(max(0.0, ready_at - time.monotonic()))
        elif path == "/asked":
            body = json.dumps(self._asked).encode()
        else:
            self._asked[f"{method} {path}"] += 1
            code = "404 Not Found"
            body = b'{"kind":"Status","reason":"NotFound","code":404}'
        head = f"HTTP/1.1 {code}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        self._transport.write(head.encode() + b"\r\n\r\n" + body)


def serve(pipe: Pipe, templates: dict[str, bytes], count: int, namespaces: int) -> None:
    """Serve until killed; tell the port."""

    async def run() -> None:
        kinds = {plural: Copies(text, count, namespaces) for plural, text in templates.items()}
        asked: Counter[str] = Counter()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Server(kinds, asked), "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


async def read_plainly(kubeconfig: Path) -> tuple[float, float]:
    """Read all pages one after the other; return the seconds and the MiB."""
    transport = Transport(load(str(kubeconfig)), clock=SystemClock())
    client = Client(transport)
    began = time.monotonic()
    received = 0

    async def read(resource: Resource) -> int:
        token: str | None = None
        size = 0
        while token != "":
            body = await client.list(
                resource, bytes, chunk_size=PAGE_SIZE, continue_=token, max_body_bytes=1 << 30
            )
            size += len(body)
            found = re.search(rb'"continue": "(\d+)"', body[:200])
            token = found[1].decode() if found else ""
        return size

    for resource in (SANDBOXES, PODS):
        received += await read(resource)
    elapsed = time.monotonic() - began
    await transport.aclose()
    return elapsed, received / 2**20


def start(kubeconfig: Path, *flags: str) -> tuple[subprocess.Popen[bytes], float, int]:
    """Start the controller; return it, after how many seconds it was in sync, and over how many."""
    began = time.monotonic()
    log = kubeconfig.with_suffix(".log")
    with log.open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603 -- this project's own program
            [
                *(sys.executable, "-m", "lean_sandbox"),
                *("run", f"--kubeconfig={kubeconfig}", "--extensions", "--leader-elect=false"),
                *("--metrics-bind-address=0", "--health-probe-bind-address=0", "--log-format=json"),
                *flags,
            ],
            stderr=errors,
        )
    while process.poll() is None:
        for line in log.read_text().splitlines():
            if '"caches_synced"' in line:
                return process, time.monotonic() - began, json.loads(line)["sandboxes"]
        time.sleep(0.02)
    raise SystemExit(f"the controller has ended before it was in sync:\n{log.read_text()[-2000:]}")


def used(pid: int) -> dict[str, float]:
    """Return the resident memory of a process, now and at most, in MiB, and its seconds of CPU."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", status, re.MULTILINE))
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    memory = {name: round(int(value) / 1024, 1) for name, value in found.items()}
    return {**memory, "cpu_s": sum(map(int, ticks)) / 100}


def measure(count: int, namespaces: int) -> None:
    """Print the memory and the times of one start."""
    templates = anyio.run(launched)
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(
        target=serve, args=(theirs, templates, count, namespaces), daemon=True
    )
    server.start()
    with tempfile.TemporaryDirectory() as folder:
        url = f"http://127.0.0.1:{ours.recv()}"
        kubeconfig = Path(folder) / "kubeconfig"
        cluster = {"name": "many", "cluster": {"server": url}}
        user = {"name": "many", "user": {}}
        context = {"name": "many", "context": {"cluster": "many", "user": "many"}}
        lists = {"clusters": [cluster], "users": [user], "contexts": [context]}
        kubeconfig.write_text(json.dumps({"current-context": "many", **lists}))
        plain_s, mib = anyio.run(read_plainly, kubeconfig)
        controller, synced_s, held = start(kubeconfig)
        at_once = used(controller.pid)
        time.sleep(QUIET_S)
        at_rest = used(controller.pid)
        with urllib.request.urlopen(f"{url}/asked") as answer:  # noqa: S310 -- our own
            asked = json.loads(answer.read())
        controller.terminate()
        controller.wait()
    server.kill()
    print(f"{held} Sandboxes with their Pods in {namespaces} namespaces")  # noqa: T201
    print(f"pages read plainly   {plain_s:.1f} s, {mib:.0f} MiB")  # noqa: T201
    print(f"in sync after        {synced_s:.1f} s, {synced_s / plain_s:.2f} x")  # noqa: T201
    print(f"once in sync         {at_once}")  # noqa: T201
    print(f"{QUIET_S:g} s later            {at_rest}")  # noqa: T201
    print(f"asked                {asked}")  # noqa: T201


if __name__ == "__main__":
    measure(*(int(word) for word in sys.argv[1:] or ("100000", "100")))
