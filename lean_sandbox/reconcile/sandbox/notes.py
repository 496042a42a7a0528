"""The Events that a Sandbox's life leaves behind (changes, v1.0.4; spec, 3.13)."""

from __future__ import annotations

from typing import Protocol

from lean_sandbox.api.events import EventType
from lean_sandbox.api.wire import ObjectReference
from lean_sandbox.model import names
from lean_sandbox.model.sandbox import Condition, SandboxStatus
from lean_sandbox.watch.objects import PodEntry, SandboxEntry

__all__ = ["Notes", "Recorder"]


class Recorder(Protocol):
    """Takes an Event and never waits; see :class:`lean_sandbox.api.events.EventRecorder`."""

    def emit(
        self,
        regarding: ObjectReference,
        type_: EventType,
        reason: str,
        action: str,
        note: str,
        related: ObjectReference | None = None,
    ) -> None:
        """Queue one Event."""


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
        self._recorder = recorder

    def pod_created(self, entry: SandboxEntry, pod: PodEntry) -> None:
        """Note that the Pod was created."""
        self._emit(
            entry,
            "Normal",
            "SandboxPodCreated",
            "PodCreation",
            f'Created Pod "{pod.key.name}"',
            ObjectReference(
                apiVersion="v1",
                kind="Pod",
                name=pod.key.name,
                namespace=pod.key.namespace,
                uid=pod.uid,
            ),
        )

    def pod_create_failed(self, entry: SandboxEntry, pod_name: str, error: Exception) -> None:
        """Note that the Pod could not be created."""
        note = f'Failed to create Pod "{pod_name}": {getattr(error, "message", "") or error}'
        self._emit(entry, "Warning", "SandboxPodCreateFailed", "PodCreation", note)

    def many_pods(self, entry: SandboxEntry, old: SandboxStatus, new: SandboxStatus) -> None:
        """Note, once per episode, that more than one Pod is controlled by the Sandbox."""
        ready, before = _ready(new), _ready(old)
        if ready is None or (before is not None and before.reason == names.REASON_MULTIPLE_PODS):
            return
        self._emit(entry, "Warning", "MultiplePods", "Reconciling", ready.message)

    def status_written(self, entry: SandboxEntry, old: SandboxStatus, new: SandboxStatus) -> None:
        """Note what the published Ready reason has changed to."""
        ready, before = _ready(new), _ready(old)
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
        self._emit(entry, type_, reason, action, note or ready.message)

    def _emit(
        self,
        entry: SandboxEntry,
        type_: EventType,
        reason: str,
        action: str,
        note: str,
        related: ObjectReference | None = None,
    ) -> None:
        if self._recorder is None:
            return
        regarding = ObjectReference(
            apiVersion=names.CORE_API_VERSION,
            kind=names.SANDBOX_KIND,
            name=entry.key.name,
            namespace=entry.key.namespace,
            uid=entry.uid,
        )
        self._recorder.emit(regarding, type_, reason, action, note, related)


def _ready(status: SandboxStatus) -> Condition | None:
    for condition in status.conditions:
        if condition.type == names.READY:
            return condition
    return None
