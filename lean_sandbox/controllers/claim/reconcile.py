"""One pass over one claim (claims, section 3).

What a waiting client needs comes first: the patch that takes a member over and the status that
names it, with the annotations beside it. Events follow behind. A pass over a bound claim whose
Sandbox says nothing new makes no request.
"""

from __future__ import annotations

import structlog

from lean_sandbox.clock import Clock
from lean_sandbox.controllers.claim.annotations import AnnotationWriter
from lean_sandbox.controllers.claim.bind import (
    Binder,
    StillWaitingError,
    is_controlled,
    own_sandbox,
)
from lean_sandbox.controllers.claim.metrics import ClaimMetrics
from lean_sandbox.controllers.claim.requests import ClaimRequests
from lean_sandbox.controllers.recording import ObjectEvents
from lean_sandbox.controllers.resolver import LookedForLatelyError
from lean_sandbox.kube.errors import ControlPlaneError, Forbidden, said
from lean_sandbox.kube.terminating import ENDING_S
from lean_sandbox.model import names
from lean_sandbox.model.claim import (
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
    Recording,
    Retry,
    expired_claim_status,
    first_ready_recording,
    is_marked_expired,
    next_claim_status,
    requeue_after_s,
    sandbox_not_owned,
)
from lean_sandbox.model.conditions import find, is_true
from lean_sandbox.model.times import has_come, time_left_s
from lean_sandbox.runtime.failures import ReconcileError
from lean_sandbox.runtime.workers import Result
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.claim import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

log = structlog.get_logger("claim")

_EXPIRED_REQUEUE_S = 0.001
# How soon a claim comes back to a Sandbox that has yet to be looked at.
_LOOK_AGAIN_S = 1.0


