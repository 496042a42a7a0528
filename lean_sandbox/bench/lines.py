"""Watch lines of the realistic objects, as an API server sends them in each representation."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from lean_sandbox.bench.objects import CREATED, pair
from lean_sandbox.kube.resources import PODS
from lean_sandbox.local.registry import Registry
from lean_sandbox.local.represent import JSON, Accepted, Renderer
from lean_sandbox.local.store import Entry
from lean_sandbox.watch.representation import Representation

_FORMS: Mapping[Representation, Accepted] = {
    Representation.TABLE: Accepted("table"),
    Representation.METADATA: Accepted("partial"),
    Representation.FULL: JSON,
}
_FIRST_VERSION = 1_000_000


def pod_lines(representation: Representation, count: int, *, rounds: int = 1) -> list[bytes]:
    """Return one MODIFIED line for each of ``count`` Pods, ``rounds`` times with newer versions.

    Nothing but the resourceVersion differs between the rounds. The first line of a Table names the
    columns, as the first event of a watch does. Every line ends with its line feed.
    """
    kind = Registry().by_resource(PODS.qualified)
    now = CREATED + timedelta(hours=1)
    renderer = Renderer(lambda: now)
    form = _FORMS[representation]
    pods: list[dict[str, Any]] = [pair(number).pod for number in range(count)]
    lines: list[bytes] = []
    for _ in range(rounds):
        for pod in pods:
            metadata = pod["metadata"]
            key = f"{metadata['namespace']}/{metadata['name']}"
            entry = Entry(key, pod, _FIRST_VERSION + len(lines), {})
            lines.append(renderer.event(kind, "MODIFIED", entry, form, first=not lines))
    return lines
