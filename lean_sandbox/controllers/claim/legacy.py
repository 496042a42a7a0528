"""What releases of the reference before v1 have left at a claim. Remove after v1.1."""

from __future__ import annotations

import structlog

from lean_sandbox.controllers.claim.owned import is_controlled
from lean_sandbox.controllers.claim.run import ClaimContext
from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.extensions import ClaimEntry

log = structlog.get_logger("claim")


async def delete_legacy_policy(context: ClaimContext, entry: ClaimEntry) -> None:
    """Delete the NetworkPolicy that such a release created for a claim, if there is one.

    No request if the cache of NetworkPolicies has none of this name: the cache is in sync before
    claims are reconciled, so the policy is known to be absent. Else one DELETE.
    """
    key = Key(entry.key.namespace, f"{entry.key.name}-network-policy")
    held = context.caches.policies.get(key)
    if held is None or held.is_deleting or not is_controlled(held, entry):
        return
    try:
        await context.writer.remove(context.caches.policies, held)
    except ControlPlaneError as error:
        # The claim is served all the same, and the next reconcile tries again.
        log.warning("policy_not_deleted", key=str(held.key), error=str(error))
