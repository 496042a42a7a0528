"""Takes a member of a pool over for a claim: one guarded patch of the Sandbox."""

from __future__ import annotations

from typing import Any

from lean_sandbox.controllers.claim.context import ClaimContext
from lean_sandbox.controllers.claim.owned import is_controlled
from lean_sandbox.controllers.claim.state import ClaimState
from lean_sandbox.controllers.common import reference_to
from lean_sandbox.controllers.warm import pool_of
from lean_sandbox.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, message_of
from lean_sandbox.kube.resources import SANDBOXES
from lean_sandbox.model import names
from lean_sandbox.model.claim import ClaimFacts
from lean_sandbox.model.claim_additions import desired_pod_metadata
from lean_sandbox.model.claim_sandbox import adoption_patch, needs_template_touch
from lean_sandbox.model.claim_status import ClaimError, ClaimFault
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.model.warmpool import Freshness, Staleness
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.extensions import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# How many times a member or a claim is patched while others keep writing to it.
MOST_PATCHES = 5


class MemberRefusedError(Exception):
    """The server does not let a member be taken over: a policy may be newer than the member.

    Its cause is the server's refusal.
    """


class Adoption:
    """Takes members of the claim's pool over, in one reconcile of the claim."""

    def __init__(self, context: ClaimContext, entry: ClaimEntry, state: ClaimState) -> None:
        assert entry.view is not None
        self._context = context
        self._sandboxes = context.caches.sandboxes
        self._resolver = context.resolver
        self._writer = context.writer
        self._entry = entry
        self._state = state
        # By uid: members that the server does not let the claim take over, and why.
        self._passed_over: dict[str, tuple[SandboxEntry, str]] = {}
        #: The pool that the claim names.
        self.pool = Key(entry.key.namespace, entry.view.pool)
        #: What goes from the claim into its Sandbox.
        self.facts = ClaimFacts(
            name=entry.key.name,
            namespace=entry.key.namespace,
            uid=entry.uid,
            created_by=(entry.labels or {}).get(names.CREATED_BY_LABEL, ""),
            trace_context=state.trace_of(entry),
            additional=entry.view.additional,
        )

    def is_recreate(self) -> bool:
        """Return whether stale members of the pool are not to be taken."""
        pool = self._resolver.known_pool(self.pool)
        return pool is not None and pool.is_recreate

    def staleness(self) -> Staleness | None:
        """Return what says which members are stale, ``None`` if none is or that is unknown."""
        template = self._resolver.known_template_of(self.pool) if self.is_recreate() else None
        return self._resolver.staleness(template) if template is not None else None

    async def take(self, member: SandboxEntry, staleness: Staleness | None) -> SandboxEntry | None:
        """Take over a member that the warm queue has reserved; ``None`` if it is not to be had.

        At most one GET for each unknown hash, before the patch. Raises MemberRefusedError; such a
        member stays reserved until :meth:`judge`.
        """
        warm = self._context.warm
        try:
            if staleness is not None and not await self._is_fresh(member, staleness):
                warm.forget(member)
                return None
            return await self._adopt(member)
        except MemberRefusedError as refusal:
            self._passed_over[member.uid] = member, message_of(refusal)
            raise
        finally:
            if member.uid not in self._passed_over:
                # The cache has the result of the patch, and the warm queue follows the cache.
                warm.release(member)

    def judge(self, *, has_sandbox: bool) -> None:
        """Hand the members that the claim was refused to their pool, to be replaced.

        If the server has not let the claim have any other Sandbox either, the members need not be
        at fault: then they are free again.
        """
        context = self._context
        for member, why in self._passed_over.values():
            if has_sandbox:
                context.warm.refuse(member)
                self._report(member, why)
            else:
                context.warm.release(member)

    async def give_up(self, member: SandboxEntry, why: str) -> None:
        """Delete a member that was taken over, and that no client was told of. One DELETE."""
        await self._writer.delete(self._sandboxes, member)
        self._report(member, why)

    def _report(self, member: SandboxEntry, why: str) -> None:
        """Report a member that does not serve the claim, by an Event and to its pool."""
        note = f'Pool Sandbox "{member.key.name}" is passed over: {why}'
        related = reference_to(member, SANDBOXES)
        self._context.events.emit(
            self._entry, "Warning", "SandboxNotAdopted", "Adoption", note, related
        )
        self._context.wakes.pool(self.pool)

    async def _is_fresh(self, member: SandboxEntry, staleness: Staleness) -> bool:
        verdict = staleness.by_hash(member.metadata)
        if verdict is Freshness.UNDECIDED:
            found = await self._writer.get(self._sandboxes, member.key)
            if found is None or found.entry.uid != member.uid:
                return False
            whole: Sandbox = found.item
            verdict = staleness.by_spec(whole.metadata, whole.spec, is_orphan=False)
        return verdict is Freshness.FRESH

    async def _adopt(self, held: SandboxEntry) -> SandboxEntry | None:
        """Take one member over; ``None`` when it is no longer available.

        One PATCH; after a refused PATCH a GET shows whether somebody else has taken the member. If
        it has only changed, it is patched again, so that its pool does not lose it. Raises
        ClaimError (AdoptionConflict) when others keep writing to it, MemberRefusedError when the
        server refuses the patch for its content.
        """
        refused: ApiError | None = None
        by_version = False
        for _ in range(MOST_PATCHES):
            try:
                taken = await self._patch_over(held, by_version=by_version)
            except NotFound:
                return None
            except (Invalid, Conflict, Forbidden) as error:
                refused = error
            else:
                if is_controlled(taken, self._entry):
                    return taken
                # A mutating policy or a webhook has put another owner in its place, or none.
                raise MemberRefusedError("it was accepted without the claim as its owner")
            fresh = await self.fetch(held.key)
            if fresh is None or fresh.uid != held.uid:
                return None
            if is_controlled(fresh, self._entry):
                # An earlier patch of ours was applied, but its response was lost.
                return fresh
            if pool_of(fresh) != self.pool:
                return None
            if _metadata_of(fresh) == _metadata_of(held):
                is_invalid = isinstance(refused, Invalid)
                has_passed_its_test = by_version and fresh.version == held.version
                if isinstance(refused, Forbidden) or (is_invalid and has_passed_its_test):
                    raise MemberRefusedError(message_of(refused)) from refused
                # The pool may not be the first owner, the one that the patch tests.
                by_version = by_version or is_invalid
            held = fresh
        text = f"completing adoption of {held.key.name} for claim {self._entry.key.name}"
        raise ClaimError(ClaimFault.ADOPTION_CONFLICT, text, conflict=str(refused)) from refused

    async def _patch_over(self, held: SandboxEntry, *, by_version: bool) -> SandboxEntry:
        # A member has both.
        assert held.owner is not None
        assert held.labels is not None
        template = self._resolver.known_template_of(self.pool)
        ref_hash = held.labels[names.TEMPLATE_REF_HASH_LABEL]
        if not ref_hash and template is not None:
            ref_hash = template.ref_hash
        current = held.view.template_metadata if held.view is not None else None
        desired = desired_pod_metadata(template, self.facts, ref_hash=ref_hash, current=current)
        touched = desired if needs_template_touch(current, desired) else None
        version = await self._writer.guard(self._sandboxes, held) if by_version else None
        patch = adoption_patch(
            self.facts,
            touched,
            pool_uid=held.owner.uid,
            labels=held.labels,
            annotations=held.annotations,
            is_applied=held.is_applied,
            ref_hash=ref_hash,
            version=version,
        )
        try:
            # The whole response: a webhook may have changed more, or somebody else the status.
            written = await self._writer.patch(self._sandboxes, held, patch, as_metadata=False)
        except (NotFound, Invalid, Conflict, Forbidden):
            raise
        except BaseException:
            self._state.unanswered = held.key
            raise
        taken = written.entry
        if self.facts.trace_context and not held.annotations:
            annotations = {names.TRACE_CONTEXT_ANNOTATION: self.facts.trace_context}
            return await self.patch(taken, {"metadata": {"annotations": annotations}})
        return taken

    async def patch(self, sandbox: SandboxEntry, patch: dict[str, Any]) -> SandboxEntry:
        """Patch a Sandbox; the whole response is taken, as others may have written too."""
        written = await self._writer.patch(self._sandboxes, sandbox, patch, as_metadata=False)
        return written.entry

    async def fetch(self, key: Key) -> SandboxEntry | None:
        """Fetch a Sandbox; ``None`` when it is gone. One GET."""
        found = await self._writer.get(self._sandboxes, key)
        return found.entry if found is not None else None


def _metadata_of(member: SandboxEntry) -> tuple[object, ...]:
    return member.owner, member.labels, member.annotations
