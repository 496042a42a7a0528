"""SandboxClaims: their cache entry, and the predicate over their events.

Claims are watched as full objects, because nearly every event of a claim needs its spec, they are
small, and a GET would delay the client that waits for the claim. Of the decoded object only a view
is kept.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from filters import annotation, any_of, deletion, generation, keep, labels, resource_version
from lean_sandbox.kube.resources import SANDBOXCLAIMS
from lean_sandbox.model import names
from lean_sandbox.model.claim import ClaimView, SandboxClaim, SandboxClaimStatus, view_of_claim
from lean_sandbox.model.conditions import shared_conditions
from lean_sandbox.model.meta import ObjectMeta, as_version
from lean_sandbox.model.wire import ODD
from lean_sandbox.watch.kind import Key, Kind, Representation, key_of

CLAIM_LABELS = frozenset({names.CREATED_BY_LABEL, names.SANDBOX_NAME_ANNOTATION})
CLAIM_ANNOTATIONS = frozenset(
    {
        names.SANDBOX_NAME_ANNOTATION,
        names.TRACE_CONTEXT_ANNOTATION,
        names.CLAIM_FIRST_READY_AT_ANNOTATION,
        names.CLIENT_FIRST_REQUESTED_AT_ANNOTATION,
        names.CONTROLLER_FIRST_OBSERVED_AT_ANNOTATION,
        names.WEBHOOK_FIRST_OBSERVED_AT_ANNOTATION,
    }
)


class ClaimEntry(msgspec.Struct, gc=False):
    """The cache entry of a claim. ``fault`` is the reason why its spec cannot be used, if any."""

    key: Key
    uid: str
    version: int
    generation: int
    is_deleting: bool
    created_at: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    view: ClaimView | None = None
    status: SandboxClaimStatus | None = None
    fault: str = ""
    seen: tuple[Hashable, ...] = ()

    @property
    def needs_look(self) -> bool:
        """Whether the full object has to be fetched before a reconcile can decide anything."""
        return self.view is None or self.status is None or self.view.generation != self.generation


def claim_from_row(row: ObjectMeta, old: ClaimEntry | None) -> ClaimEntry:
    """Build the entry from metadata; view and status are those of the old entry."""
    entry = ClaimEntry(
        key=old.key if old is not None else key_of(row.namespace, row.name),
        uid=row.uid,
        version=as_version(row.resource_version),
        generation=row.generation or 0,
        is_deleting=row.deletion_timestamp is not None,
        created_at=row.creation_timestamp or "",
        labels=keep(row.labels, CLAIM_LABELS),
        annotations=keep(row.annotations, CLAIM_ANNOTATIONS),
    )
    if old is not None:
        entry.view, entry.status, entry.fault = old.view, old.status, old.fault
    return entry


def claim_from_full(item: SandboxClaim, row: ObjectMeta, old: ClaimEntry | None) -> ClaimEntry:
    """Build the entry from a full claim."""
    entry = claim_from_row(row, old)
    try:
        entry.view = view_of_claim(item)
    except ODD as error:
        entry.view = ClaimView(generation=entry.generation)
        entry.fault = str(error)
    else:
        entry.fault = ""
    shared = shared_conditions(item.status.conditions)
    entry.status = msgspec.structs.replace(item.status, conditions=shared)
    return entry


def claim_kind() -> Kind[ClaimEntry]:
    """Claims pass on every write that is not our own.

    The versions of our own writes are in the cache already, so that any other version is a write of
    somebody else. The other leaves say what changed.
    """
    return Kind(
        resource=SANDBOXCLAIMS,
        item_type=SandboxClaim,
        predicate=any_of(
            generation(),
            deletion(),
            labels(*sorted(CLAIM_LABELS)),
            annotation(*sorted(CLAIM_ANNOTATIONS)),
            resource_version(),
        ),
        from_row=claim_from_row,
        from_full=claim_from_full,
        watch_order=(Representation.FULL,),
    )
