"""The Pod behind a Sandbox: its pruned form, its creation, and the metadata it should carry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from lean_sandbox.model.meta import (
    EMPTY_META,
    ObjectMeta,
    controller_of,
    owner_references_body,
    sandbox_reference,
)
from lean_sandbox.model.names import (
    CREATED_BY_LABEL,
    EXTENSIONS_GROUP,
    NAME_HASH_LABEL,
    POD_SCHEDULED,
    PROPAGATED_ANNOTATIONS_ANNOTATION,
    PROPAGATED_LABELS_ANNOTATION,
    READY,
    SANDBOX_WARM_POOL_KIND,
    TEMPLATE_REF_HASH_LABEL,
    TRUE,
    WARM_POOL_LABEL,
    is_reserved_annotation,
    is_reserved_label,
    name_hash,
    normalise_created_by,
)
from lean_sandbox.model.pvc import claim_volume
from lean_sandbox.model.sandbox import PodTemplateMetadata, Sandbox
from lean_sandbox.model.wire import Lenient, OrNull, Value

_LISTS = frozenset({PROPAGATED_LABELS_ANNOTATION, PROPAGATED_ANNOTATIONS_ANNOTATION})


class PodCondition(Lenient, frozen=True):
    """One entry of ``status.conditions`` of a Pod, without its times."""

    type: str = ""
    status: str = ""
    reason: OrNull[str] = ""
    message: OrNull[str] = ""


class PodIP(Value, frozen=True):
    """One entry of ``status.podIPs``."""

    ip: str = ""


class PodSpec(Lenient, frozen=True):
    """Where the Pod runs; nothing else of its spec is ever compared."""

    nodeName: OrNull[str] = ""


class PodStatus(Lenient, frozen=True):
    """What of a Pod's status is mirrored or decides readiness."""

    phase: OrNull[str] = ""
    podIPs: OrNull[tuple[PodIP, ...]] = ()
    conditions: OrNull[tuple[PodCondition, ...]] = ()


_EMPTY_SPEC = PodSpec()
_EMPTY_STATUS = PodStatus()


class Pod(Lenient, frozen=True):
    """A Pod, pruned while decoding."""

    metadata: OrNull[ObjectMeta] = EMPTY_META
    spec: OrNull[PodSpec] = _EMPTY_SPEC
    status: OrNull[PodStatus] = _EMPTY_STATUS

    @property
    def is_ready_condition_true(self) -> bool:
        """Whether the first Ready condition is True; phase and addresses are not looked at."""
        ready = self._first(READY)
        return ready is not None and ready.status == TRUE

    @property
    def ips(self) -> tuple[str, ...]:
        """All addresses in the order of the Pod's status."""
        return tuple(entry.ip for entry in self.status.podIPs)

    @property
    def scheduled(self) -> PodCondition | None:
        """The Pod's own PodScheduled condition."""
        return self._first(POD_SCHEDULED)

    def _first(self, kind: str) -> PodCondition | None:
        for condition in self.status.conditions:
            if condition.type == kind:
                return condition
        return None


def build_pod(sandbox: Sandbox) -> dict[str, Any]:
    """Return the body that creates the Pod of ``sandbox``.

    The spec is the template's, nothing added and nothing defaulted; it stays raw JSON unless
    volumes for volumeClaimTemplates have to be merged into it.
    """
    meta = sandbox.metadata
    template = sandbox.spec.podTemplate.metadata
    labels = _unreserved(template.labels, is_reserved_label)
    annotations = _unreserved(template.annotations, is_reserved_annotation)
    label_list = _key_list(labels)
    annotation_list = _key_list(annotations)
    if label_list:
        annotations[PROPAGATED_LABELS_ANNOTATION] = label_list
    if annotation_list:
        annotations[PROPAGATED_ANNOTATIONS_ANNOTATION] = annotation_list
    metadata: dict[str, Any] = {
        "name": meta.name,
        "namespace": meta.namespace,
        "labels": {**labels, NAME_HASH_LABEL: name_hash(meta.name), **_system_labels(meta)},
        "ownerReferences": owner_references_body((sandbox_reference(meta),)),
    }
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _pod_spec(sandbox)}


def extension_labels(sandbox_meta: ObjectMeta) -> dict[str, str]:
    """Return the labels a Pod inherits because an extension kind controls its Sandbox.

    The pool label goes to Pods of pool members only; the template label to those of every extension
    owner. Empty values do not count. The version of the owner's API does not matter.
    """
    owner = controller_of(sandbox_meta)
    if owner is None or owner.group != EXTENSIONS_GROUP:
        return {}
    labels = sandbox_meta.labels or {}
    keys = [TEMPLATE_REF_HASH_LABEL]
    if owner.kind == SANDBOX_WARM_POOL_KIND:
        keys.insert(0, WARM_POOL_LABEL)
    return {key: labels[key] for key in keys if labels.get(key)}


