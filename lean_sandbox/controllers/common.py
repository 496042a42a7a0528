"""What the controllers share: Events about the objects they serve, and ages of objects."""

from __future__ import annotations

from lean_sandbox.clock import Clock
from lean_sandbox.kube.events import EventRecorder, EventType
from lean_sandbox.kube.resources import ObjectReference
from lean_sandbox.model.times import parse_rfc3339
from lean_sandbox.watch.kind import Entry

# Dates of objects are whole seconds, and a response takes a while.
_CLOCKS_AGREE_S = 5.0


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


class ServerTime:
    """The time by the clock that dates objects, by our own until a date says otherwise.

    A wall clock that is apart from the server's, or is set while we run, would have young members
    replaced and claims wait for hours: so our monotonic clock counts on from the server's dates.
    """

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._zero_s = clock.now().timestamp() - clock.monotonic()

    def now_s(self) -> float:
        """Return the time now, in seconds since the epoch."""
        return self._zero_s + self._monotonic()

    def age_s(self, created_at: str) -> float:
        """Return how old an object is, at least 0.

        No object is made in the future: a date that is later than our time corrects it.
        """
        age_s = self.now_s() - parse_rfc3339(created_at).timestamp()
        if age_s < 0:
            self._zero_s -= age_s
            return 0.0
        return age_s

    def made_now(self, created_at: str) -> None:
        """Take an object that the server has just made for as young as it is."""
        age_s = self.now_s() - parse_rfc3339(created_at).timestamp()
        if abs(age_s) > _CLOCKS_AGREE_S:
            self._zero_s -= age_s
