"""SandboxTemplates, SandboxWarmPools, SandboxClaims: their cache entries and predicates.

All three are watched as full objects: nearly every event needs the spec, the objects are small, and
a GET would delay the client that waits for a claim. Only a view of the decoded object is kept.
"""

from __future__ import annotations

import msgspec

from filters import any_of, deletion, generation, keep, labels, resource_version
from lean_sandbox.kube.resources import SANDBOXCLAIMS, SANDBOXTEMPLATES, SANDBOXWARMPOOLS
from lean_sandbox.model import names
from lean_sandbox.model.claim import ClaimView, SandboxClaim, SandboxClaimStatus, view_of_claim
from lean_sandbox.model.conditions import shared_conditions
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.template import SandboxTemplate, TemplateView, view_of_template
from lean_sandbox.model.warmpool import (
    PoolView,
    SandboxWarmPool,
    SandboxWarmPoolStatus,
    view_of_pool,
)
from lean_sandbox.watch.kind import Entry, Kind, Knowledge, Representation, identity, view_or_fault

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


# -- templates -------------------------------------------------------------------------------------


class TemplateEntry(Entry, gc=False, frozen=True):
    """The cache entry of a template; ``view`` has everything that Sandboxes take from it.

    ``fault`` is the reason why a full template has no view.
    """

    labels: dict[str, str] | None = None
    view: TemplateView | None = None
    fault: str = ""


def _build_template(
    row: ObjectMeta, item: SandboxTemplate | None, old: TemplateEntry | None
) -> TemplateEntry:
    view = None
    fault = ""
    if old is not None and old.generation == row.generation:
        view = old.view
        fault = old.fault
    if item is not None and view is None:
        view, fault = view_or_fault(view_of_template, item)
    labels = keep(row.labels, TEMPLATE_LABELS)
    return TemplateEntry(*identity(row, old), labels=labels, view=view, fault=fault)


def template_kind() -> Kind[TemplateEntry]:
    """Templates pass when their spec or hash label changes, or they are deleted."""
    return Kind(
        resource=SANDBOXTEMPLATES,
        item_type=SandboxTemplate,
        predicate=any_of(generation(), deletion(), labels(*sorted(TEMPLATE_LABELS))),
        build=_build_template,
        watch_as=Representation.FULL,
    )


# -- pools -----------------------------------------------------------------------------------------


class PoolEntry(Entry, gc=False, frozen=True):
    """The cache entry of a pool."""

    view: PoolView | None = None
    status: SandboxWarmPoolStatus | None = None


def _build_pool(row: ObjectMeta, item: SandboxWarmPool | None, old: PoolEntry | None) -> PoolEntry:
    if item is not None:
        return PoolEntry(*identity(row, old), view=view_of_pool(item), status=item.status)
    if old is not None:
        return PoolEntry(*identity(row, old), view=old.view, status=old.status)
    return PoolEntry(*identity(row, old))


def pool_kind() -> Kind[PoolEntry]:
    """Pools pass on every write but our own: another, or a late one, may change the status."""
    return Kind(
        resource=SANDBOXWARMPOOLS,
        item_type=SandboxWarmPool,
        predicate=resource_version(),
        build=_build_pool,
        watch_as=Representation.FULL,
    )


# -- claims ----------------------------------------------------------------------------------------


class ClaimEntry(Entry, gc=False, frozen=True):
    """The cache entry of a claim. ``fault`` is the reason why its spec cannot be used, if any."""

    created_at: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    view: ClaimView | None = None
    status: SandboxClaimStatus | None = None
    fault: str = ""

    @property
    def knowledge(self) -> Knowledge:
        """STALE after a change of a spec that cannot be decoded, which metadata alone has shown."""
        if self.view is None or self.status is None:
            return Knowledge.UNKNOWN
        return Knowledge.KNOWN if self.view.generation == self.generation else Knowledge.STALE


def _notes_of(row: ObjectMeta) -> dict[str, str] | None:
    kept = keep(row.annotations, CLAIM_ANNOTATIONS) or {}
    for key, text in kept.items():
        is_trace = key == names.TRACE_CONTEXT_ANNOTATION
        kept[key] = names.clipped_trace(text) if is_trace else names.clipped_name(text)
    return kept or None


def _build_claim(row: ObjectMeta, item: SandboxClaim | None, old: ClaimEntry | None) -> ClaimEntry:
    view = None
    status = None
    fault = ""
    if item is not None:
        view, fault = view_or_fault(view_of_claim, item)
        view = view or ClaimView(generation=row.generation)
        shared = shared_conditions(item.status.conditions)
        status = msgspec.structs.replace(item.status, conditions=shared)
    elif old is not None:
        view = old.view
        status = old.status
        fault = old.fault
    return ClaimEntry(
        *identity(row, old),
        created_at=row.creation_timestamp or "",
        labels=keep(row.labels, CLAIM_LABELS),
        annotations=_notes_of(row),
        view=view,
        status=status,
        fault=fault,
    )


def claim_kind() -> Kind[ClaimEntry]:
    """Claims pass on every write but our own, whose versions the cache knows already."""
    return Kind(
        resource=SANDBOXCLAIMS,
        item_type=SandboxClaim,
        predicate=resource_version(),
        build=_build_claim,
        watch_as=Representation.FULL,
    )
