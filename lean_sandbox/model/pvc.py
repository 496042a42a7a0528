"""PersistentVolumeClaims of a Sandbox."""

from __future__ import annotations

from typing import Any

from lean_sandbox.model.meta import ObjectMeta, owner_references_body, sandbox_reference
from lean_sandbox.model.names import NAME_HASH_LABEL, name_hash
from lean_sandbox.model.sandbox import VolumeClaimTemplate


def pvc_name(template: VolumeClaimTemplate | str, sandbox_name: str) -> str:
    """Return the name of the claim made from ``template`` (or from the template of that name)."""
    name = template if isinstance(template, str) else template.name
    return f"{name}-{sandbox_name}"


def build_pvc(sandbox_meta: ObjectMeta, template: VolumeClaimTemplate) -> dict[str, Any]:
    """Return the body that creates the claim of ``template``.

    Metadata and spec are taken over verbatim; only the tracking label overrides, so a template
    cannot point a claim at another Sandbox. The spec stays raw JSON.
    """
    metadata: dict[str, Any] = {
        "name": pvc_name(template, sandbox_meta.name),
        "namespace": sandbox_meta.namespace,
        "labels": {
            **(template.metadata.labels or {}),
            NAME_HASH_LABEL: name_hash(sandbox_meta.name),
        },
        "ownerReferences": owner_references_body((sandbox_reference(sandbox_meta),)),
    }
    if template.metadata.annotations:
        metadata["annotations"] = template.metadata.annotations
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": template.spec,
    }


def claim_volume(template_name: str, sandbox_name: str) -> dict[str, Any]:
    """Return the Pod volume that mounts the claim of the template ``template_name``."""
    return {
        "name": template_name,
        "persistentVolumeClaim": {"claimName": pvc_name(template_name, sandbox_name)},
    }
