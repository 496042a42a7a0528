"""The Sandbox of a claim: created cold, or taken over from a pool.

The patch that takes a member over is guarded by the uid of the owning pool: writes to the status in
between do not matter, and of two adopters the second always loses. It also clears
``metadata.managedFields``; docs/design.md says what that saves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from lean_sandbox.model import names
from lean_sandbox.model.claim import ClaimFacts, SandboxClaimSpec
from lean_sandbox.model.claim_additions import (
    desired_pod_metadata,
    inject_env,
    merge_claim_templates,
)
from lean_sandbox.model.podspec import shape_of
from lean_sandbox.model.sandbox import PodTemplate, PodTemplateMetadata, visible
from lean_sandbox.model.template import TemplateView, blueprint_spec

Json = dict[str, Any]

# Written to managedFields to clear them.
_NO_RECORD: Final[list[Json]] = [{}]
_POOL_LABELS: Final = (
    names.WARM_POOL_LABEL,
    names.TEMPLATE_HASH_LABEL,
    names.POD_TEMPLATE_HASH_LABEL,
)


def build_cold_sandbox(claim: ClaimFacts, spec: SandboxClaimSpec, template: TemplateView) -> Json:
    """Return the body that creates the Sandbox of ``claim`` from its template.

    Raises ClaimError: volumes are checked first, then metadata, then variables.
    """
    blueprint = blueprint_spec(template, PodTemplateMetadata())
    pod_spec = blueprint.podTemplate.spec
    volumes = merge_claim_templates(
        blueprint.volumeClaimTemplates or (),
        spec.volumeClaimTemplates,
        template.claim_templates_policy,
        {one.name for one in shape_of(pod_spec).volumes or ()},
    )
    metadata = desired_pod_metadata(template, claim, ref_hash=template.ref_hash)
    if spec.env:
        injected = inject_env(msgspec.json.decode(pod_spec), spec.env, template.env_policy)
        pod_spec = msgspec.Raw(msgspec.json.encode(injected))
    labels = {
        names.CLAIM_UID_LABEL: claim.uid,
        names.LAUNCH_TYPE_LABEL: names.LAUNCH_TYPE_COLD,
        names.TEMPLATE_REF_HASH_LABEL: template.ref_hash,
    }
    if claim.created_by:
        labels[names.CREATED_BY_LABEL] = claim.created_by
    annotations = {names.TEMPLATE_REF_ANNOTATION: template.name}
    if claim.trace_context:
        annotations[names.TRACE_CONTEXT_ANNOTATION] = claim.trace_context
    return {
        "apiVersion": names.CORE_API_VERSION,
        "kind": names.SANDBOX_KIND,
        "metadata": {
            "name": claim.name,
            "namespace": claim.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [claim.reference],
        },
        "spec": msgspec.structs.replace(
            blueprint,
            podTemplate=PodTemplate(metadata, pod_spec),
            volumeClaimTemplates=volumes or None,
        ),
    }


def launch_type_patch(
    labels: Mapping[str, str] | None, sandbox: str, *, assigned: str, claim: str
) -> Json | None:
    """Return the merge patch that gives a bound Sandbox its launch type back, if it has none.

    ``assigned`` is the Sandbox that the claim's annotation or deprecated label names.
    """
    if names.LAUNCH_TYPE_LABEL in (labels or {}):
        return None
    is_cold = sandbox == claim and sandbox != assigned
    value = names.LAUNCH_TYPE_COLD if is_cold else names.LAUNCH_TYPE_WARM
    return {"metadata": {"labels": {names.LAUNCH_TYPE_LABEL: value}}}


def needs_template_touch(current: PodTemplateMetadata | None, desired: PodTemplateMetadata) -> bool:
    """Return whether adoption changes anything that reaches the Pod; None counts as different.

    Touching the spec for nothing would bump the generation, which costs one more status write.
    """
    return current is None or visible(current) != visible(desired)


def adoption_patch(
    claim: ClaimFacts,
    template_metadata: PodTemplateMetadata | None,
    *,
    pool_uid: str,
    labels: Mapping[str, str] | None,
    annotations: Mapping[str, str] | None,
    is_applied: bool,
    ref_hash: str,
    version: str | None = None,
) -> list[Json]:
    """Return the JSON Patch (RFC 6902) by which ``claim`` takes a member of the pool ``pool_uid``.

    ``template_metadata`` is left as it is for None, ``ref_hash`` is set only where there is none.
    ``labels`` and ``annotations`` are those of the member that are known; others are kept, so the
    claim's trace is not set where none are known: adding the first would replace the others.
    ``is_applied``: somebody owns fields by server-side apply, so managedFields are kept.
    With a ``version`` that is the guard, instead of the owner.
    """
    guard: Json = {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": pool_uid}
    if version is not None:
        guard = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    # Nor may the member be in deletion.
    is_alive = {"op": "test", "path": "/metadata/deletionTimestamp", "value": None}
    operations = [guard, is_alive, *_label_operations(labels or {}, claim, ref_hash)]
    if claim.trace_context and annotations:
        path = _pointer("annotations", names.TRACE_CONTEXT_ANNOTATION)
        operations.append({"op": "add", "path": path, "value": claim.trace_context})
    owners = [claim.reference]
    operations.append({"op": "replace", "path": "/metadata/ownerReferences", "value": owners})
    if not is_applied:
        operations.append({"op": "add", "path": "/metadata/managedFields", "value": _NO_RECORD})
    if template_metadata is not None:
        path = "/spec/podTemplate/metadata"
        operations.append({"op": "add", "path": path, "value": template_metadata})
    return operations


def _label_operations(
    labels: Mapping[str, str], claim: ClaimFacts, ref_hash: str
) -> Iterator[Json]:
    for key, value in _adopted_labels(labels, claim, ref_hash).items():
        path = _pointer("labels", key)
        if value is not None or key not in labels:
            # A label to remove that may not be there is added first: removing it would fail.
            yield {"op": "add", "path": path, "value": value or ""}
        if value is None:
            yield {"op": "remove", "path": path}


def _adopted_labels(
    labels: Mapping[str, str], claim: ClaimFacts, ref_hash: str
) -> dict[str, str | None]:
    """Return the changes of the Sandbox's own labels; None removes."""
    changes: dict[str, str | None] = dict.fromkeys(_POOL_LABELS)
    changes[names.CREATED_BY_LABEL] = claim.created_by or None
    changes[names.CLAIM_UID_LABEL] = claim.uid
    if labels.get(names.LAUNCH_TYPE_LABEL) != names.LAUNCH_TYPE_WARM:
        changes[names.LAUNCH_TYPE_LABEL] = names.LAUNCH_TYPE_WARM
    if not labels.get(names.TEMPLATE_REF_HASH_LABEL) and ref_hash:
        changes[names.TEMPLATE_REF_HASH_LABEL] = ref_hash
    return changes


def _pointer(field: str, key: str) -> str:
    return f"/metadata/{field}/{key.replace('~', '~0').replace('/', '~1')}"
