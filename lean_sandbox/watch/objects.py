"""What is remembered of Sandboxes, Pods, Services and claims for volumes, and what wakes for them.

Sizes, measured by ``lean-sandbox bench memory`` and kept as a test: a Sandbox with its Pod costs
less than 3 KiB of resident memory. Strings that repeat across objects (namespaces, nodes, reasons,
label keys) are interned; lists are tuples; nothing here takes part in a reference cycle, so the
collector never looks at it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from lean_sandbox.api.wire import PartialObject
from lean_sandbox.model import names
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.pod import Pod, PodCondition
from lean_sandbox.model.sandbox import (
    Sandbox,
    SandboxStatus,
    SandboxView,
    view_of,
)
from lean_sandbox.model.service import Service, ServiceSpec
from lean_sandbox.watch.store import Key, key_of
from lean_sandbox.watch.wire import MetaRow, OwnerRow, as_version

__all__ = [
    "READY",
    "RUNNING",
    "WAITING",
    "PodEntry",
    "PodState",
    "PvcEntry",
    "SandboxEntry",
    "ServiceEntry",
    "managed_metadata",
    "owner_uid",
    "pod_columns",
    "pod_from_full",
    "pod_from_row",
    "pod_hint",
    "pod_row_contradicts",
    "pod_state",
    "pvc_from_full",
    "pvc_from_row",
    "row_of",
    "sandbox_columns",
    "sandbox_from_full",
    "sandbox_from_row",
    "sandbox_row_contradicts",
    "service_from_full",
    "service_from_row",
    "service_spec_version",
]

SANDBOX_LABELS = frozenset(
    {
        names.CREATED_BY_LABEL,
        names.WARM_POOL_LABEL,
        names.TEMPLATE_REF_HASH_LABEL,
        names.LAUNCH_TYPE_LABEL,
    }
)
SANDBOX_ANNOTATIONS = frozenset(
    {names.POD_NAME_ANNOTATION, names.TRACE_CONTEXT_ANNOTATION, names.TEMPLATE_REF_ANNOTATION}
)
ADOPTION_LABELS = frozenset({names.NAME_HASH_LABEL, names.ADOPTABLE_LABEL})


def _chosen(values: dict[str, str] | None, keys: frozenset[str]) -> dict[str, str] | None:
    """Return the chosen keys of a mapping, ``None`` instead of an empty one."""
    if not values:
        return None
    kept = {sys.intern(key): values[key] for key in keys if key in values}
    return kept or None


# -- Sandboxes -------------------------------------------------------------------------------------


class SandboxEntry(msgspec.Struct, gc=False):
    """What is remembered of a Sandbox.

    ``view`` and ``status`` come from a full object or from our own writes; ``None`` means that the
    full object has to be fetched. ``generation`` is the newest seen, ``view.generation`` the one
    the view was made of. ``fault`` says in words why the spec cannot be acted upon.
    """

    key: Key
    uid: str
    version: int
    generation: int
    is_deleting: bool
    owner: OwnerRow | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    view: SandboxView | None = None
    status: SandboxStatus | None = None
    fault: str = ""

    @property
    def needs_look(self) -> bool:
        """Whether the full object has to be fetched before anything can be decided."""
        return self.view is None or self.status is None or self.view.generation != self.generation


def sandbox_from_row(row: MetaRow, old: SandboxEntry | None) -> SandboxEntry:
    """Build the entry from metadata, keeping the view and status that still hold."""
    entry = SandboxEntry(
        key=old.key if old is not None else key_of(row.namespace, row.name),
        uid=old.uid if old is not None else row.uid,
        version=as_version(row.resource_version),
        generation=row.generation or 0,
        is_deleting=row.deletion_timestamp is not None,
        owner=row.controller,
        labels=_chosen(row.labels, SANDBOX_LABELS),
        annotations=_chosen(row.annotations, SANDBOX_ANNOTATIONS),
    )
    if old is not None:
        entry.view = old.view
        entry.fault = old.fault
        entry.status = None if sandbox_row_contradicts(row, old) else old.status
    return entry


def sandbox_from_full(item: Sandbox, row: MetaRow, old: SandboxEntry | None) -> SandboxEntry:
    """Build the entry from a whole Sandbox."""
    entry = sandbox_from_row(row, old)
    try:
        entry.view = view_of(item)
    except (ValueError, msgspec.ValidationError) as error:
        # Nothing of such a spec can be acted upon; the words go into its Ready condition.
        entry.view = SandboxView(generation=entry.generation)
        entry.fault = str(error)
    else:
        entry.fault = ""
    entry.status = compact_status(item.status)
    return entry


def compact_status(status: SandboxStatus | None) -> SandboxStatus:
    """Return the status with its repeating strings shared."""
    if status is None:
        return SandboxStatus()
    conditions = tuple(
        msgspec.structs.replace(
            condition,
            type=sys.intern(condition.type),
            status=sys.intern(condition.status),
            reason=sys.intern(condition.reason),
            message=sys.intern(condition.message)
            if len(condition.message) < 96
            else condition.message,
            lastTransitionTime=sys.intern(condition.lastTransitionTime),
        )
        for condition in status.conditions
    )
    return msgspec.structs.replace(
        status,
        conditions=conditions,
        nodeName=sys.intern(status.nodeName) if status.nodeName else "",
    )


def sandbox_columns(status: SandboxStatus | None) -> dict[str, str]:
    """Return what the printer columns Ready and Reason show for a status."""
    for condition in status.conditions if status is not None else ():
        if condition.type == names.READY:
            return {"Ready": condition.status, "Reason": condition.reason}
    return {"Ready": "", "Reason": ""}


def sandbox_row_contradicts(row: MetaRow, entry: SandboxEntry) -> bool:
    """Tell whether the columns show another status than the one remembered.

    It happens when somebody else wrote the status, which nobody should; the cure is a look.
    """
    if row.columns is None or entry.status is None:
        return False
    return row.columns != sandbox_columns(entry.status)


# -- Pods ------------------------------------------------------------------------------------------


class PodState(msgspec.Struct, frozen=True, gc=False):
    """What a Sandbox reports of its Pod; ``scheduled`` is the Pod's own PodScheduled condition."""

    phase: str = ""
    is_ready: bool = False
    ips: tuple[str, ...] = ()
    node: str = ""
    scheduled: PodCondition | None = None


