"""The watched kinds of the extension API, and the policies of templates."""

from __future__ import annotations

from collections.abc import Hashable

from filters import (
    Change,
    Observed,
    annotation,
    any_of,
    computed,
    deletion,
    generation,
    labels,
    owners,
    resource_version,
)
from lean_sandbox.kube.resources import (
    NETWORKPOLICIES,
    SANDBOXCLAIMS,
    SANDBOXTEMPLATES,
    SANDBOXWARMPOOLS,
)
from lean_sandbox.model import names
from lean_sandbox.model.claim import SandboxClaim
from lean_sandbox.model.template import SandboxTemplate
from lean_sandbox.model.warmpool import SandboxWarmPool
from lean_sandbox.watch.kind import Kind
from lean_sandbox.watch.representation import Representation
from lean_sandbox.watch.resources import extension_objects as objects
from lean_sandbox.watch.resources.extension_objects import (
    ClaimEntry,
    PolicyEntry,
    PolicyItem,
    PoolEntry,
    TemplateEntry,
)
from lean_sandbox.watch.wire import MetaRow

_FULL = (Representation.FULL,)


def templates() -> Kind[TemplateEntry]:
    """Templates wake for their spec, their hash label and their deletion."""
    return Kind(
        resource=SANDBOXTEMPLATES,
        item_type=SandboxTemplate,
        predicate=any_of(generation(), deletion(), labels(*sorted(objects.TEMPLATE_LABELS))),
        from_row=objects.template_from_row,
        from_full=objects.template_from_full,
        watch_order=_FULL,
    )


def claims() -> Kind[ClaimEntry]:
    """Claims wake for their spec, deletion and the metadata read here, and for a foreign status.

    Our own writes are known by their version, so any other version that passes is somebody else's.
    """
    return Kind(
        resource=SANDBOXCLAIMS,
        item_type=SandboxClaim,
        predicate=any_of(
            generation(),
            deletion(),
            labels(*sorted(objects.CLAIM_LABELS)),
            annotation(*sorted(objects.CLAIM_ANNOTATIONS)),
            resource_version(),
        ),
        from_row=objects.claim_from_row,
        from_full=objects.claim_from_full,
        watch_order=_FULL,
    )


def pools() -> Kind[PoolEntry]:
    """Pools wake for their spec and deletion; their status is ours."""
    return Kind(
        resource=SANDBOXWARMPOOLS,
        item_type=SandboxWarmPool,
        predicate=any_of(generation(), deletion()),
        from_row=objects.pool_from_row,
        from_full=objects.pool_from_full,
        watch_order=_FULL,
    )


def _template_policy(row: Observed) -> Hashable:
    """Return the version of a policy that a template controls: any write may be a drift."""
    assert isinstance(row, MetaRow)
    controller = row.controller
    if controller is not None and controller.kind == names.SANDBOX_TEMPLATE_KIND:
        return row.resource_version
    return None


def policies() -> Kind[PolicyEntry]:
    """Policies wake for their owner and, where a template controls them, for any write."""
    return Kind(
        resource=NETWORKPOLICIES,
        item_type=PolicyItem,
        predicate=any_of(deletion(), owners(), computed("spec", Change.VERSION, _template_policy)),
        from_row=objects.policy_from_row,
        from_full=objects.policy_from_full,
        watch_order=(Representation.METADATA, Representation.FULL),
    )