class ClaimReconciler:
    """Serves claims."""

    def __init__(
        self,
        caches: Caches,
        act: ClaimRequests,
        binder: Binder,
        events: ObjectEvents,
        annotator: AnnotationWriter,
        metrics: ClaimMetrics,
        *,
        clock: Clock,
        allowed_label_domains: tuple[str, ...],
    ) -> None:
        self._claims = caches.claims
        self._policies = caches.policies
        self._caches = caches
        self._act = act
        self._binder = binder
        self._events = events
        self._annotator = annotator
        self._metrics = metrics
        self._clock = clock
        self._allowed_label_domains = allowed_label_domains
        # By uid of the claim: how many creates in a row met a Sandbox that could not be read.
        self._collisions: dict[str, int] = {}
        # By uid of a claim that becomes ready, until its status says so: when it was first seen.
        self._unmeasured: dict[str, str] = {}

    async def reconcile(self, key: Key) -> Result:
        """Make one pass; raises :class:`ReconcileError` when it has to be repeated."""
        entry = self._claims.get(key)
        if entry is None:
            return Result()
        await self._drop_policy(entry)
        if entry.is_deleting:
            return Result()
        whole: SandboxClaim | None = None
        if entry.needs_look:
            whole = await self._act.get_claim(key)
            entry = self._claims.get(key)
            if whole is None or entry is None or entry.is_deleting:
                return Result()
        assert entry.view is not None
        assert entry.status is not None
        old = entry.status
        if self._has_expired(entry, old):
            return await self._expire(entry, old)
        try:
            return await self._serve_and_tell(entry, old, whole)
        finally:
            self._binder.announce(entry)

    async def _serve_and_tell(
        self, entry: ClaimEntry, old: SandboxClaimStatus, whole: SandboxClaim | None
    ) -> Result:
        try:
            sandbox, error = await self._serve(entry, whole)
        except (StillWaitingError, LookedForLatelyError) as waiting:
            return Result(requeue_after_s=waiting.after_s)
        except Forbidden as forbidden:
            if forbidden.namespace_terminating:
                return Result(requeue_after_s=ENDING_S)
            raise
        return await self._conclude(entry, old, sandbox, error)

    async def _drop_policy(self, entry: ClaimEntry) -> None:
        """Delete the NetworkPolicy that releases of older days made for each claim (3.12)."""
        held = self._policies.get(Key(entry.key.namespace, f"{entry.key.name}-network-policy"))
        if held is None or held.owner is None or held.owner.uid != entry.uid:
            return
        if not held.owner.is_a(names.SANDBOX_CLAIM_KIND, names.EXTENSIONS_GROUP):
            return
        try:
            await self._act.delete_policy(held)
        except ControlPlaneError as error:
            # The claim is served all the same, and the next pass tries again.
            log.warning("policy_not_deleted", policy=str(held.key), error=str(error))

    def due_in_s(self, key: Key) -> float | None:
        """Return when a claim expires, in seconds: a backoff must not sleep through it."""
        entry = self._claims.get(key)
        if entry is None or entry.view is None or entry.status is None:
            return None
        finished = find(entry.status.conditions, names.FINISHED)
        return time_left_s(expire_at(entry.view, finished), self._clock.now())

    def _has_expired(self, entry: ClaimEntry, status: SandboxClaimStatus) -> bool:
        assert entry.view is not None
        finished = find(status.conditions, names.FINISHED)
        return has_come(expire_at(entry.view, finished), self._clock.now())

    # -- serving ---------------------------------------------------------------------------------

    async def _serve(
        self, entry: ClaimEntry, whole: SandboxClaim | None
    ) -> tuple[SandboxEntry | None, ClaimError | None]:
        """Return the claim's Sandbox, or why there is none; both when a bound one has a fault."""
        sandbox: SandboxEntry | None = None
        if entry.fault:
            return None, ClaimError(ClaimFault.OTHER, entry.fault)
        try:
            assert entry.view is not None
            view = entry.view
            validate_additional_metadata(
                view.additional_labels, view.additional_annotations, self._allowed_label_domains
            )
            sandbox = await self._binder.find(entry)
            if sandbox is not None:
                return await self._binder.sync(entry, sandbox), None
            if not view.needs_cold_start:
                sandbox = await self._binder.take(entry)
                if sandbox is not None:
                    # No request, unless the pool has another template by now than its member.
                    return await self._binder.sync(entry, sandbox), None
            spec = await self._spec(entry, whole) if view.needs_cold_start else None
            sandbox = await self._binder.make(entry, spec)
        except ClaimError as error:
            return sandbox, error
        except Forbidden as error:
            if error.namespace_terminating:
                raise
            return sandbox, _other(error)
        except ControlPlaneError as error:
            return sandbox, _other(error)
        return sandbox, None

    async def _spec(self, entry: ClaimEntry, whole: SandboxClaim | None) -> SandboxClaimSpec | None:
        """Return the whole spec, which env and claim templates need. At most one GET."""
        if whole is None:
            whole = await self._act.get_claim(entry.key)
        return whole.spec if whole is not None else None

    async def _conclude(
        self,
        entry: ClaimEntry,
        old: SandboxClaimStatus,
        sandbox: SandboxEntry | None,
        error: ClaimError | None,
    ) -> Result:
        assert entry.view is not None
        if error is None and sandbox is not None and _has_yet_to_be_looked_at(sandbox, old):
            return Result(requeue_after_s=_LOOK_AGAIN_S)
        now = self._clock.now()
        seen = ClaimObservation(
            generation=entry.generation,
            sandbox_name=sandbox.key.name if sandbox is not None else "",
            sandbox_status=sandbox.status if sandbox is not None else None,
            error=error,
        )
        new = next_claim_status(old, seen, now)
        if error is None and sandbox is not None and _awaits_pod(entry, old, new, sandbox):
            self._binder.hurry(sandbox)
            return Result(requeue_after_s=_LOOK_AGAIN_S)
        expires_now = error is None and self._has_expired(entry, new)
        if expires_now:
            new = expired_claim_status(new, entry.generation, now)
        if not expires_now:
            # Before the status, so that the annotations go out beside it.
            self._annotate(entry, old, new, sandbox, is_refused=error is not None)
        written = await self._act.write_status(entry, old, new)
        if expires_now:
            self._emit(entry, "Claim Expired", "Claim expired")
            return Result(requeue_after_s=_EXPIRED_REQUEUE_S)
        if written and sandbox is not None and entry.uid in self._unmeasured:
            self._metrics.first_ready(entry, sandbox, self._unmeasured.pop(entry.uid))
        finished = find(new.conditions, names.FINISHED)
        left_s = time_left_s(expire_at(entry.view, finished), now)
        collisions = self._count(entry, error)
        if error is not None and error.fault.retry is Retry.BACKOFF:
            raise ReconcileError(str(error), error.__cause__)
        return Result(requeue_after_s=requeue_after_s(error, left_s, collisions))

    def _count(self, entry: ClaimEntry, error: ClaimError | None) -> int:
        """Count passes in a row that ended in a create that waits to be seen; return how many."""
        if error is None or error.fault is not ClaimFault.CREATE_PENDING:
            self._collisions.pop(entry.uid, None)
            return 0
        count = self._collisions[entry.uid] = self._collisions.get(entry.uid, 0) + 1
        return count

    def forget(self, uid: str) -> None:
        """Forget a claim that is gone."""
        self._collisions.pop(uid, None)
        self._unmeasured.pop(uid, None)

    def _annotate(
        self,
        entry: ClaimEntry,
        old: SandboxClaimStatus,
        new: SandboxClaimStatus,
        sandbox: SandboxEntry | None,
        *,
        is_refused: bool,
    ) -> None:
        """Have the annotations written that tell of what a status says."""
        is_ready = is_true(new.conditions, names.READY)
        if not is_ready:
            self._annotator.unready(entry, is_refused=is_refused)
        if sandbox is None:
            return
        # As they are now: this pass may have removed a reference to somebody else's Sandbox.
        held = self._claims.get(entry.key)
        entry = held if held is not None and held.uid == entry.uid else entry
        annotations, key = entry.annotations or {}, names.SANDBOX_NAME_ANNOTATION
        # The annotation marks a Sandbox that came from a pool; one of the claim's own has its name.
        is_noted = sandbox.key.name in (entry.key.name, annotations.get(key))
        if key in (entry.labels or {}) or not is_noted:
            self._annotator.bound(entry, sandbox.key.name, is_ready=is_ready)
        is_stamped = bool(annotations.get(names.CLAIM_FIRST_READY_AT_ANNOTATION))
        match first_ready_recording(old, new, is_stamped=is_stamped):
            case Recording.OBSERVE:
                first_seen = self._annotator.ready(entry, is_known=True)
                if first_seen is not None:
                    self._unmeasured[entry.uid] = first_seen
            case Recording.BACKFILL:
                self._annotator.ready(entry, is_known=False)
            case Recording.DRAIN:
                self._annotator.forget(entry.uid)
            case _:
                pass

    def _emit(self, entry: ClaimEntry, action: str, note: str) -> None:
        self._events.emit(entry, "Normal", "ClaimExpired", action, note)

    # -- expiry ----------------------------------------------------------------------------------

    async def _expire(self, entry: ClaimEntry, old: SandboxClaimStatus) -> Result:
        assert entry.view is not None
        now = self._clock.now()
        if not is_marked_expired(old):
            await self._act.write_status(
                entry, old, expired_claim_status(old, entry.generation, now)
            )
            self._emit(entry, "Claim Expired", "Claim expired")
            return Result(requeue_after_s=_EXPIRED_REQUEUE_S)
        policy = entry.view.policy
        if entry.view.is_deleted_at_expiry:
            self._emit(entry, "Deleting", f"Deleting Claim (ShutdownPolicy={policy})")
            foreground = policy == names.SHUTDOWN_POLICY_DELETE_FOREGROUND
            await self._act.delete_claim(entry, foreground=foreground)
            return Result()
        return await self._retire(entry, old)

    async def _retire(self, entry: ClaimEntry, old: SandboxClaimStatus) -> Result:
        """Delete the Sandbox of an expired claim that is retained, and report it while it lasts."""
        named = old.bound.name or entry.key.name
        held = own_sandbox(self._caches.sandboxes, entry)
        if held is None:
            held = self._caches.sandboxes.get(Key(entry.key.namespace, named))
        error: ClaimError | None = None
        if held is not None and not is_controlled(held, entry):
            error = sandbox_not_owned(held.key.name, entry.key.name)
            held = None
        if held is not None and not held.is_deleting:
            try:
                await self._act.delete_sandbox(held)
            except ControlPlaneError as problem:
                raise ReconcileError(
                    f"failed to delete expired sandbox: {problem}", problem
                ) from problem
        seen = ClaimObservation(
            generation=entry.generation,
            sandbox_name=held.key.name if held is not None else "",
            sandbox_status=held.status if held is not None else None,
            error=error,
            is_expired=True,
        )
        now = self._clock.now()
        new = next_claim_status(old, seen, now)
        if error is None:
            new = expired_claim_status(new, entry.generation, now)
        await self._act.write_status(entry, old, new)
        return Result()


