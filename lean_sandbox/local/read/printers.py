"""The cells of built-in kinds, as `kubectl get` shows them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from filters.events import condition_of, pod_columns, sidecars_of
from lean_sandbox.local.schema.metadata import selector_of
from lean_sandbox.local.store import at
from lean_sandbox.model.times import parse_rfc3339

Json = dict[str, Any]

NONE: Final = "<none>"


# ------------------------------------------------------------------ ages

_DAY: Final = 24 * 3600
_YEAR: Final = 365 * _DAY
_AGES: Final = (
    (120, 1, "s", 0, ""),
    (10 * 60, 60, "m", 1, "s"),
    (3 * 3600, 60, "m", 0, ""),
    (8 * 3600, 3600, "h", 60, "m"),
    (2 * _DAY, 3600, "h", 0, ""),
    (8 * _DAY, _DAY, "d", 3600, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
    (sys.maxsize, _YEAR, "y", 0, ""),
)
"""Up to how many seconds an age is shown in a unit, and in which one what is left of it."""


def human_duration(seconds: float) -> str:
    """Return a duration with at most two units, as ages are shown."""
    total = int(seconds)
    if total < 0:
        return "0s" if total == -1 else "<invalid>"
    for limit, size, unit, rest_size, rest_unit in _AGES:
        if total < limit:
            rest = total % size // rest_size if rest_size else 0
            return f"{total // size}{unit}" + (f"{rest}{rest_unit}" if rest else "")
    return "<invalid>"


def since(text: str | None, now: datetime) -> str:
    """Return the time since a timestamp, `<unknown>` without one, `<invalid>` if it is none."""
    if not text:
        return "<unknown>"
    try:
        return human_duration((now - parse_rfc3339(text)).total_seconds())
    except ValueError:
        return "<invalid>"


# ------------------------------------------------------------------ Pods


def restarts(obj: Json, now: datetime) -> str:
    """Return how often the containers of a Pod were restarted, and when last."""
    sidecars = sidecars_of(obj.get("spec") or {})
    starting = at(obj, "status.initContainerStatuses", ())
    count = 0
    last = ""
    for container in (
        *at(obj, "status.containerStatuses", ()),
        *(found for found in starting if found.get("name") in sidecars),
    ):
        count += container.get("restartCount", 0)
        last = max(last, at(container, "lastState.terminated.finishedAt"))
    return f"{count} ({since(last, now)} ago)" if count and last else str(count)


def readiness_gates(obj: Json, _now: datetime) -> str:
    """Return how many of the readiness gates of a Pod are open."""
    gates = [gate.get("conditionType") for gate in at(obj, "spec.readinessGates", ())]
    if not gates:
        return NONE
    status = obj.get("status") or {}
    open_gates = sum(condition_of(status, gate).get("status") == "True" for gate in gates)
    return f"{open_gates}/{len(gates)}"


def pod_word(pod: Json, _now: datetime) -> str:
    """Return one word for what the containers of a Pod do."""
    spec = pod.get("spec") or {}
    status = pod.get("status") or {}
    word = str(status.get("reason") or status.get("phase") or "")
    if condition_of(status, "PodScheduled").get("reason") == "SchedulingGated":
        word = "SchedulingGated"
    initializing = _init_word(spec, status)
    if initializing and condition_of(status, "Initialized").get("status") != "True":
        word = initializing
    else:
        word = _containers_word(status, initializing or word)
    if at(pod, "metadata.deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in {"Succeeded", "Failed"}:
            return "Terminating"
    return word


def _init_word(spec: Json, status: Json) -> str:
    """Return how far the init containers are, empty when they are done."""
    total = len(spec.get("initContainers") or ())
    sidecars = sidecars_of(spec)
    for position, container in enumerate(status.get("initContainerStatuses") or ()):
        ended = at(container, "state.terminated", None)
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if container.get("name") in sidecars and container.get("started"):
            continue
        if ended is not None:
            return f"Init:{_exit_word(ended)}"
        reason = at(container, "state.waiting.reason")
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{position}/{total}"
    return ""


def _containers_word(status: Json, word: str) -> str:
    one_runs = False
    # The first container has the last word, as in the server's own table.
    for container in reversed(status.get("containerStatuses") or ()):
        reason = at(container, "state.waiting.reason")
        ended = at(container, "state.terminated", None)
        if reason:
            word = str(reason)
        elif ended is not None:
            word = _exit_word(ended)
        elif container.get("ready") and at(container, "state.running", None) is not None:
            one_runs = True
    if word == "Completed" and one_runs:
        return "Running" if condition_of(status, "Ready").get("status") == "True" else "NotReady"
    return word


def _exit_word(ended: Json) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


# ------------------------------------------------------------------ rows


Cell = Callable[[Json, datetime], Any]
Cells = Callable[[Json, datetime], list[Any]]


def _age(obj: Json, now: datetime) -> str:
    return since(obj["metadata"].get("creationTimestamp"), now)


def _member(written: str) -> Cell:
    path, _, default = written.partition("=")
    is_json = default.isdecimal() or default == "false"
    shown = json.loads(default) if is_json else default
    return lambda obj, _now: at(obj, path, shown)


def _row(*columns: str | Cell) -> Cells:
    """Return the cells of a kind after its name; with its age at the end, if it is not there.

    A text is members by their paths, maybe with ``=`` and what is shown where there is none.
    """
    cells: list[Cell] = []
    for column in columns:
        cells += map(_member, column.split()) if isinstance(column, str) else [column]
    if _age not in cells:
        cells.append(_age)
    return lambda obj, now: [obj["metadata"]["name"], *(cell(obj, now) for cell in cells)]


def _labels(obj: Json, _now: datetime) -> str:
    labels = at(obj, "spec.selector", {})
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) or NONE


def _pod_selector(obj: Json, _now: datetime) -> str:
    terms = selector_of(at(obj, "spec.podSelector", {})).terms
    return ",".join(map(str, sorted(terms, key=lambda term: term.key))) or NONE


def _size(*members: str) -> Cell:
    return lambda obj, _now: sum(len(obj.get(name) or ()) for name in members)


def _text(path: str, default: Any) -> Cell:
    return lambda obj, _now: str(at(obj, path, default))


pod_cells: Final = _row(
    lambda obj, _now: pod_columns(obj)["Ready"],
    pod_word,
    restarts,
    _age,
    lambda obj, _now: pod_columns(obj)["IP"],
    "spec.nodeName=<none> status.nominatedNodeName=<none>",
    readiness_gates,
)
"""The cells of a Pod."""


# ------------------------------------------------------------------ kinds of the core group


def _external(obj: Json, _now: datetime) -> str:
    """Return the addresses of a Service outside the cluster."""
    kind = at(obj, "spec.type")
    if kind == "ExternalName":
        return str(at(obj, "spec.externalName"))
    own = ",".join(at(obj, "spec.externalIPs", ()))
    if kind != "LoadBalancer":
        return own or NONE
    ingress = at(obj, "status.loadBalancer.ingress", ())
    return ",".join(one.get("ip") or one.get("hostname") or "" for one in ingress) or "<pending>"


def _ports(obj: Json, _now: datetime) -> str:
    shown = []
    for port in at(obj, "spec.ports", ()):
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) or NONE


def _phase(obj: Json, _now: datetime) -> str:
    return "Terminating" if at(obj, "metadata.deletionTimestamp") else at(obj, "status.phase")


_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _modes(obj: Json, _now: datetime) -> str:
    return ",".join(_MODES.get(mode, mode) for mode in at(obj, "status.accessModes", ()))


def _event(obj: Json, now: datetime) -> list[Any]:
    involved = obj.get("involvedObject") or {}
    source = obj.get("source") or {}
    series = obj.get("series") or {}
    target = involved.get("kind", "").lower()
    if involved.get("name"):
        target += "/" + involved["name"]
    reporter = (
        source.get("component") or obj.get("reportingComponent"),
        source.get("host") or obj.get("reportingInstance"),
    )
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or first
    return [
        since(last, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        target,
        involved.get("fieldPath", ""),
        ", ".join(part for part in reporter if part),
        (obj.get("message") or "").strip(),
        since(first, now),
        series.get("count") or obj.get("count") or 1,
        obj["metadata"]["name"],
    ]


def _node_word(obj: Json, _now: datetime) -> str:
    ready = condition_of(obj.get("status") or {}, "Ready").get("status")
    word = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
    return word + (",SchedulingDisabled" if at(obj, "spec.unschedulable") else "")


_ROLE: Final = "node-role.kubernetes.io/"


def _node_roles(obj: Json, _now: datetime) -> str:
    labels = sorted(at(obj, "metadata.labels", ()))
    roles = [key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)]
    return ",".join(roles) or NONE


def _node_address(kind: str) -> Cell:
    def cell(obj: Json, _now: datetime) -> str:
        addresses = at(obj, "status.addresses", ())
        found = [one.get("address") for one in addresses if one.get("type") == kind]
        return found[0] if found else NONE

    return cell


# ------------------------------------------------------------------ kinds of other groups


def _subjects(kind: str) -> Cell:
    def cell(obj: Json, _now: datetime) -> str:
        found = [one for one in obj.get("subjects") or () if one.get("kind") == kind]
        names = [one.get("name", "") for one in found]
        if kind == "ServiceAccount":
            names = [f"{one.get('namespace', '')}/{one.get('name', '')}" for one in found]
        return ", ".join(names)

    return cell


_BINDING: Final = _row(
    lambda obj, _now: f"{at(obj, 'roleRef.kind')}/{at(obj, 'roleRef.name')}",
    _age,
    _subjects("User"),
    _subjects("Group"),
    _subjects("ServiceAccount"),
)
PRINTERS: Final[dict[str, Cells]] = {
    "configmaps": _row(_size("data", "binaryData")),
    "events": _event,
    "namespaces": _row("status.phase"),
    "nodes": _row(
        _node_word,
        _node_roles,
        _age,
        "status.nodeInfo.kubeletVersion",
        _node_address("InternalIP"),
        _node_address("ExternalIP"),
        "status.nodeInfo.osImage=<unknown> status.nodeInfo.kernelVersion=<unknown>"
        " status.nodeInfo.containerRuntimeVersion=<unknown>",
    ),
    "persistentvolumeclaims": _row(
        _phase,
        "spec.volumeName status.capacity.storage",
        _modes,
        "spec.storageClassName spec.volumeAttributesClassName=<unset>",
        _age,
        "spec.volumeMode=<unset>",
    ),
    "pods": pod_cells,
    "secrets": _row("type", _size("data")),
    "serviceaccounts": _row(),
    "services": _row(
        "spec.type=ClusterIP spec.clusterIP=<none>",
        _external,
        _ports,
        _age,
        _labels,
    ),
    "leases.coordination.k8s.io": _row("spec.holderIdentity"),
    "networkpolicies.networking.k8s.io": _row(_pod_selector),
    "runtimeclasses.node.k8s.io": _row("handler"),
    "poddisruptionbudgets.policy": _row(
        _text("spec.minAvailable", "N/A"),
        _text("spec.maxUnavailable", "N/A"),
        "status.disruptionsAllowed=0",
    ),
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDING,
    "rolebindings.rbac.authorization.k8s.io": _BINDING,
    "priorityclasses.scheduling.k8s.io": _row(
        "value=0 globalDefault=false", _age, "preemptionPolicy=PreemptLowerPriority"
    ),
}
"""What fills the columns of a kind, by the collection that its objects are in."""


def plain_cells(obj: Json, _now: datetime) -> list[Any]:
    """Return the cells of a kind without columns of its own: name, and when it was created."""
    return [obj["metadata"]["name"], at(obj, "metadata.creationTimestamp")]