class PodEntry(msgspec.Struct, gc=False):
    """What is remembered of a Pod.

    ``state`` is what the last look showed; ``is_stale`` says that an event has since hinted at a
    change of it. ``is_delete_sent`` keeps a second DELETE from being sent while the first is on its
    way. ``others`` are the references of owners that do not control it, kept only when none does.
    """

    key: Key
    uid: str
    version: int
    is_deleting: bool
    owner: OwnerRow | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    state: PodState | None = None
    is_stale: bool = True
    is_delete_sent: bool = False
    hint: str = ""
    others: tuple[OwnerRow, ...] = ()


READY = "ready"
RUNNING = "running"
WAITING = "waiting"
NO_NODE = ("", "<none>")

# Status words of Pods that have been accepted and not yet started: which one it is changes nothing
# that a Sandbox reports, so moving between them is no reason to look.
_WAITING_WORDS = frozenset(
    {
        "Pending",
        "ContainerCreating",
        "PodInitializing",
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "RegistryUnavailable",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ImageInspectError",
    }
)


def pod_hint(columns: Mapping[str, str] | None) -> str | None:
    """Return the class of a Pod's printed status, ``None`` without columns.

    ``ready``, ``running`` (not ready), ``waiting``, or the printed word itself for anything whose
    meaning the columns do not settle.
    """
    if columns is None:
        return None
    known = columns.get("hint")
    if known is not None:
        return known
    word = columns.get("Status", "")
    ready = columns.get("Ready", "")
    now, _, all_ = ready.partition("/")
    if word in ("Running", "Terminating") and now == all_ and now not in ("", "0"):
        # A terminating Pod may still serve; all of its containers ready means that it runs.
        return READY
    if word == "Running":
        return RUNNING
    if word in _WAITING_WORDS or word.startswith("Init:"):
        return WAITING
    return word


