"""What one watch event of a Pod costs the client, step by step and form by form.

Run as ``python -m tests.bench.event_bench [rounds]``. The Pod is an ordinary running one of about
3 kB with the managedFields of three writers. Two tables: microseconds of each step for one event
in each form; and full objects pruned while decoding, pruned afterwards, and not pruned, in
microseconds and in KiB of heap for each object kept.

Times are CPU time of this process, the least of the rounds; memory is counted by tracemalloc.
``dropped`` is a line of the second round through all steps: nothing in it has changed, so it is
dropped, except without columns, where every write of a Pod has to pass and is cached.

Measured on one slow core, CPython 3.11, msgspec 0.22 (us for one event)::

                               bytes    lines   decode    judge    cache  dropped
    Table                       2022      0.7      2.9      3.9      5.9      9.8
    partial metadata            1802      0.6      2.2      5.2      5.7     17.2
    full object                 2990      1.0      4.8      3.2      5.5     16.8

    full object                       us      KiB
    pruned while decoding            4.8     2.82
    ... and made an entry           21.0     0.94
    decoded, then pruned            21.0     4.31
    msgspec to dicts, all kept       8.5    15.20
    json.loads, all kept            18.2    19.30

So a Table costs the client less in all than any other form, because it can be dropped.
"""

from __future__ import annotations

import gc
import json
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from filters import ChangeDetector, EventType
from lean_sandbox.kube.http1 import LineSplitter
from lean_sandbox.model import names
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.pod import Pod
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.decode import EventDecoder, Line, WatchObject
from lean_sandbox.watch.resources.pod import PodEntry, columns_with_hint, pod_kind

Json = dict[str, Any]

OBJECTS = 500
COLUMNS = (
    *("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node"),
    *("Nominated Node", "Readiness Gates"),
)
AT = "2026-01-02T03:04:05Z"


# -- the objects -----------------------------------------------------------------------------------


def metadata(number: int, version: int) -> Json:
    """Return the metadata of a Pod, most of which is managedFields, as on a real server."""
    name = f"sandbox-{number:06d}"
    spec: Json = {
        f"f:{field}": {}
        for field in ("dnsPolicy", "enableServiceLinks", "restartPolicy", "schedulerName")
    }
    container: Json = {
        f"f:{field}": {} for field in ("image", "imagePullPolicy", "name", "resources")
    }
    conditions: Json = {
        f'k:{{"type":"{kind}"}}': {
            f"f:{field}": {} for field in ("lastProbeTime", "lastTransitionTime", "status", "type")
        }
        for kind in ("ContainersReady", "Initialized", "Ready")
    }
    fields: list[tuple[str, str, Json]] = [
        (
            "agent-sandbox-controller",
            "",
            {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}, "f:ownerReferences": {".": {}}},
                "f:spec": {"f:containers": {'k:{"name":"main"}': container}, **spec},
            },
        ),
        ("kube-scheduler", "binding", {"f:spec": {"f:nodeName": {}}}),
        ("kubelet", "status", {"f:status": {"f:conditions": conditions, "f:podIPs": {".": {}}}}),
    ]
    managed = [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": AT,
            "fieldsType": "FieldsV1",
            "fieldsV1": owned,
            **({"subresource": subresource} if subresource else {}),
        }
        for manager, subresource, owned in fields
    ]
    return {
        "name": name,
        "namespace": "team-a",
        "uid": f"{number:08x}-2222-4000-8000-000000000000",
        "resourceVersion": str(version),
        "generation": 1,
        "creationTimestamp": AT,
        "labels": {"app": "agents", names.NAME_HASH_LABEL: names.name_hash(name)},
        "annotations": {
            names.PROPAGATED_LABELS_ANNOTATION: "app",
            names.PROPAGATED_ANNOTATIONS_ANNOTATION: "note",
            "note": "x",
        },
        "ownerReferences": [
            {
                "apiVersion": "agents.x-k8s.io/v1beta1",
                "kind": "Sandbox",
                "name": name,
                "uid": f"{number:08x}-1111-4000-8000-000000000000",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "managedFields": managed,
    }


def address(number: int) -> str:
    """Return the address of a Pod."""
    return f"10.1.{number >> 8}.{number & 255}"


def full(number: int, version: int) -> Json:
    """Return a whole running Pod."""
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": AT}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(number, version),
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.local/agents/runtime:1.2.3",
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                    "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "nodeName": f"node-{number % 50}",
            "restartPolicy": "Always",
            "serviceAccountName": "default",
            "tolerations": [
                {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "tolerationSeconds": 300}
                for key in ("not-ready", "unreachable")
            ],
        },
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "hostIP": "192.168.0.1",
            "podIP": address(number),
            "podIPs": [{"ip": address(number)}],
            "startTime": AT,
            "containerStatuses": [
                {
                    "name": "main",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": AT}},
                }
            ],
            "qosClass": "Burstable",
        },
    }


