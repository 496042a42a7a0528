"""The garbage collector: what happens to objects when their owners go.

Background: dependents go once no owner is left. Foreground: the owner waits until the dependents
that block it are gone. Orphan: dependents lose the reference and stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

from lean_sandbox.local.errors import StatusError
from lean_sandbox.local.kinds import Kind
from lean_sandbox.local.store import Collection, Entry, Event
from lean_sandbox.local.write.admission import DEFINITIONS
from lean_sandbox.local.write.bodies import Deletion
from lean_sandbox.local.write.verbs import Verbs

Json = dict[str, Any]
Place = tuple[str, str]
"""Storage and key of an object."""

_FOREGROUND: Final = "foregroundDeletion"
_ORPHAN: Final = "orphan"
_BATCH: Final = 200
"""Objects looked at before other tasks get a turn."""


class GarbageCollector:
    """Follows every change; does its work in a task, as a user of its own outside the audit."""

    def __init__(self, verbs: Verbs) -> None:
        self._store = verbs.store
        self._registry = verbs.registry
        self._verbs = verbs
        self._dependents: dict[str, set[Place]] = {}
        self._queue: dict[Place, None] = {}
        # Objects with an owner that cannot be looked up, until something is defined.
        self._stuck: set[Place] = set()
        self._wake = anyio.Event()
        self._store.listeners.append(self._follow)

    def rebuild(self) -> None:
        """Take in everything that is already stored, as after a restart."""
        for collection in self._store:
            for entry in collection.scan():
                self._note((collection.storage, entry.key), entry, ())

    @property
    def is_idle(self) -> bool:
        """Say whether nothing waits to be looked at."""
        return not self._queue

    def _enqueue(self, place: Place) -> None:
        self._queue[place] = None
        self._wake.set()

    def _note(self, place: Place, entry: Entry, before: tuple[str, ...]) -> None:
        """Enter an object below its owners, and look again at those that it had."""
        for uid in entry.owners:
            self._dependents.setdefault(uid, set()).add(place)
        self._leave(place, set(before).difference(entry.owners))
        if entry.owners or entry.deleting:
            self._enqueue(place)

    def _leave(self, place: Place, owners: Iterable[str]) -> None:
        for uid in sorted(owners):
            self._dependents.get(uid, set()).discard(place)
            self._enqueue_owner(uid)

    def _enqueue_owner(self, uid: str) -> None:
        owner = self._store.uids.get(uid)
        if owner is not None:
            self._enqueue((owner[0].storage, owner[1]))

    def _follow(self, collection: Collection, event: Event) -> None:
        if collection.storage == DEFINITIONS and self._stuck:
            stuck = self._stuck
            self._stuck = set()
            for place in sorted(stuck):
                self._enqueue(place)
        place = (collection.storage, event.entry.key)
        before = () if event.prev is None else event.prev.owners
        if event.type == "DELETED":
            self._leave(place, before)
            for dependent in sorted(self._dependents.pop(event.entry.uid, ())):
                self._enqueue(dependent)
        elif collection.storage not in ("events", "leases.coordination.k8s.io"):
            self._note(place, event.entry, before)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            while self._queue:
                for _ in range(min(_BATCH, len(self._queue))):
                    place = next(iter(self._queue))
                    del self._queue[place]
                    # The object may have changed or gone; whatever is left brings an event.
                    with suppress(StatusError):
                        self._look(place)
                await checkpoint()

    def _look(self, place: Place) -> None:
        storage, key = place
        entry = self._store.collection(storage).entries.get(key)
        kind = self._registry.of_storage(storage)
        if entry is None or kind is None:
            return
        metadata = entry.load()["metadata"]
        finalizers = metadata.get("finalizers") or ()
        if metadata.get("deletionTimestamp"):
            if _ORPHAN in finalizers:
                self._orphan(kind, entry)
                return
            if _FOREGROUND in finalizers:
                self._foreground(kind, entry)
                return
        references = metadata.get("ownerReferences") or ()
        if references:
            self._attend(kind, entry, references, deleting="deletionTimestamp" in metadata)

    def _attend(self, kind: Kind, entry: Entry, references: list[Json], *, deleting: bool) -> None:
        """Delete an object all of whose owners are gone or wait for it.

        One owner that cannot be looked up, whatever became of it, and the object stays: its version
        is not served, or it is in a namespace and the object in none.
        """
        owners = []
        for reference in references:
            of = self._registry.by_kind(reference["apiVersion"], reference["kind"])
            if of is None or (of.namespaced and not entry.namespace):
                self._stuck.add((kind.storage, entry.key))
                return
            owners.append(self._owner(of, reference, entry))
        solid = [
            reference
            for reference, owner in zip(references, owners, strict=True)
            if owner is not None and not _waits_for_dependents(owner)
        ]
        if solid:
            if len(solid) < len(references):
                self._set_owners(kind, entry, solid)
            return
        if deleting:
            return
        dependents = self._living_dependents(entry.uid)
        waits = bool(dependents) and any(owner is not None for owner in owners)
        if waits and any(_waits_for_dependents(one) for _, one in dependents):
            # Its owner may be one of them: each would wait for the other.
            kept = [{**one, "blockOwnerDeletion": False} for one in references]
            self._set_owners(kind, entry, kept)
            for uid in entry.owners:
                self._enqueue_owner(uid)
        how = Deletion(policy="Foreground" if waits else None, uid=entry.uid)
        self._verbs.delete(kind, entry.namespace, entry.name, how)

    def _owner(self, kind: Kind, reference: Json, dependent: Entry) -> Entry | None:
        """Return what a reference names, None if that is gone or another object."""
        namespace = dependent.namespace if kind.namespaced else ""
        found = self._verbs.find(kind, namespace, reference["name"])
        return found if found is not None and found.uid == reference["uid"] else None

    def _set_owners(self, kind: Kind, entry: Entry, references: list[Json]) -> None:
        def change(obj: Json) -> None:
            obj["metadata"]["ownerReferences"] = references

        self._verbs.rewrite(kind, entry.namespace, entry.name, change)

    def _living_dependents(self, uid: str) -> list[tuple[Kind, Entry]]:
        found = []
        for storage, key in sorted(self._dependents.get(uid, ())):
            entry = self._store.collection(storage).entries.get(key)
            kind = self._registry.of_storage(storage)
            if entry is not None and kind is not None:
                found.append((kind, entry))
        return found

    def _foreground(self, kind: Kind, owner: Entry) -> None:
        blocked = False
        for child_kind, child in self._living_dependents(owner.uid):
            metadata = child.load()["metadata"]
            blocked = blocked or any(
                reference["uid"] == owner.uid and reference.get("blockOwnerDeletion")
                for reference in metadata.get("ownerReferences") or ()
            )
            if not metadata.get("deletionTimestamp"):
                self._enqueue((child_kind.storage, child.key))
        if not blocked:
            self._verbs.drop_finalizer(kind, owner, _FOREGROUND)

    def _orphan(self, kind: Kind, owner: Entry) -> None:
        for child_kind, child in self._living_dependents(owner.uid):
            references = child.load()["metadata"].get("ownerReferences") or []
            kept = [reference for reference in references if reference["uid"] != owner.uid]
            self._set_owners(child_kind, child, kept)
        self._verbs.drop_finalizer(kind, owner, _ORPHAN)


def _waits_for_dependents(owner: Entry) -> bool:
    return owner.deleting and _FOREGROUND in (owner.load()["metadata"].get("finalizers") or ())
