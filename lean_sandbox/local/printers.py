"""The cells of built-in kinds, and ages of any, as `kubectl get` shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from filters.events import condition_of
from lean_sandbox.local.ages import since
from lean_sandbox.local.podcells import pod_cells

Json = dict[str, Any]
Cell = Callable[[Json, datetime], Any]
Cells = Callable[[Json, datetime], list[Any]]

_NONE: Final = "<none>"
_UNSET: Final = "<unset>"
_SHOWN: Final = 3
"""How many of a list are shown in one cell."""


def _at(path: str, default: Any = "") -> Cell:
    """Return what shows the member at a path, ``default`` where it is absent or empty text."""
    parts = path.split(".")

    def cell(obj: Json, now: datetime) -> Any:
        del now
        value: Any = obj
        for part in parts:
            value = value.get(part) if isinstance(value, dict) else None
        return default if value is None or value == "" else value

    return cell


_name: Final = _at("metadata.name")
_created: Final = _at("metadata.creationTimestamp")


def _age(obj: Json, now: datetime) -> str:
    return since(obj["metadata"].get("creationTimestamp"), now)


def _row(*cells: Cell) -> Cells:
    """Return the cells of a kind between its name and its age; with its age, if it is not there."""
    shown = (_name, *cells) if _age in cells or _created in cells else (_name, *cells, _age)
    return lambda obj, now: [cell(obj, now) for cell in shown]


def _some(listed: Iterable[str], empty: str = _NONE) -> str:
    """Return the first of a list, and how many more there are."""
    every = list(listed)
    text = ",".join(every[:_SHOWN])
    more = len(every) - _SHOWN
    return f"{text} + {more} more..." if more > 0 else text or empty


def _labels(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or _NONE


def _selector(path: str) -> Cell:
    """Return what shows a label selector."""
    find = _at(path, None)

    def cell(obj: Json, now: datetime) -> str:
        selector = find(obj, now) or {}
        terms = [
            (key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()
        ]
        for term in selector.get("matchExpressions") or ():
            key, values = term.get("key", ""), ",".join(sorted(term.get("values") or ()))
            text = {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }.get(term.get("operator"), key)
            terms.append((key, text))
        return ",".join(text for _, text in sorted(terms)) or _NONE

    return cell


def _containers(path: str) -> tuple[Cell, Cell]:
    """Return what shows names and images of a Pod template's containers."""
    find = _at(path, ())

    def shown(member: str) -> Cell:
        return lambda obj, now: ",".join(item.get(member, "") for item in find(obj, now))

    return shown("name"), shown("image")


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
        _name(obj, now),
        kind,
        spec.get("clusterIP") or _NONE,
        external or _NONE,
        ports or _NONE,
        _age(obj, now),
        _labels(spec.get("selector")),
    ]


def _phase(obj: Json, now: datetime) -> str:
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str(_at("status.phase")(obj, now))


_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _modes(modes: Iterable[str]) -> str:
    return ",".join(_MODES.get(mode, mode) for mode in modes)


