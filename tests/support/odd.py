"""Objects of all kinds with anything anywhere: what a store may hold that nobody checked."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.support.builders import claim, pool, template
from tests.support.volumes import volume
from tests.support.world import NS, controlled_by, pod_body, running_status, sandbox, tracking

__all__ = ["JSON_VALUES", "KINDS", "Odd", "change", "odd_bytes", "odd_objects"]

Json = dict[str, Any]

_OWNER = controlled_by(
    {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": "sb", "uid": "uid-of-sb"},
    }
)
_CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "DependenciesReady",
    "message": "",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
    "observedGeneration": 1,
}
_META: Json = {
    "namespace": NS,
    "uid": "uid",
    "resourceVersion": "5",
    "generation": 1,
    "creationTimestamp": "2026-01-02T03:04:05Z",
    "labels": {**tracking("odd"), "agents.x-k8s.io/created-by": "me"},
    "annotations": {"agents.x-k8s.io/pod-name": "odd", "note": "x"},
    "ownerReferences": [_OWNER],
    "finalizers": ["example.com/held"],
    "managedFields": [{"manager": "m", "operation": "Apply", "fieldsV1": {"f:spec": {}}}],
}
_PORTS = [{"name": "http", "containerPort": 80, "protocol": "TCP"}]
_CONTAINERS = [{"name": "main", "image": "busybox", "ports": _PORTS, "env": []}]
_POD_TEMPLATE = {
    "metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}},
    "spec": {"containers": _CONTAINERS, "initContainers": _CONTAINERS, "volumes": []},
}
_DISK = volume(labels={"a": "b"})
_SPEC: Json = {"podTemplate": _POD_TEMPLATE, "volumeClaimTemplates": [_DISK], "service": True}


def _of(body: Json, **more: Any) -> Json:
    return {**body, "metadata": {**_META, "name": "odd"}, **more}


KINDS: dict[str, Json] = {
    "pods": _of(
        pod_body(),
        spec={"nodeName": "n", "containers": _CONTAINERS},
        status={**running_status(), "message": "", "reason": ""},
    ),
    "services": _of(
        {"apiVersion": "v1", "kind": "Service"},
        spec={
            "clusterIP": "None",
            "selector": tracking("odd"),
            "ports": [{"name": "p", "protocol": "TCP", "port": 80, "targetPort": 80}],
        },
    ),
    "pvcs": _of({"apiVersion": "v1", "kind": "PersistentVolumeClaim"}, spec=_DISK["spec"]),
    "sandboxes": _of(
        sandbox(),
        spec={
            **_SPEC,
            "shutdownTime": "2027-01-02T03:04:05Z",
            "shutdownPolicy": "Delete",
            "operatingMode": "Running",
        },
        status={"conditions": [_CONDITION], "podIPs": ["10.0.0.1"], "nodeName": "n"},
    ),
    "claims": _of(
        claim(),
        spec={
            "warmPoolRef": {"name": "pool"},
            "env": [{"name": "A", "value": "b"}],
            "volumeClaimTemplates": [_DISK],
            "additionalPodMetadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            "lifecycle": {
                "shutdownTime": "2027-01-02T03:04:05Z",
                "shutdownPolicy": "Retain",
                "ttlSecondsAfterFinished": 60,
            },
        },
        status={"conditions": [_CONDITION], "sandbox": {"name": "odd", "podIPs": ["10.0.0.1"]}},
    ),
    "templates": _of(
        template(),
        spec={
            **_SPEC,
            "networkPolicy": {"ingress": [{"from": [{"podSelector": {}}]}]},
            "networkPolicyManagement": "Managed",
            "envVarsInjectionPolicy": "Allowed",
            "volumeClaimTemplatesPolicy": "Overrides",
        },
    ),
    "pools": _of(
        pool(),
        spec={
            "replicas": 1,
            "sandboxTemplateRef": {"name": "odd"},
            "updateStrategy": {"type": "Recreate"},
        },
        status={"replicas": 1, "readyReplicas": 1, "selector": "a=b", "observedGeneration": 1},
    ),
    "policies": _of(
        {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"},
        spec={"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Ingress"]},
    ),
}

JSON_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 7, 2**63, -(2**64), 1e308, 0.5, "", "x", [], {}, [[]], [None], [7], ["x"]),
    *({"": None}, {"a": 1}, {"name": 7}, "9999-12-31T23:59:60Z", "0001-01-01T00:00:00Z"),
    *("0000-00-00T00:00:00Z", "2026-01-02T03:04:05+99:99", "99999-01-01T00:00:00Z", "x" * 5000),
    *("9" * 5000, "-5", "\u0661", "a/b", "..", "\0", "\u2028", "{}", "1e9Gi", "\U0001f600" * 99),
)
"""What can stand anywhere in JSON that is well formed."""

_RAW: tuple[bytes, ...] = (
    *(b"1e400", b"-1e400", b"9" * 5000, b"1." + b"0" * 5000, b"1e-400", b"-0", b"1E5"),
    *(b'"\xff\xfe"', b'"\xed\xa0\x80"', b'"\\ud800"', b'"\\udfff\\ud800"', b'"\\u0000"'),
    *(b"[" * 1500 + b"]" * 1500, b'{"a":' * 3000 + b"1" + b"}" * 3000),
    *(b'[{"a":' * 900 + b"1" + b"}]" * 900, b'{"a":1,"a":2}', b'{"\\ud800":1}', b'{"\xff":1}'),
)
"""The same as bytes: beyond what is well formed, or what Python would write."""

Odd = tuple[tuple[int, ...], bool, Any]
"""Where (a choice at each level), whether the key or the value, and what is put there."""

_PATHS = st.lists(st.integers(0, 99), max_size=8).map(tuple)
_MARK = "a place to be filled"


def odd_objects(*, raw: bool) -> st.SearchStrategy[list[Odd]]:
    """Draw one to three changes; ``raw`` ones need :func:`odd_bytes`."""
    values: st.SearchStrategy[Any] = st.sampled_from(JSON_VALUES)
    if raw:
        values = st.sampled_from(_RAW) | values
    return st.lists(st.tuples(_PATHS, st.booleans(), values), min_size=1, max_size=3)


def change(obj: Json, path: tuple[int, ...], *, is_key: bool, value: Any) -> None:
    """Put a value somewhere into an object: in place of a value, or as one more field."""
    value = deepcopy(value)
    at: Any = obj
    for step in path[:-1]:
        children = list(at.values()) if isinstance(at, dict) else at
        inner = children[step % len(children)] if children else None
        if not isinstance(inner, dict | list) or not inner:
            break
        at = inner
    last = path[-1] if path else 0
    if isinstance(at, list):
        at[last % len(at)] = value
    elif is_key:
        at[f"more{last}"] = value
    else:
        at[list(at)[last % len(at)]] = value


def odd_bytes(kind: str, changes: list[Odd]) -> bytes:
    """Return an object of a kind, changed, as bytes that a server might send."""
    obj = msgspec.json.decode(msgspec.json.encode(KINDS[kind]))
    filled: list[bytes] = []
    for path, is_key, value in changes:
        if isinstance(value, bytes):
            change(obj, path, is_key=is_key, value=f"{_MARK} {len(filled)}")
            filled.append(value)
        else:
            change(obj, path, is_key=is_key, value=value)
    text = msgspec.json.encode(obj)
    for number, value in enumerate(filled):
        text = text.replace(f'"{_MARK} {number}"'.encode(), value)
    return text
