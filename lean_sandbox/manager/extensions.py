"""The wiring of the extension controllers: claims, templates and pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lean_sandbox.clock import Clock
from lean_sandbox.config.options import Settings
from lean_sandbox.controllers.claim.bind import Wakes
from lean_sandbox.controllers.claim.controller import (
    ClaimController,
    member_of,
)
from lean_sandbox.controllers.resolver import TemplateResolver
from lean_sandbox.controllers.sandbox.controller import SandboxController
from lean_sandbox.controllers.template import TemplateController
from lean_sandbox.controllers.warmpool.controller import PoolController
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.events import EventRecorder
from lean_sandbox.model.sandbox import Sandbox, SandboxStatus
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.runtime.tracing import Tracing
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.sandbox import SandboxEntry


class Extensions:
    """The three extension controllers, joined to each other and to the Sandbox controller."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        sandboxes: SandboxController,
        settings: Settings,
        *,
        clock: Clock,
        uniform: Callable[[], float],
        claim_recorder: EventRecorder | None,
        pool_recorder: EventRecorder | None,
        tracing: Tracing | None = None,
    ) -> None:
        self._sandboxes = sandboxes
        blueprints = TemplateResolver(client, caches, clock, timeout_s=settings.request_timeout)
        self.claims = ClaimController(
            client,
            caches,
            blueprints,
            settings,
            Wakes(sandbox=sandboxes.look_after, launch=self.launch, pool=self._wake_pool),
            clock=clock,
            recorder=claim_recorder,
            tracing=tracing,
        )
        sandboxes.stand_back(self.claims.queue, self.claims.waits_for)
        self.claims.on_awaited = sandboxes.queue.judge_held
        self.pools = PoolController(
            client,
            caches,
            blueprints,
            settings,
            clock=clock,
            uniform=uniform,
            claims=self.claims.queue,
            neighbours=self,
            recorder=pool_recorder,
        )
        self.templates = TemplateController(
            client,
            caches,
            policy_there=self._policy_there,
            clock=clock,
            # The reference takes none for one here, and refuses it everywhere else.
            workers=max(1, settings.sandbox_template_concurrent_workers),
            timeout_s=settings.request_timeout,
        )

    @property
    def controllers(self) -> tuple[Controller[Any], ...]:
        """Everything that reconciles."""
        return self.claims, self.pools, self.templates, self.claims.annotator

    # -- what concerns all three -----------------------------------------------------------------

    def on_status(self, entry: SandboxEntry, old: SandboxStatus, new: SandboxStatus) -> None:
        """Hand on a status that our own Sandbox controller wrote, which comes as no event."""
        self.claims.on_status(entry, old, new)
        self.pools.on_status(entry)

    def launch(self, sandbox: Key, whole: Sandbox | None = None) -> None:
        """Have the Sandbox controller look at a Sandbox that an extension made or changed."""
        self._sandboxes.launch(sandbox, whole)

    def withhold(self, key: Key, uid: str) -> None:
        """Let no claim take a member that its pool is about to delete."""
        self.claims.warm.forget(key, uid)

    def offer(self, entry: SandboxEntry) -> None:
        """Let claims take a member, if it is one that can be taken."""
        member = member_of(entry)
        if member is not None:
            self.claims.warm.add(member)

    def _policy_there(self, template: Key) -> None:
        """Wake who has waited for the NetworkPolicy of a template."""
        self.claims.on_policy_there(template)
        self.pools.on_policy_there(template)

    def _wake_pool(self, pool: Key) -> None:
        self.pools.wake(pool)
