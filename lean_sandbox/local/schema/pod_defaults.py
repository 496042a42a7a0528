"""What a server adds to Pods: defaults; to new ones status, priority, overhead and a token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from lean_sandbox.local.errors import forbidden
from lean_sandbox.local.schema.formats import rounded_quantity
from lean_sandbox.local.schema.rows import fill

Json = dict[str, Any]

CONTAINER_LISTS: Final = ("initContainers", "containers")
_HTTP: Final[Json] = {"httpGet?": {"path": "/", "scheme": "HTTP"}}
_PROBE: Final[Json] = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
    **_HTTP,
}
_FIELD: Final[Json] = {"fieldRef?": {"apiVersion": "v1"}}
_CONTAINER: Final[Json] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
    "livenessProbe?": _PROBE,
    "readinessProbe?": _PROBE,
    "startupProbe?": _PROBE,
    "lifecycle?": {"postStart?": _HTTP, "preStop?": _HTTP},
    "env[*]": {"valueFrom?": _FIELD},
}
_FILES: Final[Json] = {"defaultMode": 0o644}
_VOLUME: Final[Json] = {
    "configMap?": _FILES,
    "secret?": _FILES,
    "downwardAPI?": {**_FILES, "items[*]": _FIELD},
    "projected?": {
        **_FILES,
        "sources[*]": {
            "serviceAccountToken?": {"expirationSeconds": 3600},
            "downwardAPI?": {"items[*]": _FIELD},
        },
    },
    "ephemeral?": {"volumeClaimTemplate?": {"spec": {"volumeMode": "Filesystem"}}},
    "hostPath?": {"type": ""},
}
_SPEC: Final[Json] = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
    **{f"{name}[*]": _CONTAINER for name in CONTAINER_LISTS},
    "volumes[*]": _VOLUME,
}


def containers_of(spec: Json) -> Iterator[tuple[str, int, Json]]:
    """Give list name, position and container for every container of a Pod."""
    for name in CONTAINER_LISTS:
        for position, container in enumerate(spec.get(name) or ()):
            yield name, position, container


def _pull_policy(image: str) -> str:
    """Return the default policy: images that can move under their name are always pulled."""
    tag = image.rpartition("/")[2].partition(":")[2] or "latest"
    return "Always" if tag == "latest" and "@" not in image else "IfNotPresent"


def _resource_defaults(resources: Json) -> None:
    for part in ("limits", "requests"):
        if given := resources.get(part):
            resources[part] = {name: rounded_quantity(amount) for name, amount in given.items()}
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def pod_spec_defaults(spec: Json) -> None:
    """Write the defaults of a Pod's spec, also of one inside a workload's template."""
    fill(spec, _SPEC)
    for _, _, container in containers_of(spec):
        fill(container, {"imagePullPolicy": _pull_policy(container.get("image") or "")})
        _resource_defaults(container["resources"])
        for port in container.get("ports") or () if spec.get("hostNetwork") else ():
            if port.get("containerPort"):
                port["hostPort"] = port.get("hostPort") or port["containerPort"]
    for volume in spec.get("volumes") or ():
        if not any(value is not None for name, value in volume.items() if name != "name"):
            volume["emptyDir"] = {}
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1


def pod_defaults(obj: Json) -> None:
    """Write the defaults of a Pod, with those of the service account admission."""
    spec = obj.setdefault("spec", {})
    pod_spec_defaults(spec)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    spec.setdefault("enableServiceLinks", True)
    _resource_defaults(spec.get("resources") or {})


# ------------------------------------------------------------------ new Pods

_MOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
# An hour, and the 7 s by which the server knows a token that it asked for itself.
_TOKEN_LIFE_S: Final = 3607
_GATED: Final[Json] = {
    "type": "PodScheduled",
    "status": "False",
    "lastTransitionTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
_LOST: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_PATIENCE_S: Final = 300


def add_token(obj: Json, account: Mapping[str, Any], suffix: str) -> None:
    """Mount a token of the service account unless Pod or account decline; in place."""
    spec: Json = obj["spec"]
    wanted = spec.get("automountServiceAccountToken")
    if wanted is None:
        wanted = account.get("automountServiceAccountToken")
    if wanted is False:
        return
    name = f"kube-api-access-{suffix}"
    is_used = False
    for _, _, container in containers_of(spec):
        mounts = container.get("volumeMounts") or []
        if all(mount.get("mountPath") != _MOUNT for mount in mounts):
            mount = {"name": name, "readOnly": True, "mountPath": _MOUNT}
            container["volumeMounts"] = [*mounts, mount]
            is_used = True
    if is_used:
        spec["volumes"] = [*(spec.get("volumes") or ()), _volume(name)]


def _volume(name: str) -> Json:
    namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    root = [{"key": "ca.crt", "path": "ca.crt"}]
    sources: list[Json] = [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_LIFE_S, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": root}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": 0o644}}


_SYSTEM_CLASSES: Final = {
    "system-cluster-critical": {"value": 2_000_000_000},
    "system-node-critical": {"value": 2_000_001_000},
}


def resolve_priority(obj: Json, classes: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the priority of a Pod's class, or of the default one; in place.

    Raises StatusError (403) for a class that is not there, or a priority of the Pod's own.
    """
    spec: Json = obj["spec"]
    name = spec.get("priorityClassName")
    known = {**classes, **_SYSTEM_CLASSES}
    if name and name not in known:
        _refuse(obj, f"no PriorityClass with name {name} was found")
    if not name:
        chosen = [each for each in known if known[each].get("globalDefault")]
        # Of several defaults the lowest counts.
        name = min(chosen, key=lambda each: known[each]["value"], default="")
        if name:
            spec["priorityClassName"] = name
    found = known.get(name, {})
    for member, wanted, what in (
        ("priority", found.get("value", 0), "integer value of priority"),
        (
            "preemptionPolicy",
            found.get("preemptionPolicy", "PreemptLowerPriority"),
            "string value of PreemptionPolicy",
        ),
    ):
        given = spec.setdefault(member, wanted)
        if given != wanted:
            text = f"the {what} ({given}) must not be provided in pod spec; priority admission"
            _refuse(obj, f"{text} controller computed {wanted} from the given PriorityClass name")


