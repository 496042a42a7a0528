"""Which Sandbox a claim has, as the cache shows it (claims, 3.5).

An owner reference is text that whoever creates a Sandbox may write. So the reference alone does not
bind a claim to a Sandbox: the Sandbox must also be one that this controller made for the claim or
took over for it.
"""

from __future__ import annotations

from lean_sandbox.model import names
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.resources.claim import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry


def own_sandbox(sandboxes: Cache[SandboxEntry], claim: ClaimEntry) -> SandboxEntry | None:
    """Return the Sandbox of a claim: the one it names, the one of its own name, or one taken over.

    A Sandbox that is named stays the claim's until it is gone. One that was taken over without
    anything being told of it, because the process ended in between, is found by its labels, unless
    it is being deleted.
    """
    owned = {
        one.key.name: one
        for one in sandboxes.owned_by(claim.key.namespace, claim.uid)
        if is_controlled(one, claim)
    }
    bound = claim.status.bound.name if claim.status is not None else ""
    for name in (bound, assigned_name(claim), claim.key.name):
        if name in owned:
            return owned[name]
    return next((owned[name] for name in sorted(owned) if _was_taken_over(owned[name])), None)


def is_controlled(sandbox: SandboxEntry, claim: ClaimEntry) -> bool:
    """Tell whether a Sandbox of the claim's namespace has the claim as its controller."""
    owner = sandbox.owner
    return (
        owner is not None
        and owner.uid == claim.uid
        and owner.is_a(names.SANDBOX_CLAIM_KIND, names.EXTENSIONS_GROUP)
    )


def assigned_name(claim: ClaimEntry) -> str:
    """Return the Sandbox that a claim's annotation names, or its label of older days."""
    key = names.SANDBOX_NAME_ANNOTATION
    return (claim.annotations or {}).get(key) or (claim.labels or {}).get(key, "")


def _was_taken_over(sandbox: SandboxEntry) -> bool:
    """Tell whether a Sandbox looks like a member of a pool after the patch that takes it over."""
    labels = sandbox.labels or {}
    return (
        not sandbox.is_deleting
        and labels.get(names.LAUNCH_TYPE_LABEL) == names.LAUNCH_TYPE_WARM
        and names.WARM_POOL_LABEL not in labels
    )
