"""Realistic objects: healthy Sandboxes and their Ready Pods, as a real cluster stores them.

The Pod is the one that the controller's own model builds from the Sandbox, with the defaults an
API server adds, the service account's token volume, and a running status; the status of the Sandbox
is the one the controller computes from that Pod. Both carry ``managedFields`` made from the fields
they have. So a controller that starts over them finds nothing to write and nothing to ask.

Everything follows from the number of the pair: two calls give the same objects.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from lean_sandbox.model.names import CORE_API_VERSION, SANDBOX_KIND
from lean_sandbox.model.pod import Pod, build_pod
from lean_sandbox.model.sandbox import Sandbox, SandboxStatus
from lean_sandbox.model.sandbox_status import Observation, next_status, observe_pod
from lean_sandbox.model.times import format_rfc3339

Json = dict[str, Any]

CREATED: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NAMESPACES: Final = tuple(f"team-{number}" for number in range(10))
_IMAGE: Final = "registry.example.com/agents/code-interpreter:2026.1.0"
_NODES: Final = 50
# How server-side apply tells the items of a list apart, by the list's name.
_LIST_KEYS: Final = {
    "containers": ("name",),
    "env": ("name",),
    "ports": ("containerPort", "protocol"),
    "conditions": ("type",),
    "podIPs": ("ip",),
    "ownerReferences": ("uid",),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """A Sandbox and its Pod, complete but for their resourceVersion."""

    sandbox: Json
    pod: Json


def namespace(name: str) -> Json:
    """Return a namespace for the objects to be in."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "uid": _uid("namespace", name), "creationTimestamp": _at(0)},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def pair(number: int) -> Pair:
    """Return the Sandbox of a number, Ready, and its running Pod."""
    sandbox = _sandbox(number)
    decoded = msgspec.convert(_without_raw(sandbox), Sandbox)
    spec = msgspec.Raw(msgspec.json.encode(sandbox["spec"]["podTemplate"]["spec"]))
    template = msgspec.structs.replace(decoded.spec.podTemplate, spec=spec)
    decoded = msgspec.structs.replace(
        decoded, spec=msgspec.structs.replace(decoded.spec, podTemplate=template)
    )
    pod = _pod(number, msgspec.json.decode(msgspec.json.encode(build_pod(decoded))))
    seen = Observation(
        generation=decoded.metadata.generation,
        pod=observe_pod(msgspec.convert(pod, Pod), decoded.metadata.uid),
    )
    status = next_status(
        SandboxStatus(),
        seen,
        CREATED + timedelta(seconds=number + 3),
        name=decoded.metadata.name,
        namespace=decoded.metadata.namespace,
    )
    sandbox["status"] = msgspec.to_builtins(status)
    sandbox["metadata"]["managedFields"] = [
        managed_fields("python-client", CORE_API_VERSION, sandbox, ("metadata", "spec"), number),
        managed_fields("lean-sandbox", CORE_API_VERSION, sandbox, ("status",), number),
    ]
    return Pair(sandbox, pod)


def managed_fields(
    manager: str, api_version: str, obj: Json, parts: tuple[str, ...], number: int
) -> Json:
    """Return the ``managedFields`` entry of a manager that wrote these parts of an object."""
    fields = {f"f:{part}": _fields_of(_owned(obj[part], part), part) for part in parts}
    entry: Json = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": api_version,
        "time": _at(number),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    if parts == ("status",):
        entry["subresource"] = "status"
    return entry


def _owned(value: Json, part: str) -> Json:
    if part != "metadata":
        return value
    return {key: value[key] for key in ("labels", "annotations", "ownerReferences") if key in value}


def _fields_of(value: Any, name: str) -> Json:
    if isinstance(value, dict):
        return {f"f:{key}": _fields_of(item, key) for key, item in value.items()}
    if isinstance(value, list) and name in _LIST_KEYS:
        keys = _LIST_KEYS[name]
        listed: Json = {".": {}}
        for item in value:
            identity = msgspec.json.encode({key: item[key] for key in keys if key in item})
            listed[f"k:{identity.decode()}"] = {".": {}, **_fields_of(item, "")}
        return listed
    return {}


def _without_raw(sandbox: Json) -> Json:
    template = {"metadata": sandbox["spec"]["podTemplate"]["metadata"]}
    return {**sandbox, "spec": {**sandbox["spec"], "podTemplate": template}}


