"""The cells of a Pod, in the words of `kubectl get pods`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from filters.columns import pod_columns
from lean_sandbox.local.cells import age_of, name_of, since

Json = dict[str, Any]


def _restarts(obj: Json, now: datetime) -> str:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    initial = spec.get("initContainers") or ()
    sidecars = {found.get("name") for found in initial if found.get("restartPolicy") == "Always"}
    starting = status.get("initContainerStatuses") or ()
    count, last = 0, ""
    for container in (
        *(status.get("containerStatuses") or ()),
        *(found for found in starting if found.get("name") in sidecars),
    ):
        count += container.get("restartCount", 0)
        ended = (container.get("lastState") or {}).get("terminated") or {}
        last = max(last, ended.get("finishedAt") or "")
    return f"{count} ({since(last, now)} ago)" if count and last else str(count)


def pod_cells(obj: Json, now: datetime) -> list[Any]:
    """Return the cells of a Pod."""
    columns = pod_columns(obj)
    return [
        name_of(obj),
        columns["Ready"],
        columns["Status"],
        _restarts(obj, now),
        age_of(obj, now),
        columns["IP"],
        columns["Node"],
        columns["Nominated Node"],
        columns["Readiness Gates"],
    ]