def pod_columns(item: Pod) -> dict[str, str]:
    """Return the columns that a full Pod stands for, with the class in place of the status word."""
    state = pod_state(item)
    if state.phase == "Running":
        hint = READY if state.is_ready else RUNNING
    else:
        hint = {"Pending": WAITING, "Succeeded": "Completed", "Failed": "Error"}.get(
            state.phase, state.phase
        )
    return {
        "hint": hint,
        "IP": state.ips[0] if state.ips else "<none>",
        "Node": state.node or "<none>",
    }


@lru_cache(maxsize=256)
def _shared(condition: PodCondition) -> PodCondition:
    """Return an equal condition that all Pods share: nearly all of them say the same."""
    return condition


def pod_state(pod: Pod) -> PodState:
    """Return what a Sandbox reports of a Pod (spec, 4.3 to 4.5)."""
    scheduled = pod.scheduled
    return PodState(
        phase=sys.intern(pod.status.phase),
        is_ready=pod.is_ready_condition_true,
        ips=pod.ips,
        node=sys.intern(pod.spec.nodeName),
        scheduled=None if scheduled is None else _shared(scheduled),
    )


def _managed_annotations(annotations: dict[str, str] | None) -> dict[str, str] | None:
    """Return the annotations of a Pod that propagation may have to change (spec, 3.8)."""
    if not annotations:
        return None
    listed = annotations.get(names.PROPAGATED_ANNOTATIONS_ANNOTATION, "").split(",")
    keys = {names.PROPAGATED_LABELS_ANNOTATION, names.PROPAGATED_ANNOTATIONS_ANNOTATION, *listed}
    return _chosen(annotations, frozenset(keys))


def managed_metadata(row: MetaRow) -> tuple[tuple[str, str], ...]:
    """Return the fingerprint of a Pod's managed annotations."""
    return tuple(sorted((_managed_annotations(row.annotations) or {}).items()))


def pod_from_row(row: MetaRow, old: PodEntry | None) -> PodEntry:
    """Build the entry from metadata and columns; what was known of the state is now doubtful."""
    hint = pod_hint(row.columns)
    entry = PodEntry(
        key=old.key if old is not None else key_of(row.namespace, row.name),
        uid=old.uid if old is not None else row.uid,
        version=as_version(row.resource_version),
        is_deleting=row.deletion_timestamp is not None,
        owner=row.controller,
        labels={sys.intern(key): sys.intern(value) for key, value in row.labels.items()}
        if row.labels
        else None,
        annotations=_managed_annotations(row.annotations),
        hint=sys.intern(hint) if hint is not None else "",
        others=row.owners if row.controller is None else (),
    )
    if old is not None:
        entry.state = old.state
        entry.is_delete_sent = old.is_delete_sent
        entry.is_stale = old.is_stale or _shows_another_state(row, entry.hint, old)
    return entry


def _shows_another_state(row: MetaRow, hint: str, old: PodEntry) -> bool:
    """Tell whether a row hints at a state other than the one of the last look.

    Deletion, labels and owners are in the row itself; they are no reason to fetch the Pod.
    """
    state = old.state
    if row.columns is None or state is None or hint != old.hint:
        return True
    node = row.columns.get("Node", "")
    address = row.columns.get("IP", "")
    return (
        node in NO_NODE
        or node != state.node
        or (address not in NO_NODE and address not in state.ips)
    )


def pod_from_full(item: Pod, row: MetaRow, old: PodEntry | None) -> PodEntry:
    """Build the entry from a whole Pod."""
    entry = pod_from_row(row, old)
    entry.state = pod_state(item)
    entry.is_stale = False
    return entry


def pod_row_contradicts(row: MetaRow, entry: PodEntry) -> bool:
    """Tell whether the columns show another readiness than the last look did."""
    hint = pod_hint(row.columns)
    if hint is None or entry.state is None or entry.is_stale:
        return False
    return (hint == READY) != (entry.state.is_ready and entry.state.phase == "Running")


