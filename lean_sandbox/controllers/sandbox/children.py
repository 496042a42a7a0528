"""The children of a Sandbox, in the reference controller's order: volume claims, Pod, Service.

An error of one child does not stop the next: all are collected and shown together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from lean_sandbox.config.options import LONGEST_WRITE_BEHIND_S
from lean_sandbox.controllers.common import ObjectEvents, Shared, Undone, reference_to
from lean_sandbox.controllers.sandbox import plans
from lean_sandbox.controllers.sandbox.requests import SandboxRequests
from lean_sandbox.controllers.sandbox.throttle import StatusThrottle, is_before_ready
from lean_sandbox.kube.errors import AlreadyExists, ControlPlaneError, said
from lean_sandbox.kube.resources import PODS
from lean_sandbox.model import names
from lean_sandbox.model.conditions import find, is_true
from lean_sandbox.model.meta import is_controlled_by, sandbox_reference, with_controller_reference
from lean_sandbox.model.pod import PodState, build_pod, build_pvc, metadata_patch, pvc_name
from lean_sandbox.model.sandbox import PodTemplateMetadata, Sandbox, SandboxStatus, SandboxView
from lean_sandbox.model.sandbox_status import Failure, Observation, ObservedPod
from lean_sandbox.model.service import ServiceSpec, build_service, owned_service_patch
from lean_sandbox.runtime.tracing import traced
from lean_sandbox.runtime.workers import ReconcileError, failing_as
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Entry, Key, key_of
from lean_sandbox.watch.resources.children import PvcEntry, ServiceEntry
from lean_sandbox.watch.resources.pod import RUNNING, WAITING, PodEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

_OWNER = "owner"
# How long to wait for the first list of volume claims.
_PVC_LIST_PATIENCE_S = 5.0

# Whether an object lacks its controller reference, and the merge patch of what else it lacks.
Lacking = tuple[bool, dict[str, Any]]

OnStatus = Callable[[SandboxEntry, SandboxStatus], None]
C = TypeVar("C", PodEntry, PvcEntry, ServiceEntry)


class OvertakenError(Exception):
    """The Sandbox was changed, replaced or deleted meanwhile: its reconcile has to start over."""


class UnusableTemplateError(Exception):
    """No Pod can have what the template asks for; only a change of the Sandbox can cure it."""


class Parts(Shared, kw_only=True):
    """What the reconciles of all Sandboxes share.

    ``on_status`` are called with each status that was published. ``drift_since`` is since when the
    metadata of a Pod has differed from the desired one while its write is deferred.
    """

    requests: SandboxRequests
    events: ObjectEvents
    throttle: StatusThrottle
    on_status: list[OnStatus] = msgspec.field(default_factory=list)
    drift_since: dict[Key, float] = msgspec.field(default_factory=dict)
    # Sandboxes of which the server refuses any update: their uid, and the generation refused.
    refused: dict[Key, tuple[str, int]] = msgspec.field(default_factory=dict)
    undone: Undone = msgspec.field(default_factory=Undone)

    def forget(self, key: Key) -> None:
        """Drop what is remembered between the reconciles of a Sandbox."""
        self.drift_since.pop(key, None)
        self.refused.pop(key, None)
        self.metrics.forget(key)
        self.throttle.settled(key)
        self.requests.forget(key)

    def tell(self, entry: SandboxEntry, new: SandboxStatus) -> None:
        """Notify the other controllers of a status that was published."""
        for tell in self.on_status:
            tell(entry, new)


class Children:
    """One reconcile of the children of one Sandbox; its fields hold the outcome.

    ``sandbox`` is the whole object, if it was fetched already. ``is_start``: a published status
    that says there is no Pod is trusted.
    """

    def __init__(
        self, parts: Parts, entry: SandboxEntry, sandbox: Sandbox | None, *, is_start: bool
    ) -> None:
        self._parts = parts
        self._caches = parts.caches
        self._requests = parts.requests
        self._sandbox = sandbox
        self._is_start = is_start
        self._pod: PodEntry | None = None
        # Whether each volume claim is known to be the Sandbox's own.
        self._has_claims = False
        assert entry.status is not None
        self._old = entry.status
        self.entry = entry
        self.key = entry.key
        self.seen = Observation(generation=entry.generation)
        self.failures: list[Exception] = []
        self.requeue_after_s: float | None = None
        self.is_namespace_terminating = False

    @property
    def _view(self) -> SandboxView:
        assert self.entry.view is not None
        return self.entry.view

    async def sync(self) -> None:
        """Bring all children to the desired state, as far as possible. Raises OvertakenError."""
        tracing = self._parts.tracing
        self._has_claims = await self._guarded(traced(tracing, "reconcilePVCs", self._sync_pvcs()))
        pod = traced(tracing, "reconcilePod", self._sync_pod())
        self.seen.has_pod_failed = not await self._guarded(pod)
        if not self.seen.many_pods:
            self.seen.is_service_unknown = not await self._guarded(self._sync_service())
        if not self.failures and self.requeue_after_s is None:
            self._parts.drift_since.pop(self.key, None)

    async def _guarded(self, step: Awaitable[None]) -> bool:
        """Run one step, collect its error if it has one, and return whether it succeeded."""
        try:
            await step
        except ControlPlaneError as error:
            if error.namespace_terminating:
                self.is_namespace_terminating = True
            elif error.is_schema_refusal:
                self._show_invalid(error)
            else:
                self.failures.append(error)
        except UnusableTemplateError as error:
            self._show_invalid(error)
        except ReconcileError as error:
            self.failures.append(error)
        else:
            return True
        return False

    def _show_invalid(self, error: Exception) -> None:
        # Only a change of the Sandbox can cure it: shown in the status, not retried.
        self.seen.invalid = self.seen.invalid or said(error)

    def _repeat_in(self, seconds: float) -> None:
        waits = self.requeue_after_s
        self.requeue_after_s = seconds if waits is None else min(seconds, waits)

    def _is_in_vain(self, child: Entry, lacking: object) -> bool:
        return self._parts.undone.is_in_vain(child.uid, (child.version, lacking))

    def _judge(self, made: Entry, sent: object, lacking: object) -> None:
        """After a patch: repeat it if others have written meanwhile, not if it was undone."""
        if lacking == sent:
            self._parts.undone.note(made.uid, (made.version, lacking))
        elif lacking:
            self._repeat_in(0.0)

    async def _whole(self) -> Sandbox:
        """Return the whole Sandbox, fetched once; raises OvertakenError if it has changed."""
        sandbox = self._sandbox or await self._requests.get_sandbox(self.key)
        self.entry = self._check_unchanged()
        if sandbox is None:
            raise OvertakenError
        self._sandbox = sandbox
        return sandbox

    def _check_unchanged(self) -> SandboxEntry:
        """Return the Sandbox's current entry; raise OvertakenError if spec or uid have changed."""
        fresh = self._caches.sandboxes.latest(self.entry)
        if fresh is None or fresh.is_deleting or fresh.generation != self.entry.generation:
            raise OvertakenError
        return fresh

    # -- volume claims ---------------------------------------------------------------------------

    async def _sync_pvcs(self) -> None:
        templates = self._view.claim_templates
        if not templates:
            return
        # Most clusters have no Sandbox that needs any, so their watch begins with the first.
        reflectors, kind = self._parts.reflectors, self._caches.pvcs.kind
        reflectors.start(self._caches.pvcs)
        problem = await reflectors.synced_within(kind.resource.plural, _PVC_LIST_PATIENCE_S)
        if problem is not None:
            raise ReconcileError(f"{Failure.PVC_GET}: {problem}")
        for index, template in enumerate(templates):
            await self._sync_pvc(
                index, key_of(self.key.namespace, pvc_name(template, self.key.name))
            )

    async def _sync_pvc(self, index: int, key: Key) -> None:
        pvc = self._caches.pvcs.get(key) or await self._create_pvc(index, key)
        if is_controlled_by(pvc.owner, self.entry.uid):
            return
        text = plans.refusal("PVC", pvc, self.key.name)
        if text is not None:
            raise ReconcileError(text)
        if not self._is_in_vain(pvc, _OWNER):
            patch = {"metadata": await self._ownership(self._caches.pvcs, pvc)}
            with failing_as(Failure.PVC_PATCH):
                pvc = (await self._requests.patch(self._caches.pvcs, pvc, patch)).entry
            if is_controlled_by(pvc.owner, self.entry.uid):
                return
            self._judge(pvc, _OWNER, _OWNER)
        raise ReconcileError(plans.disowned("PVC", pvc))

    async def _create_pvc(self, index: int, key: Key) -> PvcEntry:
        """Create a volume claim, or return the one of its name that exists already."""
        sandbox = await self._whole()
        template = (sandbox.spec.volumeClaimTemplates or ())[index]
        body = build_pvc(sandbox.metadata, template)
        try:
            found = await self._requests.create(
                self._caches.pvcs, key.namespace, body, name=key.name
            )
        except AlreadyExists:
            # The cache lags behind, or does not watch this claim.
            looked = await self._requests.get(self._caches.pvcs, key)
            if looked is None:
                raise ReconcileError(f'PVC "{key.name}" exists and cannot be read') from None
            found = looked
        return found.entry

    async def _ownership(self, cache: Cache[C], child: C) -> dict[str, Any]:
        """Return the metadata that makes an object the Sandbox's own, guarded by its version.

        At most one GET of the Sandbox, and one of the object. Raises OvertakenError if the Sandbox
        has changed or is gone, Conflict or NotFound if the object has or is.
        """
        # The object may have lost its owner together with the Sandbox, whose end is not known yet.
        await self._whole()
        controller = sandbox_reference(self.key.name, self.entry.uid)
        references = with_controller_reference(child.others, controller)
        version = await self._requests.guard(cache, child)
        return {"resourceVersion": version, "ownerReferences": references}

    # -- the Pod ---------------------------------------------------------------------------------

    def _check_template(self) -> None:
        if self._view.refusal:
            raise UnusableTemplateError(self._view.refusal)

    async def _sync_pod(self) -> None:
        fetched: PodEntry | None = None
        was_fetched = False
        # A fetch may follow a fetch only through a create that collided; nothing loops here.
        for _ in range(4):
            step, clears = self._plan_pod(fetched, was_fetched=was_fetched)
            if isinstance(step, plans.Create):
                # Claims are mounted by name: a Pod could write to the disk of somebody else.
                if not self._has_claims or await self._create_pod(clears_annotation=clears):
                    return
                with failing_as(Failure.POD_GET_AFTER_CREATE):
                    fetched = await self._requests.get_pod(self.key)
            elif isinstance(step, plans.Fetch):
                with failing_as(Failure.POD_GET):
                    fetched = await self._requests.get_pod(self.entry.pod_key)
            else:
                if clears:
                    await self._clear_annotation()
                await self._carry_out(step)
                return
            was_fetched = True
        raise ReconcileError(
            f"{Failure.POD_GET_AFTER_CREATE}: it was created and deleted repeatedly meanwhile"
        )

    def _plan_pod(
        self, fetched: PodEntry | None, *, was_fetched: bool
    ) -> tuple[plans.PodStep, bool]:
        entry, key = self.entry, self.entry.pod_key
        hidden = self._requests.hidden
        is_doubtful = hidden.is_doubtful(key)
        is_absent = (was_fetched and fetched is None) or (
            not is_doubtful
            and (hidden.is_absent(key) or (self._is_start and _was_seen_suspended(entry)))
        )
        return plans.plan_pod(
            entry,
            self._caches.pods.owned_by(key.namespace, entry.uid),
            fetched if fetched is not None else self._caches.pods.get(key),
            is_absent=is_absent,
            is_doubtful=is_doubtful,
        )

    async def _create_pod(self, *, clears_annotation: bool) -> bool:
        """Create the Pod; false when one of its name exists already."""
        self._check_template()
        # An annotation that names this Pod is wrong only if there is none, which the create itself
        # shows; one that names another Pod is known to be wrong already.
        names_this = self.entry.pod_key == self.key
        if clears_annotation and not names_this:
            await self._clear_annotation()
        sandbox = await self._whole()
        emit = self._parts.events.emit
        try:
            pod = await self._requests.create_pod(self.key, build_pod(sandbox))
        except AlreadyExists:
            return False
        except ControlPlaneError as error:
            note = f'Failed to create Pod "{self.key.name}": {said(error)}'
            emit(self.entry, "Warning", "SandboxPodCreateFailed", "PodCreation", note)
            raise
        self._pod = pod
        note, related = f'Created Pod "{pod.key.name}"', reference_to(pod, PODS)
        emit(self.entry, "Normal", "SandboxPodCreated", "PodCreation", note, related)
        self._trace_pod("NewPodStatusObserved")
        if clears_annotation and names_this:
            await self._clear_annotation()
        return True

    async def _carry_out(self, step: plans.PodStep) -> None:
        match step:
            case plans.ManyPods(count):
                self.seen.many_pods = count
            case plans.Refuse(text):
                raise ReconcileError(text)
            case plans.Delete(pod):
                await self._delete_pod(await self._keep_in_sight(pod))
            case plans.Adopt(pod):
                await self._sync_metadata(pod, adopts=True)
            case plans.Keep(pod):
                self._pod = pod
                try:
                    if self._is_own(pod) and self._view.is_suspended:
                        self._pod = await self._keep_in_sight(pod)
                    elif self._is_own(pod):
                        await self._sync_metadata(pod, adopts=False)
                finally:
                    # A refused patch of the metadata must not hide the state of the Pod.
                    await self._refresh()
                self._trace_pod("ExistingPodStatusObserved")
                await self._end_disrupted()

    def _is_own(self, pod: PodEntry) -> bool:
        return is_controlled_by(pod.owner, self.entry.uid)

    async def _end_disrupted(self) -> None:
        """Delete the Pod if a disruption has ended it; its removal brings the next."""
        pod = self._pod
        if pod is not None and self._is_replaced(pod):
            await self._delete_pod(pod)

    def _is_replaced(self, pod: PodEntry) -> bool:
        """Return whether another Pod has to follow one that a disruption has ended.

        Work that was reported as finished is not done again because its node goes afterwards.
        """
        if not self._is_own(pod) or pod.state is None or pod.is_terminating:
            return False
        return pod.state.is_disrupted and not is_true(self._old.conditions, names.FINISHED)

    def _trace_pod(self, event: str) -> None:
        tracing, pod = self._parts.tracing, self._pod
        if tracing is not None and pod is not None and pod.state is not None:
            tracing.event(event, {"pod.Name": pod.key.name, "pod.Phase": pod.state.phase})

    async def _keep_in_sight(self, pod: PodEntry) -> PodEntry:
        """Give a Pod the label by which it is watched: suspending waits for its end."""
        if names.NAME_HASH_LABEL in (pod.labels or {}):
            return pod
        labels = {names.NAME_HASH_LABEL: names.name_hash(self.key.name)}
        if self._is_in_vain(pod, labels):
            return pod
        with failing_as(Failure.POD_PATCH):
            made = await self._patch_pod(pod, {"labels": labels})
        is_labelled = names.NAME_HASH_LABEL in (made.labels or {})
        self._judge(made, labels, None if is_labelled else labels)
        return made

    async def _patch_pod(self, pod: PodEntry, metadata: dict[str, Any]) -> PodEntry:
        patch = {"metadata": metadata}
        made = await self._requests.patch(self._caches.pods, pod, patch, as_metadata=False)
        return made.entry

    async def _refresh(self) -> None:
        """Fetch the Pod if its known state may be stale. At most one GET."""
        pod = self._pod
        if pod is None or not self._is_own(pod) or not _may_be_old(pod):
            return
        if self._view.is_suspended and pod.state is not None and pod.is_terminating:
            # Only its end matters now, and the watch shows that.
            return
        held_s = self._held_s(pod)
        if held_s > 0.0:
            self._repeat_in(held_s)
        else:
            await self._fetch_state(pod)

    def _held_s(self, pod: PodEntry) -> float:
        # A step of a launch is not published before then, so a fetch would be of no use.
        is_step = pod.state is not None and pod.hint in (WAITING, RUNNING)
        if not (is_step and is_before_ready(self._old)):
            return 0.0
        return self._parts.throttle.held_s(self.key, self._parts.clock.monotonic())

    async def _fetch_state(self, pod: PodEntry) -> None:
        # A stale state is not reported when the fetch fails; and if the Pod has gone between the
        # event and the fetch, its DELETED event is on its way.
        self._pod = None
        self._parts.throttle.looked(self.key)
        with failing_as(Failure.POD_GET):
            fresh = await self._requests.get_pod(pod.key)
        if fresh is not None and fresh.uid == pod.uid:
            self._pod = fresh

    async def _delete_pod(self, pod: PodEntry) -> None:
        """Delete the Pod, and only then fetch its latest state if the known one may be stale."""
        self._pod = pod
        may_be_old = _may_be_old(pod)
        with failing_as(Failure.POD_DELETE):
            was_there = await self._requests.delete_pod(pod)
        if not was_there:
            self._pod = None
        elif may_be_old:
            await self._fetch_state(pod)

    async def _clear_annotation(self) -> None:
        entry = self.entry
        # Each status that we write makes another version, which says nothing of the annotation.
        state, undone = (entry.generation, entry.pod_name), self._parts.undone
        if undone.is_in_vain(entry.uid, state):
            return
        with failing_as(Failure.POD_NAME_CLEAR):
            await self._requests.annotate(entry, names.POD_NAME_ANNOTATION, None)
        self.entry = self._check_unchanged()
        if self.entry.pod_name == entry.pod_name:
            undone.note(entry.uid, state)
        elif entry.pod_key != self.key:
            # The plan was for the Pod that the annotation named; now another is expected.
            self._repeat_in(0.0)

    async def _sync_metadata(self, pod: PodEntry, *, adopts: bool) -> None:
        self._check_template()
        # Until it is adopted, the Pod is not the Sandbox's.
        self._pod = None if adopts else pod
        lacking = self._pod_lacks(pod)
        if lacking is None:
            return
        if not self._is_in_vain(pod, lacking):
            if not adopts and self._is_deferred():
                return
            metadata = lacking[1] | (
                await self._ownership(self._caches.pods, pod) if adopts else {}
            )
            with failing_as(Failure.POD_PATCH):
                pod = await self._patch_pod(pod, metadata)
            self._parts.drift_since.pop(self.key, None)
            self._judge(pod, lacking, self._pod_lacks(pod))
        if not self._is_own(pod):
            raise ReconcileError(plans.disowned("pod", pod))
        self._pod = pod

    def _pod_lacks(self, pod: PodEntry) -> Lacking | None:
        missing = metadata_patch(
            self.entry.metadata,
            self._view.template_metadata,
            PodTemplateMetadata(pod.labels, pod.annotations),
        )
        lacking: Lacking = not self._is_own(pod), missing or {}
        return lacking if any(lacking) else None

    def _is_deferred(self) -> bool:
        # A drift of the Pod's metadata may wait, as it may in the reference controller.
        now, parts = self._parts.clock.monotonic(), self._parts
        window_s = min(parts.settings.sandbox_write_behind_window, LONGEST_WRITE_BEHIND_S)
        since = parts.drift_since.setdefault(self.key, now) if window_s > 0 else now
        left_s = since + window_s - now
        if left_s <= 0:
            return False
        self._repeat_in(left_s)
        return True

    # -- the Service -----------------------------------------------------------------------------

    async def _sync_service(self) -> None:
        service = self._caches.services.get(self.key)
        # Nothing loops here either.
        for _ in range(4):
            step = plans.plan_service(self.entry, service)
            must_fetch = isinstance(step, plans.Fetch)
            if isinstance(step, plans.Create):
                must_fetch = not await self._create_service()
            if not must_fetch:
                await self._carry_out_service(step)
                break
            with failing_as(Failure.SERVICE_GET):
                found = await self._requests.get(self._caches.services, self.key)
            service = found.entry if found is not None else None
        else:
            text = "it was created and deleted repeatedly meanwhile"
            raise ReconcileError(f"{Failure.SERVICE_GET}: {text}")
        self.seen.service_present = isinstance(step, plans.Create | plans.Adopt | plans.Keep)

    async def _create_service(self) -> bool:
        """Create the Service; false when one of its name exists already."""
        # The Service may have gone together with its Sandbox, whose end is not known yet.
        await self._whole()
        body = build_service(self.entry.metadata, self._view.ports)
        try:
            made = await self._requests.create(
                self._caches.services, self.key.namespace, body, name=self.key.name
            )
        except AlreadyExists:
            return False
        if self._service_lacks(made.entry):
            self._repeat_in(0.0)
        return True

    async def _carry_out_service(self, step: plans.ServiceStep) -> None:
        match step:
            case plans.Refuse(text):
                raise ReconcileError(text)
            case plans.Delete(service):
                await self._requests.delete_service(service)
            case plans.Adopt(service) | plans.Keep(service) if lacking := self._service_lacks(
                service
            ):
                await self._repair_service(service, lacking)

    async def _repair_service(self, service: ServiceEntry, lacking: Lacking) -> None:
        if not self._is_in_vain(service, lacking):
            adopts, body = lacking
            if adopts:
                metadata = body.get("metadata", {}) | await self._ownership(
                    self._caches.services, service
                )
                body = {**body, "metadata": metadata}
            with failing_as(Failure.SERVICE_UPDATE if adopts else Failure.SERVICE_PATCH):
                made = await self._requests.patch(
                    self._caches.services, service, body, as_metadata=False
                )
            service = made.entry
            self._judge(service, lacking, self._service_lacks(service))
        if not is_controlled_by(service.owner, self.entry.uid):
            raise ReconcileError(plans.disowned("service", service))

    def _service_lacks(self, service: ServiceEntry) -> tuple[bool, dict[str, Any]] | None:
        """Return whether a Service lacks its owner, and what else; ``None`` if nothing."""
        wanted = (
            not is_controlled_by(service.owner, self.entry.uid),
            self._missing_in(service) or {},
        )
        return wanted if any(wanted) else None

    def _missing_in(self, service: ServiceEntry) -> dict[str, Any] | None:
        # The Sandbox decides on the ports only where spec.service asks for a Service.
        return owned_service_patch(
            service.labels,
            service.spec or ServiceSpec(),
            names.name_hash(self.key.name),
            self._view.ports if self._view.service else None,
        )

    def observation(self) -> Observation:
        """Return what the status is to report about the children."""
        seen = self.seen
        if self._pod is not None:
            is_owned = self._is_own(self._pod)
            state = (self._pod.state if is_owned else None) or PodState()
            trouble = self._pod.trouble if is_owned else ""
            is_replaced = self._is_replaced(self._pod)
            seen.pod = ObservedPod(is_owned, self._pod.is_terminating, state, trouble, is_replaced)
        # The Sandbox may have changed meanwhile.
        seen.generation = self.entry.generation
        seen.is_suspended = self._view.is_suspended
        seen.service_requested = self._view.service
        seen.errors = tuple(map(said, self.failures))
        return seen


def _may_be_old(pod: PodEntry) -> bool:
    return pod.state is None or pod.is_stale


def _was_seen_suspended(entry: SandboxEntry) -> bool:
    # A restart over suspended Sandboxes would otherwise fetch each one's Pod again.
    found = find(entry.status.conditions, names.SUSPENDED) if entry.status is not None else None
    if found is None or found.observedGeneration != entry.generation:
        return False
    return found.reason == names.REASON_POD_TERMINATED
