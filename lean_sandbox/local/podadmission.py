"""What admission adds to a new Pod: the token of its service account, patience with lost nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Json = dict[str, Any]

_MOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
# An hour, and the 7 s by which the server knows a token that it asked for itself.
_TOKEN_LIFE_S: Final = 3607
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
    for part in ("initContainers", "containers"):
        for container in spec.get(part) or ():
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


def add_tolerations(obj: Json) -> None:
    """Let a Pod stay five minutes on a node that is lost, unless it says otherwise; in place."""
    spec: Json = obj["spec"]
    said = spec.get("tolerations") or []
    added = [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _PATIENCE_S,
        }
        for key in _LOST
        if not any(_covers(toleration, key) for toleration in said)
    ]
    if added:
        spec["tolerations"] = [*said, *added]


def _covers(toleration: Json, key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (
        None,
        "",
        "NoExecute",
    )
