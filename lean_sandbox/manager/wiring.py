"""Which controllers there are, what they share, and who wakes whom.

They do not import each other: this is the one place that knows them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lean_sandbox.clock import Clock
from lean_sandbox.config.options import Settings
from lean_sandbox.controllers.claim.controller import ClaimController
from lean_sandbox.controllers.common import ServerTime, Shared, Wakes
from lean_sandbox.controllers.metrics import Metrics
from lean_sandbox.controllers.resolver import TemplateResolver
from lean_sandbox.controllers.sandbox.controller import SandboxController
from lean_sandbox.controllers.template import TemplateController
from lean_sandbox.controllers.warmpool.controller import PoolController
from lean_sandbox.kube.client import Client
from lean_sandbox.model import names
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.runtime.writer import ObjectWriter
from lean_sandbox.watch.group import ReflectorGroup
from lean_sandbox.watch.resources import build_caches
from lean_sandbox.watch.resources.sandbox import SandboxEntry
from lean_sandbox.watch.versions import TOMBSTONE_S


def build_shared(
    client: Client, settings: Settings, clock: Clock, uniform: Callable[[], float]
) -> Shared:
    """Return what all controllers share; makes no request."""
    shard = settings.shard
    caches = build_caches(
        leanest=settings.watch_representation,
        sandbox_selector=settings.sandbox_label_selector,
        only_tracked_services=settings.cache_label_selectors,
        monotonic=clock.monotonic,
        # A request may be sent again after a 401.
        tombstone_s=max(TOMBSTONE_S, 2.0 * settings.request_timeout),
        admits_namespace=None if shard is None else shard.admits,
    )
    reflectors = ReflectorGroup(
        client,
        clock=clock,
        uniform=uniform,
        page_size=settings.page_size,
        namespaces=settings.namespaces,
        exclude_namespaces=settings.exclude_namespaces,
        # Servers without sharding send everything all the same.
        shard_selector="" if shard is None else shard.selector,
    )
    return Shared(
        client=client,
        writer=ObjectWriter(client),
        caches=caches,
        reflectors=reflectors,
        resolver=TemplateResolver(client, caches, clock),
        settings=settings,
        clock=clock,
        server_time=ServerTime(clock),
        metrics=Metrics(clock),
        wakes=Wakes(),
        uniform=uniform,
    )


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
    caches = shared.caches
    wakes = shared.wakes
    sandboxes.watches(caches.sandboxes, sandboxes.on_sandbox)
    sandboxes.watches(caches.pods, sandboxes.on_pod)
    sandboxes.watches(caches.services, sandboxes.on_service)
    sandboxes.watches(caches.pvcs, sandboxes.on_pvc)
    wakes.launch.append(sandboxes.launch)
    wakes.sandbox.append(sandboxes.reconcile_soon)


def _connect_extensions(
    shared: Shared, claims: ClaimController, pools: PoolController, templates: TemplateController
) -> None:
    caches = shared.caches
    wakes = shared.wakes
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


def _whether_awaited(
    claims: ClaimController, pools: PoolController
) -> Callable[[SandboxEntry], bool]:
    """Return the test whether a client waits for a Sandbox without its own state showing it."""

    def is_awaited(sandbox: SandboxEntry) -> bool:
        pool = sandbox.owner_key(names.SANDBOX_WARM_POOL_KIND)
        return claims.has_edited_claim(sandbox) if pool is None else pools.is_awaited(pool)

    return is_awaited
