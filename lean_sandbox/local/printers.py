"""The columns of built-in kinds, and words and ages of any, as `kubectl get` shows them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from filters.events import condition_of, pod_columns, sidecars_of

Json = dict[str, Any]
Cells = Callable[[Json, datetime], list[Any]]

NONE: Final = "<none>"


def human_duration(seconds: float) -> str:
    """Return a duration with at most two units, as ages are shown."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return f"{minutes}m" + (f"{total % 60}s" if total % 60 else "")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    if hours < 48:
        return f"{hours}h"
    if hours < 24 * 8:
        return f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")
    if hours < 24 * 365 * 2:
        return f"{days}d"
    years = hours // 24 // 365
    if years < 8:
        rest = days % 365
        return f"{years}y" + (f"{rest}d" if rest else "")
    return f"{years}y"


def since(text: str | None, now: datetime) -> str:
    """Return the time since a timestamp, `<unknown>` without one."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return "<unknown>"
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return human_duration((now - moment).total_seconds())


def age_of(obj: Json, now: datetime) -> str:
    """Return the age of an object."""
    return since(obj["metadata"].get("creationTimestamp"), now)


def name_of(obj: Json) -> str:
    """Return the name of an object."""
    name: str = obj["metadata"]["name"]
    return name


class Printer(NamedTuple):
    """Columns of a kind and the function that fills them."""

    columns: tuple[Json, ...]
    cells: Cells


def column(
    name: str, type_: str = "string", *, wide: bool = False, format_: str = "", text: str = ""
) -> Json:
    """Return one column definition; wide ones are shown by ``-o wide`` only."""
    return {
        "name": name,
        "type": type_,
        "format": format_,
        "description": text,
        "priority": int(wide),
    }


NAME: Final = column(
    "Name", format_="name", text="Name of the object, unique within its namespace and kind."
)
AGE: Final = column("Age", text="Time since the object was created.")


def _selector(labels: Json | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def _state(container: Json, name: str) -> Json | None:
    state: Json | None = (container.get("state") or {}).get(name)
    return state


def _restarts(obj: Json, now: datetime) -> str:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    sidecars = sidecars_of(spec)
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


def _readiness_gates(spec: Json, status: Json) -> str:
    gates = [gate.get("conditionType") for gate in spec.get("readinessGates") or ()]
    if not gates:
        return NONE
    open_gates = sum(1 for gate in gates if condition_of(status, gate).get("status") == "True")
    return f"{open_gates}/{len(gates)}"


def pod_word(pod: Json) -> str:
    """Return the word in the column Status of a Pod."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    word = str(status.get("reason") or status.get("phase") or "")
    if condition_of(status, "PodScheduled").get("reason") == "SchedulingGated":
        word = "SchedulingGated"
    initializing = _init_word(spec, status)
    if initializing and condition_of(status, "Initialized").get("status") != "True":
        word = initializing
    else:
        word = _containers_word(status, initializing or word)
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
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
        ended = _state(container, "terminated")
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if container.get("name") in sidecars and container.get("started"):
            continue
        if ended is not None:
            return f"Init:{_exit_word(ended)}"
        reason = (_state(container, "waiting") or {}).get("reason")
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{position}/{total}"
    return ""


def _containers_word(status: Json, word: str) -> str:
    one_runs = False
    # The first container has the last word, as in the server's own table.
    for container in reversed(status.get("containerStatuses") or ()):
        reason = (_state(container, "waiting") or {}).get("reason")
        ended = _state(container, "terminated")
        if reason:
            word = str(reason)
        elif ended is not None:
            word = _exit_word(ended)
        elif container.get("ready") and _state(container, "running") is not None:
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


def _pod(obj: Json, now: datetime) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    columns = pod_columns(obj)
    return [
        name_of(obj),
        columns["Ready"],
        pod_word(obj),
        _restarts(obj, now),
        age_of(obj, now),
        columns["IP"],
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _readiness_gates(spec, status),
    ]


def _service(obj: Json, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    kind = spec.get("type", "ClusterIP")
    ports = ",".join(
        f"{port.get('port')}"
        + (f":{port['nodePort']}" if port.get("nodePort") else "")
        + f"/{port.get('protocol', 'TCP')}"
        for port in spec.get("ports") or ()
    )
    ingress = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    balanced = ",".join(item.get("ip") or item.get("hostname") or "" for item in ingress)
    external = {
        "ExternalName": spec.get("externalName", ""),
        "LoadBalancer": balanced or "<pending>",
    }.get(kind) or ",".join(spec.get("externalIPs") or ())
    return [
        name_of(obj),
        kind,
        spec.get("clusterIP") or NONE,
        external or NONE,
        ports or NONE,
        age_of(obj, now),
        _selector(spec.get("selector")),
    ]


_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _claim(obj: Json, now: datetime) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    phase = status.get("phase", "")
    capacity = (status.get("capacity") or {}).get("storage", "") if spec.get("volumeName") else ""
    modes = status.get("accessModes") or () if spec.get("volumeName") else ()
    return [
        name_of(obj),
        "Terminating" if obj["metadata"].get("deletionTimestamp") else phase,
        spec.get("volumeName", ""),
        capacity,
        ",".join(_MODES.get(mode, mode) for mode in modes),
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>",
        age_of(obj, now),
        spec.get("volumeMode") or "<unset>",
    ]


def _namespace(obj: Json, now: datetime) -> list[Any]:
    return [name_of(obj), (obj.get("status") or {}).get("phase", ""), age_of(obj, now)]


def _seen(obj: Json, now: datetime) -> tuple[str, str]:
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    series = obj.get("series") or {}
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or first
    return since(first, now), since(last, now)


def _event(obj: Json, now: datetime) -> list[Any]:
    involved = obj.get("involvedObject") or {}
    target = involved.get("kind", "").lower()
    if involved.get("name"):
        target += "/" + involved["name"]
    source = obj.get("source") or {}
    reporter = [source.get("component") or obj.get("reportingComponent")]
    reporter.append(source.get("host") or obj.get("reportingInstance"))
    first, last = _seen(obj, now)
    count = (obj.get("series") or {}).get("count") or obj.get("count") or 1
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        target,
        involved.get("fieldPath", ""),
        ", ".join(part for part in reporter if part),
        (obj.get("message") or "").strip(),
        first,
        count,
        name_of(obj),
    ]


