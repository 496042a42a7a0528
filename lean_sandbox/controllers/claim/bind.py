"""From a claim to its Sandbox: the one it has, one of its pool, or a new one.

A warm claim costs one request here: the patch that takes the member over. A member is handed out in
memory to one claim at a time; a claim that loses it to another process takes the next at once, and
so does one that may not have it by an admission policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from lean_sandbox.controllers.claim.annotations import AnnotationWriter
from lean_sandbox.controllers.common import ObjectEvents, Shared, Undone, reference_to
from lean_sandbox.controllers.resolver import NotYetError
from lean_sandbox.controllers.warm import WarmQueue, pool_of
from lean_sandbox.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    ControlPlaneError,
    Forbidden,
    Invalid,
    NotFound,
    said,
)
from lean_sandbox.kube.resources import SANDBOXES
from lean_sandbox.model import names
from lean_sandbox.model.claim import ClaimFacts, ClaimView, SandboxClaimSpec
from lean_sandbox.model.claim_additions import bound_sync_patch, desired_pod_metadata
from lean_sandbox.model.claim_sandbox import (
    adoption_patch,
    build_cold_sandbox,
    launch_type_patch,
    needs_template_touch,
)
from lean_sandbox.model.claim_status import ClaimError, ClaimFault, not_controlled, stale_reference
from lean_sandbox.model.meta import OwnerReference, is_controlled_by
from lean_sandbox.model.sandbox import PodTemplateMetadata, Sandbox
from lean_sandbox.model.template import TemplateView
from lean_sandbox.model.warmpool import Staleness, Verdict
from lean_sandbox.runtime.writer import ObjectWriter
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Key, OwnedEntry
from lean_sandbox.watch.resources.extensions import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# How often a new claim checks whether members of its pool have got an address.
_LOOK_AGAIN_S = 0.5
_MOST_TRIES = 64
# How many members a claim tries that the server refuses to hand over; then it gets a new Sandbox.
_MOST_REFUSALS = 3
# How many times a member or a claim is patched while others keep writing to it.
MOST_PATCHES = 5


class MemberRefusedError(Exception):
    """The server does not let a member be taken over: a policy may be newer than the member.

    Its cause is the server's refusal.
    """


class Wakes(msgspec.Struct, frozen=True):
    """Callbacks to the other controllers that a binding concerns.

    ``refused`` is called with the key and the uid of a member that cannot be taken over.
    """

    sandbox: Callable[[Key], None]
    launch: Callable[[Key, Sandbox | None], None]
    pool: Callable[[Key], None]
    refused: Callable[[Key, str], None]


class Parts(Shared, kw_only=True):
    """What the reconciles of all claims share."""

    # For the requests that a client waits for.
    writer: ObjectWriter
    warm: WarmQueue
    events: ObjectEvents
    annotator: AnnotationWriter
    wakes: Wakes
    # When the work began (monotonic): a new leader learns only then which members are ready.
    began_at: float = -math.inf
    # By uid of the claim: the member whose adoption ended without a clear answer.
    doubtful: dict[str, Key] = msgspec.field(default_factory=dict)
    # By uid of the claim: the last Sandbox of it whose end was seen.
    ended: dict[str, str] = msgspec.field(default_factory=dict)
    # By uid of the claim: how many creates in a row collided with a Sandbox that is not seen yet.
    collisions: dict[str, int] = msgspec.field(default_factory=dict)
    undone: Undone = msgspec.field(default_factory=Undone)

    def forget(self, uid: str) -> None:
        """Drop what is remembered between the reconciles of a claim."""
        self.doubtful.pop(uid, None)
        self.ended.pop(uid, None)
        self.collisions.pop(uid, None)
        self.annotator.forget(uid)


class Binding:
    """Binds one claim to a Sandbox, in one reconcile.

    Every method may raise ClaimError if the claim cannot have what it asks for, NotYetError if
    nothing is to be written yet, and the errors of requests.
    """

    def __init__(self, parts: Parts, entry: ClaimEntry, view: ClaimView) -> None:
        self._parts = parts
        self._sandboxes = parts.caches.sandboxes
        self._resolver = parts.resolver
        self._writer = parts.writer
        self._entry = entry
        self._view = view
        self._pool = Key(entry.key.namespace, view.pool)
        self._taken: SandboxEntry | None = None
        # When the last write before that of the claim's status was answered.
        self._bound_at = 0.0
        self._facts = ClaimFacts(
            name=entry.key.name,
            namespace=entry.key.namespace,
            uid=entry.uid,
            created_by=(entry.labels or {}).get(names.CREATED_BY_LABEL, ""),
            trace_context=parts.annotator.trace_of(entry),
            additional=view.additional,
        )

    async def find(self) -> SandboxEntry | None:
        """Return the Sandbox that the claim is known to have. No request in the ordinary case.

        The one that the status names is fetched if the cache shows neither it nor its end as the
        claim's: another process may have bound it, and its event is yet to come. So is one that is
        being deleted with an unknown status: its own controller no longer fetches it.
        """
        entry, doubtful = self._entry, self._parts.doubtful
        found = own_sandbox(self._sandboxes, entry)
        named = entry.status.bound.name if entry.status is not None else ""
        known = [self._parts.ended.get(entry.uid)]
        if found is not None and not (found.is_deleting and found.status is None):
            known.append(found.key.name)
        if named and named not in known:
            try:
                await self._fetch(Key(entry.key.namespace, named))
            except ControlPlaneError as error:
                # The claim's status stays as it is until the Sandbox can be read.
                text = f'sandbox "{named}" cannot be read'
                raise ClaimError(ClaimFault.CREATE_PENDING, text) from error
            found = own_sandbox(self._sandboxes, entry)
        if found is None and entry.uid in doubtful:
            await self._fetch(doubtful[entry.uid])
            doubtful.pop(entry.uid, None)
            found = own_sandbox(self._sandboxes, entry)
        return found

    async def find_named(self) -> SandboxEntry | None:
        """Return a Sandbox that is to be the claim's by its annotation, or by its own name.

        Raises ClaimError when the claim's own name is held by somebody else's Sandbox.
        """
        entry, found = self._entry, None
        if assigned := assigned_name(entry):
            found = await self._assigned(assigned)
        if found is None and (held := self._sandboxes.get(entry.key)) is not None:
            found = await self._restored(held)
            if found is None:
                raise not_controlled(entry.key.name)
        return found

    async def _restored(self, held: SandboxEntry) -> SandboxEntry | None:
        """Take back a Sandbox that was restored without its owner, if its label names the claim.

        One GET for a Sandbox without an owner, and one PATCH if it is the claim's. Raises
        ClaimError, which says how to hand it over, if it was some claim's.
        """
        status = self._entry.status
        was_taken = status is not None and status.bound.name == held.key.name
        if held.owner is not None or held.is_deleting or was_taken:
            # Somebody took it from the claim while that was bound to it, and it stays taken.
            return None
        found = await self._writer.get(self._sandboxes, held.key)
        if found is None or found.item.metadata.owners or found.item.metadata.deletion_timestamp:
            return None
        meta = found.item.metadata
        claim_uid = (meta.labels or {}).get(names.CLAIM_UID_LABEL)
        if not claim_uid:
            return None
        if claim_uid != self._facts.uid:
            raise not_controlled(self._facts.name, sandbox=held.key.name, uid=self._facts.uid)
        metadata = {
            "resourceVersion": meta.resource_version,
            "ownerReferences": [self._facts.reference],
        }
        return await self._patch(found.entry, {"metadata": metadata})

    async def _assigned(self, name: str) -> SandboxEntry | None:
        """Complete an adoption that another process began, or clear a name that is not ours."""
        held = self._sandboxes.get(Key(self._pool.namespace, name))
        if held is not None and held.owner is None:
            return await self._restored(held)
        if held is not None and held.owner is not None and not _is_of_ours(held.owner):
            # With an owner of a foreign kind: whoever did that may undo it.
            return None
        loss: ClaimError | None = None
        if held is not None and pool_of(held) == self._pool and self._parts.warm.reserve(held):
            with suppress(MemberRefusedError):
                taken = await self._take_reserved(held, self._judge())
                if taken is not None:
                    self._parts.wakes.sandbox(taken.key)
                    self._parts.wakes.pool(self._pool)
                    return taken
            fresh = self._sandboxes.get(held.key)
            is_lost = fresh is not None and pool_of(fresh) != self._pool
            fate = "lost to another owner" if is_lost else "deleted"
            text = f"sandbox {name} {fate} and reference cleanup failed"
            loss = ClaimError(ClaimFault.ADOPTION_CONFLICT, text)
        try:
            await self._parts.annotator.write(self._entry, {names.SANDBOX_NAME_ANNOTATION: None})
        except ControlPlaneError as error:
            kind = held.owner.kind if held is not None and held.owner is not None else ""
            raise (loss or stale_reference(kind, said(error))) from error
        return None

    # -- warm ------------------------------------------------------------------------------------

    async def take(self) -> SandboxEntry | None:
        """Take a member of the claim's pool; ``None`` when there is none to wait for.

        Raises NotYetError while members are starting and the claim is young.
        """
        warm, judge = self._parts.warm, self._judge()
        if judge is None and self._is_recreate():
            # It is unknown which members are stale: they stay, and the cold path reports why.
            return None
        refusals = 0

        def may_be_fresh(member: SandboxEntry) -> bool:
            return judge is None or judge.by_stamp(member.metadata) is not Verdict.STALE

        for _ in range(_MOST_TRIES):
            member = warm.acquire(self._pool, accept=may_be_fresh)
            if member is None:
                if warm.counts(self._pool).waiting:
                    self._wait_while_young()
                return None
            began = self._parts.clock.monotonic()
            try:
                taken = await self._take_reserved(member, judge)
            except MemberRefusedError:
                refusals += 1
                if refusals == _MOST_REFUSALS:
                    return None
                continue
            if taken is not None:
                self._taken = taken
                self._bound_at = self._parts.clock.monotonic()
                self._parts.metrics.stage("adopt", began)
                return taken
        return None

    def _is_recreate(self) -> bool:
        pool = self._resolver.known_pool(self._pool)
        return pool is not None and pool.is_recreate

    def _judge(self) -> Staleness | None:
        """Return what says which members are stale, ``None`` if none is or that is unknown."""
        template = self._resolver.known_template_of(self._pool) if self._is_recreate() else None
        return self._resolver.staleness(template) if template is not None else None

    async def _take_reserved(
        self, member: SandboxEntry, judge: Staleness | None
    ) -> SandboxEntry | None:
        """Take over a member that the warm queue has reserved; ``None`` if it is not to be had.

        Raises MemberRefusedError, after the member was handed to its pool to be replaced.
        """
        warm = self._parts.warm
        try:
            taken = await self._take(member, judge)
        except MemberRefusedError as refusal:
            warm.forget(member)
            note = f'Pool Sandbox "{member.key.name}" is passed over: {said(refusal)}'
            related = reference_to(member, SANDBOXES)
            self._parts.events.emit(
                self._entry, "Warning", "SandboxNotAdopted", "Adoption", note, related
            )
            self._parts.wakes.refused(member.key, member.uid)
            raise
        except BaseException:
            warm.release(member)
            raise
        warm.forget(member)
        return taken

    async def _take(self, member: SandboxEntry, judge: Staleness | None) -> SandboxEntry | None:
        """Adopt an acquired member; ``None`` when it is not available, or no longer fits.

        At most one GET for each unknown stamp, before the patch.
        """
        if judge is not None:
            verdict = judge.by_stamp(member.metadata)
            if verdict is Verdict.UNDECIDED:
                whole: Sandbox | None = await self._writer.peek(self._sandboxes, member.key)
                if whole is None or whole.metadata.uid != member.uid:
                    return None
                verdict = judge.by_spec(whole.metadata, whole.spec, is_orphan=False)
            if verdict is not Verdict.FRESH:
                return None
        return await self._adopt(member)

    def _wait_while_young(self) -> None:
        if self._entry.created_at:
            parts = self._parts
            age_s = parts.server_time.age_s(self._entry.created_at)
            waited_s = min(age_s, parts.clock.monotonic() - parts.began_at)
            left_s = parts.settings.sandbox_claim_warm_candidate_grace_period - waited_s
            if left_s > 0:
                raise NotYetError(min(_LOOK_AGAIN_S, left_s))

    def announce(self) -> None:
        """Report the member that was taken, by an Event and to its pool and its own controller.

        Called after the claim's status is written, so that the work it starts does not delay that.
        """
        if self._taken is None:
            return
        self._parts.metrics.stage("status", self._bound_at)
        self._parts.wakes.sandbox(self._taken.key)
        self._parts.metrics.bound(self._entry, self._taken, names.LAUNCH_TYPE_WARM)
        note = f'Adopted warm pool Sandbox "{self._taken.key.name}"'
        # Another Sandbox makes another Event, not a repetition of the one that names the first.
        related = reference_to(self._taken, SANDBOXES)
        self._parts.events.emit(self._entry, "Normal", "SandboxAdopted", "Adoption", note, related)
        self._parts.wakes.pool(self._pool)

    async def _adopt(self, held: SandboxEntry) -> SandboxEntry | None:
        """Take one member over; ``None`` when it is no longer available.

        One PATCH; after a refused one a GET shows whether somebody else has taken the member or it
        has only changed, and then it is patched again, so that its pool does not lose it.
        Raises ClaimError (AdoptionConflict) when others keep writing to it, MemberRefusedError when
        the server refuses the patch for its content.
        """
        refused: ApiError | None = None
        by_version = False
        for _ in range(MOST_PATCHES):
            try:
                return await self._patch_over(held, by_version=by_version)
            except NotFound:
                return None
            except (Invalid, Conflict, Forbidden) as error:
                if error.namespace_terminating:
                    raise
                refused = error
            except BaseException:
                self._parts.doubtful[self._entry.uid] = held.key
                raise
            fresh = await self._fetch(held.key)
            if fresh is None or fresh.uid != held.uid:
                return None
            if is_controlled(fresh, self._entry):
                # An earlier patch of ours was applied, but its response was lost.
                return fresh
            if pool_of(fresh) != self._pool:
                return None
            before, after = ((one.owner, one.labels, one.annotations) for one in (held, fresh))
            is_same = before == after
            if is_same and isinstance(refused, Forbidden):
                raise MemberRefusedError(said(refused)) from refused
            if is_same and isinstance(refused, Invalid):
                # The pool may not be the first owner, the one that the patch tests; otherwise the
                # patch was refused for its content, not for the state of the member.
                if by_version and fresh.version == held.version:
                    raise MemberRefusedError(said(refused)) from refused
                by_version = True
            held = fresh
        text = f"completing adoption of {held.key.name} for claim {self._entry.key.name}"
        raise ClaimError(ClaimFault.ADOPTION_CONFLICT, text, conflict=str(refused)) from refused

    async def _patch_over(self, held: SandboxEntry, *, by_version: bool) -> SandboxEntry:
        assert held.owner is not None
        template = self._resolver.known_template_of(self._pool)
        ref_hash = (held.labels or {}).get(names.TEMPLATE_REF_HASH_LABEL, "")
        if not ref_hash and template is not None:
            ref_hash = template.ref_hash
        current = held.view.template_metadata if held.view is not None else None
        desired = desired_pod_metadata(template, self._facts, ref_hash=ref_hash, current=current)
        touched = desired if needs_template_touch(current, desired) else None
        version = await self._writer.guard(self._sandboxes, held) if by_version else None
        patch = adoption_patch(
            self._facts,
            touched,
            pool_uid=held.owner.uid,
            labels=held.labels,
            annotations=held.annotations,
            is_applied=held.is_applied,
            ref_hash=ref_hash,
            version=version,
        )
        # The whole response: a webhook may have changed more, or somebody else the status.
        written = await self._writer.patch(self._sandboxes, held, patch, as_metadata=False)
        taken = written.entry
        if self._facts.trace_context and not held.annotations:
            annotations = {names.TRACE_CONTEXT_ANNOTATION: self._facts.trace_context}
            return await self._patch(taken, {"metadata": {"annotations": annotations}})
        return taken

    # -- cold ------------------------------------------------------------------------------------

    async def make(self, spec: SandboxClaimSpec) -> SandboxEntry:
        """Create the claim's own Sandbox from the template of its pool. One POST."""
        template = await self._template()
        body = build_cold_sandbox(self._facts, spec, template)
        lack = self._resolver.unprotected(template)
        if lack is not None:
            raise lack
        try:
            written = await self._writer.create(
                self._sandboxes, self._pool.namespace, body, name=self._entry.key.name
            )
        except AlreadyExists:
            return await self._collided()
        except ControlPlaneError as error:
            if error.namespace_terminating:
                raise
            raise ClaimError(ClaimFault.OTHER, f"sandbox create error: {said(error)}") from error
        made = written.entry
        self._parts.metrics.bound(self._entry, made, names.LAUNCH_TYPE_COLD)
        note = f'Created Sandbox "{made.key.name}"'
        self._parts.events.emit(self._entry, "Normal", "SandboxProvisioned", "Provisioning", note)
        self._parts.wakes.launch(made.key, written.item)
        return made

    async def _template(self) -> TemplateView:
        pool = await self._resolver.pool(self._pool)
        return await self._resolver.template(Key(self._pool.namespace, pool.template))

    async def _collided(self) -> SandboxEntry:
        key = self._entry.key
        pending = ClaimError(ClaimFault.CREATE_PENDING, f'sandbox "{key.name}" already exists')
        try:
            found = await self._fetch(key)
        except ControlPlaneError as error:
            raise pending from error
        if found is None:
            raise pending
        if not is_controlled(found, self._entry):
            raise not_controlled(key.name)
        return found

    # -- bound -----------------------------------------------------------------------------------

    async def sync(self, sandbox: SandboxEntry) -> SandboxEntry:
        """Bring the metadata of the claim and its template to a bound Sandbox.

        No request when nothing that reaches the Pod differs; else one GET and one PATCH.
        """
        backfill = launch_type_patch(
            sandbox.labels,
            sandbox.key.name,
            assigned=assigned_name(self._entry),
            claim=self._entry.key.name,
        )
        undone, label = self._parts.undone, names.LAUNCH_TYPE_LABEL
        if backfill is not None and not undone.is_in_vain(f"{sandbox.uid} {label}", sandbox.labels):
            before = (sandbox.labels or {}).get(label)
            sandbox = await self._patch(sandbox, backfill)
            if (sandbox.labels or {}).get(label) == before:
                undone.note(f"{sandbox.uid} {label}", sandbox.labels)
        template = self._resolver.known_template_of(self._pool)
        if template is None:
            if not self._view.has_additional_metadata:
                return sandbox
            try:
                template = await self._template()
            except ClaimError as error:
                if error.fault is ClaimFault.WARM_POOL_NOT_FOUND:
                    raise
                text = f"failed to get template for metadata propagation: {error.text}"
                raise ClaimError(error.fault, text) from error
        desired = desired_pod_metadata(template, self._facts, ref_hash=template.ref_hash)
        if self._is_synced(sandbox, template, desired):
            return sandbox
        if undone.is_in_vain(sandbox.uid, (sandbox.generation, sandbox.labels, desired)):
            return sandbox
        try:
            found = await self._writer.get(self._sandboxes, sandbox.key)
            current = found.item.spec.podTemplate.metadata if found is not None else None
            patch = bound_sync_patch(
                desired,
                current or PodTemplateMetadata(),
                claim=self._facts,
                labels=sandbox.labels,
                ref_hash=template.ref_hash,
            )
            if patch is None:
                return sandbox
            sandbox = await self._patch(sandbox, patch)
        except ControlPlaneError as error:
            raise ClaimError(
                ClaimFault.OTHER,
                f'failed to patch sandbox metadata for claim "{self._facts.name}": {said(error)}',
            ) from error
        if not self._is_synced(sandbox, template, desired):
            undone.note(sandbox.uid, (sandbox.generation, sandbox.labels, desired))
        self._parts.wakes.sandbox(sandbox.key)
        return sandbox

    def _is_synced(
        self, sandbox: SandboxEntry, template: TemplateView, desired: PodTemplateMetadata
    ) -> bool:
        view, labels = sandbox.view, sandbox.labels or {}
        return (
            labels.get(names.TEMPLATE_REF_HASH_LABEL) == template.ref_hash
            and labels.get(names.CREATED_BY_LABEL, "") == self._facts.created_by
            and view is not None
            and view.generation == sandbox.generation
            and not needs_template_touch(view.template_metadata, desired)
        )

    async def _patch(self, sandbox: SandboxEntry, patch: dict[str, Any]) -> SandboxEntry:
        written = await self._writer.patch(self._sandboxes, sandbox, patch, as_metadata=False)
        return written.entry

    async def _fetch(self, key: Key) -> SandboxEntry | None:
        found = await self._writer.get(self._sandboxes, key)
        return found.entry if found is not None else None


