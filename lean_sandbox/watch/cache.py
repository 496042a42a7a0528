"""The cache of one kind, fed by its watches and by the responses to our own requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import structlog

from filters import Change, ChangeDetector, Decision, EventType
from filters.detector import DELETED, recreated
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition
from lean_sandbox.model.meta import ObjectMeta, as_version
from lean_sandbox.watch.held import OwnWrites
from lean_sandbox.watch.kind import Delta, Entry, Key, Kind, key_of
from lean_sandbox.watch.shown import ShownVersions
from lean_sandbox.watch.store import Store
from lean_sandbox.watch.versions import TOMBSTONE_S, Age, VersionGate

E = TypeVar("E", bound=Entry)

log = structlog.get_logger("watch")

_KNOWN = Decision(Change.NONE, "known already", passed=False)
_CONTRADICTS = Decision(Change.COLUMNS, "contradicts what is remembered", passed=True)


class Handlers(list[Callable[[Delta[E]], None]]):
    """Handlers of every relevant change of one kind, called in this order; they must not block.

    If one raises, that is a bug: the others are still called, and the watch goes on.
    """

    def __init__(self, plural: str) -> None:
        super().__init__()
        self._plural = plural
        self.failures = 0

    def call(self, delta: Delta[E]) -> None:
        """Call every handler with a change."""
        for handler in self:
            try:
                handler(delta)
            except Exception as error:
                self.failures += 1
                log.exception(
                    "handler_failed",
                    kind=self._plural,
                    key=str(delta.key),
                    handler=getattr(handler, "__qualname__", repr(handler)),
                    error=type(error).__name__,
                )


class Cache(Store[E]):
    """A store that events and responses fill; relevant changes are handed out as deltas."""

    def __init__(
        self,
        kind: Kind[E],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        tombstone_s: float = TOMBSTONE_S,
        admits_namespace: Callable[[str], bool] | None = None,
    ) -> None:
        """``admits_namespace`` says whose objects are served here; by default all are."""
        super().__init__(kind.owner_of)
        self.kind = kind
        #: Events so far, by outcome.
        self.passed = self.dropped_known = 0
        self.dropped_unchanged = self.dropped_elsewhere = 0
        #: Called for every relevant change.
        self.handlers: Handlers[E] = Handlers(kind.name)
        #: What is news, known or ended.
        self.gate = VersionGate(monotonic, tombstone_s)
        self.listeners.append(self.gate.follow)
        #: Called with every event of an admitted namespace: the plural of its kind, its type, its
        #: metadata, and what became of it.
        self.observer: Callable[[str, EventType, ObjectMeta, Decision], None] | None = None
        self._admits_namespace = admits_namespace
        self.detector = ChangeDetector(kind.predicate)
        #: What the watch shows of the objects that somebody waits for.
        self.shown = ShownVersions()
        #: Our own writes in flight, and the events that wait for their responses.
        self.own = OwnWrites(self, self.gate, kind.name, take=self._take)

    def collect(self, into: Exposition) -> None:
        """Add the series of the kind's events."""
        resource = self.kind.name
        outcomes = ("passed", "dropped_unchanged", "dropped_known", "dropped_elsewhere")
        into.add(families.EVENTS, [((resource, name), getattr(self, name)) for name in outcomes])
        passed = sorted(self.detector.passed_by_leaf.items())
        into.add(families.PREDICATES, [((resource, leaf), number) for leaf, number in passed])
        into.one(families.HANDLER_FAILURES, self.handlers.failures, resource)

    # -- lists -----------------------------------------------------------------------------------

    def begin_list(self, namespace: str | None, *, reached: int = 0, resync: bool = False) -> None:
        """Note the cached keys, to find out which objects a list no longer has.

        ``reached`` is the version that the watch had reached. With ``resync`` every object is
        applied again, even at the cached version.
        """
        entries = [self._entries[key] for key in self.keys(namespace)]
        self.gate.begin_list(namespace, entries, reached=reached, resync=resync)
        # An event that waits for a write to end is older, and its object may have ended since.
        self.own.drop(namespace)

    def begin_page(self, namespace: str | None, version: str) -> None:
        """Note the version of a list; if it is too low, the store was restored."""
        if self.gate.begin_page(namespace, version):
            self._forget_versions(namespace)

    def _forget_versions(self, namespace: str | None) -> None:
        """Accept everything that a list shows from now on: the store was restored from a backup."""
        log.warning("store_restored", kind=self.kind.resource.plural, namespace=namespace or "*")
        for key in self.keys(namespace):
            self.forget_version(key)

    def forget_version(self, key: Key) -> None:
        """Accept the next thing shown of an object as news, and as its complete state."""
        entry = self._entries.get(key)
        if entry is not None:
            self.advance(entry, 0, ())

    def present(self, namespace: str, name: str) -> None:
        """Note that a list contains an object, even if the object itself cannot be applied."""
        self.gate.present(Key(namespace, name))

    def end_list(self, namespace: str | None) -> None:
        """Report as deleted the cached objects that are not in the complete list.

        Entries of a version above that of the list stay: they come from responses to our own
        requests, which the list cannot contain.
        """
        missing, listed_at = self.gate.end_list(namespace)
        for key in missing:
            entry = self._entries.get(key)
            if entry is None or 0 < listed_at < entry.version:
                continue
            row = ObjectMeta(name=key.name, namespace=key.namespace, uid=entry.uid)
            self._observe(EventType.DELETED, row, self.end(key, listed_at, row))

    # -- events ----------------------------------------------------------------------------------

    def full(self, event_type: EventType, item: Any, *, initial: bool) -> None:
        """Apply an event, or an item of a list, with the full object."""
        row = self.kind.row_of(item)
        self.apply(event_type, row, item, initial=initial)
        if self.gate.is_listing(row.namespace):
            self.present(row.namespace, row.name)

    def apply(
        self, event_type: EventType, row: ObjectMeta, item: Any = None, *, initial: bool = False
    ) -> None:
        """Apply an event with metadata, perhaps columns, perhaps the full object."""
        if self.shown:
            self.shown.note(row.namespace, row.name, as_version(row.resource_version))
        if self.own and self._hold(event_type, row, item):
            return
        self._take(event_type, row, item, initial=initial)

    def _hold(self, event_type: EventType, row: ObjectMeta, item: Any) -> bool:
        # Items of a list never wait: they are compared with the cache when the list ends.
        if event_type is EventType.DELETED or self.gate.is_listing(row.namespace):
            return False
        return self.own.hold((event_type, row, item))

    def _take(
        self, event_type: EventType, row: ObjectMeta, item: Any, *, initial: bool = False
    ) -> None:
        if self._admits_namespace is not None and not self._admits_namespace(row.namespace):
            self.dropped_elsewhere += 1
            return
        if event_type is EventType.DELETED:
            decision = self._take_deleted(row)
        else:
            decision = self._judge(row, item, initial=initial)
        self._observe(event_type, row, decision)

    def _observe(self, event_type: EventType, row: ObjectMeta, decision: Decision) -> None:
        if self.observer is not None:
            self.observer(self.kind.resource.plural, event_type, row, decision)

    def _judge(self, row: ObjectMeta, item: Any, *, initial: bool) -> Decision:
        key = key_of(row.namespace, row.name)
        old = self._entries.get(key)
        version = as_version(row.resource_version)
        if old is not None and 0 < version <= old.version:
            age = self.gate.of_old_event(old, version, is_whole=item is not None)
            if age is Age.RESTORED:
                self._forget_versions(self.gate.scope_of(key.namespace))
            elif age is Age.NEWS:
                self.gate.half_known.discard(key)
            else:
                self.dropped_known += 1
                if age is Age.LISTED_AGAIN:
                    self._compare(row, item, old)
                return _KNOWN
        kept = old if old is not None and old.uid == row.uid else None
        decision, seen = self.detector.examine(() if kept is None else kept.seen, row)
        if old is not None and kept is None:
            decision = recreated(old.uid, row.uid)
        suspect = kept is not None and self.kind.suspects(row, kept)
        if kept is not None and not decision.passed and not suspect:
            self.advance(kept, version, seen)
            self.dropped_unchanged += 1
            return decision
        self.passed += 1
        new = self.kind.build_on(kept, row, item)
        self.advance(new, version, seen)
        self.put(new)
        change = decision.change or Change.COLUMNS
        self.handlers.call(Delta(key, change, old, new, initial=initial))
        return decision if decision.passed else _CONTRADICTS

    def _compare(self, row: ObjectMeta, item: Any, old: E) -> None:
        """Apply an object of a resync at the cached version; the delta says whether it differs."""
        new = self.kind.build(row, item, old)
        self.advance(new, old.version, old.seen)
        self.put(new)
        is_same = new == old
        change = Change.NONE if is_same else Change.COLUMNS
        self.handlers.call(Delta(new.key, change, old, new, initial=is_same))

    def _take_deleted(self, row: ObjectMeta) -> Decision:
        key = key_of(row.namespace, row.name)
        old = self._entries.get(key)
        version = as_version(row.resource_version)
        if old is not None and (old.uid != row.uid or 0 < version < old.version):
            # The end of an object whose successor is known already, or of one seen alive since:
            # it had stopped matching the selector for a while.
            self.dropped_known += 1
            if old.uid != row.uid:
                self.gate.note_end(row.uid, version)
            return _KNOWN
        self.passed += 1
        return self.end(key, version, row)

    def end(self, key: Key, version: int, row: ObjectMeta) -> Decision:
        """Remove an object that ended, or left the selector, at a version, and call handlers."""
        old = self.remove(key)
        self.gate.note_end(row.uid, version)
        if old is None:
            # Never seen alive, but its end may free a name that is waited for.
            old = self.kind.build(row, None, None)
        saw_deletion = row.deletion_timestamp is not None
        self.handlers.call(Delta(key, Change.GONE, old, None, saw_deletion=saw_deletion))
        return DELETED

    # -- for responses to our own requests ---------------------------------------------------------

    def forget(self, key: Key, uid: str) -> None:
        """Remove an object that a request has shown to be gone, unless another took its name.

        Handlers are called, as no event may follow: a list after a gap misses only cached objects.
        """
        entry = self._entries.get(key)
        if entry is not None and entry.uid == uid:
            self.remove(key)
            self.gate.note_end(uid, 0)
            self.handlers.call(Delta(key, Change.GONE, entry, None, saw_deletion=True))

    def selects(self, row: ObjectMeta) -> bool:
        """Return whether objects with these labels are watched."""
        return self.kind.label_selector.matches(row.labels)
