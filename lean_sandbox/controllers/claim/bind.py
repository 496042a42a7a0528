"""From a claim to its Sandbox: the one it has, one of its pool, or a new one (claims, 3.5 to 3.10).

A warm claim costs one request here: the patch that takes the member over. The member is handed out
in memory to one claim at a time and the patch is guarded by the uid of the pool that owns it, so a
second adopter always loses and takes another member at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.controllers.claim.metrics import ClaimMetrics
from lean_sandbox.controllers.claim.requests import ClaimRequests
from lean_sandbox.controllers.claim.warm import Member, WarmQueue
from lean_sandbox.controllers.recording import ObjectEvents
from lean_sandbox.controllers.resolver import TemplateResolver
from lean_sandbox.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    ControlPlaneError,
    Invalid,
    NotFound,
    said,
)
from lean_sandbox.model import names
from lean_sandbox.model.claim import ClaimFacts, SandboxClaimSpec
from lean_sandbox.model.claim_additions import bound_sync_patch, desired_pod_metadata
from lean_sandbox.model.claim_sandbox import (
    PoolMember,
    adoption_merge_patch,
    adoption_patch,
    build_cold_sandbox,
    candidate_refusal,
    launch_type_patch,
    needs_template_touch,
)
from lean_sandbox.model.claim_status import (
    ClaimError,
    ClaimFault,
    adoption_conflict,
    not_controlled,
    reference_stuck,
    sandbox_create_pending,
    stale_reference,
)
from lean_sandbox.model.comparison import Staleness, Verdict
from lean_sandbox.model.sandbox import PodTemplateMetadata, Sandbox, visible
from lean_sandbox.model.template import TemplateView
from lean_sandbox.model.times import parse_rfc3339
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.claim import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# How often a new claim looks whether members of its pool have an address by now.
_LOOK_AGAIN_S = 0.5
_MOST_TRIES = 64
# How often one member is patched while others keep writing to it.
_MOST_PATCHES = 5
_MOST_POOLS = 1024


class StillWaitingError(Exception):
    """Members of the pool are on their way up: look again after ``after_s``, and write nothing."""

    def __init__(self, after_s: float) -> None:
        super().__init__(f"waiting {after_s:g} s for members of the pool")
        self.after_s = after_s


class Wakes(msgspec.Struct, frozen=True):
    """Whom a binding concerns besides the claim."""

    sandbox: Callable[[Key], None]
    launch: Callable[[Key, Sandbox | None], None]
    pool: Callable[[Key], None]


class Binder:
    """Finds, takes or makes the Sandbox of a claim.

    A new claim waits up to ``grace_s`` for members of its pool that have no address yet.
    """

    def __init__(
        self,
        caches: Caches,
        warm: WarmQueue,
        blueprints: TemplateResolver,
        act: ClaimRequests,
        events: ObjectEvents,
        metrics: ClaimMetrics,
        wakes: Wakes,
        trace_of: Callable[[ClaimEntry], str],
        *,
        clock: Clock,
        grace_s: float,
    ) -> None:
        self._caches = caches
        self._warm = warm
        self._blueprints = blueprints
        self._act = act
        self._events = events
        self._metrics = metrics
        self._wakes = wakes
        self._trace_of = trace_of
        self._clock = clock
        self._grace_s = grace_s
        # What was compared of the members of a pool, as long as its template stays the same.
        self._staleness: dict[Key, Staleness] = {}
        # By uid of the claim: the member whose adoption ended without a clear answer.
        self._doubtful: dict[str, Key] = {}
        # By uid of the claim: the pool, and what was taken from it, that nobody has been told of.
        self._untold: dict[str, tuple[Key, SandboxEntry]] = {}

    async def find(self, entry: ClaimEntry) -> SandboxEntry | None:
        """Return the Sandbox that the claim has already. No request in the ordinary case.

        Raises ClaimError when the claim's own name is held by somebody else's Sandbox.
        """
        owned = own_sandbox(self._caches.sandboxes, entry)
        if owned is not None:
            return owned
        if entry.uid in self._doubtful:
            taken = await self._clear_up(entry)
            if taken is not None:
                return taken
        assigned = assigned_name(entry)
        if assigned:
            taken = await self._assigned(entry, assigned)
            if taken is not None:
                return taken
        namesake = self._caches.sandboxes.get(entry.key)
        if namesake is not None:
            raise not_controlled(namesake.key.name, entry.key.name)
        return None

    async def _assigned(self, entry: ClaimEntry, name: str) -> SandboxEntry | None:
        """Complete an adoption that another process began, or drop what names no member of ours."""
        held = self._caches.sandboxes.get(Key(entry.key.namespace, name))
        assert entry.view is not None
        if held is not None and (held.owner is None or held.owner.group != names.EXTENSIONS_GROUP):
            # Nobody's, or of a kind that is none of our business: who did that may undo it.
            return None
        loss: ClaimError | None = None
        if held is not None and self._refusal(held, entry.view.pool) is None:
            member = self._member_of(held, entry.view.pool)
            taken = await self._adopt(entry, held)
            if taken is not None:
                self._warm.commit(member)
                self._wakes.sandbox(taken.key)
                return taken
            self._warm.forget(member.key, member.uid)
            fresh = self._caches.sandboxes.get(held.key)
            is_lost = fresh is not None and self._refusal(fresh, entry.view.pool) is not None
            loss = reference_stuck(name, is_lost=is_lost)
        try:
            await self._act.forget_assignment(entry)
        except ControlPlaneError as error:
            kind = held.owner.kind if held is not None and held.owner is not None else ""
            raise (loss or stale_reference(kind, said(error))) from error
        return None

    async def _clear_up(self, entry: ClaimEntry) -> SandboxEntry | None:
        """Look whether an adoption that ended without an answer took place. One GET."""
        fresh = await self._act.get_sandbox(self._doubtful[entry.uid])
        self._doubtful.pop(entry.uid, None)
        if fresh is None or not is_controlled(fresh, entry):
            return None
        self._wakes.sandbox(fresh.key)
        return fresh

    def forget(self, uid: str) -> None:
        """Forget a claim that is gone."""
        self._doubtful.pop(uid, None)

    # -- warm ------------------------------------------------------------------------------------

    async def take(self, entry: ClaimEntry) -> SandboxEntry | None:
        """Take a member of the claim's pool; ``None`` when there is none to wait for.

        Raises :class:`StillWaitingError` while members come up and the claim is young.
        """
        assert entry.view is not None
        pool = Key(entry.key.namespace, entry.view.pool)
        view = self._blueprints.known_pool(pool)
        judge: Staleness | None = None
        if view is not None and view.is_recreate:
            template = self._blueprints.known_template_of(pool)
            if template is None:
                # Nobody can tell who is stale: the members stay, and the cold path says why.
                return None
            judge = self._staleness_of(pool, template)
        accept = partial(_may_be_fresh, judge) if judge is not None else None
        for _ in range(_MOST_TRIES):
            taken = self._warm.acquire(pool, accept=accept)
            member = taken.member
            if member is None:
                if taken.waiting:
                    self._wait(entry)
                return None
            held = self._caches.sandboxes.get(member.key)
            if held is None or held.uid != member.uid or self._refusal(held, pool.name) is not None:
                self._warm.forget(member.key, member.uid)
                continue
            try:
                if judge is not None and not await self._is_fresh(judge, member):
                    self._warm.forget(member.key, member.uid)
                    continue
                adopted = await self._adopt(entry, held)
            except BaseException:
                self._warm.release(member)
                raise
            if adopted is None:
                self._warm.forget(member.key, member.uid)
                continue
            self._warm.commit(member)
            self._untold[entry.uid] = (pool, adopted)
            return adopted
        return None

    def _staleness_of(self, pool: Key, template: TemplateView) -> Staleness:
        held = self._staleness.get(pool)
        if held is None or held.template is not template:
            self._staleness.pop(pool, None)
            if len(self._staleness) >= _MOST_POOLS:
                # The one that was made first: it costs comparisons again, not more.
                del self._staleness[next(iter(self._staleness))]
            held = self._staleness[pool] = Staleness(template)
        return held

    async def _is_fresh(self, staleness: Staleness, member: Member) -> bool:
        """Tell whether a member in hand still fits. At most one GET for each unknown stamp."""
        verdict = staleness.by_stamp(member.mark)
        if verdict is Verdict.UNDECIDED:
            whole = await self._act.peek_sandbox(member.key)
            if whole is None or whole.metadata.uid != member.uid:
                return False
            verdict = staleness.by_spec(member.mark, whole.spec)
        return verdict is Verdict.FRESH

    def announce(self, entry: ClaimEntry) -> None:
        """Tell of the member that was taken, by an Event and to its pool and its own controller.

        All of that can wait for the claim's status, which somebody waits for: what it starts would
        come in between on the same processor.
        """
        pool, adopted = self._untold.pop(entry.uid, (None, None))
        if pool is None or adopted is None:
            return
        self._wakes.sandbox(adopted.key)
        self._metrics.adopted(entry, adopted)
        note = f'Adopted warm pool Sandbox "{adopted.key.name}"'
        self._events.emit(entry, "Normal", "SandboxAdopted", "Adoption", note)
        self._wakes.pool(pool)

    def hurry(self, sandbox: SandboxEntry) -> None:
        """Have the Pod of a Sandbox follow at once, for the claim waits for that."""
        self._wakes.launch(sandbox.key, None)

    def _wait(self, entry: ClaimEntry) -> None:
        if not entry.created_at:
            return
        age_s = self._clock.now().timestamp() - parse_rfc3339(entry.created_at).timestamp()
        if age_s < self._grace_s:
            raise StillWaitingError(min(_LOOK_AGAIN_S, self._grace_s - age_s))

    @staticmethod
    def _refusal(held: SandboxEntry, pool: str) -> str | None:
        return candidate_refusal(
            is_deleting=held.is_deleting,
            labels=held.labels,
            owner=held.owner,
            pool=pool,
        )

    @staticmethod
    def _member_of(held: SandboxEntry, pool: str) -> Member:
        return Member(pool=Key(held.key.namespace, pool), key=held.key, uid=held.uid)

    async def _adopt(self, entry: ClaimEntry, held: SandboxEntry) -> SandboxEntry | None:
        """Take one member over; ``None`` when it is not to be had any more.

        One PATCH; after a refused one a GET tells whether the member has gone to somebody else or
        has only changed, and then it is patched anew, so that it is not lost to its pool.
        Raises ClaimError (AdoptionConflict) when others keep writing to it.
        """
        assert entry.view is not None
        refused: Invalid | Conflict | None = None
        for _ in range(_MOST_PATCHES):
            try:
                return await self._patch_over(entry, held)
            except NotFound:
                return None
            except (Invalid, Conflict) as error:
                refused = error
            except BaseException:
                self._doubtful[entry.uid] = held.key
                raise
            fresh = await self._act.get_sandbox(held.key)
            if fresh is None or fresh.uid != held.uid:
                return None
            if is_controlled(fresh, entry):
                # An earlier patch of ours arrived, only its answer did not.
                return fresh
            if self._refusal(fresh, entry.view.pool) is not None:
                return None
            if isinstance(refused, Invalid) and _is_same_base(fresh, held):
                # The patch was refused for what it says, not for whom it meets.
                raise refused
            held = fresh
        assert refused is not None
        raise adoption_conflict(
            f"completing adoption of {held.key.name} for claim {entry.key.name}", str(refused)
        ) from refused

    def _facts_of(self, entry: ClaimEntry) -> ClaimFacts:
        """Return what of a claim goes into its Sandbox."""
        view = entry.view
        return ClaimFacts(
            name=entry.key.name,
            namespace=entry.key.namespace,
            uid=entry.uid,
            created_by=(entry.labels or {}).get(names.CREATED_BY_LABEL, ""),
            trace_context=self._trace_of(entry),
            additional_labels=view.additional_labels if view is not None else None,
            additional_annotations=view.additional_annotations if view is not None else None,
        )

    async def _patch_over(self, entry: ClaimEntry, held: SandboxEntry) -> SandboxEntry:
        assert held.owner is not None
        assert entry.view is not None
        facts = self._facts_of(entry)
        template = self._blueprints.known_template_of(Key(entry.key.namespace, entry.view.pool))
        ref_hash = (held.labels or {}).get(names.TEMPLATE_REF_HASH_LABEL, "")
        current = held.view.template_metadata if held.view is not None else None
        desired = desired_pod_metadata(template, facts, ref_hash=ref_hash, current=current)
        touches = needs_template_touch(current, desired)
        member = PoolMember(
            pool_uid=held.owner.uid,
            labels=held.labels,
            annotations=held.annotations,
            template_metadata=current,
            is_applied=held.is_applied,
        )
        patch = adoption_patch(
            member, facts, desired, ref_hash=ref_hash, touches_template=touches
        ) or adoption_merge_patch(
            member,
            facts,
            desired,
            ref_hash=ref_hash,
            resource_version=str(held.version),
            touches_template=touches,
        )
        return await self._act.adopt(held, patch, visible(desired) if touches else None)

    # -- cold ------------------------------------------------------------------------------------

    async def make(self, entry: ClaimEntry, spec: SandboxClaimSpec | None) -> SandboxEntry:
        """Create the claim's own Sandbox from the template of its pool. One POST.

        Raises ClaimError for what the claim asks and cannot have.
        """
        assert entry.view is not None
        template = await self._template(entry)
        body = build_cold_sandbox(self._facts_of(entry), spec, template)
        lack = self._blueprints.unprotected(template)
        if lack is not None:
            fault = ClaimFault.POLICY_IMPOSSIBLE if lack.is_final else ClaimFault.POLICY_PENDING
            raise ClaimError(fault, lack.text)
        try:
            made, whole = await self._act.create_sandbox(entry.key.namespace, body)
        except AlreadyExists:
            return await self._collided(entry)
        except ControlPlaneError as error:
            if isinstance(error, ApiError) and getattr(error, "namespace_terminating", False):
                raise
            raise ClaimError(
                ClaimFault.OTHER,
                f"sandbox create error: {said(error)}",
            ) from error
        self._metrics.created(entry, made)
        note = f'Created Sandbox "{made.key.name}"'
        self._events.emit(entry, "Normal", "SandboxProvisioned", "Provisioning", note)
        self._wakes.launch(made.key, whole)
        return made

    async def _template(self, entry: ClaimEntry) -> TemplateView:
        """Return the template of the claim's pool. Raises ClaimError when either is missing."""
        assert entry.view is not None
        pool = await self._blueprints.pool(Key(entry.key.namespace, entry.view.pool))
        return await self._blueprints.template(Key(entry.key.namespace, pool.template))

    async def _collided(self, entry: ClaimEntry) -> SandboxEntry:
        try:
            found = await self._act.get_sandbox(entry.key)
        except ControlPlaneError as error:
            raise sandbox_create_pending(entry.key.name) from error
        if found is None:
            raise sandbox_create_pending(entry.key.name)
        if not is_controlled(found, entry):
            raise not_controlled(entry.key.name, entry.key.name)
        return found

    # -- bound -----------------------------------------------------------------------------------

    async def sync(self, entry: ClaimEntry, sandbox: SandboxEntry) -> SandboxEntry:
        """Bring what the claim and its template say to a bound Sandbox (3.3, 3.6).

        No request when nothing that reaches the Pod differs; else one GET and one PATCH.
        """
        assert entry.view is not None
        backfill = launch_type_patch(
            sandbox.labels,
            sandbox.key.name,
            assigned=assigned_name(entry),
            claim=entry.key.name,
        )
        if backfill is not None:
            sandbox = await self._act.patch_sandbox(sandbox, backfill)
        template = self._blueprints.known_template_of(Key(entry.key.namespace, entry.view.pool))
        if template is None and not entry.view.has_additional_metadata:
            return sandbox
        if template is None:
            try:
                template = await self._template(entry)
            except ClaimError as error:
                if error.fault is ClaimFault.WARM_POOL_NOT_FOUND:
                    raise
                raise error.prefixed("failed to get template for metadata propagation") from error
        facts = self._facts_of(entry)
        desired = desired_pod_metadata(template, facts, ref_hash=template.ref_hash)
        view = sandbox.view
        labels = sandbox.labels or {}
        same_marks = (
            labels.get(names.TEMPLATE_REF_HASH_LABEL) == template.ref_hash
            and labels.get(names.CREATED_BY_LABEL, "") == facts.created_by
        )
        if (
            same_marks
            and view is not None
            and view.generation == sandbox.generation
            and not needs_template_touch(view.template_metadata, desired)
        ):
            return sandbox
        return await self._rewrite(entry, sandbox, desired, facts, template.ref_hash)

    async def _rewrite(
        self,
        entry: ClaimEntry,
        sandbox: SandboxEntry,
        desired: PodTemplateMetadata,
        facts: ClaimFacts,
        ref_hash: str,
    ) -> SandboxEntry:
        try:
            current = await self._act.get_pod_metadata(sandbox.key)
            patch = bound_sync_patch(
                desired,
                current or PodTemplateMetadata(),
                claim=facts,
                labels=sandbox.labels,
                ref_hash=ref_hash,
            )
            if patch is None:
                return sandbox
            synced = await self._act.patch_sandbox(sandbox, patch)
        except ControlPlaneError as error:
            raise ClaimError(
                ClaimFault.OTHER,
                f'failed to patch sandbox metadata for claim "{entry.key.name}": {said(error)}',
            ) from error
        self._wakes.sandbox(synced.key)
        return synced


def _may_be_fresh(judge: Staleness, member: Member) -> bool:
    return judge.by_stamp(member.mark) is not Verdict.STALE


def _is_same_base(fresh: SandboxEntry, held: SandboxEntry) -> bool:
    """Tell whether an adoption patch made from either would be the same."""
    return (fresh.owner, fresh.labels, fresh.annotations) == (
        held.owner,
        held.labels,
        held.annotations,
    )


def own_sandbox(sandboxes: Cache[SandboxEntry], claim: ClaimEntry) -> SandboxEntry | None:
    """Return the Sandbox of a claim: the one it names, the one of its own name, or one taken over.

    An owner reference is text that whoever creates a Sandbox may write. So the reference alone does
    not bind a claim to a Sandbox: it must also be one that this controller made for the claim or
    took over for it (claims, 3.5).

    A Sandbox that is named stays the claim's until it is gone. One that was taken over, but not
    named before the process ended, is found by its labels, unless it is being deleted.
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
