"""A small object of every built-in kind that is served, for laws that hold of all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from lean_sandbox.local.kinds import Kind, builtin_kinds

Json = dict[str, Any]

_TEMPLATE: Json = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
}
_SELECTED: Json = {"selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}
_RULES: Json = {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}
_SUBJECTS = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "somebody"}]
_TIME = "2030-01-02T03:04:05.000006Z"


def _role(kind: str) -> Json:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "some"}
    return {"roleRef": reference, "subjects": _SUBJECTS}


def _definition(name: str) -> Json:
    plural = f"{name}s"
    group = "samples.lean-sandbox.dev"
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "maximum": 7, "default": 3}},
    }
    version = {"name": "v1", "served": True, "storage": True}
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": plural, "kind": name.title().replace("-", ""), "singular": name},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }


_BODIES: dict[str, Json] = {
    "configmaps": {"data": {"a": "b", "empty": ""}, "binaryData": {"c": "AAEC"}},
    "events": {
        "involvedObject": {"kind": "Pod", "apiVersion": "v1", "name": "some"},
        "reason": "Some",
        "type": "Normal",
        "message": "a message",
        "source": {"component": "tests"},
        "firstTimestamp": "2030-01-02T03:04:05Z",
        "lastTimestamp": "2030-01-02T03:04:05Z",
        "count": 2,
    },
    "namespaces": {},
    "nodes": {"spec": {"unschedulable": True}},
    "persistentvolumeclaims": {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "none",
        }
    },
    "pods": {
        "spec": {
            "schedulerName": "nobody",
            "securityContext": {"runAsUser": 1000, "supplementalGroups": [1, 2]},
            "containers": [
                {
                    "name": "main",
                    "image": "busybox",
                    "env": [{"name": "a", "value": "b"}],
                    "readinessProbe": {"httpGet": {"path": "/", "port": "web"}},
                    "livenessProbe": {"tcpSocket": {"port": 80}},
                    "ports": [{"containerPort": 80, "name": "web"}],
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                    "volumeMounts": [{"name": "empty", "mountPath": "/empty"}],
                }
            ],
            "volumes": [{"name": "empty", "emptyDir": {}}],
            "automountServiceAccountToken": False,
        }
    },
    "secrets": {"data": {"a": "AAEC"}, "stringData": {"b": "c"}, "type": "Opaque"},
    "serviceaccounts": {"automountServiceAccountToken": False},
    "services": {
        "spec": {
            "selector": {"a": "b"},
            "ports": [{"name": "web", "port": 80, "targetPort": "web"}],
        }
    },
    "deployments.apps": {"spec": {**_SELECTED, "replicas": 0}},
    "replicasets.apps": {"spec": {**_SELECTED, "replicas": 0}},
    "statefulsets.apps": {"spec": {**_SELECTED, "replicas": 0, "serviceName": "some"}},
    "horizontalpodautoscalers.autoscaling": {
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "some"},
            "maxReplicas": 3,
        }
    },
    "leases.coordination.k8s.io": {
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": _TIME}
    },
    "events.events.k8s.io": {
        "eventTime": _TIME,
        "regarding": {"kind": "Pod", "apiVersion": "v1", "name": "some"},
        "reason": "Some",
        "action": "Doing",
        "type": "Warning",
        "note": "a note",
        "reportingController": "tests/conformance",
        "reportingInstance": "one",
    },
    "networkpolicies.networking.k8s.io": {
        "spec": {
            "podSelector": {"matchLabels": {"a": "b"}},
            "ingress": [
                {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 80}]},
            ],
            "policyTypes": ["Ingress"],
        }
    },
    "poddisruptionbudgets.policy": {
        "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}
    },
    "clusterroles.rbac.authorization.k8s.io": _RULES,
    "clusterrolebindings.rbac.authorization.k8s.io": _role("ClusterRole"),
    "roles.rbac.authorization.k8s.io": _RULES,
    "rolebindings.rbac.authorization.k8s.io": _role("Role"),
    "priorityclasses.scheduling.k8s.io": {"value": 7, "description": "some"},
    "runtimeclasses.node.k8s.io": {"handler": "some", "overhead": {"podFixed": {"cpu": "1m"}}},
}


class Sample(NamedTuple):
    """A kind, and what its objects say beside their names."""

    kind: Kind

    def body(self, name: str, namespace: str = "") -> Json:
        """Return an object of that name, which is to be in a namespace if its kind is."""
        kind = self.kind
        plural = kind.qualified_plural
        if plural.startswith("customresourcedefinitions"):
            more = _definition(name)
        else:
            more = {"metadata": {"name": name}, **_BODIES[plural]}
        if kind.plural == "events":
            regards = "regarding" if kind.group else "involvedObject"
            more[regards] = {**more[regards], "namespace": namespace}
        return {"apiVersion": kind.api_version, "kind": kind.kind, **more}

    def path(self, namespace: str) -> str:
        """Return the path of its objects."""
        kind = self.kind
        base = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
        return (
            f"{base}/namespaces/{namespace}/{kind.plural}"
            if kind.namespaced
            else (f"{base}/{kind.plural}")
        )


def samples() -> list[Sample]:
    """Return a sample of each kind that is stored."""
    return [Sample(kind) for kind in builtin_kinds() if not kind.is_review]


CASES: list[tuple[str, Json, Json]] = json.loads(
    (Path(__file__).parent / "kinds.json").read_text(encoding="utf-8")
)

_TOKEN = "kube-api-access-"


def _put_apart(spec: Json, name: str, kept: list[Any]) -> None:
    spec.pop(name, None)
    if kept:
        spec[name] = kept


def comparable(obj: Json) -> Json:
    """Return an object without names, and without what a server gives out or adds itself."""
    made = {k: v for k, v in obj.items() if k not in ("metadata", "kind", "apiVersion")}
    if obj["kind"] == "Pod":
        spec = made["spec"]
        for container in [*(spec["containers"] or ()), *spec.get("initContainers", ())]:
            mounts = container.get("volumeMounts") or []
            own = [one for one in mounts if not one["name"].startswith(_TOKEN)]
            _put_apart(container, "volumeMounts", own)
        volumes = spec.get("volumes") or []
        _put_apart(spec, "volumes", [v for v in volumes if not v["name"].startswith(_TOKEN)])
        spec.pop("tolerations", None)
    if obj["kind"] == "Service":
        for name in ("clusterIP", "clusterIPs"):
            if made["spec"].get(name) not in ("None", ["None"], None):
                made["spec"][name] = "IP"
        made["spec"].pop("healthCheckNodePort", None)
        for port in made["spec"].get("ports") or ():
            port.pop("nodePort", None)
    return made
