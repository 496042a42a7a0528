"""From a decoded object to the cache and, when it matters, to a notice.

The order of the tests is the order of their cost: is the version one we know already (an answer to
our own request, or a look that was newer), does a predicate see a relevant change, does the row
contradict what is remembered. Only what passes builds a new entry and notifies.

Versions of one server are comparable numbers, so that two ways of learning of an object (its watch
and the answers to our own requests) never lead backwards, whichever of them is late.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypedDict, TypeVar

import structlog

from filters import Change, ChangeDetector, Decision, EventType
from lean_sandbox.clock import Clock
from lean_sandbox.watch.kind import Delta, Kind
from lean_sandbox.watch.rows import row_of
from lean_sandbox.watch.store import Entry, Key, Store, key_of
from lean_sandbox.watch.tombstones import KEPT_S, Tombstones
from lean_sandbox.watch.wire import MetaRow, as_version

E = TypeVar("E", bound=Entry)

log = structlog.get_logger("watch")

Told = Callable[[str, EventType, MetaRow, Decision], None]
"""Is told of an event: the plural of its kind, its type, what it showed, what was made of it."""

_NOTHING = Change(0)
_KNOWN = Decision(_NOTHING, "known already", passed=False)
_ELSEWHERE = Decision(_NOTHING, "in a namespace of another shard", passed=False)
_CONTRADICTS = Decision(Change.COLUMNS, "contradicts what is remembered", passed=True)


class IntakeTiming(TypedDict):
    """How an cache tells the time, and how long it keeps tombstones."""

    monotonic: Callable[[], float]
    tombstones_s: float


def cache_timing(clock: Clock, request_timeout_s: float) -> IntakeTiming:
    """Return the timing for requests that may take so long, and be sent again after a 401."""
    return {"monotonic": clock.monotonic, "tombstones_s": max(KEPT_S, 2.0 * request_timeout_s)}


class _Take(Protocol):
    def __call__(
        self, event_type: EventType, row: MetaRow, item: Any, *, initial: bool
    ) -> Decision: ...


@dataclass(slots=True)
class CacheStatistics:
    """What became of the events of one kind."""

    seen: int = 0
    passed: int = 0
    dropped_known: int = 0
    dropped_unchanged: int = 0
    dropped_elsewhere: int = 0
    deletes_synthesised: int = 0
    handler_failures: int = 0


class Cache(Generic[E]):
    """Feeds one store from any number of watches and from our own answers.

    Each of ``handlers`` is called for every relevant change and must not wait. One that raises has
    a bug: the others are called all the same, and the watch goes on.
    """

    def __init__(
        self,
        kind: Kind[E],
        store: Store[E],
        *handlers: Callable[[Delta[E]], None],
        monotonic: Callable[[], float] = time.monotonic,
        tombstones_s: float = KEPT_S,
    ) -> None:
        """Feed ``store``; an answer may come up to ``tombstones_s`` after the end it missed."""
        self.kind = kind
        self.store = store
        self.handlers = handlers
        self._detector = ChangeDetector(kind.predicate)
        # By namespace whose list is under way: what was known before and has not been listed yet.
        self._missing: dict[str | None, set[Key]] = {}
        # By the same: the newest version that was known when the list began.
        self._newest: dict[str | None, int] = {}
        self._ended: Tombstones[str] = Tombstones(monotonic, kept_s=tombstones_s)
        # What is being made or written by ourselves: by how many requests, and what has come of it.
        self._expected: Counter[Key] = Counter()
        self._held: dict[Key, tuple[EventType, MetaRow, Any]] = {}
        # The lists under way that are compared with what is remembered.
        self._resyncing: set[str | None] = set()
        self._handle: _Take = self._take
        self._told: Told | None = None
        self.admits_namespace: Callable[[str], bool] = lambda _namespace: True
        self.statistics = CacheStatistics()

    @property
    def filter(self) -> ChangeDetector:
        """The predicate with its counters; the fingerprints are in the entries."""
        return self._detector

    def follow(self, told: Told) -> None:
        """Tell of every event from now on. Who never asks for it does not pay for it either."""
        take, plural = self._handle, self.kind.resource.plural

        def followed(event_type: EventType, row: MetaRow, item: Any, *, initial: bool) -> Decision:
            verdict = take(event_type, row, item, initial=initial)
            told(plural, event_type, row, verdict)
            return verdict

        self._told = told
        self._handle = followed

    def narrow(self, admits: Callable[[str], bool]) -> None:
        """Take in no more than the namespaces for which ``admits`` is true; before any event."""
        take = self._handle
        self.admits_namespace = admits

        def narrowed(event_type: EventType, row: MetaRow, item: Any, *, initial: bool) -> Decision:
            if admits(row.namespace):
                return take(event_type, row, item, initial=initial)
            self.statistics.seen += 1
            self.statistics.dropped_elsewhere += 1
            return _ELSEWHERE

        self._handle = narrowed

    def begin_list(self, namespace: str | None, *, resync: bool = False) -> None:
        """Note what is known, to find out what a list no longer holds.

        With ``resync`` every object is taken in anew, also at the version that is known.
        """
        known = set(self.store.keys(namespace))
        self._missing[namespace] = known
        self._resyncing.discard(namespace)
        if resync:
            self._resyncing.add(namespace)
        versions = (entry.version for entry in map(self.store.get, known) if entry is not None)
        self._newest[namespace] = max(versions, default=0)

    def went_back(self, namespace: str | None, version: str) -> bool:
        """Tell whether a list shows a restored store; then no version known so far counts.

        The list was asked for after all that was known by then had been written.
        """
        if not 0 < as_version(version) < self._newest.get(namespace, 0):
            return False
        self._newest[namespace] = 0
        for entry in map(self.store.get, self.store.keys(namespace)):
            if entry is not None:
                entry.version, entry.seen = 0, ()
        return True

    def end_list(self, namespace: str | None, version: str = "") -> None:
        """Deliver as deleted what was known and is not in the complete list of this version.

        What an answer to our own request has shown at a later version is left alone: the list
        cannot know of it.
        """
        self._resyncing.discard(namespace)
        listed_at = as_version(version)
        self._newest.pop(namespace, None)
        for key in sorted(self._missing.pop(namespace, ())):
            entry = self.store.get(key)
            if entry is None or 0 < listed_at < entry.version:
                continue
            self.statistics.deletes_synthesised += 1
            verdict = self._gone(key, listed_at)
            if self._told is not None:
                row = MetaRow(name=key.name, namespace=key.namespace, uid=entry.uid)
                self._told(self.kind.resource.plural, EventType.DELETED, row, verdict)

    def present(self, namespace: str, name: str) -> None:
        """Note that a list holds an object, whatever else could be read of it."""
        key = Key(namespace, name)
        for scope in (None, namespace):
            missing = self._missing.get(scope)
            if missing:
                missing.discard(key)

    def row(self, event_type: EventType, row: MetaRow) -> None:
        """Take an event that carries metadata and perhaps columns."""
        self._take_or_hold(event_type, row, None)

    def full(self, event_type: EventType, item: Any, *, initial: bool) -> None:
        """Take an event, or a list's item, that carries the whole object."""
        row = self._row_of_full(item)
        if self._missing:
            # What a list shows is never held: it is compared with what is known by the list's end.
            self.present(row.namespace, row.name)
            self._handle(event_type, row, item, initial=initial)
        else:
            self._take_or_hold(event_type, row, item)

    @contextmanager
    def expect_own_write(self, key: Key) -> Iterator[None]:
        """Hold the events of an object while the body of the ``with`` creates or writes it.

        An event that is faster than the response says nothing that the response does not: taken
        first it would only wake passes that find nothing. The newest of them is taken when the
        last of several requests has ended. A deletion is never held.
        """
        self._expected[key] += 1
        try:
            yield
        finally:
            self._expected[key] -= 1
            if not self._expected[key]:
                del self._expected[key]
                held = self._held.pop(key, None)
                if held is not None:
                    self._handle(*held, initial=False)

    def _take_or_hold(self, event_type: EventType, row: MetaRow, item: Any) -> None:
        if self._expected and event_type is not EventType.DELETED:
            key = Key(row.namespace, row.name)
            if key in self._expected:
                self._held[key] = (event_type, row, item)
                return
        self._handle(event_type, row, item, initial=False)

    def apply_fetched(self, item: Any) -> E:
        """Take in the whole object that a GET has returned, and return what is known then.

        Whatever the answer shows that no event has shown yet is notified as an event would be: when
        the event of that version comes, it is known already. An answer that is older than the
        newest event is not taken in, and is notified, so that whoever depends on the object looks
        again: the event may have been dropped because of what the answer was expected to show.
        """
        return self._looked(self._row_of_full(item), item)

    def apply_fetched_metadata(self, row: MetaRow) -> E:
        """Take in metadata that a GET has returned, as :meth:`apply_fetched` does."""
        return self._looked(row, None)

    def _looked(self, row: MetaRow, item: Any) -> E:
        before = self.store.get(key_of(row.namespace, row.name))
        entry, change = self._learn(row, item)
        if entry is before:
            self._tell(Delta(entry.key, Change.COLUMNS, before, entry))
        elif change and change is not Change.GONE:
            self._tell(Delta(entry.key, change, before, entry))
        return entry

    def apply_not_found(self, held: E | None) -> None:
        """Forget what was ``held`` of an object when the GET was sent that has found none.

        What has been learned since then is newer than the answer and stays.
        """
        if held is not None:
            self.forget(held.key, held.uid)

    def apply_response(self, item: Any) -> tuple[E, Change]:
        """Remember a whole object as the answer to a write of ours shows it, without notifying.

        Events of the same version, when they come, are then known already. Returns the entry and
        what the predicates see changed against what was remembered. An answer that was overtaken
        changes nothing: the entry returned is then the newer one, perhaps of a successor with
        another uid, or (with GONE) one that is not remembered because its end has been seen.
        """
        return self._learn(self._row_of_full(item), item)

    def apply_metadata_response(self, row: MetaRow) -> tuple[E, Change]:
        """Remember metadata that the answer to a write shows, as :meth:`apply_response` does."""
        return self._learn(row, None)

    def apply_create_response(self, row: MetaRow) -> E:
        """Remember what a create has made, of which its answer shows the metadata alone.

        The watch's word on this very version is heard as well: it may show what the answer does
        not, as a Pod that is held back by scheduling gates from its first moment.
        """
        new, _ = self._learn(row, None, hears_again=True)
        held = self.store.get(new.key)
        return held if held is not None and held.uid == new.uid else new

    def forget(self, key: Key, uid: str) -> None:
        """Drop an object that a request has shown to be gone, unless another took its name.

        Its end is notified: no event may tell of it any more, for a list that follows a gap misses
        only what is remembered.
        """
        entry = self.store.get(key)
        if entry is not None and entry.uid == uid:
            self.store.remove(key)
            self._ended.add(uid, 0)
            self._tell(Delta(key, Change.GONE, entry, None, saw_deletion=True))

    def _row_of_full(self, item: Any) -> MetaRow:
        row = row_of(item.metadata)
        if self.kind.columns_of is not None:
            row.columns = self.kind.columns_of(item)
        return row

    def _build(self, row: MetaRow, item: Any, kept: E | None) -> E:
        if item is None:
            return self.kind.from_row(row, kept)
        return self.kind.from_full(item, row, kept)

    def _put(self, new: E, old: E | None) -> None:
        self._ended.discard(new.uid)
        if old is not None and old.uid != new.uid:
            self._ended.add(old.uid, 0)
        self.store.put(new)

    def _learn(self, row: MetaRow, item: Any, *, hears_again: bool = False) -> tuple[E, Change]:
        old = self.store.get(key_of(row.namespace, row.name))
        if old is not None and 0 < as_version(row.resource_version) < old.version:
            # A watch was faster than the answer. What it showed is newer, and has been notified.
            return old, _NOTHING
        kept = old if old is not None and old.uid == row.uid else None
        new = self._build(row, item, kept)
        if kept is None and self._ended.covers(new.uid, new.version):
            # The object ended while the answer was on its way: nothing would ever remove it again.
            return new, Change.GONE
        if self.kind.admits is not None and not self.kind.admits(row.labels):
            # It has left the selector; the watch, which tells that by a delete of its own version,
            # would be taken for late.
            if kept is not None:
                self.store.remove(kept.key)
            self._ended.add(row.uid, new.version)
            return new, Change.GONE
        change, new.seen = self._detector.update_baseline(
            (kept.seen or None) if kept else None, row
        )
        self._put(new, old)
        if hears_again:
            new.version -= 1
        return new, change

    def _take(self, event_type: EventType, row: MetaRow, item: Any, *, initial: bool) -> Decision:
        statistics = self.statistics
        statistics.seen += 1
        key = key_of(row.namespace, row.name)
        old = self.store.get(key)
        version = as_version(row.resource_version)
        if event_type is EventType.DELETED:
            return self._take_deleted(key, row, version, old)
        if old is not None and 0 < version <= old.version:
            # Known from an answer, or the state of a predecessor of what an answer has shown.
            statistics.dropped_known += 1
            if item is not None and version == old.version and self._is_resyncing(key):
                self._compare(row, item, old)
            return _KNOWN
        kept = old if old is not None and old.uid == row.uid else None
        verdict, seen = self._judge(row, old, kept)
        suspect = kept is not None and self.kind.suspects(row, kept)
        if kept is not None and not verdict.passed and not suspect:
            kept.version = version
            kept.seen = seen
            statistics.dropped_unchanged += 1
            return verdict
        statistics.passed += 1
        new = self._build(row, item, kept)
        new.seen = seen
        self._put(new, old)
        change = verdict.change
        if suspect:
            change |= Change.COLUMNS
        self._tell(
            Delta(key, change, old, new, initial=initial, token=f"{row.uid}@{row.resource_version}")
        )
        return verdict if verdict.passed else _CONTRADICTS

    def _is_resyncing(self, key: Key) -> bool:
        return bool(self._resyncing) and not self._resyncing.isdisjoint((None, key.namespace))

    def _compare(self, row: MetaRow, item: Any, old: E) -> None:
        """Remember a listed object anew, and tell of it whether or not it is as remembered."""
        new = self._build(row, item, old)
        new.seen = old.seen
        self.store.put(new)
        is_same = bool(new == old)
        change = _NOTHING if is_same else Change.COLUMNS
        self._tell(Delta(new.key, change, old, new, initial=is_same))

    def _tell(self, notice: Delta[E]) -> None:
        """Call the handlers. The object is in the store by now, where every later look finds it."""
        for handler in self.handlers:
            try:
                handler(notice)
            except Exception as error:
                self.statistics.handler_failures += 1
                log.exception(
                    "handler_failed",
                    kind=self.kind.resource.plural,
                    key=str(notice.key),
                    handler=getattr(handler, "__qualname__", repr(handler)),
                    error=type(error).__name__,
                )

    def _judge(
        self, row: MetaRow, old: E | None, kept: E | None
    ) -> tuple[Decision, tuple[Hashable, ...]]:
        if kept is not None and kept.seen:
            return self._detector.examine(kept.seen, row)
        if old is not None and kept is None:
            return self._detector.recreated(old.uid, row)
        return self._detector.first_seen(row)

    def _take_deleted(self, key: Key, row: MetaRow, version: int, old: E | None) -> Decision:
        if old is not None and (old.uid != row.uid or 0 < version < old.version):
            # The end of an object whose successor is known already, or one that has since been
            # shown alive: it had stopped matching the selector for a while.
            self.statistics.dropped_known += 1
            return _KNOWN
        self.statistics.passed += 1
        return self._gone(key, version, row)

    def _gone(self, key: Key, version: int, row: MetaRow | None = None) -> Decision:
        old = self.store.remove(key)
        # What waits for the end of a write would bring it back.
        self._held.pop(key, None)
        verdict = self._detector.deleted()
        if old is not None:
            self._ended.add(old.uid, version)
        elif row is not None:
            self._ended.add(row.uid, version)
            # Never seen alive, yet its end may free a name somebody waits for.
            old = self.kind.from_row(row, None)
        saw_deletion = row is not None and row.deletion_timestamp is not None
        self._tell(Delta(key, Change.GONE, old, None, saw_deletion=saw_deletion))
        return verdict