def _claim(obj: Json, now: datetime) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    capacity = (status.get("capacity") or {}).get("storage", "") if spec.get("volumeName") else ""
    modes = status.get("accessModes") or () if spec.get("volumeName") else ()
    return [
        _name(obj, now),
        _phase(obj, now),
        spec.get("volumeName", ""),
        capacity,
        _modes(modes),
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or _UNSET,
        _age(obj, now),
        spec.get("volumeMode") or _UNSET,
    ]


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
        _name(obj, now),
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
        _name(obj, now),
        ",".join(words),
        ",".join(roles) or _NONE,
        _age(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or _NONE,
        addresses.get("ExternalIP") or _NONE,
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _count(path: str) -> Cell:
    """Return what shows how many of the replicas that are wanted there are."""
    found, wanted = _at(path, 0), _at("spec.replicas", 1)
    return lambda obj, now: f"{found(obj, now)}/{wanted(obj, now)}"


def _completions(obj: Json, now: datetime) -> str:
    del now
    spec, done = obj.get("spec") or {}, (obj.get("status") or {}).get("succeeded", 0)
    if "completions" in spec:
        return f"{done}/{spec['completions']}"
    parallel = spec.get("parallelism", 1)
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_word(obj: Json, now: datetime) -> str:
    del now
    status = obj.get("status") or {}
    deleting = obj["metadata"].get("deletionTimestamp")
    for kind, word in (
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("", "Terminating"),
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if condition_of(status, kind).get("status") == "True" if kind else deleting:
            return word
    return "Running"


def _job_duration(obj: Json, now: datetime) -> str:
    status = obj.get("status") or {}
    if not status.get("startTime"):
        return ""
    end = status.get("completionTime")
    return since(status["startTime"], datetime.fromisoformat(end) if end else now)


def _last_schedule(obj: Json, now: datetime) -> str:
    last = _at("status.lastScheduleTime")(obj, now)
    return since(last, now) if last else _NONE


def _subjects(kind: str) -> Cell:
    """Return what shows the subjects of one kind."""

    def cell(obj: Json, now: datetime) -> str:
        del now
        return ", ".join(
            f"{one.get('namespace', '')}/{one.get('name', '')}"
            if kind == "ServiceAccount"
            else one.get("name", "")
            for one in obj.get("subjects") or ()
            if one.get("kind") == kind
        )

    return cell


def _storage_class(obj: Json, now: datetime) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return f"{_name(obj, now)} (default)" if default else str(_name(obj, now))


def _number(path: str) -> Cell:
    return _at(path, 0)


_TEMPLATE: Final = _containers("spec.template.spec.containers")
_CREATED_AT: Final = _row(_created)
_BINDING: Final = _row(
    lambda obj, now: f"{_at('roleRef.kind')(obj, now)}/{_at('roleRef.name')(obj, now)}",
    _age,
    _subjects("User"),
    _subjects("Group"),
    _subjects("ServiceAccount"),
)

PRINTERS: Final[dict[str, Cells]] = {
    "configmaps": _row(
        lambda obj, _: len(obj.get("data") or ()) + len(obj.get("binaryData") or ())
    ),
    "events": _event,
    "namespaces": _row(_at("status.phase")),
    "nodes": _node,
    "persistentvolumeclaims": _claim,
    "pods": pod_cells,
    "secrets": _row(_at("type"), lambda obj, _: len(obj.get("data") or ())),
    "serviceaccounts": _row(),
    "services": _service,
    "customresourcedefinitions.apiextensions.k8s.io": _CREATED_AT,
    "daemonsets.apps": _row(
        _number("status.desiredNumberScheduled"),
        _number("status.currentNumberScheduled"),
        _number("status.numberReady"),
        _number("status.updatedNumberScheduled"),
        _number("status.numberAvailable"),
        lambda obj, now: _labels(_at("spec.template.spec.nodeSelector", None)(obj, now)),
        _age,
        *_TEMPLATE,
        _selector("spec.selector"),
    ),
    "deployments.apps": _row(
        _count("status.readyReplicas"),
        _number("status.updatedReplicas"),
        _number("status.availableReplicas"),
        _age,
        *_TEMPLATE,
        _selector("spec.selector"),
    ),
    "replicasets.apps": _row(
        _at("spec.replicas", 1),
        _number("status.replicas"),
        _number("status.readyReplicas"),
        _age,
        *_TEMPLATE,
        _selector("spec.selector"),
    ),
    "statefulsets.apps": _row(_count("status.readyReplicas"), _age, *_TEMPLATE),
    "cronjobs.batch": _row(
        _at("spec.schedule"),
        _at("spec.timeZone", _NONE),
        lambda obj, now: str(_at("spec.suspend", default=False)(obj, now)),
        lambda obj, now: len(_at("status.active", ())(obj, now)),
        _last_schedule,
        _age,
        *_containers("spec.jobTemplate.spec.template.spec.containers"),
        _selector("spec.jobTemplate.spec.selector"),
    ),
    "jobs.batch": _row(
        _job_word, _completions, _job_duration, _age, *_TEMPLATE, _selector("spec.selector")
    ),
    "leases.coordination.k8s.io": _row(_at("spec.holderIdentity")),
    "networkpolicies.networking.k8s.io": _row(_selector("spec.podSelector")),
    "runtimeclasses.node.k8s.io": _row(_at("handler")),
    "poddisruptionbudgets.policy": _row(
        lambda obj, now: str(_at("spec.minAvailable", "N/A")(obj, now)),
        lambda obj, now: str(_at("spec.maxUnavailable", "N/A")(obj, now)),
        _number("status.disruptionsAllowed"),
    ),
    "clusterroles.rbac.authorization.k8s.io": _CREATED_AT,
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDING,
    "roles.rbac.authorization.k8s.io": _CREATED_AT,
    "rolebindings.rbac.authorization.k8s.io": _BINDING,
    "priorityclasses.scheduling.k8s.io": _row(
        _number("value"),
        _at("globalDefault", default=False),
        _age,
        _at("preemptionPolicy", "PreemptLowerPriority"),
    ),
    "storageclasses.storage.k8s.io": lambda obj, now: [
        _storage_class(obj, now),
        _at("provisioner")(obj, now),
        _at("reclaimPolicy", "Delete")(obj, now),
        _at("volumeBindingMode", "Immediate")(obj, now),
        _at("allowVolumeExpansion", default=False)(obj, now),
        _age(obj, now),
    ],
}
"""What fills the columns of a kind, by the collection that its objects are in."""
