"""The control plane of the bench: a process of its own that already holds healthy Sandboxes.

Started as ``python -m lean_sandbox.bench.plane COUNT FOLDER``. It writes a kubeconfig into the
folder and one line of JSON to standard output once it listens. Each line on its standard input is
answered with what controllers asked for since the last one; the end of the input ends it.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import anyio
import msgspec

from lean_sandbox.bench.objects import NAMESPACES, namespace, pair
from lean_sandbox.kube.resources import PODS, SANDBOXES
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.local.persistence import load_state, save_state
from lean_sandbox.local.registry import Registry
from lean_sandbox.local.store import Store, field_cells

KUBECONFIG = "controller.kubeconfig"
_AGENT = "lean-sandbox"
_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class Listening(msgspec.Struct, frozen=True):
    """Where the control plane listens and the mean size of what it holds, as JSON."""

    url: str
    sandbox_bytes: int
    pod_bytes: int


class Asked(msgspec.Struct, frozen=True):
    """What controllers asked for, from the audit log; watches are not counted.

    ``requests`` has them by ``verb kind``, without those about Leases.
    """

    gets: int
    lists: int
    writes: int
    failures: int
    open_watches: int
    requests: dict[str, int] = {}


async def stocked(state: Path, count: int) -> LocalSettings:
    """Write a state file with ``count`` pairs, and return settings that start from it.

    Starting from a file is how the objects get in as they are: written through the API they would
    get other uids, times and field managers.
    """
    settings = LocalSettings(state_file=state, save_interval_s=3600.0)
    async with ControlPlane(settings):
        pass  # leaves what every cluster has, and the kinds of this project, in the file
    store, registry = Store(history=0), Registry()
    key = load_state(state, store, registry)
    assert key is not None
    put_objects(store, registry, count)
    save_state(state, store, key)
    return settings


def put_objects(store: Store, registry: Registry, count: int) -> None:
    """Put the namespaces and ``count`` pairs into a store, unchanged but for their versions."""
    for name in NAMESPACES:
        obj = namespace(name)
        cells = field_cells(obj, registry.by_resource("namespaces").selectable)
        store.put(store.collection("namespaces"), name, obj, cells)
    for number in range(count):
        made = pair(number)
        for resource, obj in ((SANDBOXES, made.sandbox), (PODS, made.pod)):
            kind = registry.by_resource(resource.qualified)
            metadata = obj["metadata"]
            store.put(
                store.collection(kind.storage),
                f"{metadata['namespace']}/{metadata['name']}",
                obj,
                field_cells(obj, kind.selectable),
            )


def asked(plane: ControlPlane) -> Asked:
    """Count the controllers' requests in the audit log."""
    verbs: Counter[str] = Counter()
    requests: Counter[str] = Counter()
    for entry in plane.audit.select(user_agent=_AGENT):
        verbs[entry.verb] += 1
        if entry.verb != "watch" and entry.resource != "leases":
            requests[entry.what] += 1
        verbs["failed"] += entry.code >= 400
    return Asked(
        gets=verbs["get"],
        lists=verbs["list"],
        writes=sum(verbs[verb] for verb in _WRITES),
        failures=verbs["failed"],
        open_watches=plane.open_watches,
        requests=dict(requests.most_common()),
    )


def _mean_bytes(plane: ControlPlane, resource: str) -> int:
    listed = plane.store.list(resource)
    return sum(len(msgspec.json.encode(obj)) for obj in listed) // max(1, len(listed))


async def main(count: int, folder: Path) -> None:
    """Serve until standard input ends."""
    async with ControlPlane(await stocked(folder / "state.json", count)) as plane:
        plane.kubeconfig(folder / KUBECONFIG)
        hello = Listening(
            plane.url,
            sandbox_bytes=_mean_bytes(plane, SANDBOXES.qualified),
            pod_bytes=_mean_bytes(plane, PODS.qualified),
        )
        await plane.settled()
        _say(hello)
        async for _ in anyio.wrap_file(sys.stdin):
            _say(asked(plane))
            plane.audit.reset()


def _say(what: msgspec.Struct) -> None:
    sys.stdout.write(msgspec.json.encode(what).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]), Path(sys.argv[2]))