def partial(number: int, version: int) -> Json:
    """Return the same Pod as PartialObjectMetadata."""
    kind = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return {**kind, "metadata": metadata(number, version)}


def table(number: int, version: int) -> Json:
    """Return the same Pod as a Table of one row; the columns are told by the first of all."""
    first = [{"name": name, "type": "string"} for name in COLUMNS]
    cells = [
        f"sandbox-{number:06d}",
        "1/1",
        "Running",
        0,
        "5m",
        address(number),
        f"node-{number % 50}",
        "<none>",
        "<none>",
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": str(version)},
        "columnDefinitions": first if number == 0 and version < OBJECTS else None,
        "rows": [{"cells": cells, "object": partial(number, version)}],
    }


def lines_of(form: Callable[[int, int], Json], rounds: int = 2) -> list[bytes]:
    """Return the lines of a watch: every object once a round, each time at a later version."""
    return [
        msgspec.json.encode({"type": "MODIFIED", "object": form(number, OBJECTS * turn + number)})
        for turn in range(rounds)
        for number in range(OBJECTS)
    ]


# -- measuring -------------------------------------------------------------------------------------


def cheapest_us(rounds: int, make: Callable[[], Callable[[], object]], count: int) -> float:
    """Return microseconds an item; ``make`` prepares a round, what it returns is timed."""
    best = float("inf")
    for _ in range(rounds):
        act = make()
        gc.collect()
        gc.disable()
        began = time.process_time()
        act()
        took = time.process_time() - began
        gc.enable()
        best = min(best, took)
    return best / count * 1e6


def each(act: Callable[[Any], object], items: list[Any]) -> Callable[[], None]:
    """Return a function that does something with each item."""

    def run() -> None:
        for item in items:
            act(item)

    return run


def kept_kib(decode: Callable[[bytes], object], lines: list[bytes]) -> float:
    """Return the heap that each decoded object holds."""
    decode(lines[0])
    gc.collect()
    tracemalloc.start()
    kept = [decode(line) for line in lines]
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / 1024 / len(kept)


def fed(lines: list[bytes], *, is_full: bool) -> tuple[EventDecoder[PodEntry], list[ObjectMeta]]:
    """Return a feed that has taken the first round, and the rows of all lines."""
    kind = pod_kind()
    cache = Cache(kind)
    feed = EventDecoder(cache)
    rows = []
    decode_full = msgspec.json.Decoder(Line[Pod]).decode
    decode_row = msgspec.json.Decoder(Line[WatchObject]).decode
    for at, line in enumerate(lines):
        if at < OBJECTS:
            (feed.full_line if is_full else feed.line)(line)
        if is_full:
            item = decode_full(line).object
            row = item.metadata.with_columns(columns_with_hint(item))
        else:
            received = decode_row(line).object
            if received.rows is None:
                row = received.metadata
            else:
                assert received.rows[0].object is not None
                metadata = received.rows[0].object.metadata
                row = metadata.with_columns(feed._columns(received.rows[0]))
        rows.append(row)
    return feed, rows


