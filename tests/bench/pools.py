"""Many warm pools at once: whether they end exact, after how long, and what that takes.

Run as ``python -m tests.bench.pools [POOLS MEMBERS]``, by default 500 pools of 40 members in ten
namespaces, on an embedded server with simulated nodes in a process of its own. Printed are the
seconds until every member is Ready, the Sandboxes that were created and are there, and the memory
of the controller.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import anyio
import msgspec

from lean_sandbox.clock import SystemClock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.kubeconfig import load
from lean_sandbox.kube.resources import (
    NAMESPACES,
    SANDBOXES,
    SANDBOXTEMPLATES,
    SANDBOXWARMPOOLS,
    Page,
    Resource,
)
from lean_sandbox.kube.transport import Transport
from tests.bench.many import start, used
from tests.support.builders import pool, template

Json = dict[str, Any]

SPACES = 10
LOOK_S = 2.0
QUIET_S = 10.0
# A member that simulated kubelets bring late, on a slow machine, is not to be replaced.
FLAGS = ("--metrics-bind-address=127.0.0.1:0", "--sandbox-warm-pool-readiness-grace-period=2h")


async def everything(client: Client, resource: Resource, type_: type[Any]) -> list[Any]:
    """Return all objects of a kind, decoded as a type."""
    found: list[Any] = []
    token: str | None = None
    while token != "":
        page = await client.list(resource, Page[type_], continue_=token)  # type: ignore[valid-type]
        found += page.items
        token = page.metadata.continue_
    return found


async def fill(kubeconfig: Path, pools: int, members: int) -> float:
    """Create the pools and wait until all their members are Ready; return the seconds."""
    transport = Transport(load(str(kubeconfig)), clock=SystemClock())
    client = Client(transport)
    for number in range(SPACES):
        space = f"team-{number}"
        namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
        await client.create(NAMESPACES, namespace, bytes)
        await client.create(SANDBOXTEMPLATES, placed(template(), space), bytes, namespace=space)
    began = time.monotonic()
    for number in range(pools):
        space = f"team-{number % SPACES}"
        body = placed(pool(f"pool-{number}", replicas=members), space)
        await client.create(SANDBOXWARMPOOLS, body, bytes, namespace=space)
    ready = 0
    while ready < pools * members:
        await anyio.sleep(LOOK_S)
        found = await everything(client, SANDBOXWARMPOOLS, dict)
        ready = sum(one.get("status", {}).get("readyReplicas", 0) for one in found)
        print(f"{time.monotonic() - began:6.0f} s  {ready} ready", file=sys.stderr)  # noqa: T201
    elapsed = time.monotonic() - began
    await anyio.sleep(QUIET_S)
    there = await everything(client, SANDBOXES, msgspec.Raw)
    print(f"{len(there)} Sandboxes are there")  # noqa: T201
    await transport.aclose()
    return elapsed


def placed(body: Json, namespace: str) -> Json:
    """Return an object in a namespace."""
    return {**body, "metadata": {**body["metadata"], "namespace": namespace}}


def created(log: Path) -> int:
    """Return how many Sandboxes the controller has created, by its metrics."""
    port = re.search(r'"metrics": ?(\d+)', log.read_text())
    assert port is not None
    with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics") as answer:
        metrics = answer.read().decode()
    name = (
        r'lean_sandbox_requests_total{verb="create",resource="sandboxes\.agents.*code="201"} (.*)'
    )
    return sum(int(float(number)) for number in re.findall(name, metrics))


def measure(pools: int, members: int) -> None:
    """Print what filling the pools took."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        up = ("local", "up", "--no-controller", "--nodes=10", f"--kubeconfig={kubeconfig}")
        server = subprocess.Popen(  # noqa: S603 -- this project's own program
            [sys.executable, "-m", "lean_sandbox", *up], stdout=subprocess.DEVNULL
        )
        while not kubeconfig.exists():
            time.sleep(0.1)
        time.sleep(1.0)
        controller, _, _ = start(kubeconfig, *FLAGS)
        try:
            elapsed = anyio.run(fill, kubeconfig, pools, members)
            print(f"{created(kubeconfig.with_suffix('.log'))} Sandboxes were created")  # noqa: T201
            print(f"{pools} pools of {members}: all Ready after {elapsed:.0f} s")  # noqa: T201
            print(used(controller.pid))  # noqa: T201
        finally:
            for process in (controller, server):
                process.terminate()
                process.wait()


if __name__ == "__main__":
    measure(*(int(word) for word in sys.argv[1:] or ("500", "40")))
