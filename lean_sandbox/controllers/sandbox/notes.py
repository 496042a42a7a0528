"""The Events that a Sandbox's life leaves behind (changes, v1.0.4; spec, 3.13)."""

from __future__ import annotations

from lean_sandbox.controllers.recording import ObjectEvents, Recorder, reference_to
from lean_sandbox.kube.errors import said
from lean_sandbox.kube.events import EventType
from lean_sandbox.model import names
from lean_sandbox.model.conditions import find
from lean_sandbox.model.sandbox import SandboxStatus
from lean_sandbox.watch.objects import PodEntry, SandboxEntry

# Reason of the Ready condition -> (type, action, note) of the Event that its appearance leaves.
_BY_REASON: dict[str, tuple[EventType, str, str, str]] = {
    names.REASON_DEPENDENCIES_READY: ("Normal", "SandboxReady", "Ready", "Sandbox is ready"),
    names.REASON_SANDBOX_SUSPENDED: ("Normal", "SandboxSuspended", "Suspension", ""),
    names.REASON_SANDBOX_EXPIRED: ("Normal", "SandboxExpired", "Expiry", ""),
    names.REASON_POD_SUCCEEDED: ("Normal", "PodSucceeded", "PodCompletion", ""),
    names.REASON_POD_FAILED: ("Warning", "PodFailed", "PodCompletion", ""),
}


class Notes:
    """Turns what a pass did into Events; silent without a recorder."""

    def __init__(self, recorder: Recorder | None) -> None:
        self._events = ObjectEvents(recorder, names.CORE_API_VERSION, names.SANDBOX_KIND)

    def pod_created(self, entry: SandboxEntry, pod: PodEntry) -> None:
        """Note that the Pod was created."""
        self._events.emit(
            entry,
            "Normal",
            "SandboxPodCreated",
            "PodCreation",
            f'Created Pod "{pod.key.name}"',
            reference_to(pod, "v1", "Pod"),
        )

    def pod_create_failed(self, entry: SandboxEntry, pod_name: str, error: Exception) -> None:
        """Note that the Pod could not be created."""
        note = f'Failed to create Pod "{pod_name}": {said(error)}'
        self._events.emit(entry, "Warning", "SandboxPodCreateFailed", "PodCreation", note)

    def many_pods(self, entry: SandboxEntry, old: SandboxStatus, new: SandboxStatus) -> None:
        """Note, once per episode, that more than one Pod is controlled by the Sandbox."""
        ready, before = find(new.conditions, names.READY), find(old.conditions, names.READY)
        if ready is None or (before is not None and before.reason == names.REASON_MULTIPLE_PODS):
            return
        self._events.emit(entry, "Warning", "MultiplePods", "Reconciling", ready.message)

    def status_written(self, entry: SandboxEntry, old: SandboxStatus, new: SandboxStatus) -> None:
        """Note what the published Ready reason has changed to."""
        ready, before = find(new.conditions, names.READY), find(old.conditions, names.READY)
        if ready is None or (before is not None and before.reason == ready.reason):
            return
        found = _BY_REASON.get(ready.reason)
        if found is None:
            return
        if (
            ready.reason == names.REASON_SANDBOX_EXPIRED
            and entry.view is not None
            and entry.view.shutdown_policy == names.SHUTDOWN_POLICY_DELETE
        ):
            return
        type_, reason, action, note = found
        self._events.emit(entry, type_, reason, action, note or ready.message)