def _node(obj: Json, now: datetime) -> list[Any]:
    status, labels = obj.get("status") or {}, obj["metadata"].get("labels") or {}
    ready = condition_of(status, "Ready").get("status")
    words = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    if (obj.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key[len(prefix) :] for key in labels if key.startswith(prefix))
    info = status.get("nodeInfo") or {}
    addresses = {item.get("type"): item.get("address") for item in status.get("addresses") or ()}
    return [
        name_of(obj),
        ",".join(words),
        ",".join(roles) or NONE,
        age_of(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or NONE,
        addresses.get("ExternalIP") or NONE,
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _workload_wide(obj: Json) -> list[Any]:
    template = (((obj.get("spec") or {}).get("template") or {}).get("spec")) or {}
    containers = template.get("containers") or ()
    return [
        ",".join(item.get("name", "") for item in containers),
        ",".join(item.get("image", "") for item in containers),
    ]


def _deployment(obj: Json, now: datetime) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return [
        name_of(obj),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age_of(obj, now),
        *_workload_wide(obj),
        _selector((spec.get("selector") or {}).get("matchLabels")),
    ]


def _config_map(obj: Json, now: datetime) -> list[Any]:
    size = len(obj.get("data") or ()) + len(obj.get("binaryData") or ())
    return [name_of(obj), size, age_of(obj, now)]


def _secret(obj: Json, now: datetime) -> list[Any]:
    return [name_of(obj), obj.get("type", ""), len(obj.get("data") or ()), age_of(obj, now)]


def _lease(obj: Json, now: datetime) -> list[Any]:
    return [name_of(obj), (obj.get("spec") or {}).get("holderIdentity", ""), age_of(obj, now)]


def _policy(obj: Json, now: datetime) -> list[Any]:
    selector = (obj.get("spec") or {}).get("podSelector") or {}
    return [name_of(obj), _selector(selector.get("matchLabels")), age_of(obj, now)]


def _created(obj: Json, now: datetime) -> list[Any]:
    del now
    return [name_of(obj), obj["metadata"].get("creationTimestamp", "")]


def _binding(obj: Json, now: datetime) -> list[Any]:
    reference = obj.get("roleRef") or {}
    return [
        name_of(obj),
        f"{reference.get('kind', '')}/{reference.get('name', '')}",
        age_of(obj, now),
    ]


def _columns(*names: str, wide: bool = False) -> tuple[Json, ...]:
    return tuple(column(name, wide=wide) for name in names)


PRINTERS: Final[dict[str, Printer]] = {
    "pods": Printer(
        (
            NAME,
            column("Ready", text="The aggregate readiness state of this pod."),
            column("Status", text="The aggregate status of the containers in this pod."),
            column("Restarts", text="How often the containers of this pod were restarted."),
            AGE,
            *_columns("IP", "Node", "Nominated Node", "Readiness Gates", wide=True),
        ),
        _pod,
    ),
    "services": Printer(
        (
            NAME,
            *_columns("Type", "Cluster-IP", "External-IP", "Port(s)"),
            AGE,
            column("Selector", wide=True),
        ),
        _service,
    ),
    "persistentvolumeclaims": Printer(
        (
            NAME,
            *_columns("Status", "Volume", "Capacity", "Access Modes"),
            *_columns("StorageClass", "VolumeAttributesClass"),
            AGE,
            column("VolumeMode", wide=True),
        ),
        _claim,
    ),
    "namespaces": Printer((NAME, column("Status"), AGE), _namespace),
    "events": Printer(
        (
            *_columns("Last Seen", "Type", "Reason", "Object"),
            *_columns("Subobject", "Source", wide=True),
            column("Message"),
            *_columns("First Seen", "Count", wide=True),
            {**NAME, "priority": 1},
        ),
        _event,
    ),
    "nodes": Printer(
        (
            NAME,
            *_columns("Status", "Roles"),
            AGE,
            column("Version"),
            *_columns("Internal-IP", "External-IP", "OS-Image", wide=True),
            *_columns("Kernel-Version", "Container-Runtime", wide=True),
        ),
        _node,
    ),
    "deployments": Printer(
        (
            NAME,
            *_columns("Ready", "Up-to-date", "Available"),
            AGE,
            *_columns("Containers", "Images", "Selector", wide=True),
        ),
        _deployment,
    ),
    "configmaps": Printer((NAME, column("Data"), AGE), _config_map),
    "secrets": Printer((NAME, column("Type"), column("Data"), AGE), _secret),
    "customresourcedefinitions": Printer((NAME, column("Created At", "date")), _created),
    "leases": Printer((NAME, column("Holder"), AGE), _lease),
    "networkpolicies": Printer((NAME, column("Pod-Selector"), AGE), _policy),
    "roles": Printer((NAME, column("Created At", "date")), _created),
    "clusterroles": Printer((NAME, column("Created At", "date")), _created),
    "rolebindings": Printer((NAME, column("Role"), AGE), _binding),
    "clusterrolebindings": Printer((NAME, column("Role"), AGE), _binding),
}
"""By plural; a kind that is not here shows its name and age."""
