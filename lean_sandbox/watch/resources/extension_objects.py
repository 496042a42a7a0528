"""What is remembered of templates, claims and pools, and of the policies of templates.

Templates, pools and claims are watched as full objects: each of their events is a reason to read
the spec, they are small, and a claim's GET would stand on the path of the client that waits for it.
The decoded object is reduced to a view at once; nothing of the message stays.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from filters import keep
from lean_sandbox.model import names
from lean_sandbox.model.claim import ClaimView, SandboxClaim, SandboxClaimStatus, view_of_claim
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.sharing import interned
from lean_sandbox.model.template import SandboxTemplate, TemplateView, view_of_template
from lean_sandbox.model.warmpool import (
    PoolView,
    SandboxWarmPool,
    SandboxWarmPoolStatus,
    view_of_pool,
)
from lean_sandbox.model.wire import ODD
from lean_sandbox.watch.kind import Key, key_of
from lean_sandbox.watch.wire import MetaRow, OwnerRow, as_version

TEMPLATE_LABELS = frozenset({names.TEMPLATE_REF_HASH_LABEL})
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


class TemplateEntry(msgspec.Struct, gc=False):
    """What is remembered of a template; ``view`` holds all that Sandboxes are made of.

    ``fault`` says in words why there is no view although the whole template has been read.
    """

    key: Key
    uid: str
    version: int
    generation: int
    is_deleting: bool
    labels: dict[str, str] | None = None
    view: TemplateView | None = None
    fault: str = ""
    seen: tuple[Hashable, ...] = ()


def template_from_row(row: MetaRow, old: TemplateEntry | None) -> TemplateEntry:
    """Build the entry from metadata, keeping the view of the same generation."""
    generation = row.generation or 0
    entry = TemplateEntry(
        key=old.key if old is not None else key_of(row.namespace, row.name),
        uid=row.uid,
        version=as_version(row.resource_version),
        generation=generation,
        is_deleting=row.deletion_timestamp is not None,
        labels=keep(row.labels, TEMPLATE_LABELS),
    )
    if old is not None and old.generation == generation and old.version:
        entry.view, entry.fault = old.view, old.fault
    return entry


def template_from_full(
    item: SandboxTemplate, row: MetaRow, old: TemplateEntry | None
) -> TemplateEntry:
    """Build the entry from a whole template."""
    entry = template_from_row(row, old)
    if entry.view is None:
        try:
            entry.view = view_of_template(item)
        except ODD as error:
            entry.fault = str(error)
        else:
            entry.fault = ""
    return entry


class PolicyItem(msgspec.Struct, frozen=True):
    """A NetworkPolicy as listed: its spec stays the bytes the server sent."""

    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"null")


class PolicyEntry(msgspec.Struct, gc=False):
    """What is remembered of a NetworkPolicy; the spec only of those that a template controls."""

    key: Key
    uid: str
    version: int
    owner: OwnerRow | None = None
    spec_json: bytes | None = None
    is_stale: bool = True
    seen: tuple[Hashable, ...] = ()


def policy_from_row(row: MetaRow, old: PolicyEntry | None) -> PolicyEntry:
    """Build the entry from metadata; the spec has to be looked at again."""
    return PolicyEntry(
        key=old.key if old is not None else key_of(row.namespace, row.name),
        uid=row.uid,
        version=as_version(row.resource_version),
        owner=row.controller,
        spec_json=old.spec_json if old is not None else None,
    )


def policy_from_full(item: PolicyItem, row: MetaRow, old: PolicyEntry | None) -> PolicyEntry:
    """Build the entry from a whole policy."""
    entry = policy_from_row(row, old)
    owner = entry.owner
    if owner is not None and owner.kind == names.SANDBOX_TEMPLATE_KIND:
        entry.spec_json = bytes(item.spec)
        entry.is_stale = False
    return entry


class ClaimEntry(msgspec.Struct, gc=False):
    """What is remembered of a claim. ``fault`` says in words why its spec cannot be acted upon."""

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
        """Whether the full object has to be fetched before anything can be decided."""
        return self.view is None or self.status is None or self.view.generation != self.generation


def claim_from_row(row: MetaRow, old: ClaimEntry | None) -> ClaimEntry:
    """Build the entry from metadata, keeping the view and status that still hold."""
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


def claim_from_full(item: SandboxClaim, row: MetaRow, old: ClaimEntry | None) -> ClaimEntry:
    """Build the entry from a whole claim."""
    entry = claim_from_row(row, old)
    try:
        entry.view = view_of_claim(item)
    except ODD as error:
        entry.view = ClaimView(generation=entry.generation)
        entry.fault = str(error)
    else:
        entry.fault = ""
    entry.status = compact_claim_status(item.status)
    return entry


def compact_claim_status(status: SandboxClaimStatus) -> SandboxClaimStatus:
    """Return the status with its repeating strings shared."""
    conditions = tuple(
        msgspec.structs.replace(
            condition,
            type=interned(condition.type),
            status=interned(condition.status),
            reason=interned(condition.reason),
            message=interned(condition.message),
            lastTransitionTime=interned(condition.lastTransitionTime),
        )
        for condition in status.conditions
    )
    return msgspec.structs.replace(status, conditions=conditions)


class PoolEntry(msgspec.Struct, gc=False):
    """What is remembered of a pool."""

    key: Key
    uid: str
    version: int
    generation: int
    is_deleting: bool
    view: PoolView | None = None
    status: SandboxWarmPoolStatus | None = None
    seen: tuple[Hashable, ...] = ()


def pool_from_row(row: MetaRow, old: PoolEntry | None) -> PoolEntry:
    """Build the entry from metadata, keeping the view and status that still hold."""
    entry = PoolEntry(
        key=old.key if old is not None else key_of(row.namespace, row.name),
        uid=row.uid,
        version=as_version(row.resource_version),
        generation=row.generation or 0,
        is_deleting=row.deletion_timestamp is not None,
    )
    if old is not None:
        entry.view, entry.status = old.view, old.status
    return entry


def pool_from_full(item: SandboxWarmPool, row: MetaRow, old: PoolEntry | None) -> PoolEntry:
    """Build the entry from a whole pool."""
    entry = pool_from_row(row, old)
    entry.view = view_of_pool(item)
    entry.status = item.status
    return entry
