"""One reconcile of one claim.

What a waiting client needs comes first, in three writes: the patch that takes a member over, the
one by which its Pod ceases to look free, and the status that names it, with the annotations in
parallel. Events follow. The reconcile of a bound claim whose Sandbox reports nothing new makes no
request.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from lean_sandbox.controllers.claim.adopt import MOST_PATCHES
from lean_sandbox.controllers.claim.bind import Binding
from lean_sandbox.controllers.claim.legacy import delete_legacy_policy
from lean_sandbox.controllers.claim.owned import acquired, is_controlled, own_sandbox
from lean_sandbox.controllers.claim.parts import Parts
from lean_sandbox.controllers.claim.usable import make_usable
from lean_sandbox.controllers.metrics import launch_of
from lean_sandbox.controllers.resolver import NotYetError
from lean_sandbox.kube.client import ENDING_S
from lean_sandbox.kube.errors import Conflict, ControlPlaneError, Invalid, NotFound, said
from lean_sandbox.model import names
from lean_sandbox.model.claim import (
    EMPTY_CLAIM_STATUS,
    ClaimView,
    SandboxClaim,
    SandboxClaimSpec,
    SandboxClaimStatus,
    expire_at,
)
from lean_sandbox.model.claim_additions import validate_additional_metadata
from lean_sandbox.model.claim_status import (
    ClaimError,
    ClaimFault,
    ClaimObservation,
    Retry,
    claim_status_patch,
    expired_claim_status,
    next_claim_status,
    requeue_after_s,
)
from lean_sandbox.model.conditions import find, has_reason, is_true
from lean_sandbox.model.meta import is_controlled_by
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.model.times import has_come, time_left_s
from lean_sandbox.runtime.workers import ReconcileError, Result, failing_as
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.extensions import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# How soon a claim is reconciled again that waits for its Sandbox or its Pod to be fetched.
_LOOK_AGAIN_S = 1.0
# The next reconcile carries out an expiry that this one has reported.
_AT_ONCE_S = 0.001


async def reconcile(parts: Parts, entry: ClaimEntry) -> Result:
    """Serve a claim; raises ReconcileError or an API error when it has to be retried."""
    await delete_legacy_policy(parts, entry)
    if entry.is_deleting:
        return Result()
    if entry.needs_fetch:
        found = await parts.writer.get(parts.caches.claims, entry.key)
        held = parts.caches.claims.get(entry.key)
        if found is None or held is None or held.is_deleting:
            return Result()
        entry = held
    assert entry.view is not None
    assert entry.status is not None
    return await ClaimReconcile(parts, entry, entry.view, entry.status).run()


class ClaimReconcile(Binding):
    """One reconcile of one claim: which Sandbox it gets, and its status."""

    def __init__(
        self, parts: Parts, entry: ClaimEntry, view: ClaimView, status: SandboxClaimStatus
    ) -> None:
        super().__init__(parts, entry, view)
        self._old = status
        # Both are set when something fails for a bound Sandbox.
        self._sandbox: SandboxEntry | None = None
        self._error: ClaimError | None = None
        # Whether the work of the claim has ended, and the Sandbox that did it is gone.
        self._is_over = False

    async def run(self) -> Result:
        """Serve the claim, or end it."""
        entry, claims = self._entry, self._parts.caches.claims
        try:
            if self._has_expired(self._old):
                return await self._expire()
            await self._attempt(self._bind())
            return await self._conclude()
        except NotYetError as wait:
            return Result(requeue_after_s=wait.after_s)
        except Conflict:
            # The next try has to know the state that this one did not.
            await self._writer.get(claims, entry.key)
            raise
        finally:
            self.announce()
            if claims.latest(entry) is None:
                self._parts.forget(entry.uid)

    def _has_expired(self, status: SandboxClaimStatus) -> bool:
        return has_come(expire_at(self._view, status), self._parts.server_time.now())

    # -- serving ---------------------------------------------------------------------------------

    async def _attempt(self, step: Awaitable[None]) -> None:
        """Take a step of serving the claim; what fails in it is what the claim will say."""
        try:
            await step
        except ClaimError as error:
            self._error = error
        except ControlPlaneError as error:
            if error.namespace_terminating:
                raise NotYetError(ENDING_S) from error
            self._error = ClaimError(ClaimFault.OTHER, said(error))
            self._error.__cause__ = error

    async def _bind(self) -> None:
        view = self._view
        if self._entry.fault:
            raise ClaimError(ClaimFault.OTHER, self._entry.fault)
        domains = self._parts.settings.allowed_label_domains
        validate_additional_metadata(view.additional, domains, refusal=view.refusal)
        self._sandbox = await self.find()
        if self._sandbox is None and is_true(self._old.conditions, names.FINISHED):
            self._is_over = True
            return
        if self._sandbox is None:
            self._sandbox = await self.find_named()
        if self._sandbox is None and self._old.bound.name:
            await self._whole()
        if self._sandbox is None and not view.needs_cold_start:
            self._sandbox = await self.take()
        if self._sandbox is not None:
            # A member just taken needs no request, unless its pool has another template by now.
            self._sandbox = await self.sync(self._sandbox)
            return
        # Variables and volume claims are not in the cache.
        spec = (await self._whole()).spec if view.needs_cold_start else SandboxClaimSpec()
        self._sandbox = await self.make(spec)

    async def _whole(self) -> SandboxClaim:
        """Return the whole claim; raise NotYetError if it is being deleted, or is gone. One GET.

        The end of a deleted claim's Sandbox may be seen before its own; a new Sandbox for the claim
        would be garbage-collected at once, or stay without an owner.
        """
        found = await self._writer.get(self._parts.caches.claims, self._entry.key)
        if (
            found is None
            or found.item.metadata.uid != self._entry.uid
            or found.item.metadata.deletion_timestamp
        ):
            raise NotYetError(_LOOK_AGAIN_S)
        whole: SandboxClaim = found.item
        return whole

    # -- reporting -------------------------------------------------------------------------------

    async def _conclude(self) -> Result:
        entry = self._entry
        if self._is_unseen():
            raise NotYetError(_LOOK_AGAIN_S)
        now = self._parts.server_time.now()
        new = next_claim_status(self._old, self._observed(), now)
        if self._sandbox is not None and self._is_to_become_ready(new):
            await self._attempt(make_usable(self._parts, self._sandbox))
            self._bound_at = self._parts.clock.monotonic()
            now = self._parts.server_time.now()
            new = next_claim_status(self._old, self._observed(), now)
        error = self._error
        expires_now = error is None and self._has_expired(new)
        is_first = self._old == EMPTY_CLAIM_STATUS
        if expires_now:
            new = expired_claim_status(new, entry.generation, now)
        elif is_first:
            # Before the status, so that the annotations are sent in parallel.
            self._annotate(new)
        written = await self._write_status(new)
        if expires_now:
            return self._expired()
        if written and not is_first:
            # Not in parallel: they change the version that may guard this status.
            self._annotate(new)
        await self._drop_unnamed()
        if written:
            self._tell(new)
        if error is not None and self._has_expired(new):
            return Result(requeue_after_s=_AT_ONCE_S)
        left_s = time_left_s(expire_at(self._view, new), now)
        collisions = self._count_collisions()
        if error is not None and error.fault.retry is Retry.BACKOFF:
            raise ReconcileError(str(error), error.__cause__)
        return Result(requeue_after_s=requeue_after_s(error, left_s, collisions))

    def _tell(self, new: SandboxClaimStatus) -> None:
        """Log, after the status was written, that the claim is ready or why it is not served."""
        entry, parts, sandbox = self._entry, self._parts, self._sandbox
        was_ready = is_true(self._old.conditions, names.READY)
        if sandbox is not None and is_true(new.conditions, names.READY) and not was_ready:
            first_seen = parts.annotator.first_seen(entry.uid)
            if first_seen is not None:
                took_ms = parts.metrics.first_ready(entry, sandbox, first_seen)
                name, launch = sandbox.key.name, launch_of(sandbox)
                parts.events.log(
                    entry, "Normal", "ClaimReady", sandbox=name, launch=launch, took_ms=took_ms
                )
        ready = find(new.conditions, names.READY)
        if self._error is None or ready is None:
            return
        if not has_reason(self._old.conditions, names.READY, ready.reason):
            parts.events.log(
                entry, "Warning", "ClaimNotServed", reason=ready.reason, message=ready.message
            )

    def _observed(self, *, is_expired: bool = False) -> ClaimObservation:
        sandbox = self._sandbox
        return ClaimObservation(
            generation=self._entry.generation,
            sandbox_name=sandbox.key.name if sandbox is not None else "",
            sandbox_status=sandbox.status if sandbox is not None else None,
            error=self._error,
            is_expired=is_expired,
            is_over=self._is_over,
        )

    def _is_unseen(self) -> bool:
        """Return whether the bound Sandbox has a status by somebody else that is not known yet.

        The fetch that follows wakes the claim; until then the claim's status stays as it is.
        """
        sandbox = self._sandbox
        return (
            sandbox is not None
            and sandbox.key.name == self._old.bound.name
            and sandbox.status is None
        )

    async def _drop_unnamed(self) -> None:
        """Delete what was created or taken over for the claim, unless its status names it. One GET.

        A process may end between the two writes, or the answer to a create be lost, and another
        member be taken before the first Sandbox is seen. No client knows of that one.
        """
        sandbox, sandboxes = self._sandbox, self._parts.caches.sandboxes
        if sandbox is None or self._error is not None:
            return
        unnamed = [one for one in acquired(sandboxes, self._entry) if one.key != sandbox.key]
        if not unnamed or (await self._whole()).status.bound.name != sandbox.key.name:
            return
        for one in unnamed:
            await self._writer.delete(sandboxes, one)

    def _is_to_become_ready(self, new: SandboxClaimStatus) -> bool:
        """Return whether ``new`` tells a client for the first time that it can use the Sandbox."""
        was_ready = is_true(self._old.conditions, names.READY)
        is_another = new.bound.name != self._old.bound.name
        return is_true(new.conditions, names.READY) and (is_another or not was_ready)

    def _count_collisions(self) -> int:
        """Return how many creates in a row have collided with a Sandbox that is not seen yet."""
        collisions, uid = self._parts.collisions, self._entry.uid
        if self._error is None or self._error.fault is not ClaimFault.CREATE_PENDING:
            collisions.pop(uid, None)
            return 0
        count = collisions[uid] = collisions.get(uid, 0) + 1
        return count

    def _annotate(self, new: SandboxClaimStatus) -> None:
        entry, annotator, sandbox = self._entry, self._parts.annotator, self._sandbox
        is_ready = is_true(new.conditions, names.READY)
        if not is_ready:
            annotator.unready(entry, is_refused=self._error is not None)
        if sandbox is None:
            return
        # The latest entry: this reconcile may have removed a reference to another's Sandbox.
        entry = self._parts.caches.claims.latest(entry) or entry
        annotations, key = entry.annotations or {}, names.SANDBOX_NAME_ANNOTATION
        # The annotation marks a Sandbox that came from a pool; one of the claim's own has its name.
        noted = annotator.noted(entry)
        is_noted = sandbox.key.name == (noted or entry.key.name)
        if key in (entry.labels or {}) or not is_noted:
            annotator.bound(entry, sandbox.key.name, is_ready=is_ready)
        was_ready = is_true(self._old.conditions, names.READY)
        is_dated = bool(annotations.get(names.CLAIM_FIRST_READY_AT_ANNOTATION))
        if was_ready and is_dated:
            annotator.was_ready(entry.uid)
        elif not is_dated and (was_ready or is_ready):
            # If it was ready before, it is unknown since when.
            annotator.ready(entry, is_known=not was_ready)

    # -- the status ------------------------------------------------------------------------------

    async def _write_status(self, new: SandboxClaimStatus) -> bool:
        """Write a status that differs; false when the claim is gone or bound elsewhere.

        No request, or those of one of the two methods that follow, which say what they raise.
        """
        patch = claim_status_patch(self._old, new)
        if patch is None:
            return True
        try:
            if new.bound.name not in ("", self._old.bound.name):
                return await self._write_binding_status(new, patch)
            await self._write_other_status(new, patch)
        except NotFound:
            return False
        return True

    async def _write_other_status(self, new: SandboxClaimStatus, patch: dict[str, Any]) -> None:
        """Write a status that names no other Sandbox than before.

        One PATCH; if the server finds its guard broken, a GET and a PATCH more. A GET before it if
        the version that guards it is unknown. Raises NotFound if the claim is gone, Conflict if
        the claim was written to since the version that was decided on: its user may have moved the
        shutdown time just before that came, or edited the claim during its binding, so that the
        view with this edit is older than the status that binds.
        """
        entry, old = self._entry, self._old
        is_end = has_reason(new.conditions, names.READY, names.REASON_CLAIM_EXPIRED)
        is_free = not new.bound.name
        is_dated = is_end or (self._sandbox is None and old != EMPTY_CLAIM_STATUS)
        guard = await self._version_of_status() if is_dated else None
        body = _guarded(entry, patch, guard, is_first=is_free)
        try:
            await self._patch_status(body, new)
        except Invalid:
            # Another claim may have the name by now, or somebody have emptied the status.
            fresh = await self._whole()
            if not is_free or fresh.status != old:
                raise
            body = _guarded(entry, patch, fresh.metadata.resource_version)
            await self._patch_status(body, new)

    async def _write_binding_status(self, new: SandboxClaimStatus, patch: dict[str, Any]) -> bool:
        """Write a status that names a Sandbox; false also when another process was first.

        A Sandbox can be taken by one adopter only, but two processes could each take one for the
        same claim. So this status is guarded, and the first to write it wins. For a claim without a
        status, as nearly all are, the patch tests that it has none, so that its annotations may be
        written in parallel; for others it carries the version decided on.

        One PATCH, after a GET if the version is unknown. Each conflict costs a GET and a PATCH
        more; if another process was first, a GET of its Sandbox and a DELETE of the one taken in
        vain. Raises Conflict when others keep writing to the claim, NotFound when it is gone,
        NotYetError when it is being deleted.
        """
        entry, old = self._entry, self._old
        version = None if old == EMPTY_CLAIM_STATUS else await self._version_of_status()
        for patches in range(1, MOST_PATCHES + 1):
            try:
                body = _guarded(entry, patch, version, is_first=True)
                await self._patch_status(body, new)
            except (Conflict, Invalid) as refused:
                is_content = version is not None and isinstance(refused, Invalid)
                if patches == MOST_PATCHES or is_content:
                    raise
            else:
                return True
            # The response to another write of ours may hide the event of what others have written.
            fresh = await self._whole()
            if await self._is_bound_elsewhere(fresh.status.bound.name, new.bound.name):
                # No client knows of the Sandbox that was taken in vain.
                in_vain = self._sandboxes.get(Key(entry.key.namespace, new.bound.name))
                if in_vain is not None and is_controlled(in_vain, entry):
                    await self._writer.delete(self._sandboxes, in_vain)
                return False
            version = fresh.metadata.resource_version
            renewed = claim_status_patch(fresh.status, new)
            if renewed is None:
                return True
            patch = renewed
        return False

    def _as_decided_on(self) -> ClaimEntry:
        """Return the latest entry known to have the spec and status that were decided on."""
        entry = self._entry
        held = self._parts.caches.claims.latest(entry)
        if held is None or (held.status, held.generation) != (entry.status, entry.generation):
            return entry
        return held

    async def _version_of_status(self) -> str:
        """Return the version that guards a write. One GET, at most, which may raise Conflict."""
        return await self._writer.guard(self._parts.caches.claims, self._as_decided_on())

    async def _is_bound_elsewhere(self, named: str, wanted: str) -> bool:
        if not named or named == wanted:
            return False
        key = Key(self._entry.key.namespace, named)
        held: Sandbox | None = await self._writer.peek(self._sandboxes, key)
        if held is None or held.metadata.deletion_timestamp:
            return False
        return is_controlled_by(held.metadata.controller, self._entry.uid)

    async def _patch_status(
        self, body: list[dict[str, Any]] | dict[str, Any], status: SandboxClaimStatus
    ) -> None:
        """Write the status. Raises NotFound if the claim is gone; a guard Conflict or Invalid."""
        entry, claims = self._entry, self._parts.caches.claims
        await self._writer.patch(claims, entry, body, status=status, generation=entry.generation)

    # -- expiry ----------------------------------------------------------------------------------

    async def _expire(self) -> Result:
        """Report that the claim has expired; once that is reported, delete what its policy says."""
        entry, view = self._entry, self._view
        if not has_reason(self._old.conditions, names.READY, names.REASON_CLAIM_EXPIRED):
            now = self._parts.server_time.now()
            marked = expired_claim_status(self._old, entry.generation, now)
            await self._write_status(marked)
            return self._expired()
        if not view.is_deleted_at_expiry:
            return await self._retire()
        self._emit("Deleting", f"Deleting Claim (ShutdownPolicy={view.policy})")
        is_foreground = view.policy == names.SHUTDOWN_POLICY_DELETE_FOREGROUND
        await self._writer.delete(
            self._parts.caches.claims,
            self._as_decided_on(),
            is_guarded=True,
            propagation="Foreground" if is_foreground else None,
        )
        return Result()

    def _expired(self) -> Result:
        self._emit("Claim Expired", "Claim expired")
        return Result(requeue_after_s=_AT_ONCE_S)

    def _emit(self, action: str, note: str) -> None:
        self._parts.events.emit(self._entry, "Normal", "ClaimExpired", action, note)

    async def _retire(self) -> Result:
        """Delete the Sandbox of an expired claim that is retained, and report it while it lasts."""
        entry, sandboxes = self._entry, self._parts.caches.sandboxes
        named = self._old.bound.name or entry.key.name
        held = own_sandbox(sandboxes, entry) or sandboxes.get(Key(entry.key.namespace, named))
        ready = find(self._old.conditions, names.READY)
        is_told = ready is not None and ready.observedGeneration == entry.generation
        if held is None and is_told and not self._old.bound.name:
            # Nothing is left, and whether a deletion was skipped can no longer be known.
            return Result()
        if held is not None and is_controlled(held, entry):
            self._sandbox = held
        elif held is not None:
            text = f'sandbox "{held.key.name}" is not owned by claim "{entry.key.name}"'
            self._error = ClaimError(
                ClaimFault.SANDBOX_NOT_OWNED, f"sandbox not owned by this claim: {text}"
            )
        if self._sandbox is not None and not self._sandbox.is_deleting:
            with failing_as("failed to delete expired sandbox"):
                await self._writer.delete(sandboxes, self._sandbox)
        if self._sandbox is not None and self._sandbox.status is None:
            # Whether it has finished is not known; its deletion wakes the claim.
            return Result()
        seen = self._observed(is_expired=True)
        await self._write_status(next_claim_status(self._old, seen, self._parts.server_time.now()))
        return Result()


def _guarded(
    entry: ClaimEntry, patch: dict[str, Any], version: str | None, *, is_first: bool = False
) -> list[dict[str, Any]] | dict[str, Any]:
    """Return a patch of the status that is refused when another claim has the name by now.

    With a ``version`` it is also refused when the claim was written to since. With ``is_first``,
    for a claim without a status, it is refused when somebody else has written one meanwhile.
    """
    if version is not None:
        return {"status": patch, "metadata": {"resourceVersion": version}}
    bound = {field: value for field, value in patch["sandbox"].items() if value is not None}
    is_new = [{"op": "test", "path": "/status", "value": None}] if is_first else []
    return [
        {"op": "test", "path": "/metadata/uid", "value": entry.uid},
        *is_new,
        {"op": "add", "path": "/status", "value": {**patch, "sandbox": bound}},
    ]
