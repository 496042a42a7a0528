"""The Pod and the PersistentVolumeClaims of a Sandbox: pruned form, creation, metadata."""

from __future__ import annotations

from typing import Any

import msgspec

from lean_sandbox.model import names
from lean_sandbox.model.meta import ObjectMeta, changed_keys, child_metadata
from lean_sandbox.model.sandbox import PodTemplateMetadata, Sandbox, VolumeClaimTemplate, visible
from lean_sandbox.model.wire import Lenient, OrNull, Value, interned, shared

# Labels that only the controller sets on a Pod; :func:`_system_labels` says when.
_SYSTEM_LABELS = (
    names.WARM_POOL_LABEL,
    names.TEMPLATE_REF_HASH_LABEL,
    names.CREATED_BY_LABEL,
    names.CLAIM_UID_LABEL,
)


# The parts of a spec as they were sent: only its volumes are changed.
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
_items = msgspec.json.Decoder(tuple[msgspec.Raw, ...] | None)


class PodCondition(Lenient, frozen=True):
    """One entry of ``status.conditions`` of a Pod, without its times."""

    type: str = ""
    status: str = ""
    reason: OrNull[str] = ""
    message: OrNull[str] = ""


class PodIP(Value, frozen=True):
    """One entry of ``status.podIPs``."""

    ip: str = ""


class PodReadinessGate(Value, frozen=True):
    """One entry of ``spec.readinessGates``."""

    conditionType: str = ""


class PodSpec(Lenient, frozen=True):
    """Where the Pod runs and what else has to hold for it to be ready."""

    nodeName: OrNull[str] = ""
    readinessGates: OrNull[tuple[PodReadinessGate, ...]] = ()


class ContainerReason(Lenient, frozen=True):
    """Why a container does not run."""

    reason: OrNull[str] = ""


class ContainerState(Lenient, frozen=True):
    """The state of a container, as far as it waits or has ended."""

    waiting: OrNull[ContainerReason] = ContainerReason()
    terminated: OrNull[ContainerReason] = ContainerReason()


class ContainerStatus(Lenient, frozen=True):
    """One entry of ``status.containerStatuses`` or ``initContainerStatuses``."""

    state: OrNull[ContainerState] = ContainerState()
    ready: OrNull[bool] = False


class PodStatus(Lenient, frozen=True):
    """The parts of a Pod's status that are mirrored, that explain it, or that decide readiness."""

    phase: OrNull[str] = ""
    reason: OrNull[str] = ""
    podIPs: OrNull[tuple[PodIP, ...]] = ()
    conditions: OrNull[tuple[PodCondition, ...]] = ()
    initContainerStatuses: OrNull[tuple[ContainerStatus, ...]] = ()
    containerStatuses: OrNull[tuple[ContainerStatus, ...]] = ()


class Pod(Lenient, frozen=True):
    """A Pod, pruned while decoding."""

    metadata: OrNull[ObjectMeta] = ObjectMeta()
    spec: OrNull[PodSpec] = PodSpec()
    status: OrNull[PodStatus] = PodStatus()


class PodState(msgspec.Struct, frozen=True, gc=False):
    """What a Sandbox reports of its Pod; of its conditions the first of a type counts.

    A Pod with a closed readiness gate is not ready, which the kubelet reports a moment later.
    """

    phase: str = ""
    is_ready: bool = False
    # In the order of the Pod's status; podIP does not count.
    ips: tuple[str, ...] = ()
    node: str = ""
    scheduled: PodCondition | None = None
    # It failed because its node was shut down or it was evicted, not because its work ended.
    is_disrupted: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether the Pod has ended, which is never undone."""
        return self.phase in (names.POD_SUCCEEDED, names.POD_FAILED)


def pod_state(pod: Pod) -> PodState:
    """Return what a Sandbox reports of a Pod."""
    first: dict[str, PodCondition] = {}
    for condition in pod.status.conditions:
        first.setdefault(condition.type, condition)
    scheduled = first.get(names.POD_SCHEDULED)
    disrupted = first.get(names.DISRUPTION_TARGET)
    needed = [names.READY, *(gate.conditionType for gate in pod.spec.readinessGates)]
    return PodState(
        phase=interned(pod.status.phase),
        is_ready=all(one in first and first[one].status == names.TRUE for one in needed),
        ips=tuple(entry.ip for entry in pod.status.podIPs),
        node=interned(pod.spec.nodeName),
        scheduled=shared(scheduled),
        is_disrupted=(
            pod.status.phase == names.POD_FAILED
            and disrupted is not None
            and disrupted.status == names.TRUE
        ),
    )


def stopped_reason(pod: Pod) -> str:
    """Return why a container that should run does not, of the first such, "" when all run."""
    statuses = (*pod.status.initContainerStatuses, *pod.status.containerStatuses)
    reasons = (one.state.waiting.reason or one.state.terminated.reason for one in statuses)
    return next((reason for reason in reasons if reason not in ("", "Completed")), "")


def build_pod(sandbox: Sandbox) -> dict[str, Any]:
    """Return the body that creates the Pod of ``sandbox``; the spec is the template's as it is."""
    meta = sandbox.metadata
    template = visible(sandbox.spec.podTemplate.metadata)
    lists = {key: listed for key, listed in _key_lists(template).items() if listed}
    annotations = {**(template.annotations or {}), **lists}
    metadata = child_metadata(meta, meta.name, template.labels)
    metadata["labels"].update(_system_labels(meta))
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _pod_spec(sandbox)}


