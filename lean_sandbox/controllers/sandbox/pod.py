"""The Pod of a Sandbox."""

from __future__ import annotations

from lean_sandbox.controllers.common import reference_to
from lean_sandbox.controllers.sandbox import plans
from lean_sandbox.controllers.sandbox.podmetadata import PodMetadata
from lean_sandbox.controllers.sandbox.run import SandboxRun
from lean_sandbox.controllers.sandbox.throttle import is_before_ready
from lean_sandbox.kube.errors import AlreadyExists, ControlPlaneError, message_of
from lean_sandbox.kube.resources import PODS
from lean_sandbox.model import names
from lean_sandbox.model.conditions import find, is_true
from lean_sandbox.model.pod import PodState, build_pod
from lean_sandbox.model.sandbox_status import FailedStep, ObservedPod
from lean_sandbox.runtime.tracing import add_event
from lean_sandbox.runtime.workers import ReconcileError, failing_as
from lean_sandbox.watch.resources.pod import RUNNING, WAITING, PodEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry


class PodOfSandbox:
    """Creates, adopts, updates or deletes the Pod of a Sandbox, and finds out its state."""

    def __init__(self, run: SandboxRun) -> None:
        self._run = run
        self._context = run.context
        self._caches = run.context.caches
        self._requests = run.context.requests
        self._metadata = PodMetadata(run)
        # The Pod that the status is to report.
        self._pod: PodEntry | None = None

    async def sync(self, *, may_create: bool) -> None:
        """Bring the Pod to the desired state; raises ReconcileError if it cannot.

        ``may_create``: each volume claim is known to be the Sandbox's own. Claims are mounted by
        name: a Pod could write to the disk of somebody else.
        """
        step, clears = self._plan_pod(None, was_fetched=False)
        if isinstance(step, plans.Fetch):
            with failing_as(FailedStep.POD_GET):
                fetched = await self._requests.get_pod(self._run.entry.pod_key)
            step, clears = self._plan_pod(fetched, was_fetched=True)
        if isinstance(step, plans.Create):
            if not may_create or await self._create_pod(clears_annotation=clears):
                return
            step, clears = self._plan_pod(await self._get_existing(), was_fetched=True)
        # A refused patch of the annotation must not keep the Pod alive.
        is_end = isinstance(step, plans.Delete)
        if is_end:
            await self._carry_out(step)
        if clears:
            await self._clear_annotation()
        if not is_end:
            await self._carry_out(step)

    async def _get_existing(self) -> PodEntry:
        """Fetch the Pod that a create has met; raises ReconcileError if it is gone again."""
        with failing_as(FailedStep.POD_GET_AFTER_CREATE):
            fetched = await self._requests.get_pod(self._run.key)
        if fetched is None:
            raise ReconcileError(f"{FailedStep.POD_GET_AFTER_CREATE}: it is gone again")
        return fetched

    def _plan_pod(
        self, fetched: PodEntry | None, *, was_fetched: bool
    ) -> tuple[plans.PodStep, bool]:
        entry = self._run.entry
        key = self._run.entry.pod_key
        hidden = self._requests.hidden
        is_doubtful = hidden.is_doubtful(key)
        is_absent = (was_fetched and fetched is None) or (
            not is_doubtful
            and (hidden.is_absent(key) or (self._run.is_start and _was_seen_suspended(entry)))
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
        self._run.check_template()
        # An annotation that names this Pod is wrong only if there is none, which the create itself
        # shows; one that names another Pod is known to be wrong already.
        names_this = self._run.entry.pod_key == self._run.key
        if not names_this:
            await self._clear_annotation()
        sandbox = await self._run.whole()
        emit = self._context.events.emit
        try:
            pod = await self._requests.create_pod(self._run.key, build_pod(sandbox))
        except AlreadyExists:
            return False
        except ControlPlaneError as error:
            note = f'Failed to create Pod "{self._run.key.name}": {message_of(error)}'
            emit(self._run.entry, "Warning", "SandboxPodCreateFailed", "PodCreation", note)
            raise
        self._pod = pod
        note = f'Created Pod "{pod.key.name}"'
        related = reference_to(pod, PODS)
        emit(self._run.entry, "Normal", "SandboxPodCreated", "PodCreation", note, related)
        self._trace_pod("NewPodStatusObserved")
        if clears_annotation and names_this:
            await self._clear_annotation()
        return True

    async def _carry_out(self, step: plans.PodStep) -> None:
        match step:
            case plans.ManyPods(count):
                self._run.seen.many_pods = count
            case plans.Refuse(text):
                raise ReconcileError(text)
            case plans.Delete(pod):
                # Another process may have made it for a resumption that is not seen yet.
                await self._run.whole()
                try:
                    pod = await self._metadata.keep_in_sight(pod)
                finally:
                    # A refused patch of the metadata must not keep the Pod alive.
                    await self._delete_pod(pod)
            case plans.Adopt(pod):
                # Until it is adopted, the Pod is not the Sandbox's.
                self._pod = await self._metadata.sync(pod, adopts=True)
            case plans.Keep(pod):
                self._pod = pod
                try:
                    if self._run.owns(pod) and self._run.view.is_suspended:
                        self._pod = await self._metadata.keep_in_sight(pod)
                    elif self._run.owns(pod):
                        self._pod = await self._metadata.sync(pod)
                finally:
                    # A refused patch of the metadata must not hide the state of the Pod.
                    await self._refresh()
                    self._trace_pod("ExistingPodStatusObserved")
                    await self._end_disrupted()

    async def _end_disrupted(self) -> None:
        """Delete the Pod if a disruption has ended it; its removal brings the next."""
        pod = self._pod
        if pod is not None and self._is_replaced(pod):
            await self._delete_pod(pod)

    def _is_replaced(self, pod: PodEntry) -> bool:
        """Return whether another Pod has to follow one that a disruption has ended.

        Work that was reported as finished is not done again because its node goes afterwards.
        """
        if not self._run.owns(pod) or pod.state is None or pod.is_terminating:
            return False
        return pod.state.is_disrupted and not is_true(self._run.old.conditions, names.FINISHED)

    def _trace_pod(self, event: str) -> None:
        pod = self._pod
        if pod is not None and pod.state is not None:
            add_event(event, {"pod.Name": pod.key.name, "pod.Phase": pod.state.phase})

    async def _refresh(self) -> None:
        """Fetch the Pod if its known state may be stale. At most one GET."""
        pod = self._pod
        if pod is None or not self._run.owns(pod) or not pod.needs_fetch:
            return
        if self._run.view.is_suspended and pod.state is not None:
            # It terminates: only its end matters now, and the watch shows that.
            return
        held_s = self._held_s(pod)
        if held_s > 0.0:
            self._run.requeue.within(held_s)
        else:
            await self._fetch_state(pod)

    def _held_s(self, pod: PodEntry) -> float:
        # A step of a launch is not published before then, so a fetch would be of no use.
        is_step = pod.state is not None and pod.hint in (WAITING, RUNNING)
        if not (is_step and is_before_ready(self._run.old)):
            return 0.0
        return self._context.throttle.hold_fetch(self._run.key, self._context.clock.monotonic())

    async def _fetch_state(self, pod: PodEntry) -> None:
        # A stale state is not reported when the fetch fails.
        self._pod = None
        self._context.throttle.fetched(self._run.key)
        with failing_as(FailedStep.POD_GET):
            self._pod = await self._requests.get_pod(pod.key)

    async def _delete_pod(self, pod: PodEntry) -> None:
        """Delete the Pod, and only then fetch its latest state if the known one may be stale."""
        self._pod = pod
        may_be_old = pod.needs_fetch
        with failing_as(FailedStep.POD_DELETE):
            was_there = await self._requests.delete_pod(pod)
        if not was_there:
            self._pod = None
        elif may_be_old:
            await self._fetch_state(pod)

    async def _clear_annotation(self) -> None:
        entry = self._run.entry
        # Each status that we write makes another version, which says nothing of the annotation.
        undone = self._context.undone
        if undone.is_in_vain(entry.uid, (entry.generation, entry.pod_name)):
            return
        with failing_as(FailedStep.POD_NAME_CLEAR):
            left = await self._requests.annotate(entry, names.POD_NAME_ANNOTATION, None)
        self._run.entry = self._run.check_unchanged()
        if left is not None:
            undone.note(entry.uid, (entry.generation, names.clipped_name(left)))
        elif entry.pod_key != self._run.key:
            # The plan was for the Pod that the annotation named; now another is expected.
            self._run.requeue.within(0.0)

    def observe(self) -> ObservedPod | None:
        """Return what the status is to report of the Pod."""
        pod = self._pod
        if pod is None:
            return None
        is_owned = self._run.owns(pod)
        state = (pod.state if is_owned else None) or PodState()
        trouble = pod.trouble if is_owned else ""
        return ObservedPod(is_owned, pod.is_terminating, state, trouble, self._is_replaced(pod))


def _was_seen_suspended(entry: SandboxEntry) -> bool:
    # A restart over suspended Sandboxes would otherwise fetch each one's Pod again.
    found = find(entry.status.conditions, names.SUSPENDED) if entry.status is not None else None
    if found is None or found.observedGeneration != entry.generation:
        return False
    return found.reason == names.REASON_POD_TERMINATED
