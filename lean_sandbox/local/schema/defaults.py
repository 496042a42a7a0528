"""Defaults of the built-in kinds, which their schemas do not say, as trees of members.

In a tree `name[*]` stands for every item of a list.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from lean_sandbox.local.schema.structural import canonical_quantity
from lean_sandbox.model.comparison import parse_quantity

Json = dict[str, Any]


def fill(target: Json, tree: Json) -> None:
    """Write defaults where nothing is.

    Objects on the way are made, except where `?` ends the name. Below `name=value` is what is
    written if a member has this value. What has the default None is taken away, and an object
    that is empty without it.
    """
    for key, value in tree.items():
        if value is None:
            target.pop(key, None)
        elif key.endswith("[*]"):
            for item in target.get(key[:-3]) or ():
                fill(item, value)
        elif key.endswith("?"):
            name = key[:-1]
            if (inner := target.get(name)) is not None:
                was_empty = not inner
                fill(inner, value)
                if not (inner or was_empty):
                    del target[name]
        elif "=" in key:
            name, _, wanted = key.partition("=")
            if target.get(name) == wanted:
                fill(target, value)
        elif isinstance(value, dict):
            if target.get(key) is None:
                target[key] = {}
            fill(target[key], value)
        elif target.get(key) is None:
            target[key] = copy.copy(value)


# ------------------------------------------------------------------ Pods

CONTAINER_LISTS: Final = ("initContainers", "containers")
# Of a feature that a real server has turned off.
_OFF: Final = None
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
    "lifecycle?": {"stopSignal": _OFF, "postStart?": _HTTP, "preStop?": _HTTP},
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
            "clusterTrustBundle": _OFF,
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


def _round_up(resources: Json) -> None:
    """Round amounts up to thousandths."""
    for part in ("limits", "requests"):
        for name, amount in (resources.get(part) or {}).items():
            exact = (parse_quantity(amount) or 0) * 1000
            if exact % 1:
                resources[part][name] = canonical_quantity(f"{math.ceil(exact)}m")


def _resource_defaults(resources: Json) -> None:
    """Round amounts; what is limited is requested."""
    _round_up(resources)
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def pod_spec_defaults(spec: Json) -> None:
    """Write the defaults of a Pod's spec, also of one inside a workload's template."""
    fill(spec, _SPEC)
    for _, _, container in containers_of(spec):
        fill(container, {"imagePullPolicy": _pull_policy(container.get("image") or "")})
        for port in container.get("ports") or () if spec.get("hostNetwork") else ():
            if port.get("containerPort"):
                port["hostPort"] = port.get("hostPort") or port["containerPort"]
    for volume in spec.get("volumes") or ():
        if not any(value is not None for name, value in volume.items() if name != "name"):
            volume["emptyDir"] = {}
        if image := volume.get("image"):
            fill(image, {"pullPolicy": _pull_policy(image.get("reference") or "")})
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1


def pod_defaults(obj: Json) -> None:
    """Write the defaults of a Pod, with those of the service account admission."""
    spec = obj.setdefault("spec", {})
    pod_spec_defaults(spec)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    spec.setdefault("enableServiceLinks", True)
    for _, _, container in containers_of(spec):
        _resource_defaults(container["resources"])
    _resource_defaults(spec.get("resources") or {})
    _address_defaults(obj.get("status") or {})


def _address_defaults(status: Json) -> None:
    """Let the address of a Pod be the first of its addresses."""
    given = status.get("podIPs") or []
    if (first := status.get("podIP")) and (not given or given[0].get("ip") != first):
        status["podIPs"] = [{"ip": first}]
    elif given and not first:
        status["podIP"] = given[0].get("ip") or ""


# ------------------------------------------------------------------ Services and definitions

_SERVICE: Final[Json] = {"type": "ClusterIP", "sessionAffinity": "None"}
_PUBLISHED: Final[Json] = {
    "internalTrafficPolicy": "Cluster",
    "sessionAffinity=ClientIP": {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}},
    "type=LoadBalancer": {
        "allocateLoadBalancerNodePorts": True,
        "externalTrafficPolicy": "Cluster",
    },
    "type=NodePort": {"externalTrafficPolicy": "Cluster"},
}
_LOOSE: Final[Json] = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}
_SINGLE: Final[Json] = {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}


def service_defaults(obj: Json) -> None:
    """Write the defaults of a Service (cluster IPs and node ports are the server's matter)."""
    spec = obj.setdefault("spec", {})
    fill(spec, _SERVICE)
    for one in spec.get("ports") or ():
        if not one.get("targetPort") and one.get("port") is not None:
            one["targetPort"] = one["port"]
    if spec["sessionAffinity"] != "ClientIP":
        spec.pop("sessionAffinityConfig", None)
    if (address := spec.get("clusterIP")) and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [address]
    if spec["type"] == "ExternalName":
        spec.pop("internalTrafficPolicy", None)
        return
    fill(spec, _PUBLISHED)
    if spec.get("externalIPs"):
        fill(spec, {"externalTrafficPolicy": "Cluster"})
    fill(spec, _LOOSE if address == "None" and not spec.get("selector") else _SINGLE)


def definition_defaults(crd: Json) -> None:
    """Write the defaults of a definition: names, conversion, and what its status says of both."""
    spec = crd["spec"] = crd.get("spec") or {}
    given = spec["names"] = spec.get("names") or {}
    kind = given.get("kind") or ""
    if not given.get("singular"):
        given["singular"] = kind.lower()
    if not given.get("listKind") and kind:
        given["listKind"] = f"{kind}List"
    if not spec.get("conversion"):
        spec["conversion"] = {"strategy": "None"}
    stored = [v["name"] for v in spec.get("versions") or () if v.get("storage") and v.get("name")]
    status = crd.setdefault("status", {})
    for name in stored:
        if name not in (status.get("storedVersions") or ()):
            status["storedVersions"] = [*(status.get("storedVersions") or ()), name]
    status["acceptedNames"] = given


# ------------------------------------------------------------------ all kinds

_RBAC: Final = "rbac.authorization.k8s.io"


def _namespace_defaults(obj: Json) -> None:
    labels = obj["metadata"].get("labels") or {}
    labels["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")
    obj["metadata"]["labels"] = labels
    fill(obj, {"spec": {"finalizers": ["kubernetes"]}})


def _network_policy_defaults(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def _claim_defaults(obj: Json) -> None:
    """Write a claim's source under both of its names; drop a source that none of them takes."""
    spec = obj.setdefault("spec", {})
    _round_up(spec.get("resources") or {})
    source = spec.get("dataSource")
    reference = spec.get("dataSourceRef")
    if source is not None and (source.get("apiGroup") or "", source.get("kind")) not in _SOURCES:
        source = None
        del spec["dataSource"]
    if reference and reference.get("namespace"):
        del spec["dataSourceRef"]
    elif reference and not source:
        spec["dataSource"] = dict(reference)
    elif source and not reference:
        spec["dataSourceRef"] = dict(source)


_SOURCES: Final = (
    ("", "PersistentVolumeClaim"),
    ("snapshot.storage.k8s.io", "VolumeSnapshot"),
)


def _scaler_defaults(obj: Json) -> None:
    """Write how fast a HorizontalPodAutoscaler scales, if it says anything of it."""
    behavior = obj["spec"].get("behavior")
    for name in ("scaleUp", "scaleDown") if behavior else ():
        behavior[name] = behavior.get(name) or {}
        fill(behavior[name], _SCALING[name])


_PERCENT: Final[Json] = {"type": "Percent", "value": 100, "periodSeconds": 15}
_SCALING: Final[Mapping[str, Json]] = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, _PERCENT],
    },
    "scaleDown": {"selectPolicy": "Max", "policies": [_PERCENT]},
}


