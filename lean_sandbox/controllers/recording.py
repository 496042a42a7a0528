"""How the reconcilers leave Events about the objects they serve."""

from __future__ import annotations

from lean_sandbox.kube.events import EventRecorder, EventType
from lean_sandbox.kube.resources import ObjectReference
from lean_sandbox.watch.kind import Entry


def reference_to(entry: Entry, api_version: str, kind: str) -> ObjectReference:
    """Return what an Event names a cached object by."""
    return ObjectReference(
        apiVersion=api_version,
        kind=kind,
        name=entry.key.name,
        namespace=entry.key.namespace,
        uid=entry.uid,
    )


class ObjectEvents:
    """The Events about objects of one kind; silent without a recorder."""

    def __init__(self, recorder: EventRecorder | None, api_version: str, kind: str) -> None:
        self._recorder = recorder
        self._api_version = api_version
        self._kind = kind

    def emit(
        self,
        entry: Entry,
        type_: EventType,
        reason: str,
        action: str,
        note: str,
        related: ObjectReference | None = None,
    ) -> None:
        """Queue one Event about an object."""
        if self._recorder is not None:
            regarding = reference_to(entry, self._api_version, self._kind)
            self._recorder.emit(regarding, type_, reason, action, note, related)
