"""Which controllers there are, and who wakes whom: they do not import each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lean_sandbox.controllers.claim.controller import ClaimController
from lean_sandbox.controllers.common import Shared
from lean_sandbox.controllers.sandbox.controller import SandboxController
from lean_sandbox.controllers.template import TemplateController
from lean_sandbox.controllers.warmpool.controller import PoolController
from lean_sandbox.model import names
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.watch.resources.sandbox import SandboxEntry


def build_controllers(shared: Shared) -> list[Controller[Any]]:
    """Return the controllers that the settings ask for, connected, that of Sandboxes first."""
    if not shared.settings.extensions:
        sandboxes = SandboxController(shared)
        _connect_sandboxes(shared, sandboxes)
        return [sandboxes]
    claims = ClaimController(shared)
    pools = PoolController(shared, warm=claims.warm, is_waited_for=claims.waiting.waits_for)
    templates = TemplateController(shared)
    sandboxes = SandboxController(shared, is_awaited=_whether_awaited(claims, pools))
    _connect_sandboxes(shared, sandboxes)
    _connect_extensions(shared, claims, pools, templates)
    return [sandboxes, claims, pools, templates, claims.annotator]


def _connect_sandboxes(shared: Shared, sandboxes: SandboxController) -> None:
    caches, wakes = shared.caches, shared.wakes
    sandboxes.watches(caches.sandboxes, sandboxes.on_sandbox)
    sandboxes.watches(caches.pods, sandboxes.on_pod)
    sandboxes.watches(caches.services, sandboxes.on_service)
    sandboxes.watches(caches.pvcs, sandboxes.on_pvc)
    wakes.launch.append(sandboxes.launch)
    wakes.sandbox.append(sandboxes.look_after)


def _connect_extensions(
    shared: Shared, claims: ClaimController, pools: PoolController, templates: TemplateController
) -> None:
    caches, wakes = shared.caches, shared.wakes
    claims.watches(caches.sandboxes, claims.on_sandbox)
    claims.watches(caches.pools, claims.on_pool)
    claims.watches(caches.templates, claims.on_template)
    claims.watches(caches.claims, claims.on_claim)
    pools.watches(caches.sandboxes, pools.on_sandbox)
    pools.watches(caches.pools, pools.on_change)
    pools.watches(caches.templates, pools.on_template)
    templates.watches(caches.templates, templates.on_change)
    templates.watches(caches.policies, templates.on_policy)
    templates.owns(caches.policies)
    wakes.status.append(claims.on_status)
    wakes.status.append(pools.on_status)
    wakes.policy.append(claims.on_policy_there)
    wakes.policy.append(pools.on_policy_there)
    wakes.pool.append(pools.on_member)
    wakes.refused.append(pools.replace_refused)


def _whether_awaited(
    claims: ClaimController, pools: PoolController
) -> Callable[[SandboxEntry], bool]:
    """Return the test whether somebody waits for a Sandbox beyond what its own state shows."""

    def is_awaited(sandbox: SandboxEntry) -> bool:
        pool = sandbox.owner_key(names.SANDBOX_WARM_POOL_KIND)
        return claims.has_edited_claim(sandbox) if pool is None else pools.is_awaited(pool)

    return is_awaited
