"""From a claim to its Sandbox: the one it has, one of its pool, or a new one.

A warm claim costs one request here: the patch that takes the member over. A member is handed out in
memory to one claim at a time; a claim that loses it to another process takes the next at once, and
so does one that may not have it by an admission policy.
"""

from __future__ import annotations

from contextlib import suppress

from lean_sandbox.controllers.claim.adopt import Adoption, MemberRefusedError
from lean_sandbox.controllers.claim.owned import (
    assigned_name,
    is_controlled,
    is_of_extensions,
    own_sandbox,
)
from lean_sandbox.controllers.claim.parts import Parts
from lean_sandbox.controllers.common import reference_to
from lean_sandbox.controllers.resolver import NotYetError
from lean_sandbox.controllers.warm import pool_of
from lean_sandbox.kube.errors import AlreadyExists, ControlPlaneError, said
from lean_sandbox.kube.resources import SANDBOXES
from lean_sandbox.model import names
from lean_sandbox.model.claim import ClaimFacts, ClaimView, SandboxClaimSpec
from lean_sandbox.model.claim_additions import bound_sync_patch, desired_pod_metadata
from lean_sandbox.model.claim_sandbox import (
    build_cold_sandbox,
    launch_type_patch,
    needs_template_touch,
)
from lean_sandbox.model.claim_status import ClaimError, ClaimFault, not_controlled, stale_reference
from lean_sandbox.model.sandbox import PodTemplateMetadata
from lean_sandbox.model.template import TemplateView
from lean_sandbox.model.warmpool import Verdict
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.extensions import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# How often a new claim checks whether members of its pool have got an address.
_LOOK_AGAIN_S = 0.5
_MOST_TRIES = 64
# How many members a claim tries that the server refuses to hand over; then it gets a new Sandbox.
_MOST_REFUSALS = 3


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
        self._adoption = Adoption(parts, entry, self._facts, self._pool)

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
                await self._adoption.fetch(Key(entry.key.namespace, named))
            except ControlPlaneError as error:
                # The claim's status stays as it is until the Sandbox can be read.
                text = f'sandbox "{named}" cannot be read'
                raise ClaimError(ClaimFault.CREATE_PENDING, text) from error
            found = own_sandbox(self._sandboxes, entry)
        if found is None and entry.uid in doubtful:
            await self._adoption.fetch(doubtful[entry.uid])
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
        return await self._adoption.patch(found.entry, {"metadata": metadata})

    async def _assigned(self, name: str) -> SandboxEntry | None:
        """Complete an adoption that another process began, or clear a name that is not ours."""
        held = self._sandboxes.get(Key(self._pool.namespace, name))
        if held is not None and held.owner is None:
            return await self._restored(held)
        if held is not None and held.owner is not None and not is_of_extensions(held.owner):
            # With an owner of a foreign kind: whoever did that may undo it.
            return None
        loss: ClaimError | None = None
        if held is not None and pool_of(held) == self._pool and self._parts.warm.reserve(held):
            with suppress(MemberRefusedError):
                taken = await self._adoption.take(held, self._adoption.judge())
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
        warm, judge = self._parts.warm, self._adoption.judge()
        if judge is None and self._adoption.is_recreate():
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
                taken = await self._adoption.take(member, judge)
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
            found = await self._adoption.fetch(key)
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
            sandbox = await self._adoption.patch(sandbox, backfill)
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
            sandbox = await self._adoption.patch(sandbox, patch)
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
