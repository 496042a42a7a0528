"""From a claim to its Sandbox: the one it has, one of its pool, or a new one.

A warm claim costs one request here: the patch that takes the member over. A member is handed out in
memory to one claim at a time; a claim takes the next one at once if another process was faster, or
if an admission policy refuses the member.
"""

from __future__ import annotations

from typing import Never

from lean_sandbox.controllers.claim.adopt import Adoption, MemberRefusedError
from lean_sandbox.controllers.claim.context import SOON_READY_S, ClaimContext
from lean_sandbox.controllers.claim.owned import is_controlled
from lean_sandbox.controllers.claim.state import ClaimState
from lean_sandbox.controllers.common import reference_to
from lean_sandbox.controllers.resolver import NotYetError
from lean_sandbox.kube.errors import AlreadyExists, ControlPlaneError, message_of
from lean_sandbox.kube.resources import SANDBOXES
from lean_sandbox.model import names
from lean_sandbox.model.claim import SandboxClaimSpec
from lean_sandbox.model.claim_sandbox import build_cold_sandbox
from lean_sandbox.model.claim_status import ClaimError, ClaimFault, not_controlled, owner_taken_away
from lean_sandbox.model.template import TemplateView
from lean_sandbox.model.warmpool import Freshness
from lean_sandbox.runtime.workers import AT_ONCE_S
from lean_sandbox.watch.resources.extensions import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

_MOST_TRIES = 64
# How many members a claim tries that the server refuses to hand over; then it gets a new Sandbox.
_MOST_REFUSALS = 3


class Binding:
    """Binds one claim to a Sandbox, in one reconcile.

    Every method may raise ClaimError if the claim cannot have what it asks for, NotYetError if
    nothing is to be written yet, and the errors of requests.
    """

    def __init__(
        self, context: ClaimContext, entry: ClaimEntry, state: ClaimState, adoption: Adoption
    ) -> None:
        self._context = context
        self._state = state
        self._sandboxes = context.caches.sandboxes
        self._entry = entry
        self._adoption = adoption
        self._facts = adoption.facts
        self._pool = adoption.pool
        #: The member that was taken from the pool.
        self.taken: SandboxEntry | None = None

    # -- warm ------------------------------------------------------------------------------------

    async def take(self) -> SandboxEntry | None:
        """Take a member of the claim's pool; ``None`` when there is none to wait for.

        Raises NotYetError while members are starting and the claim is young.
        """
        warm = self._context.warm
        staleness = self._adoption.staleness()
        if staleness is None and self._adoption.is_recreate():
            # It is unknown which members are stale: they stay, and the cold path reports why.
            return None
        refusals = 0

        def may_be_fresh(member: SandboxEntry) -> bool:
            return staleness is None or staleness.by_hash(member.metadata) is not Freshness.STALE

        for _ in range(_MOST_TRIES):
            member = warm.acquire(self._pool, accept=may_be_fresh)
            if member is None:
                if warm.counts(self._pool).waiting:
                    self._wait_while_young()
                return None
            began = self._context.clock.monotonic()
            try:
                self.taken = await self._adoption.take(member, staleness)
            except MemberRefusedError:
                refusals += 1
                if refusals == _MOST_REFUSALS:
                    return None
                continue
            if self.taken is not None:
                self._context.metrics.stage("adopt", began)
                return self.taken
        return None

    def _wait_while_young(self) -> None:
        if self._entry.created_at:
            context = self._context
            context.server_time.saw(self._entry.created_at)
            age_s = context.server_time.age_s(self._entry.created_at)
            waited_s = min(age_s, context.clock.monotonic() - context.began_at)
            left_s = context.settings.sandbox_claim_warm_candidate_grace_period - waited_s
            if left_s > 0:
                raise NotYetError(min(SOON_READY_S, left_s))

    async def start_anew(self, why: str) -> Never:
        """Delete the member that was taken, of which no client was told. One DELETE.

        The server does not let its Pod be patched, perhaps because a policy is newer than the Pod.
        That of a new Sandbox is created as the claim's. Raises NotYetError.
        """
        assert self.taken is not None
        member = self.taken
        self.taken = None
        self._state.needs_new = True
        await self._adoption.give_up(member, why)
        raise NotYetError(AT_ONCE_S)

    def announce(self) -> None:
        """Report the member that was taken, by an Event and to its pool and its own controller.

        Called after the claim's status is written, so that the work it starts does not delay that.
        """
        if self.taken is None:
            return
        self._context.wakes.sandbox(self.taken.key)
        self._context.metrics.bound(self._entry, self.taken, names.LAUNCH_TYPE_WARM)
        note = f'Adopted warm pool Sandbox "{self.taken.key.name}"'
        # Another Sandbox makes another Event, not a repetition of the one that names the first.
        related = reference_to(self.taken, SANDBOXES)
        self._context.events.emit(
            self._entry, "Normal", "SandboxAdopted", "Adoption", note, related
        )
        self._context.wakes.pool(self._pool)

    # -- cold ------------------------------------------------------------------------------------

    async def template(self) -> TemplateView:
        """Return the template of the claim's pool, if Pods of it may start. At most two GETs."""
        resolver = self._context.resolver
        template = await resolver.template_of(self._pool)
        lack = resolver.unprotected(template)
        if lack is not None:
            raise lack
        return template

    async def make(self, spec: SandboxClaimSpec, template: TemplateView) -> SandboxEntry:
        """Create the claim's own Sandbox. One POST, and a DELETE if it is not the claim's."""
        body = build_cold_sandbox(self._facts, spec, template)
        try:
            written = await self._context.writer.create(
                self._sandboxes, self._pool.namespace, body, name=self._entry.key.name
            )
        except AlreadyExists:
            return await self._collided()
        except ControlPlaneError as error:
            if error.namespace_terminating:
                raise
            raise ClaimError(
                ClaimFault.OTHER, f"sandbox create error: {message_of(error)}"
            ) from error
        made = written.entry
        if not is_controlled(made, self._entry):
            # A mutating policy or a webhook has taken the owner away.
            self._state.disowned = made.uid
            await self._context.writer.delete(self._sandboxes, made)
            raise owner_taken_away(made.key.name)
        self._state.disowned = ""
        self._context.metrics.bound(self._entry, made, names.LAUNCH_TYPE_COLD)
        note = f'Created Sandbox "{made.key.name}"'
        self._context.events.emit(self._entry, "Normal", "SandboxProvisioned", "Provisioning", note)
        self._context.wakes.launch(made.key, written.item)
        return made

    async def _collided(self) -> SandboxEntry:
        key = self._entry.key
        pending = ClaimError(ClaimFault.CREATE_PENDING, f'sandbox "{key.name}" already exists')
        try:
            found = await self._adoption.fetch(key)
        except ControlPlaneError as error:
            raise pending from error
        if found is None:
            raise pending
        if not is_controlled(found, self._entry):
            raise not_controlled(key.name)
        return found
