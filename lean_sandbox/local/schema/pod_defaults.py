"""Defaults of Pods: those of core/v1 and of the service account admission."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lean_sandbox.local.schema.formats import rounded_quantity

Json = dict[str, Any]

_LISTS = ("initContainers", "containers", "ephemeralContainers")
_FILE_MODE = 0o644
_PROBE: Json = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_SOURCES_WITH_MODE = ("configMap", "secret", "projected", "downwardAPI")
# Zero means unset in these fields: Go cannot tell the two apart.
_LEGACY: dict[str, Json] = {
    "azureDisk": {
        "cachingMode": "ReadWrite",
        "fsType": "ext4",
        "kind": "Shared",
        "readOnly": False,
    },
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"keyring": "/etc/ceph/keyring", "pool": "rbd", "user": "admin"},
    "scaleIO": {"fsType": "xfs", "storageMode": "ThinProvisioned"},
    "hostPath": {"type": ""},
}


def containers_of(spec: Json) -> Iterator[tuple[str, int, Json]]:
    """Give list name, position and container for every container of a Pod."""
    for name in _LISTS:
        for position, container in enumerate(spec.get(name) or ()):
            yield name, position, container


def _fill(target: Json, values: Json) -> None:
    for name, value in values.items():
        if target.get(name) in {None, 0, ""}:
            target[name] = value


def _http_defaults(action: Json | None) -> None:
    if action is not None:
        _fill(action, {"path": "/", "scheme": "HTTP"})


def _probe_defaults(probe: Json) -> None:
    _fill(probe, _PROBE)
    _http_defaults(probe.get("httpGet"))
    if (grpc := probe.get("grpc")) is not None:
        grpc.setdefault("service", "")


def _pull_policy(image: str) -> str:
    """Return the default policy: images that can move under their name are always pulled."""
    last = image.rpartition("/")[2]
    if "@" in image:
        return "IfNotPresent"
    tag = last.partition(":")[2] or "latest"
    return "Always" if tag == "latest" else "IfNotPresent"


def _resource_defaults(resources: Json) -> None:
    for part in ("limits", "requests"):
        if given := resources.get(part):
            resources[part] = {name: rounded_quantity(amount) for name, amount in given.items()}
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _container_defaults(container: Json, *, is_host_network: bool) -> None:
    _fill(
        container,
        {
            "imagePullPolicy": _pull_policy(container.get("image") or ""),
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        },
    )
    _resource_defaults(container.setdefault("resources", {}))
    for port in container.get("ports") or ():
        _fill(port, {"protocol": "TCP"})
        if is_host_network and not port.get("hostPort") and port.get("containerPort"):
            port["hostPort"] = port["containerPort"]
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := container.get(name)) is not None:
            _probe_defaults(probe)
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict):
            _http_defaults(hook.get("httpGet"))
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            _fill(reference, {"apiVersion": "v1"})


def _volume_defaults(volume: Json) -> None:
    if not any(value is not None for name, value in volume.items() if name != "name"):
        volume["emptyDir"] = {}
    for name in _SOURCES_WITH_MODE:
        if (source := volume.get(name)) is not None:
            source.setdefault("defaultMode", _FILE_MODE)
    for name, values in _LEGACY.items():
        if (source := volume.get(name)) is not None:
            for key, value in values.items():
                source.setdefault(key, value)
    projected = volume.get("projected") or {}
    items = [*((volume.get("downwardAPI") or {}).get("items") or ())]
    for source in projected.get("sources") or ():
        if (token := source.get("serviceAccountToken")) is not None:
            _fill(token, {"expirationSeconds": 3600})
        items += (source.get("downwardAPI") or {}).get("items") or ()
    for item in items:
        if (reference := item.get("fieldRef")) is not None:
            _fill(reference, {"apiVersion": "v1"})
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template is not None:
        template.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def pod_spec_defaults(spec: Json) -> None:
    """Write the defaults of a Pod's spec, also of one inside a workload's template."""
    for _, _, container in containers_of(spec):
        _container_defaults(container, is_host_network=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or ():
        _volume_defaults(volume)
    _fill(
        spec,
        {
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
        },
    )
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    grace = spec.setdefault("terminationGracePeriodSeconds", 30)
    if isinstance(grace, int) and grace < 0:
        spec["terminationGracePeriodSeconds"] = 1


def pod_defaults(obj: Json) -> None:
    """Write the defaults of a Pod, with those of the service account admission."""
    spec = obj.setdefault("spec", {})
    pod_spec_defaults(spec)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    spec.setdefault("enableServiceLinks", True)
    if spec.get("resources"):
        _resource_defaults(spec["resources"])
