"""The columns of built-in kinds, and words and ages of any, as `kubectl get` shows them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from lean_sandbox.local.pod_columns import pod_columns

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


def _moment(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def since(text: str | None, now: datetime) -> str:
    """Return the time since a timestamp, `<unknown>` without one."""
    moment = _moment(text)
    return "<unknown>" if moment is None else human_duration((now - moment).total_seconds())


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


def _pod(obj: Json, now: datetime) -> list[Any]:
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
    ready = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), None)
    words = (
        ["Unknown"] if ready is None else ["Ready" if ready.get("status") == "True" else "NotReady"]
    )
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


def _definition(obj: Json, now: datetime) -> list[Any]:
    del now
    return [name_of(obj), obj["metadata"].get("creationTimestamp", "")]


def _lease(obj: Json, now: datetime) -> list[Any]:
    return [name_of(obj), (obj.get("spec") or {}).get("holderIdentity", ""), age_of(obj, now)]


def _policy(obj: Json, now: datetime) -> list[Any]:
    selector = (obj.get("spec") or {}).get("podSelector") or {}
    return [name_of(obj), _selector(selector.get("matchLabels")), age_of(obj, now)]


def _role(obj: Json, now: datetime) -> list[Any]:
    del now
    return [name_of(obj), obj["metadata"].get("creationTimestamp", "")]


def _binding(obj: Json, now: datetime) -> list[Any]:
    reference = obj.get("roleRef") or {}
    return [
        name_of(obj),
        f"{reference.get('kind', '')}/{reference.get('name', '')}",
        age_of(obj, now),
    ]


def _wide(*names: str) -> tuple[Json, ...]:
    return tuple(column(name, wide=True) for name in names)


PRINTERS: Final[dict[str, Printer]] = {
    "pods": Printer(
        (
            NAME,
            column("Ready", text="The aggregate readiness state of this pod."),
            column("Status", text="The aggregate status of the containers in this pod."),
            column("Restarts", text="How often the containers of this pod were restarted."),
            AGE,
            *_wide("IP", "Node", "Nominated Node", "Readiness Gates"),
        ),
        _pod,
    ),
    "services": Printer(
        (
            NAME,
            column("Type"),
            column("Cluster-IP"),
            column("External-IP"),
            column("Port(s)"),
            AGE,
            *_wide("Selector"),
        ),
        _service,
    ),
    "persistentvolumeclaims": Printer(
        (
            NAME,
            column("Status"),
            column("Volume"),
            column("Capacity"),
            column("Access Modes"),
            column("StorageClass"),
            column("VolumeAttributesClass"),
            AGE,
            *_wide("VolumeMode"),
        ),
        _claim,
    ),
    "namespaces": Printer((NAME, column("Status"), AGE), _namespace),
    "events": Printer(
        (
            column("Last Seen"),
            column("Type"),
            column("Reason"),
            column("Object"),
            column("Subobject", wide=True),
            column("Source", wide=True),
            column("Message"),
            column("First Seen", wide=True),
            column("Count", wide=True),
            {**NAME, "priority": 1},
        ),
        _event,
    ),
    "nodes": Printer(
        (
            NAME,
            column("Status"),
            column("Roles"),
            AGE,
            column("Version"),
            *_wide("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
        ),
        _node,
    ),
    "deployments": Printer(
        (
            NAME,
            column("Ready"),
            column("Up-to-date"),
            column("Available"),
            AGE,
            *_wide("Containers", "Images", "Selector"),
        ),
        _deployment,
    ),
    "configmaps": Printer((NAME, column("Data"), AGE), _config_map),
    "secrets": Printer((NAME, column("Type"), column("Data"), AGE), _secret),
    "customresourcedefinitions": Printer((NAME, column("Created At", "date")), _definition),
    "leases": Printer((NAME, column("Holder"), AGE), _lease),
    "networkpolicies": Printer((NAME, column("Pod-Selector"), AGE), _policy),
    "roles": Printer((NAME, column("Created At", "date")), _role),
    "clusterroles": Printer((NAME, column("Created At", "date")), _role),
    "rolebindings": Printer((NAME, column("Role"), AGE), _binding),
    "clusterrolebindings": Printer((NAME, column("Role"), AGE), _binding),
}
"""By plural; a kind that is not here shows its name and age."""