def _rolling(**steps: Any) -> Json:
    return {"type": "RollingUpdate", "type=RollingUpdate": {"rollingUpdate": steps}}


_POLICY_PORTS: Final[Json] = {"ports[*]": {"protocol": "TCP"}}
_BINDING: Final[Json] = {
    "roleRef": {"apiGroup": _RBAC},
    "subjects[*]": {"kind=User": {"apiGroup": _RBAC}, "kind=Group": {"apiGroup": _RBAC}},
}
_CPU: Final[Json] = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
_DEFAULTS: Final[Mapping[str, Json]] = {
    "ClusterRoleBinding": _BINDING,
    "HorizontalPodAutoscaler": {"spec": {"minReplicas": 1, "metrics": [_CPU]}},
    "Lease": {"spec?": {"strategy": _OFF, "preferredHolder": _OFF}},
    "NetworkPolicy": {"spec": {"ingress[*]": _POLICY_PORTS, "egress[*]": _POLICY_PORTS}},
    "Node": {"spec?": {"configSource": _OFF}},
    "PersistentVolumeClaim": {"spec": {"volumeMode": "Filesystem"}},
    "PriorityClass": {"preemptionPolicy": "PreemptLowerPriority"},
    "RoleBinding": _BINDING,
    "Secret": {"type": "Opaque"},
}
_WORKLOADS: Final[Mapping[str, Json]] = {
    "Deployment": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": _rolling(maxSurge="25%", maxUnavailable="25%"),
    },
    "ReplicaSet": {"replicas": 1},
    "StatefulSet": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "podManagementPolicy": "OrderedReady",
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "updateStrategy": _rolling(partition=0),
        "volumeClaimTemplates[*]": {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "spec": {"volumeMode": "Filesystem"},
            "status": {"phase": "Pending"},
        },
    },
}
"""The defaults of specs that hold a template of Pods."""
_OWN_DEFAULTS: Final[Mapping[str, Callable[[Json], None]]] = {
    "CustomResourceDefinition": definition_defaults,
    "HorizontalPodAutoscaler": _scaler_defaults,
    "Namespace": _namespace_defaults,
    "NetworkPolicy": _network_policy_defaults,
    "PersistentVolumeClaim": _claim_defaults,
    "Pod": pod_defaults,
    "Service": service_defaults,
}


def core_defaults(kind: str, obj: Json) -> None:
    """Write the defaults of a built-in kind into an object, in place; unknown kinds are left alone.

    Allocated values (cluster IPs, node ports) and what admission adds beside the service account
    (priority, token volumes, tolerations) are the server's part.
    """
    fill(obj, _DEFAULTS.get(kind, {}))
    if kind in _WORKLOADS:
        fill(obj, {"spec": _WORKLOADS[kind]})
        fill(obj, {"spec": {"template": {"spec": {}}}})
        pod_spec_defaults(obj["spec"]["template"]["spec"])
    if (apply := _OWN_DEFAULTS.get(kind)) is not None:
        apply(obj)