# -- Services --------------------------------------------------------------------------------------


class ServiceEntry(msgspec.Struct, gc=False):
    """What is remembered of a Service; ``spec`` only of those that a Sandbox has or may adopt."""

    key: Key
    uid: str
    version: int
    owner: OwnerRow | None = None
    labels: dict[str, str] | None = None
    spec: ServiceSpec | None = None
    is_stale: bool = True

    def as_service(self) -> Service:
        """Return the Service as far as it is known."""
        return Service(
            metadata=ObjectMeta(
                name=self.key.name, namespace=self.key.namespace, uid=self.uid, labels=self.labels
            ),
            spec=self.spec or ServiceSpec(),
        )


def service_from_row(row: MetaRow, old: ServiceEntry | None) -> ServiceEntry:
    """Build the entry from metadata; the spec has to be looked at again before it is judged."""
    return ServiceEntry(
        key=old.key if old is not None else key_of(row.namespace, row.name),
        uid=old.uid if old is not None else row.uid,
        version=as_version(row.resource_version),
        owner=row.controller,
        labels=_chosen(row.labels, ADOPTION_LABELS),
        spec=old.spec if old is not None else None,
    )


def service_from_full(item: Service, row: MetaRow, old: ServiceEntry | None) -> ServiceEntry:
    """Build the entry from a whole Service."""
    entry = service_from_row(row, old)
    if entry.labels is not None or _is_sandboxes(entry.owner):
        entry.spec = item.spec
        entry.is_stale = False
    return entry


def service_spec_version(row: MetaRow) -> str | None:
    """Return the version of a Service that a Sandbox has: no generation tells its drift."""
    if _is_sandboxes(row.controller) or _chosen(row.labels, ADOPTION_LABELS):
        return row.resource_version
    return None


def _is_sandboxes(owner: OwnerRow | None) -> bool:
    return (
        owner is not None and owner.kind == names.SANDBOX_KIND and owner.group == names.CORE_GROUP
    )


# -- Claims for volumes ----------------------------------------------------------------------------


class PvcEntry(msgspec.Struct, gc=False):
    """What is remembered of a PersistentVolumeClaim: whose it is."""

    key: Key
    uid: str
    version: int
    owner: OwnerRow | None = None
    labels: dict[str, str] | None = None
    others: tuple[OwnerRow, ...] = ()


def pvc_from_row(row: MetaRow, old: PvcEntry | None) -> PvcEntry:
    """Build the entry from metadata."""
    return PvcEntry(
        key=old.key if old is not None else key_of(row.namespace, row.name),
        uid=row.uid,
        version=as_version(row.resource_version),
        owner=row.controller,
        labels=_chosen(row.labels, ADOPTION_LABELS),
        others=row.owners if row.controller is None else (),
    )


def pvc_from_full(_item: PartialObject, row: MetaRow, old: PvcEntry | None) -> PvcEntry:
    """Build the entry from a whole claim, of which only the metadata is read."""
    return pvc_from_row(row, old)


# -- For all ---------------------------------------------------------------------------------------


def owner_uid(entry: PodEntry) -> str | None:
    """Return the uid under which an entry is indexed: its controlling owner's."""
    return entry.owner.uid if entry.owner is not None else None


def row_of(meta: ObjectMeta) -> MetaRow:
    """Return the metadata of a whole object in the form that predicates read."""
    return MetaRow(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resourceVersion,
        generation=meta.generation,
        labels=meta.labels,
        annotations=meta.annotations,
        finalizers=meta.finalizers,
        owners=tuple(
            OwnerRow(
                kind=owner.kind,
                name=owner.name,
                uid=owner.uid,
                api_version=owner.apiVersion,
                controller=bool(owner.controller),
                block_owner_deletion=bool(owner.blockOwnerDeletion),
            )
            for owner in meta.ownerReferences
        ),
        deletion_timestamp=meta.deletionTimestamp,
    )
