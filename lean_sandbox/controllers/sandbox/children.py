"""The children of a Sandbox in the order of the specification (3.3): claims, Pod, Service.

An error of one child does not stop the next: all are collected and shown together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.controllers.ownership import ownership_of, reference_of, sandbox_meta
from lean_sandbox.controllers.sandbox.act import Act
from lean_sandbox.controllers.sandbox.failures import (
    OvertakenError,
    RefusedError,
    StepError,
)
from lean_sandbox.controllers.sandbox.launch import StatusThrottle, is_before_ready
from lean_sandbox.controllers.sandbox.notes import Notes
from lean_sandbox.controllers.sandbox.pod_plan import (
    AdoptPod,
    CreatePod,
    DeletePod,
    KeepPod,
    LookAtPod,
    ManyPods,
    NoPod,
    PodStep,
    PodWorld,
    RefusePod,
    plan_pod,
)
from lean_sandbox.controllers.sandbox.pvc_plan import PvcStep, plan_pvc
from lean_sandbox.controllers.sandbox.service_upkeep import ServiceUpkeep
from lean_sandbox.kube.errors import (
    AlreadyExists,
    Conflict,
    ControlPlaneError,
    Forbidden,
    Invalid,
    said,
)
from lean_sandbox.model import messages, names
from lean_sandbox.model.conditions import Observation, ObservedPod
from lean_sandbox.model.messages import Failure
from lean_sandbox.model.meta import (
    ObjectMeta,
    Ownership,
    controller_reference,
    owner_references_body,
    with_controller_reference,
)
from lean_sandbox.model.pod import build_pod, metadata_patch
from lean_sandbox.model.pvc import build_pvc, pvc_name
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.runtime.absent import KnownAbsent
from lean_sandbox.runtime.tracing import Tracing, traced
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.objects import RUNNING, WAITING, PodEntry, SandboxEntry
from lean_sandbox.watch.store import Key, key_of
from lean_sandbox.watch.wire import OwnerRow

_LONGEST_DEFERRAL_S = 1.0


class ChildrenOutcome(msgspec.Struct):
    """What became of the children: what to report, and what has to be repeated."""

    observation: Observation
    failures: list[Exception]
    requeue_after_s: float | None = None
    is_many_pods: bool = False
    is_namespace_terminating: bool = False


class _Pass(msgspec.Struct):
    """The state of one pass."""

    entry: SandboxEntry
    sandbox: Sandbox | None
    name_hash: str
    is_start: bool = False
    errors: list[str] = []
    failures: list[Exception] = []
    invalid: str | None = None
    pod: PodEntry | None = None
    pod_is_owned: bool = False
    pod_error: str | None = None
    many_pods: int = 0
    service_exists: bool = False
    service_failed: bool = False
    requeue_after_s: float | None = None
    is_namespace_terminating: bool = False

    @property
    def key(self) -> Key:
        return self.entry.key

    def repeat_in(self, seconds: float) -> None:
        """Ask for another pass, at the latest in so many seconds; 0 for at once."""
        waits = self.requeue_after_s
        self.requeue_after_s = seconds if waits is None else min(seconds, waits)


class Children:
    """Keeps the claims, the Pod and the Service of Sandboxes as their plans say."""

    def __init__(
        self,
        caches: Caches,
        act: Act,
        absent: KnownAbsent,
        notes: Notes,
        launches: StatusThrottle,
        *,
        clock: Clock,
        pvcs_ready: Callable[[], Awaitable[str | None]],
        write_behind_s: float = 0.0,
        tracing: Tracing | None = None,
    ) -> None:
        self._caches = caches
        self._act = act
        self._absent = absent
        self._notes = notes
        self._launches = launches
        self._services = ServiceUpkeep(caches, act)
        self._clock = clock
        self._pvcs_ready = pvcs_ready
        self._write_behind_s = min(write_behind_s, _LONGEST_DEFERRAL_S)
        self._tracing = tracing
        self._drift_since: dict[Key, float] = {}
        #: Pods of which the watch shows nothing, although they may exist.
        self.doubtful: set[Key] = set()

    def forget(self, key: Key) -> None:
        """Drop what is remembered between the passes over a Sandbox."""
        self._drift_since.pop(key, None)
        self.doubtful.discard(key)

    def lost_sight_of_pod(self, key: Key) -> None:
        """Take note that the watch stopped showing a Pod which nobody had begun to delete.

        It may only have lost the tracking label; a look tells, a create would collide.
        """
        self.doubtful.add(key)

    async def run(
        self, entry: SandboxEntry, sandbox: Sandbox | None, *, is_start: bool = False
    ) -> ChildrenOutcome:
        """Bring all children to the wanted state, as far as this pass can.

        ``is_start``: believe a published status that says there is no Pod.
        Raises OvertakenError when the pass has to begin anew.
        """
        work = _Pass(entry, sandbox, names.name_hash(entry.key.name), is_start=is_start)
        await self._guarded(work, traced(self._tracing, "reconcilePVCs", self._claims(work)))
        step = traced(self._tracing, "reconcilePod", self._pod(work))
        pod_failure = await self._guarded(work, step)
        if pod_failure is not None:
            work.pod_error = said(pod_failure)
        if not work.many_pods:
            work.service_failed = await self._guarded(work, self._service(work)) is not None
        if not work.failures and work.requeue_after_s is None:
            self._drift_since.pop(work.key, None)
        return ChildrenOutcome(
            observation=self._observation(work),
            failures=work.failures,
            requeue_after_s=work.requeue_after_s,
            is_many_pods=work.many_pods > 0,
            is_namespace_terminating=work.is_namespace_terminating,
        )

    async def _guarded(self, work: _Pass, step: Awaitable[None]) -> Exception | None:
        """Run one step; collect what goes wrong so that the others still run."""
        try:
            await step
        except Invalid as error:
            # Only a change of the Sandbox can cure it: shown, not repeated (changes, v1.0.4).
            work.invalid = work.invalid or said(error)
            return error
        except (ControlPlaneError, RefusedError, StepError) as error:
            if isinstance(error, Forbidden) and error.namespace_terminating:
                work.is_namespace_terminating = True
            else:
                work.failures.append(error)
            work.errors.append(said(error))
            return error
        return None

    async def _whole(self, work: _Pass) -> Sandbox:
        """Return the whole Sandbox, fetched once in a pass at most.

        Raises OvertakenError when it is not the one that the pass was planned for.
        """
        if work.sandbox is None:
            sandbox = await self._act.get_sandbox(work.key)
            fresh = self._caches.sandboxes.get(work.key)
            if (
                sandbox is None
                or fresh is None
                or fresh.is_deleting
                or fresh.uid != work.entry.uid
                or fresh.generation != work.entry.generation
            ):
                raise OvertakenError
            work.sandbox, work.entry = sandbox, fresh
        return work.sandbox

    # -- claims for volumes ----------------------------------------------------------------------

    async def _claims(self, work: _Pass) -> None:
        assert work.entry.view is not None
        templates = work.entry.view.claim_templates
        if not templates:
            return
        problem = await self._pvcs_ready()
        if problem is not None:
            raise RefusedError(messages.failed(Failure.PVC_GET, problem))
        for index, template in enumerate(templates):
            await self._claim(work, index, pvc_name(template, work.key.name))

    async def _claim(self, work: _Pass, index: int, name: str) -> None:
        key = key_of(work.key.namespace, name)
        held = self._caches.pvcs.get(key)
        for _ in range(2):
            step = plan_pvc(
                held,
                pvc_name=name,
                sandbox_name=work.key.name,
                uid=work.entry.uid,
                name_hash=work.name_hash,
            )
            if isinstance(step, str):
                raise RefusedError(step)
            if step is PvcStep.KEEP:
                return
            if step is PvcStep.ADOPT:
                await self._adopt_claim(work, key)
                return
            self._act.check_namespace(work.key.namespace)
            sandbox = await self._whole(work)
            templates = sandbox.spec.volumeClaimTemplates or ()
            try:
                await self._act.create_pvc(work.key, build_pvc(sandbox.metadata, templates[index]))
            except AlreadyExists:
                # The cache lags behind, or the claim is outside of what it watches: look.
                held = await self._act.get_pvc(key)
                continue
            return
        raise RefusedError(f'PVC "{name}" exists and cannot be read')

    async def _adopt_claim(self, work: _Pass, key: Key) -> None:
        held = self._caches.pvcs.get(key)
        references = _references(work.entry, held.others if held is not None else ())
        try:
            made = await self._act.patch_pvc(
                key, {"metadata": {"ownerReferences": references}}, work.key
            )
        except ControlPlaneError as error:
            raise StepError(Failure.PVC_PATCH, error) from error
        if ownership_of(made.owner, work.entry.uid) is not Ownership.OWNED:
            work.repeat_in(0.0)

    # -- the Pod ---------------------------------------------------------------------------------

    async def _pod(self, work: _Pass) -> None:
        looked: PodEntry | None = None
        has_looked = False
        # A look may follow a look only through a create that collided; nothing loops here.
        for _ in range(4):
            world = self._pod_world(work, looked, has_looked=has_looked)
            step = plan_pod(world)
            if isinstance(step, LookAtPod):
                looked = await self._look(work, step.name)
                has_looked = True
                continue
            if isinstance(step, CreatePod) and not await self._create_pod(work, step):
                looked = await self._look(work, work.key.name, collided=True)
                has_looked = True
                continue
            await self._carry_out(work, step)
            return
        raise RefusedError(
            messages.failed(Failure.POD_GET_AFTER_CREATE, "it came and went while it was looked at")
        )

    def _pod_world(self, work: _Pass, looked: PodEntry | None, *, has_looked: bool) -> PodWorld:
        entry = work.entry
        assert entry.view is not None
        annotations = entry.annotations or {}
        lookup = names.resolve_pod_name(entry.key.name, annotations)
        key = key_of(entry.key.namespace, lookup)
        named = looked if has_looked and looked is not None else self._caches.pods.get(key)
        return PodWorld(
            name=entry.key.name,
            uid=entry.uid,
            name_hash=work.name_hash,
            is_suspended=entry.view.is_suspended,
            lookup=lookup,
            has_annotation=names.POD_NAME_ANNOTATION in annotations,
            owned=tuple(self._caches.pods.owned_by(entry.key.namespace, entry.uid)),
            named=named,
            is_absence_proven=(has_looked and looked is None)
            or (
                key not in self.doubtful
                and (
                    self._absent.is_absent("pods", key.namespace, key.name)
                    or (work.is_start and _was_seen_suspended(entry))
                )
            ),
            is_doubtful=key in self.doubtful,
        )

    async def _look(self, work: _Pass, name: str, *, collided: bool = False) -> PodEntry | None:
        key = key_of(work.key.namespace, name)
        try:
            pod = await self._act.get_pod(key, work.key)
        except ControlPlaneError as error:
            step = Failure.POD_GET_AFTER_CREATE if collided else Failure.POD_GET
            raise StepError(step, error) from error
        if pod is None or names.NAME_HASH_LABEL in (pod.labels or {}):
            self.doubtful.discard(key)
        else:
            # Out of the watch's sight: the next pass has to look again.
            self.doubtful.add(key)
        return pod

    async def _create_pod(self, work: _Pass, step: CreatePod) -> bool:
        """Create the Pod; false when one of its name exists already."""
        self._act.check_namespace(work.key.namespace)
        # An annotation that names this very Pod is stale only if there is none, which the create
        # itself tells; one that names another is known to be stale already.
        clears_after = step.clears_annotation and step.is_looked_up
        await self._clear_annotation(work, wanted=step.clears_annotation and not clears_after)
        sandbox = await self._whole(work)
        try:
            work.pod = await self._act.create_pod(work.key, build_pod(sandbox))
        except AlreadyExists:
            return False
        except ControlPlaneError as error:
            self._notes.pod_create_failed(work.entry, work.key.name, error)
            raise
        work.pod_is_owned = True
        self._notes.pod_created(work.entry, work.pod)
        self._observed("NewPodStatusObserved", work.pod)
        await self._clear_annotation(work, wanted=clears_after)
        return True

    async def _carry_out(self, work: _Pass, step: PodStep) -> None:
        match step:
            case ManyPods(count):
                work.many_pods = count
            case NoPod(clears):
                await self._clear_annotation(work, wanted=clears)
            case RefusePod(text, clears):
                await self._clear_annotation(work, wanted=clears)
                raise RefusedError(text)
            case DeletePod(pod, clears):
                await self._clear_annotation(work, wanted=clears)
                await self._delete_pod(work, await self._keep_in_sight(work, pod))
            case AdoptPod(pod):
                await self._sync_pod(work, pod, adopts=True)
            case KeepPod(pod, is_owned, clears):
                await self._clear_annotation(work, wanted=clears)
                work.pod, work.pod_is_owned = pod, is_owned
                assert work.entry.view is not None
                if is_owned and not work.entry.view.is_suspended:
                    await self._sync_pod(work, pod, adopts=False)
                elif is_owned:
                    work.pod = await self._keep_in_sight(work, pod)
                await self._refresh(work)
                self._observed("ExistingPodStatusObserved", work.pod)
            case _:
                pass

    def _observed(self, event: str, pod: PodEntry | None) -> None:
        """Note in the span of the step how the Pod is, where that is known (spec, 7.6)."""
        if self._tracing is None or pod is None or pod.state is None:
            return
        about = {"pod.Name": pod.key.name, "pod.Phase": pod.state.phase}
        self._tracing.event(event, about)

    async def _keep_in_sight(self, work: _Pass, pod: PodEntry) -> PodEntry:
        """Give a Pod back the label by which it is watched: its end is what suspending waits for.

        At most one PATCH.
        """
        if names.NAME_HASH_LABEL in (pod.labels or {}):
            return pod
        patch = {"metadata": {"labels": {names.NAME_HASH_LABEL: work.name_hash}}}
        try:
            return await self._act.patch_pod(pod, patch, work.key)
        except ControlPlaneError as error:
            raise StepError(Failure.POD_PATCH, error) from error

    async def _refresh(self, work: _Pass) -> None:
        """Fetch the Pod if what is known of its state may be old. At most one GET."""
        pod = work.pod
        assert work.entry.view is not None
        if pod is None or not work.pod_is_owned or not _is_worth_a_look(pod):
            return
        if work.entry.view.is_suspended and pod.state is not None and pod.is_terminating:
            # Only its end matters now, and the watch tells of that.
            return
        held_s = self._held_s(work.entry, pod)
        if held_s > 0.0:
            work.repeat_in(held_s)
            return
        await self._fetch(work, pod)

    def _held_s(self, entry: SandboxEntry, pod: PodEntry) -> float:
        """Return for how long nobody would be told what a look shows: a mere step of a launch."""
        if pod.state is None or pod.hint not in (WAITING, RUNNING) or entry.status is None:
            return 0.0
        if not is_before_ready(entry.status):
            return 0.0
        return self._launches.held_s(entry.key, self._clock.monotonic())

    async def _fetch(self, work: _Pass, pod: PodEntry) -> None:
        # Nothing old is told while the look fails; and it may have gone between the event and the
        # look, then its DELETED event is on its way.
        work.pod, work.pod_is_owned = None, False
        self._launches.looked(work.key)
        fresh = await self._look(work, pod.key.name)
        if fresh is not None and fresh.uid == pod.uid:
            work.pod, work.pod_is_owned = fresh, True

    async def _delete_pod(self, work: _Pass, pod: PodEntry) -> None:
        """Delete the Pod; its latest state is worth a look, but its end does not wait for it."""
        work.pod, work.pod_is_owned = pod, True
        is_worth_a_look = _is_worth_a_look(pod)
        try:
            was_there = await self._act.delete_pod(pod)
        except Conflict as error:
            # The name has been taken by another Pod, which the watch may not show.
            self.doubtful.add(pod.key)
            raise StepError(Failure.POD_DELETE, error) from error
        except ControlPlaneError as error:
            raise StepError(Failure.POD_DELETE, error) from error
        if not was_there:
            work.pod, work.pod_is_owned = None, False
        elif is_worth_a_look:
            await self._fetch(work, pod)

    async def _clear_annotation(self, work: _Pass, *, wanted: bool = True) -> None:
        if not wanted:
            return
        patch = {"metadata": {"annotations": {names.POD_NAME_ANNOTATION: None}}}
        try:
            await self._act.patch_sandbox(work.entry, patch)
        except ControlPlaneError as error:
            raise StepError(Failure.POD_NAME_CLEAR, error) from error
        if work.entry.pod_key != work.key:
            # What was planned concerns the Pod that the annotation named; now another is expected.
            work.repeat_in(0.0)
        fresh = self._caches.sandboxes.get(work.key)
        if fresh is not None and fresh.uid == work.entry.uid:
            work.entry = fresh

    async def _sync_pod(self, work: _Pass, pod: PodEntry, *, adopts: bool) -> None:
        """Bring the Pod's metadata to the wanted state, taking ownership when it is adopted."""
        metadata: dict[str, Any] = dict(self._metadata_patch(work, pod) or {})
        if adopts:
            metadata = {
                **metadata,
                "ownerReferences": _references(work.entry, pod.others),
            }
        work.pod, work.pod_is_owned = pod, True
        if not metadata:
            return
        if not adopts and self._is_deferred(work):
            return
        try:
            work.pod = await self._act.patch_pod(pod, {"metadata": metadata}, work.key)
        except ControlPlaneError as error:
            if adopts:
                work.pod, work.pod_is_owned = None, False
            raise StepError(Failure.POD_PATCH, error) from error
        self._drift_since.pop(work.key, None)
        if self._metadata_patch(work, work.pod):
            # Somebody else wrote to it between the event that was planned for and this answer.
            work.repeat_in(0.0)

    @staticmethod
    def _metadata_patch(work: _Pass, pod: PodEntry) -> dict[str, Any] | None:
        """Return what is missing in the metadata of a Pod."""
        assert work.entry.view is not None
        return metadata_patch(
            sandbox_meta(work.entry),
            work.entry.view.template_metadata,
            ObjectMeta(
                name=pod.key.name,
                namespace=pod.key.namespace,
                uid=pod.uid,
                labels=pod.labels,
                annotations=pod.annotations,
            ),
        )

    def _is_deferred(self, work: _Pass) -> bool:
        """Tell whether a drift of the Pod's metadata may wait longer (spec, 3.12)."""
        if self._write_behind_s <= 0:
            return False
        now = self._clock.monotonic()
        since = self._drift_since.setdefault(work.key, now)
        left_s = since + self._write_behind_s - now
        if left_s <= 0:
            return False
        work.repeat_in(left_s)
        return True

    async def _service(self, work: _Pass) -> None:
        before = self._caches.services.get(work.key)
        work.service_exists = await self._services.run(work.entry)
        after = self._caches.services.get(work.key)
        if after is not before and not self._services.is_as_wanted(work.entry):
            # Somebody else wrote to it between the event that was planned for and our answer.
            work.repeat_in(0.0)

    # -- what to report --------------------------------------------------------------------------

    def _observation(self, work: _Pass) -> Observation:
        assert work.entry.view is not None
        view = work.entry.view
        pod = None
        if work.pod is not None:
            state = work.pod.state if work.pod_is_owned else None
            is_terminating = work.pod.is_terminating
            pod = ObservedPod(is_owned=work.pod_is_owned, is_terminating=is_terminating)
            if state is not None:
                pod = ObservedPod(
                    is_owned=True,
                    is_terminating=is_terminating,
                    phase=state.phase,
                    is_ready_condition_true=state.is_ready,
                    ips=state.ips,
                    node_name=state.node,
                    scheduled=state.scheduled,
                )
        return Observation(
            generation=work.entry.generation,
            is_suspended=view.is_suspended,
            pod=pod,
            pod_error=work.pod_error,
            multiple_pods=messages.multiple_pods(work.many_pods) if work.many_pods else None,
            errors=tuple(work.errors),
            invalid=work.invalid,
            service_requested=view.service,
            service_present=work.service_exists,
            is_service_unknown=work.service_failed,
        )


def _is_worth_a_look(pod: PodEntry) -> bool:
    """Tell whether an event has hinted at a state of the Pod other than the one remembered."""
    return pod.state is None or pod.is_stale


def _was_seen_suspended(entry: SandboxEntry) -> bool:
    """Tell whether the published status already says that the Pod is gone, for this very spec.

    A restart over suspended Sandboxes would otherwise look for each one's Pod again.
    """
    for condition in entry.status.conditions if entry.status is not None else ():
        if condition.type == names.SUSPENDED:
            return (
                condition.reason == names.REASON_POD_TERMINATED
                and condition.observedGeneration == entry.generation
            )
    return False


def _references(entry: SandboxEntry, others: tuple[OwnerRow, ...]) -> list[dict[str, Any]]:
    """Return the owner references of an adopted object: those it has, and the Sandbox's control."""
    controller = controller_reference(
        names.CORE_API_VERSION, names.SANDBOX_KIND, entry.key.name, entry.uid
    )
    held = [reference_of(other) for other in others]
    return owner_references_body(with_controller_reference(held, controller))