def steps(rounds: int, title: str, form: Callable[[int, int], Json]) -> str:
    """Return one line of the first table."""
    lines = lines_of(form)
    is_full = form is full
    stream = b"".join(line + b"\n" for line in lines)
    chunks = [stream[at : at + 65536] for at in range(0, len(stream), 65536)]
    feed, rows = fed(lines, is_full=is_full)
    decoder: Any = msgspec.json.Decoder(Line[Pod] if is_full else Line[WatchObject])
    kind = pod_kind()

    def judging() -> Callable[[], None]:
        bare = ChangeDetector(kind.predicate)
        seen = [bare.examine((), row)[1] for row in rows[:OBJECTS]]
        pairs = list(zip(seen, rows[OBJECTS:], strict=True))
        return each(lambda pair: bare.examine(*pair), pairs)

    def caching() -> Callable[[], None]:
        store: Cache[PodEntry] = Cache(kind)
        for row in rows[:OBJECTS]:
            store.put(kind.build(row, None, None))
        held = [(row, None, old) for row, old in zip(rows[OBJECTS:], store, strict=True)]
        return each(lambda pair: store.put(kind.build(*pair)), held)

    def whole() -> Callable[[], None]:
        feed, _ = fed(lines, is_full=is_full)
        return each(feed.full_line if is_full else feed.line, lines[OBJECTS:])

    costs = [
        cheapest_us(rounds, lambda: each(LineSplitter().feed, chunks), len(lines)),
        cheapest_us(rounds, lambda: each(decoder.decode, lines), len(lines)),
        cheapest_us(rounds, judging, OBJECTS),
        cheapest_us(rounds, caching, OBJECTS),
        cheapest_us(rounds, whole, OBJECTS),
    ]
    assert feed.version == str(OBJECTS - 1)
    cells = "".join(f"{cost:9.1f}" for cost in costs)
    return f"{title:26}{len(stream) // len(lines):7}{cells}"


# -- ways to prune ---------------------------------------------------------------------------------


def pruned(line: bytes) -> Json:
    """Decode everything and keep what the cache needs."""
    obj = json.loads(line)["object"]
    meta = obj["metadata"]
    status = obj["status"]
    kept = ("name", "namespace", "uid", "resourceVersion", "labels", "annotations")
    return {
        **{key: meta[key] for key in kept},
        "ownerReferences": meta["ownerReferences"],
        "nodeName": obj["spec"]["nodeName"],
        "phase": status["phase"],
        "podIPs": status["podIPs"],
        "conditions": [
            {key: one[key] for key in ("type", "status")} for one in status["conditions"]
        ],
    }


def entries(lines: list[bytes]) -> Callable[[bytes], object]:
    """Return what makes the cache entry of a whole Pod, as the controller does."""
    kind = pod_kind()
    cache = Cache(kind)
    decode = msgspec.json.Decoder(Line[Pod]).decode
    assert lines
    return lambda line: cache.full(EventType.ADDED, decode(line).object, initial=True)


# -- the tables ------------------------------------------------------------------------------------


def tables(rounds: int) -> Iterator[str]:
    """Yield the lines of both tables."""
    head = ("bytes", "lines", "decode", "judge", "cache", "dropped")
    yield f"{'us for one event':26}{head[0]:>7}" + "".join(f"{title:>9}" for title in head[1:])
    for title, form in (("Table", table), ("partial metadata", partial), ("full object", full)):
        yield steps(rounds, title, form)
    yield ""
    lines = lines_of(full, rounds=1)
    ways: list[tuple[str, Callable[[], Callable[[bytes], object]]]] = [
        ("pruned while decoding", lambda: msgspec.json.Decoder(Line[Pod]).decode),
        ("... and made an entry", lambda: entries(lines)),
        ("decoded, then pruned", lambda: pruned),
        ("msgspec to dicts, all kept", lambda: msgspec.json.decode),
        ("json.loads, all kept", lambda: json.loads),
    ]
    yield f"{'full object':26}{'us':>9}{'KiB':>9}"
    for title, way in ways:
        cost = cheapest_us(rounds, lambda way=way: each(way(), lines), len(lines))  # type: ignore[misc]
        yield f"{title:26}{cost:9.1f}{kept_kib(way(), lines):9.2f}"


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    for line in tables(rounds):
        print(line)  # noqa: T201 -- it is a script


if __name__ == "__main__":
    main()