def own_sandbox(sandboxes: Cache[SandboxEntry], claim: ClaimEntry) -> SandboxEntry | None:
    """Return the Sandbox of a claim: the one it names, the one of its own name, or one taken over.

    Whoever creates a Sandbox may write any owner reference, so it must also be a Sandbox that this
    controller made for the claim or took over for it.

    A Sandbox that is named stays the claim's until it is gone. One that was taken over, but not
    named before the process ended, is found by its labels, unless it is being deleted.
    """
    owned = _owned(sandboxes, claim)
    bound = claim.status.bound.name if claim.status is not None else ""
    for name in (bound, assigned_name(claim), claim.key.name):
        if name in owned:
            return owned[name]
    taken = filter(_was_taken_over, owned.values())
    return min(taken, key=lambda one: one.key.name, default=None)


def acquired(sandboxes: Cache[SandboxEntry], claim: ClaimEntry) -> list[SandboxEntry]:
    """Return the living Sandboxes that were created for a claim, or taken over for it."""
    owned = _owned(sandboxes, claim).values()
    made = [one for one in owned if one.key == claim.key and not one.is_deleting]
    return [*made, *filter(_was_taken_over, owned)]


def _owned(sandboxes: Cache[SandboxEntry], claim: ClaimEntry) -> dict[str, SandboxEntry]:
    owned = sandboxes.owned_by(claim.key.namespace, claim.uid)
    return {one.key.name: one for one in owned if is_controlled(one, claim)}


def is_controlled(held: OwnedEntry, claim: ClaimEntry) -> bool:
    """Return whether an object of the claim's namespace has the claim as its controller."""
    is_a_claims = held.owner_key(names.SANDBOX_CLAIM_KIND) is not None
    return is_a_claims and is_controlled_by(held.owner, claim.uid)


def _is_of_ours(owner: OwnerReference) -> bool:
    return owner.group == names.EXTENSIONS_GROUP


def assigned_name(claim: ClaimEntry) -> str:
    """Return the Sandbox that a claim's annotation names, or its label from old releases."""
    key = names.SANDBOX_NAME_ANNOTATION
    return (claim.annotations or {}).get(key) or (claim.labels or {}).get(key, "")


def _was_taken_over(sandbox: SandboxEntry) -> bool:
    labels = sandbox.labels or {}
    return (
        not sandbox.is_deleting
        and labels.get(names.LAUNCH_TYPE_LABEL) == names.LAUNCH_TYPE_WARM
        and names.WARM_POOL_LABEL not in labels
    )