def metadata_patch(
    sandbox_meta: ObjectMeta, template_metadata: PodTemplateMetadata | None, pod_meta: ObjectMeta
) -> dict[str, dict[str, str | None]] | None:
    """Return what a merge patch must put under ``metadata`` of an existing Pod, None for nothing.

    The answer has ``labels`` and ``annotations``, each only when something changes. Keys that
    neither the template nor the Pod's own propagated-* lists name are never touched.
    """
    template = template_metadata or PodTemplateMetadata()
    labels = pod_meta.labels or {}
    annotations = pod_meta.annotations or {}
    wanted_labels = _desired_labels(sandbox_meta, template.labels or {}, labels, annotations)
    wanted_annotations = _desired_annotations(template, annotations)
    patch = {}
    if changes := _changes(labels, wanted_labels):
        patch["labels"] = changes
    if changes := _changes(annotations, wanted_annotations):
        patch["annotations"] = changes
    return patch or None


def _desired_labels(
    sandbox_meta: ObjectMeta,
    template: Mapping[str, str],
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> dict[str, str]:
    desired = dict(labels)
    desired[NAME_HASH_LABEL] = name_hash(sandbox_meta.name)
    _overlay(desired, template, is_reserved_label)
    _prune(
        desired,
        recorded=annotations.get(PROPAGATED_LABELS_ANNOTATION, ""),
        template=template,
        is_reserved=is_reserved_label,
        kept=frozenset({NAME_HASH_LABEL}),
    )
    # These are the controller's alone: whoever put them there, they go when they are not expected.
    for key in (WARM_POOL_LABEL, TEMPLATE_REF_HASH_LABEL, CREATED_BY_LABEL):
        desired.pop(key, None)
    desired.update(_system_labels(sandbox_meta))
    return desired


def _desired_annotations(
    template: PodTemplateMetadata, annotations: Mapping[str, str]
) -> dict[str, str]:
    wanted = template.annotations or {}
    desired = dict(annotations)
    _overlay(desired, wanted, is_reserved_annotation)
    _prune(
        desired,
        recorded=annotations.get(PROPAGATED_ANNOTATIONS_ANNOTATION, ""),
        template=wanted,
        is_reserved=is_reserved_annotation,
        kept=_LISTS,
    )
    for key, values, is_reserved in (
        (PROPAGATED_LABELS_ANNOTATION, template.labels, is_reserved_label),
        (PROPAGATED_ANNOTATIONS_ANNOTATION, wanted, is_reserved_annotation),
    ):
        listed = _key_list(_unreserved(values, is_reserved))
        # A list that became empty is written as the empty string; one that never was is not made.
        if listed != desired.get(key, ""):
            desired[key] = listed
    return desired


def _overlay(
    desired: dict[str, str], template: Mapping[str, str], is_reserved: Callable[[str], bool]
) -> None:
    for key, value in template.items():
        # A missing key compares as empty, so an empty template value is not added to a Pod.
        if not is_reserved(key) and desired.get(key, "") != value:
            desired[key] = value


def _prune(
    desired: dict[str, str],
    *,
    recorded: str,
    template: Mapping[str, str],
    is_reserved: Callable[[str], bool],
    kept: frozenset[str],
) -> None:
    for key in recorded.split(","):
        if not key or key in kept:
            continue
        # A reserved key in the list was recorded by an old controller that let it through.
        if is_reserved(key) or key not in template:
            desired.pop(key, None)


def _changes(current: Mapping[str, str], desired: Mapping[str, str]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {
        key: value for key, value in desired.items() if current.get(key) != value
    }
    changes.update((key, None) for key in current if key not in desired)
    return changes


def _system_labels(sandbox_meta: ObjectMeta) -> dict[str, str]:
    labels = extension_labels(sandbox_meta)
    if created_by := normalise_created_by((sandbox_meta.labels or {}).get(CREATED_BY_LABEL)):
        labels[CREATED_BY_LABEL] = created_by
    return labels


def _unreserved(
    values: Mapping[str, str] | None, is_reserved: Callable[[str], bool]
) -> dict[str, str]:
    return {key: value for key, value in (values or {}).items() if not is_reserved(key)}


def _key_list(keys: Iterable[str]) -> str:
    return ",".join(sorted(keys))


def _pod_spec(sandbox: Sandbox) -> Any:
    raw = sandbox.spec.podTemplate.spec
    templates = sandbox.spec.volumeClaimTemplates
    if not templates:
        return raw
    spec = msgspec.json.decode(raw, type=dict[str, Any] | None) or {}
    names = {template.name for template in templates}
    volumes = [v for v in spec.get("volumes") or () if v.get("name") not in names]
    volumes.extend(claim_volume(t.name, sandbox.metadata.name) for t in templates)
    spec["volumes"] = volumes
    return spec