def resolve_runtime(obj: Json, classes: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the overhead and the nodes of a Pod's RuntimeClass; in place.

    Raises StatusError (403) for a class that is not there, or an overhead of the Pod's own.
    """
    spec: Json = obj["spec"]
    name = spec.get("runtimeClassName")
    if name and name not in classes:
        _refuse(obj, f'pod rejected: RuntimeClass "{name}" not found')
    found: Mapping[str, Any] = classes[name] if name else {}
    overhead = (found.get("overhead") or {}).get("podFixed")
    if spec.get("overhead") and not overhead:
        text = "Pod Overhead set without corresponding RuntimeClass defined Overhead"
        _refuse(obj, f"pod rejected: {text}")
    if spec.setdefault("overhead", overhead) != overhead:
        text = "Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        _refuse(obj, f"pod rejected: {text}")
    if not overhead:
        del spec["overhead"]
    scheduling: Mapping[str, Any] = found.get("scheduling") or {}
    if wanted := scheduling.get("nodeSelector"):
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **wanted}
    if added := scheduling.get("tolerations"):
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *added]


def _refuse(obj: Json, why: str) -> NoReturn:
    raise forbidden("", "pods", obj["metadata"].get("name", ""), why)


def add_tolerations(obj: Json) -> None:
    """Let a Pod stay five minutes on a node that is lost, unless it says otherwise; in place."""
    spec: Json = obj["spec"]
    said = spec.get("tolerations") or []
    relevant = [one for one in said if one.get("effect") in (None, "", "NoExecute")]
    common = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _PATIENCE_S}
    added = [
        {"key": key, **common}
        for key in _LOST
        if not any(one.get("key") in (None, "", key) for one in relevant)
    ]
    if added:
        spec["tolerations"] = [*said, *added]


def first_status(spec: Json) -> Json:
    """Return the status of a Pod that is created."""
    status: Json = {"phase": "Pending", "qosClass": _quality(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [dict(_GATED)]
    return status


def _above_zero(container: Json, part: str) -> Json:
    amounts: Json = (container.get("resources") or {}).get(part) or {}
    return {name: amount for name, amount in amounts.items() if amount != "0"}


def _quality(spec: Json) -> str:
    """Return the quality-of-service class that follows from a Pod's resources."""
    containers = [container for _, _, container in containers_of(spec)]
    given = [
        (_above_zero(each, "limits"), _above_zero(each, "requests"))
        for each in ([spec] if spec.get("resources") else containers)
    ]
    if not any(limits or requests for limits, requests in given):
        return "BestEffort"
    is_guaranteed = all(
        name in limits and requests.get(name, limits[name]) == limits[name]
        for limits, requests in given
        for name in ("cpu", "memory")
    )
    return "Guaranteed" if is_guaranteed else "Burstable"
