"""Our own writes in flight, and the events that wait for their responses.

An event that comes before the response to the write that caused it would only lead to an idle
reconcile, or have a new object fetched that the response shows as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import anyio
import msgspec
import structlog

from filters import EventType
from lean_sandbox.model.meta import ObjectMeta, as_version
from lean_sandbox.watch.kind import Entry, Key
from lean_sandbox.watch.store import Store
from lean_sandbox.watch.versions import VersionGate

log = structlog.get_logger("watch")

_NO_PATCH: Final[Mapping[str, Any]] = {}
# Fields of entries, and the field of a patch that changes each.
_WRITTEN_AS: Final = {
    "is_deleting": "deletionTimestamp",
    "owner": "ownerReferences",
    "generation": "spec",
    "status": "status",
}

Event = tuple[EventType, ObjectMeta, Any]
# An object, by its key and uid; the uid is "" for one that is being created under this name.
_Object = tuple[Key, str]


class _NewObject(msgspec.Struct):
    """The newest event of an object that a create in flight may be about to show."""

    event: Event
    # The creates that were in flight when its first event came and still are.
    creates: set[object]


class OwnWrites:
    """Our own writes in flight to objects of one kind; only the newest event of an object waits.

    False without any: then no event waits.
    ``take`` is called with each event that has waited, unless its object has ended meanwhile.
    """

    def __init__(
        self,
        store: Store[Any],
        gate: VersionGate,
        plural: str,
        *,
        take: Callable[[EventType, ObjectMeta, Any], None],
    ) -> None:
        self._store = store
        self._gate = gate
        self._plural = plural
        self._take = take
        # As merge patches, by the object written.
        self._writes: dict[_Object, list[Mapping[str, Any]]] = {}
        self._held: dict[_Object, Event] = {}
        # Set when the last write to an object has ended, for those who wait for that.
        self._ends: dict[_Object, anyio.Event] = {}
        # Creates whose names the server generates, by namespace and uid of the owner.
        self._creates: dict[tuple[str, str], set[object]] = {}
        self._new: dict[_Object, _NewObject] = {}

    def __bool__(self) -> bool:
        return bool(self._writes or self._creates)

    @contextmanager
    def writing(
        self, key: Key, uid: str = "", wrote: Mapping[str, Any] = _NO_PATCH
    ) -> Iterator[None]:
        """Hold the events of an object while the body of the ``with`` writes or creates it.

        ``wrote`` is what it writes, as a merge patch. The newest event is applied after the last of
        several requests. Events of an object other than that of ``uid`` do not wait; a create has
        no uid yet.
        """
        own = (key, uid)
        self._writes.setdefault(own, []).append(wrote)
        try:
            yield
        finally:
            self._writes[own].remove(wrote)
            if not self._writes[own]:
                del self._writes[own]
                if (event := self._held.pop(own, None)) is not None:
                    self._release(event)
                if (end := self._ends.pop(own, None)) is not None:
                    end.set()

    async def ended(self, entry: Entry) -> None:
        """Wait until no write to an object is in flight; each has a deadline of its own."""
        own = (entry.key, entry.uid)
        while own in self._writes:
            await self._ends.setdefault(own, anyio.Event()).wait()

    @contextmanager
    def creating(self, namespace: str, owner: str) -> Iterator[None]:
        """Hold events while the body of the ``with`` creates an object of a generated name.

        Held are the events of objects in the namespace that are not known yet and whose controller
        has the uid ``owner``. An object waits until a response has shown it, or until all creates
        have ended that were in flight at its first event: a later create cannot have made it.
        """
        create = object()
        creates = self._creates.setdefault((namespace, owner), set())
        creates.add(create)
        try:
            yield
        finally:
            creates.remove(create)
            if not creates:
                del self._creates[namespace, owner]
            self._end(create)

    def _end(self, create: object) -> None:
        for own, new in list(self._new.items()):
            new.creates.discard(create)
            # What was released before may have shown the end of this one.
            if own in self._new and (not new.creates or own[0] in self._store):
                del self._new[own]
                self._release(new.event)

    def _release(self, event: Event) -> None:
        row = event[1]
        if self._gate.has_ended(row.uid, as_version(row.resource_version)):
            # It would bring the object back.
            return
        try:
            self._take(*event)
        except Exception as error:
            # An error here must not end the reconcile whose request it has waited for.
            log.exception(
                "object_not_understood",
                kind=self._plural,
                object=f"{row.namespace}/{row.name}",
                version=row.resource_version,
                error=type(error).__name__,
            )

    def hold(self, event: Event) -> bool:
        """Keep an event if it has to wait, and return whether it has."""
        row = event[1]
        key = Key(row.namespace, row.name)
        own = (key, row.uid)
        for written in (own, (key, "")):
            if written in self._writes:
                self._held[written] = event
                self._new.pop(own, None)
                return True
        if (new := self._new.get(own)) is not None:
            new.event = event
            return True
        owner = row.controller
        creates = owner and self._creates.get((row.namespace, owner.uid))
        if not creates or key in self._store:
            return False
        self._new[own] = _NewObject(event, set(creates))
        return True

    def drop(self, namespace: str | None) -> None:
        """Drop the events that wait, of a namespace or of all: a list shows what is true."""
        for waiting in (self._held, self._new):
            for own in [own for own in waiting if namespace in (None, own[0].namespace)]:
                del waiting[own]

    def explain(self, before: Entry, after: Entry) -> bool:
        """Return whether the writes in flight explain all that differs between two entries."""
        wrote = self._writes.get((after.key, after.uid), ())
        ours = {field for patch in wrote for field in patch}
        metadata = [patch["metadata"] for patch in wrote if "metadata" in patch]
        ours |= {field for each in metadata for field in each}
        for field, part in _WRITTEN_AS.items():
            was = getattr(before, field, None)
            now = getattr(after, field, None)
            if was != now and part not in ours:
                return False
        for field in ("labels", "annotations"):
            was = getattr(before, field, None) or {}
            now = getattr(after, field, None) or {}
            values = [each.get(field) or {} for each in metadata]
            for key in was.keys() | now.keys() if was != now else ():
                value = now.get(key)
                is_ours = any(key in one and one[key] == value for one in values)
                if was.get(key) != value and not is_ours:
                    return False
        return True