def _sandbox(number: int) -> Json:
    name = f"session-{_digest('name', number)[:12]}"
    return {
        "apiVersion": CORE_API_VERSION,
        "kind": SANDBOX_KIND,
        "metadata": {
            "name": name,
            "namespace": NAMESPACES[number % len(NAMESPACES)],
            "uid": _uid("sandbox", number),
            "generation": 1,
            "creationTimestamp": _at(number),
            "labels": {"app.kubernetes.io/name": "code-interpreter", "example.com/user": name[-6:]},
        },
        "spec": {
            "operatingMode": "Running",
            "shutdownPolicy": "Retain",
            "podTemplate": {
                "metadata": {
                    "labels": {"app.kubernetes.io/name": "code-interpreter"},
                    "annotations": {"example.com/cost-centre": "research"},
                },
                "spec": {"containers": [_container()]},
            },
        },
    }


def _container() -> Json:
    return {
        "name": "main",
        "image": _IMAGE,
        "command": ["/usr/local/bin/interpreter", "--listen", "0.0.0.0:8888"],
        "env": [
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            {"name": "SESSION_IDLE_TIMEOUT", "value": "1800"},
        ],
        "ports": [{"containerPort": 8888, "name": "http", "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": "250m", "memory": "512Mi"},
            "limits": {"cpu": "1", "memory": "1Gi"},
        },
    }


# -- the Pod ---------------------------------------------------------------------------------------


def _pod(number: int, body: Json) -> Json:
    metadata = body["metadata"]
    metadata["uid"] = _uid("pod", number)
    metadata["generation"] = 1
    metadata["creationTimestamp"] = _at(number)
    body["spec"] = _defaulted(body["spec"])
    body["status"] = _pod_status(number)
    metadata["managedFields"] = [
        managed_fields("lean-sandbox", "v1", body, ("metadata", "spec"), number),
        managed_fields("kubelet", "v1", body, ("status",), number + 2),
    ]
    body["spec"] = _admitted(body["spec"], _node(number), f"kube-api-access-{number % 99991:05d}")
    return body


def _node(number: int) -> str:
    return f"pool-a-node-{number % _NODES:03d}.zone-1.example.internal"


def _defaulted(spec: Json) -> Json:
    """Return the spec with the defaults of the API, which count as the creator's fields."""
    return {
        "containers": [
            {
                **container,
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
            for container in spec["containers"]
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
    }


def _admitted(spec: Json, node: str, token: str) -> Json:
    """Return the spec with what admission and the scheduler add, which nobody's fields list."""
    mount = {
        "name": token,
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }
    return {
        "volumes": [{"name": token, "projected": _token_sources()}],
        **spec,
        "containers": [{**container, "volumeMounts": [mount]} for container in spec["containers"]],
        "nodeName": node,
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{taint}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for taint in ("not-ready", "unreachable")
        ],
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _token_sources() -> Json:
    field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {
                "configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                }
            },
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
        ],
        "defaultMode": 420,
    }


def _pod_status(number: int) -> Json:
    address = f"10.{64 + number // 65536}.{number // 256 % 256}.{number % 256}"
    host = f"192.168.0.{number % _NODES + 1}"
    started = _at(number + 2)
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "observedGeneration": 1,
        "phase": "Running",
        "conditions": [
            {
                "type": kind,
                "observedGeneration": 1,
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": started,
            }
            for kind in kinds
        ],
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": _at(number),
        "containerStatuses": [
            {
                "name": "main",
                "state": {"running": {"startedAt": started}},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "image": _IMAGE,
                "imageID": f"{_IMAGE.rpartition(':')[0]}@sha256:{_digest('image', 0)}",
                "containerID": f"containerd://{_digest('container', number)}",
                "started": True,
            }
        ],
        "qosClass": "Burstable",
    }


# -- what differs from one to the next -------------------------------------------------------------


def _digest(kind: str, what: object) -> str:
    return hashlib.sha256(f"{kind} {what}".encode()).hexdigest()


def _uid(kind: str, what: object) -> str:
    text = _digest(kind, what)
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:32]}"


def _at(seconds: int) -> str:
    return format_rfc3339(CREATED + timedelta(seconds=seconds))
