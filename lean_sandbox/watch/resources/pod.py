"""Pods: their cache entry, the meaning of their columns, and the predicate over their events."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from filters import (
    Change,
    any_of,
    column,
    computed,
    deletion,
    if_known,
    labels,
    owners,
    parse_labels,
)
from lean_sandbox.kube.resources import PODS
from lean_sandbox.model import names
from lean_sandbox.model.meta import ObjectMeta, OwnerReference, as_version
from lean_sandbox.model.pod import Pod, PodState, pod_state, stopped_reason
from lean_sandbox.model.wire import interned, shared_map
from lean_sandbox.watch.kind import (
    Kind,
    Knowledge,
    OwnedEntry,
    Representation,
    identity,
    shared_owner,
    status_writers,
)

READY = "ready"
RUNNING = "running"
WAITING = "waiting"
GATED = "SchedulingGated"
NO_NODE = ("", "<none>")
# Placeholder, not a valid label value, for the hash of the Pod's own name: 57 bytes less a Pod.
_OWN_HASH = "="

# Labels that have another value for each Pod.
_OWN_LABELS = frozenset({names.NAME_HASH_LABEL, names.CLAIM_UID_LABEL})

# Why a container does not start, and how a Sandbox reports it: reasons that alternate are one.
_NO_START = {
    "ErrImagePull": "ErrImagePull",
    "ImagePullBackOff": "ErrImagePull",
    "ErrImageNeverPull": "ErrImageNeverPull",
    "InvalidImageName": "InvalidImageName",
    "RegistryUnavailable": "RegistryUnavailable",
    "CreateContainerConfigError": "CreateContainerConfigError",
    "CreateContainerError": "CreateContainerError",
    "ImageInspectError": "ImageInspectError",
}
# A container that has ended is started again, unless that is the end of the Pod.
_CRASH_LOOP = "CrashLoopBackOff"
_COMPLETED = "Completed"
_ENDED = ("Error", "OOMKilled", "ContainerCannotRun", "StartError", "RunContainerError")
_TROUBLES = _NO_START | {word: word for word in (*_ENDED, _CRASH_LOOP)}
# Classes of the status of a Pod that runs and is not ready, and of no other.
_RUN_ON = frozenset({RUNNING, _CRASH_LOOP})
# Classes that say whether a Pod has ended. Any other, as of a container that has, leaves it open.
_CERTAIN = _RUN_ON | {READY, WAITING, GATED}
# Statuses of a Pod that has not started yet.
_WAITING_WORDS = frozenset({"Pending", "ContainerCreating", "PodInitializing", *_NO_START})


class PodEntry(OwnedEntry, gc=False, frozen=True):
    """The cache entry of a Pod.

    ``state`` is that of the last full Pod; it is STALE once a later event has hinted at another
    state. ``is_delete_sent`` says that the server has accepted our DELETE, which the watch may not
    show yet. ``writes`` is a digest of the status writes that may change what no column shows.
    ``others`` are the owner references of a Pod without a controller. ``template_labels`` are
    shared by the Pods of a template, ``tracking`` and ``claim_uid`` are labels of each Pod's own.
    ``trouble`` is what last kept a container from running, for as long as that may last.
    """

    template_labels: dict[str, str] | None = None
    tracking: str | None = None
    claim_uid: str | None = None
    annotations: dict[str, str] | None = None
    state: PodState | None = None
    knowledge: Knowledge = Knowledge.UNKNOWN
    is_delete_sent: bool = False
    hint: str = ""
    trouble: str = ""
    writes: int = 0
    others: tuple[OwnerReference, ...] = ()

    @property
    def is_terminating(self) -> bool:
        """Whether the Pod is being deleted, as the watch or the response to our DELETE shows."""
        return self.is_deleting or self.is_delete_sent

    @property
    def has_ended(self) -> bool:
        """Whether the Pod is known to have ended, which is never undone."""
        return self.state is not None and self.state.has_ended

    @property
    def may_be_ready(self) -> bool:
        """Whether the Pod is ready as far as is known."""
        if self.is_terminating:
            return False
        if self.state is not None and not self.needs_fetch:
            return self.state.is_ready and self.state.phase == names.POD_RUNNING
        # A watch without columns gives no hint.
        return self.hint in (READY, "")

    @property
    def labels(self) -> dict[str, str] | None:
        """All labels, as a new dict; ``None`` when there are none."""
        labels = dict(self.template_labels or {})
        if self.tracking is not None:
            is_own = self.tracking == _OWN_HASH
            labels[names.NAME_HASH_LABEL] = (
                names.name_hash(self.key.name) if is_own else self.tracking
            )
        if self.claim_uid is not None:
            labels[names.CLAIM_UID_LABEL] = self.claim_uid
        return labels or None


def pod_hint(columns: Mapping[str, str] | None) -> str | None:
    """Return the class of the status in the columns, ``None`` without columns.

    ``ready``, ``running`` (not ready), ``waiting``, or the status itself.
    """
    if columns is None:
        return None
    known = columns.get("hint")
    if known is not None:
        return known
    word = columns["Status"]
    now, _, all_ = columns["Ready"].partition("/")
    open_, _, gates = columns["Readiness Gates"].partition("/")
    are_ready = now == all_ and now not in ("", "0")
    if word == "Running":
        return READY if are_ready and (not gates or open_ == gates) else RUNNING
    if word == "Terminating" and are_ready:
        # A terminating Pod keeps its state while its containers are ready.
        return READY
    if word == "NotReady" or (word in _ENDED and now not in ("", "0")):
        return RUNNING
    step = word.removeprefix("Init:")
    if step in _WAITING_WORDS or (step != word and (step == _CRASH_LOOP or "/" in step)):
        return WAITING
    return interned(word)


def columns_with_hint(item: Pod) -> dict[str, str]:
    """Return the columns of a full Pod, with the class of its status in place of the status."""
    state = pod_state(item)
    # As servers show it, so that the next row is news only if it shows something else.
    hint = interned(_status_word(item))
    if state.phase == names.POD_RUNNING:
        if state.is_ready:
            hint = READY
        elif hint == "Running":
            hint = RUNNING
    elif state.scheduled is not None and state.scheduled.reason == GATED:
        hint = GATED
    elif state.phase == names.POD_PENDING:
        hint = WAITING
    return {
        "hint": hint,
        "Status": stopped_reason(item) or hint,
        "IP": state.ips[0] if state.ips else "<none>",
        "Node": state.node or "<none>",
    }


def _status_word(item: Pod) -> str:
    """Return what the column Status shows of a Pod that has started, and that nobody deletes."""
    status = item.status
    if not any(one.type == "Initialized" and one.status == names.TRUE for one in status.conditions):
        for one in status.initContainerStatuses:
            reason = one.state.terminated.reason
            if reason not in ("", _COMPLETED):
                return f"Init:{reason}"
    states = (one.state for one in status.containerStatuses)
    reasons = (state.waiting.reason or state.terminated.reason for state in states)
    word = next(filter(None, reasons), "") or status.reason or status.phase
    one_runs = any(one.ready for one in status.containerStatuses)
    return "Running" if one_runs and word in (_COMPLETED, *_ENDED) else word


_NEW_POD_COLUMNS = {"hint": WAITING, "IP": "<none>", "Node": "<none>"}


def _trouble_of(row: ObjectMeta) -> str:
    return _TROUBLES.get((row.columns or {}).get("Status", "").removeprefix("Init:"), "")


def _may_last(trouble: str, hint: str | None) -> bool:
    # Between two attempts a Pod shows no trouble for a moment, which is not news.
    return hint in (None, WAITING) or (hint != READY and trouble not in _NO_START)


def _managed_annotations(annotations: dict[str, str] | None) -> dict[str, str] | None:
    """Return the annotations of a Pod that propagation from the template may have to change."""
    if not annotations:
        return None
    listed = annotations.get(names.PROPAGATED_ANNOTATIONS_ANNOTATION, "").split(",")
    keys = {names.PROPAGATED_LABELS_ANNOTATION, names.PROPAGATED_ANNOTATIONS_ANNOTATION, *listed}
    # In the order of the object, not of the set, so that equal Pods share one mapping.
    return {key: value for key, value in annotations.items() if key in keys} or None


def _managed_metadata(row: ObjectMeta) -> Hashable:
    managed = _managed_annotations(row.annotations)
    return hash(frozenset(managed.items())) if managed else None


def _build_pod(row: ObjectMeta, item: Pod | None, old: PodEntry | None) -> PodEntry:
    columns_hint = pod_hint(row.columns)
    hint = interned(columns_hint) if columns_hint is not None else ""
    state = old.state if old is not None else None
    if item is not None:
        shown = pod_state(item)
        state = state if state == shown else shown
    writes = _hidden_writes(row, columns_hint, state)
    trouble = _trouble_of(row)
    knowledge = Knowledge.UNKNOWN
    is_delete_sent = False
    if old is not None:
        is_said = not trouble or (trouble in _ENDED and old.trouble == _CRASH_LOOP)
        if is_said and _may_last(old.trouble, columns_hint):
            trouble = old.trouble
        # A whole Pod says itself whether it is being deleted: a restored store may not know of it.
        is_delete_sent = old.is_delete_sent and item is None
        knowledge = old.knowledge
        if not old.needs_fetch and _shows_another_state(row, old, hint, writes):
            knowledge = Knowledge.STALE
    if item is not None:
        knowledge = Knowledge.KNOWN
    owner = shared_owner(row, old)
    labels = row.labels or {}
    tracking = labels.get(names.NAME_HASH_LABEL)
    return PodEntry(
        *identity(row, old),
        owner=owner,
        template_labels=shared_map(
            {name: value for name, value in labels.items() if name not in _OWN_LABELS}
        ),
        tracking=_OWN_HASH if tracking == names.name_hash(row.name) else tracking,
        claim_uid=labels.get(names.CLAIM_UID_LABEL),
        annotations=shared_map(_managed_annotations(row.annotations)),
        state=state,
        knowledge=knowledge,
        is_delete_sent=is_delete_sent,
        hint=hint,
        trouble=trouble,
        writes=writes,
        others=row.owners if owner is None else (),
    )


def _hidden_writes(row: ObjectMeta, hint: str | None, state: PodState | None) -> int:
    """Return a digest of the writes that may change what no column shows, 0 without any.

    A lost node, a readiness gate or the deadline of a Pod changes the condition Ready, but no
    column: the containers stay as they were. Only the writer and the time show such a change. The
    kubelet writes often until a Pod is ready; only what it writes afterwards counts. Any write may
    be such a change without managedFields, which somebody may have removed, and while the columns
    leave open whether a Pod has ended.
    """
    is_open = not (hint is None or hint in _CERTAIN or row.deletion_timestamp is not None)
    if row.managed_fields is None or (is_open and not (state is not None and state.has_ended)):
        return as_version(row.resource_version)
    return status_writers(row.managed_fields, besides="" if hint == READY else "kubelet")


def _shows_another_state(row: ObjectMeta, old: PodEntry, hint: str, writes: int) -> bool:
    """Return whether a row hints at another state than that of the last full Pod.

    The class of a Pod that is being deleted does not count: its phase and readiness are no longer
    reported.
    """
    state = old.state
    if row.columns is None or state is None:
        return True
    is_same = hint == old.hint or (
        hint in _RUN_ON and state.phase == names.POD_RUNNING and not state.is_ready
    )
    if not is_same and row.deletion_timestamp is None:
        return True
    if is_same and writes != old.writes:
        return True
    node = row.columns["Node"]
    address = row.columns["IP"]
    return (
        node in NO_NODE
        or node != state.node
        or (address not in state.ips if address not in NO_NODE else bool(state.ips))
    )


def pod_row_contradicts(row: ObjectMeta, entry: PodEntry) -> bool:
    """Return whether a row shows, or may hide, another readiness than the last full Pod."""
    hint = pod_hint(row.columns)
    if hint is None or entry.state is None or entry.needs_fetch:
        return False
    if hint == entry.hint and _hidden_writes(row, hint, entry.state) != entry.writes:
        return True
    return (hint == READY) != (entry.state.is_ready and entry.state.phase == "Running")


def _hint_of(row: ObjectMeta) -> Hashable:
    return pod_hint(row.columns) if row.columns is not None else row.resource_version


def _version_while_unscheduled(row: ObjectMeta) -> Hashable:
    """Return the version while the Pod has no node: no column shows what the scheduler reports."""
    if row.columns is None or row.columns["Node"] in NO_NODE:
        return row.resource_version
    return None


def pod_kind(leanest: Representation = Representation.TABLE) -> Kind[PodEntry]:
    """Pods pass when readiness, node, address, owner or managed metadata change, or they end.

    Only Pods with the tracking label are watched. Any other Pod with the name of a Sandbox is
    noticed when the create of the Sandbox's Pod collides with it.
    """
    return Kind(
        resource=PODS,
        item_type=Pod,
        predicate=any_of(
            deletion(),
            owners(),
            labels(),
            computed("managed metadata", Change.ANNOTATIONS, _managed_metadata, brief=True),
            computed("status", Change.COLUMNS, _hint_of),
            computed("waiting reason", Change.COLUMNS, _trouble_of),
            if_known(column("IP", classify=hash, brief=True)),
            if_known(column("Node")),
            computed(
                "version while unscheduled", Change.VERSION, _version_while_unscheduled, brief=True
            ),
        ),
        build=_build_pod,
        columns_of=columns_with_hint,
        new_columns=_NEW_POD_COLUMNS,
        suspects=pod_row_contradicts,
        columns=("Ready", "Status", "IP", "Node", "Readiness Gates"),
        watch_as=leanest,
        label_selector=parse_labels(names.NAME_HASH_LABEL),
        owner_of=lambda entry: entry.owner.uid if entry.owner is not None else None,
    )
