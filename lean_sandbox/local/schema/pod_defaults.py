"""Defaults of Pods: those of core/v1 and of the service account admission."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

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
    "grpc?": {"service": ""},
    **_HTTP,
}
_FIELD: Final[Json] = {"fieldRef?": {"apiVersion": "v1"}}
_CONTAINER: Final[Json] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
    "ports[*]": {"protocol": "TCP"},
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
    "azureDisk?": {
        "cachingMode": "ReadWrite",
        "fsType": "ext4",
        "kind": "Shared",
        "readOnly": False,
    },
    "iscsi?": {"iscsiInterface": "default"},
    "rbd?": {"keyring": "/etc/ceph/keyring", "pool": "rbd", "user": "admin"},
    "scaleIO?": {"fsType": "xfs", "storageMode": "ThinProvisioned"},
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
