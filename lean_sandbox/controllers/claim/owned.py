"""Which Sandbox is a claim's, as the cache shows it.

Users can create a Sandbox with any owner reference, and write any name into their claims. So a
Sandbox counts only if the claim controls it and it also has one of the marks below. The Sandbox
with the first mark is the claim's. Others that have only one of the last two marks are deleted,
unless the claim's status names them.

| | mark | why it counts |
|---|---|---|
| 1 | the claim's status names it | its client was told so |
| 2 | the claim's annotation names it | a process ended between annotation and status |
| 3 | it has the claim's name | it was created for the claim |
| 4 | its labels say that it was taken over | a process ended before any name was written |

A Sandbox that is being deleted has the first three marks until it is gone, and never the last.
:func:`.find.find_own` first fetches a Sandbox that the cache may lack. Afterwards
:func:`.find.find_named` looks for one that the claim was promised but does not control yet.
"""

from __future__ import annotations

from lean_sandbox.model import names
from lean_sandbox.model.meta import OwnerReference, is_controlled_by
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import OwnedEntry
from lean_sandbox.watch.resources.extensions import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry


def own_sandbox(sandboxes: Cache[SandboxEntry], claim: ClaimEntry) -> SandboxEntry | None:
    """Return the first Sandbox of the claim's own, in the order of this module's table."""
    assert claim.status is not None
    owned = _owned(sandboxes, claim)
    for name in (claim.status.bound.name, assigned_name(claim), claim.key.name):
        if name in owned:
            return owned[name]
    taken = filter(_was_taken_over, owned.values())
    return min(taken, key=lambda one: one.key.name, default=None)


def acquired(sandboxes: Cache[SandboxEntry], claim: ClaimEntry) -> list[SandboxEntry]:
    """Return the living Sandboxes of the claim's own by the last two marks of the table."""
    owned = _owned(sandboxes, claim).values()
    made = [one for one in owned if one.key == claim.key and not one.is_deleting]
    return [*made, *filter(_was_taken_over, owned)]


def _owned(sandboxes: Cache[SandboxEntry], claim: ClaimEntry) -> dict[str, SandboxEntry]:
    owned = sandboxes.owned_by(claim.key.namespace, claim.uid)
    return {one.key.name: one for one in owned if is_controlled(one, claim)}


def is_controlled(held: OwnedEntry, claim: ClaimEntry) -> bool:
    """Return whether an object of the claim's namespace has the claim as its controller."""
    is_a_claims = held.owner_key(names.SANDBOX_CLAIM_KIND) is not None
    return is_a_claims and is_controlled_by(held.owner, claim.uid)


def is_of_extensions(owner: OwnerReference) -> bool:
    """Return whether an owner is a claim, a pool or a template."""
    return owner.group == names.EXTENSIONS_GROUP


def assigned_name(claim: ClaimEntry) -> str:
    """Return the Sandbox that a claim's annotation names, "" if none.

    Releases of the reference before v1 named it in a label: remove after v1.1.
    """
    key = names.SANDBOX_NAME_ANNOTATION
    return (claim.annotations or {}).get(key) or (claim.labels or {}).get(key, "")


def _was_taken_over(sandbox: SandboxEntry) -> bool:
    labels = sandbox.labels or {}
    return (
        not sandbox.is_deleting
        and labels.get(names.LAUNCH_TYPE_LABEL) == names.LAUNCH_TYPE_WARM
        and names.WARM_POOL_LABEL not in labels
    )
