"""Volumes of Sandboxes: their templates, and PersistentVolumeClaims that somebody else made."""

from __future__ import annotations

from typing import Any

from tests.support.world import NS

Json = dict[str, Any]
ADOPTABLE = {"agents.x-k8s.io/adoptable": "true"}
VOLUME_SPEC: Json = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
}


def volume(name: str = "data", size: str = "1Gi", **metadata: Any) -> Json:
    """Return one entry of ``spec.volumeClaimTemplates``."""
    wanted = {**VOLUME_SPEC, "resources": {"requests": {"storage": size}}}
    return {"metadata": {"name": name, **metadata}, "spec": wanted}


VOLUME = volume()
WHOLE: Json = {"service": True, "volumeClaimTemplates": [VOLUME]}
"""What the spec of a Sandbox may ask for besides its Pod."""


def volume_claim(
    name: str = "data-sb-1", *, labels: dict[str, str] | None = None, owners: tuple[Json, ...] = ()
) -> Json:
    """Return a claim that somebody else made."""
    metadata: Json = {"name": name, "namespace": NS}
    if labels:
        metadata["labels"] = labels
    if owners:
        metadata["ownerReferences"] = list(owners)
    spec = {**VOLUME_SPEC, "volumeName": "precious"}
    body = {"metadata": metadata, "spec": spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **body}
