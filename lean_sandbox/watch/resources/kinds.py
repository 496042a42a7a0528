"""The watched kinds: what wakes for each, and how little of it is kept."""

from __future__ import annotations

from collections.abc import Hashable

from filters import (
    Change,
    Observed,
    annotation,
    any_of,
    column,
    computed,
    deletion,
    generation,
    if_known,
    labels,
    owners,
    parse_labels,
)
from lean_sandbox.kube.resources import PODS, PVCS, SANDBOXES, SERVICES
from lean_sandbox.kube.wire import PartialObject
from lean_sandbox.model import names
from lean_sandbox.model.pod import Pod
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.model.service import Service
from lean_sandbox.watch import objects
from lean_sandbox.watch.kind import Kind
from lean_sandbox.watch.objects import PodEntry, PvcEntry, SandboxEntry, ServiceEntry
from lean_sandbox.watch.representation import FALLBACK_ORDER, Representation
from lean_sandbox.watch.wire import MetaRow

_TRACKED = names.NAME_HASH_LABEL


def representations(leanest: Representation) -> tuple[Representation, ...]:
    """Return the order of fall back that starts with ``leanest``."""
    return FALLBACK_ORDER[FALLBACK_ORDER.index(leanest) :]


def sandboxes(
    order: tuple[Representation, ...] = FALLBACK_ORDER, *, label_selector: str = ""
) -> Kind[SandboxEntry]:
    """Sandboxes wake for their spec, deletion, the metadata read here, and a foreign status.

    Those outside of ``label_selector`` are never sent; one that leaves it is like one that is gone.
    """
    return Kind(
        resource=SANDBOXES,
        item_type=Sandbox,
        predicate=any_of(
            generation(),
            deletion(),
            labels(*sorted(objects.SANDBOX_LABELS), brief=True),
            annotation(*sorted(objects.SANDBOX_ANNOTATIONS), brief=True),
            owners(),
            if_known(column("Ready")),
            if_known(column("Reason")),
        ),
        from_row=objects.sandbox_from_row,
        from_full=objects.sandbox_from_full,
        columns_of=lambda item: objects.sandbox_columns(item.status),
        suspects=objects.sandbox_row_contradicts,
        columns=("Ready", "Reason"),
        owner_of=lambda entry: entry.owner.uid if entry.owner is not None else None,
        watch_order=order,
        label_selector=label_selector or None,
        admits=parse_labels(label_selector).matches if label_selector else None,
    )


def _pod_hint(row: Observed) -> Hashable:
    return objects.pod_hint(row.columns) if row.columns is not None else row.resource_version


def _pod_unscheduled(row: Observed) -> Hashable:
    """Count every write while no node is set: the scheduler's findings show in no column."""
    if row.columns is None or row.columns.get("Node", "") in objects.NO_NODE:
        return row.resource_version
    return None


def _pod_managed(row: Observed) -> Hashable:
    assert isinstance(row, MetaRow)
    return objects.managed_metadata(row)


def pods(order: tuple[Representation, ...] = FALLBACK_ORDER) -> Kind[PodEntry]:
    """Pods of Sandboxes wake for readiness, place, deletion, owner and managed metadata.

    Only Pods with the tracking label are watched: the others of the cluster are never sent. A Pod
    without it that stands in a Sandbox's way shows itself when a create collides with it.
    """
    return Kind(
        resource=PODS,
        item_type=Pod,
        predicate=any_of(
            deletion(),
            owners(),
            labels(),
            computed("managed metadata", Change.ANNOTATIONS, _pod_managed),
            computed("status", Change.COLUMNS, _pod_hint),
            if_known(column("IP", classify=hash)),
            if_known(column("Node")),
            computed("unscheduled", Change.VERSION, _pod_unscheduled),
        ),
        from_row=objects.pod_from_row,
        from_full=objects.pod_from_full,
        columns_of=objects.pod_columns,
        suspects=objects.pod_row_contradicts,
        columns=("Ready", "Status", "IP", "Node"),
        watch_order=order,
        label_selector=_TRACKED,
        owner_of=objects.sandbox_uid,
    )


def _service_spec(row: Observed) -> Hashable:
    assert isinstance(row, MetaRow)
    return objects.service_spec_version(row)


def services(
    order: tuple[Representation, ...] = FALLBACK_ORDER, *, only_tracked: bool = False
) -> Kind[ServiceEntry]:
    """Services wake for their owner and, where a Sandbox has them, for any write.

    All of them are watched, as metadata, unless ``only_tracked``: a Service that bears a Sandbox's
    name is an obstacle whoever made it, and the watch is what proves that there is none.
    """
    return Kind(
        resource=SERVICES,
        item_type=Service,
        predicate=any_of(
            deletion(),
            owners(),
            labels(*sorted(objects.ADOPTION_LABELS), brief=True),
            computed("spec", Change.VERSION, _service_spec),
        ),
        from_row=objects.service_from_row,
        from_full=objects.service_from_full,
        watch_order=tuple(form for form in order if form is not Representation.TABLE),
        label_selector=_TRACKED if only_tracked else None,
    )


def pvcs() -> Kind[PvcEntry]:
    """Claims are remembered by owner; of what happens to them only their end wakes (spec, 6.1)."""
    return Kind(
        resource=PVCS,
        item_type=PartialObject,
        predicate=any_of(
            deletion(), owners(), labels(*sorted(objects.ADOPTION_LABELS), brief=True)
        ),
        from_row=objects.pvc_from_row,
        from_full=objects.pvc_from_full,
        watch_order=(Representation.METADATA, Representation.FULL),
        list_as=Representation.METADATA,
    )