def metadata_patch(
    sandbox_meta: ObjectMeta, template: PodTemplateMetadata, held: PodTemplateMetadata
) -> dict[str, dict[str, str | None]] | None:
    """Return what a merge patch must put under ``metadata`` of an existing Pod, None for nothing.

    ``template`` is visible metadata, ``held`` is what the Pod has. Keys that neither the template
    nor the Pod's own propagated-* lists name are never touched.
    """
    recorded = held.annotations or {}
    labels = _propagated(
        held.labels, template.labels, recorded.get(names.PROPAGATED_LABELS_ANNOTATION, "")
    )
    # Only the controller sets these. They are removed if they are not expected, whoever set them.
    for key in _SYSTEM_LABELS:
        labels.pop(key, None)
    labels[names.NAME_HASH_LABEL] = names.name_hash(sandbox_meta.name)
    labels.update(_system_labels(sandbox_meta))
    lists = _key_lists(template)
    annotations = _propagated(
        held.annotations,
        template.annotations,
        recorded.get(names.PROPAGATED_ANNOTATIONS_ANNOTATION, ""),
    )
    for key, listed in lists.items():
        # A list that becomes empty is written as an empty string; a list that never existed is not
        # written.
        if listed != annotations.get(key, ""):
            annotations[key] = listed
    return merge_patch_of(held, PodTemplateMetadata(labels, annotations)) or None


def merge_patch_of(
    current: PodTemplateMetadata, desired: PodTemplateMetadata
) -> dict[str, dict[str, str | None]]:
    """Return the merge patch that turns ``current`` into ``desired``; empty when they are equal."""
    patch = {
        "labels": changed_keys(current.labels, desired.labels),
        "annotations": changed_keys(current.annotations, desired.annotations),
    }
    return {field: changes for field, changes in patch.items() if changes}


def _propagated(
    present: dict[str, str] | None,
    wanted: dict[str, str] | None,
    recorded: str,
) -> dict[str, str]:
    desired = dict(present or {})
    wanted = wanted or {}
    for key, value in wanted.items():
        # A missing key compares as empty, so an empty template value is not added to a Pod.
        if desired.get(key, "") != value:
            desired[key] = value
    for key in recorded.split(","):
        if key not in wanted:
            desired.pop(key, None)
    return desired


def _key_lists(template: PodTemplateMetadata) -> dict[str, str]:
    return {
        names.PROPAGATED_LABELS_ANNOTATION: ",".join(sorted(template.labels or ())),
        names.PROPAGATED_ANNOTATIONS_ANNOTATION: ",".join(sorted(template.annotations or ())),
    }


def _system_labels(sandbox_meta: ObjectMeta) -> dict[str, str]:
    # Pods of pool members inherit the pool label, those of every extension owner the template's.
    owner = sandbox_meta.controller
    labels = sandbox_meta.labels or {}
    inherited = {}
    if owner is not None and owner.group == names.EXTENSIONS_GROUP:
        if owner.kind == names.SANDBOX_WARM_POOL_KIND:
            inherited[names.WARM_POOL_LABEL] = labels.get(names.WARM_POOL_LABEL, "")
        elif owner.kind == names.SANDBOX_CLAIM_KIND:
            inherited[names.CLAIM_UID_LABEL] = owner.uid
        inherited[names.TEMPLATE_REF_HASH_LABEL] = labels.get(names.TEMPLATE_REF_HASH_LABEL, "")
    created_by = labels.get(names.CREATED_BY_LABEL)
    inherited[names.CREATED_BY_LABEL] = names.normalise_created_by(created_by)
    return {key: value for key, value in inherited.items() if value}


def _pod_spec(sandbox: Sandbox) -> Any:
    raw = sandbox.spec.podTemplate.spec
    templates = sandbox.spec.volumeClaimTemplates
    if not templates:
        return raw
    spec: dict[str, Any] = _fields.decode(raw) or {}
    held = _items.decode(spec.get("volumes", b"null")) or ()
    shown = sandbox.spec.podTemplate.shape().volumes or ()
    # A set: a tenant's spec may have 100,000 volumes, and 1,000 claims.
    claimed = {template.name for template in templates}
    volumes: list[Any] = [
        volume for volume, one in zip(held, shown, strict=True) if one.name not in claimed
    ]
    for template in templates:
        claim = {"claimName": pvc_name(template.name, sandbox.metadata.name)}
        volumes.append({"name": template.name, "persistentVolumeClaim": claim})
    return {**spec, "volumes": volumes}


def pvc_name(template_name: str, sandbox_name: str) -> str:
    """Return the name of the PersistentVolumeClaim made from a template."""
    return f"{template_name}-{sandbox_name}"


def build_pvc(sandbox_meta: ObjectMeta, template: VolumeClaimTemplate) -> dict[str, Any]:
    """Return the body that creates the PersistentVolumeClaim of ``template``.

    The tracking label overrides, so that no template points a claim at another Sandbox.
    """
    name = pvc_name(template.name, sandbox_meta.name)
    metadata = child_metadata(sandbox_meta, name, template.metadata.labels)
    if template.metadata.annotations:
        metadata["annotations"] = template.metadata.annotations
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": template.spec,
    }