def _has_yet_to_be_looked_at(sandbox: SandboxEntry, old: SandboxClaimStatus) -> bool:
    """Tell whether somebody else wrote the status of a bound Sandbox, and what is not known yet.

    The look that follows wakes the claim; until then what it says holds. A Sandbox on its way out
    is not looked at.
    """
    is_bound = sandbox.key.name == old.bound.name
    return is_bound and sandbox.status is None and not sandbox.is_deleting


def _awaits_pod(
    entry: ClaimEntry, old: SandboxClaimStatus, new: SandboxClaimStatus, sandbox: SandboxEntry
) -> bool:
    """Tell whether a claim would be ready before its Pod has the labels that it asks for.

    Labels decide which policies select the Pod, so a client must not use it without them. A status
    of the Sandbox that is of its present generation was written after the Pod had followed. Claims
    that ask for nothing do not wait: of what their adoption changes nothing is for their clients.
    """
    if entry.view is None or not entry.view.has_additional_metadata:
        return False
    if is_true(old.conditions, names.READY) or not is_true(new.conditions, names.READY):
        return False
    ready = find(sandbox.status.conditions, names.READY) if sandbox.status is not None else None
    return ready is None or (ready.observedGeneration or 0) < sandbox.generation


def _other(error: ControlPlaneError) -> ClaimError:
    fault = ClaimError(ClaimFault.OTHER, said(error))
    fault.__cause__ = error
    return fault
