"""From a decoded object to the cache and, when it matters, to a notice.

The order of the tests is the order of their cost: is the version one we know already (an answer to
our own request, or a look that was newer), does a predicate see a relevant change, does the row
contradict what is remembered. Only what passes builds a new entry and notifies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from filters import Change, EventType, Filter
from lean_sandbox.watch.kind import Kind, Notice
from lean_sandbox.watch.objects import row_of
from lean_sandbox.watch.store import Entry, Key, Store, key_of
from lean_sandbox.watch.wire import MetaRow, as_version

__all__ = ["Intake", "IntakeStatistics"]

E = TypeVar("E", bound=Entry)

_NOTHING = Change(0)


@dataclass(slots=True)
class IntakeStatistics:
    """What became of the events of one kind."""

    seen: int = 0
    passed: int = 0
    dropped_known: int = 0
    dropped_unchanged: int = 0
    deletes_synthesised: int = 0


class Intake(Generic[E]):
    """Feeds one store from any number of watches and from our own answers.

    ``notify`` is called for every relevant change and must not wait.
    """

    def __init__(
        self,
        kind: Kind[E],
        store: Store[E],
        notify: Callable[[Notice[E]], None],
        *,
        max_objects: int = 1_000_000,
    ) -> None:
        self.kind = kind
        self.store = store
        self._notify = notify
        self._filter = Filter(kind.predicate, max_objects=max_objects)
        self._listed: dict[str | None, set[Key]] = {}
        self.statistics = IntakeStatistics()

    @property
    def filter(self) -> Filter:
        """The predicate with its memory, for statistics and explanations."""
        return self._filter

    def begin_list(self, namespace: str | None) -> None:
        """Start collecting which objects a list holds."""
        self._listed[namespace] = set()

    def end_list(self, namespace: str | None) -> None:
        """Deliver as deleted whatever the complete list did not hold."""
        listed = self._listed.pop(namespace, set())
        for key in self.store.keys(namespace):
            if key in listed:
                continue
            self.statistics.deletes_synthesised += 1
            self._gone(key)

    def row(self, event_type: EventType, row: MetaRow) -> None:
        """Take an event that carries metadata and perhaps columns."""
        self._take(event_type, row, None, initial=False)

    def full(self, event_type: EventType, item: Any, *, initial: bool) -> None:
        """Take an event, or a list's item, that carries the whole object."""
        row = self._row_of_full(item)
        for namespace in (None, row.namespace):
            listed = self._listed.get(namespace)
            if listed is not None:
                listed.add(key_of(row.namespace, row.name))
        self._take(event_type, row, item, initial=initial)

    def learn_full(self, item: Any) -> tuple[E, Change]:
        """Remember a whole object that an answer of the server showed, without notifying.

        Events of the same version, when they come, are then known already. Returns the entry and
        what the predicates see changed against what was remembered.
        """
        return self._learn(self._row_of_full(item), item)

    def learn_row(self, row: MetaRow) -> tuple[E, Change]:
        """Remember metadata that an answer of the server showed, without notifying."""
        return self._learn(row, None)

    def _row_of_full(self, item: Any) -> MetaRow:
        row = row_of(item.metadata)
        if self.kind.columns_of is not None:
            row.columns = self.kind.columns_of(item)
        return row

    def _learn(self, row: MetaRow, item: Any) -> tuple[E, Change]:
        key = key_of(row.namespace, row.name)
        old = self.store.get(key)
        same = old is not None and old.uid == row.uid
        if same and old is not None and as_version(row.resource_version) < old.version:
            # A watch was faster than the answer. What it showed is newer, and has been notified.
            return old, _NOTHING
        kept = old if same else None
        new = (
            self.kind.from_row(row, kept) if item is None else self.kind.from_full(item, row, kept)
        )
        if old is not None and not same:
            self._filter.forget(old.uid)
        verdict = self._filter.admit(EventType.MODIFIED, row)
        self.store.put(new)
        return new, verdict.change if verdict.passed else _NOTHING

    def forget(self, key: Key, uid: str) -> None:
        """Drop an object that a request has shown to be gone, unless another took its name."""
        entry = self.store.get(key)
        if entry is not None and entry.uid == uid:
            self.store.remove(key)
            self._filter.forget(uid)

    def _take(self, event_type: EventType, row: MetaRow, item: Any, *, initial: bool) -> None:
        statistics = self.statistics
        statistics.seen += 1
        key = key_of(row.namespace, row.name)
        old = self.store.get(key)
        if event_type is EventType.DELETED:
            if old is not None and old.uid != row.uid:
                # The end of an object whose successor is known already.
                statistics.dropped_known += 1
                return
            statistics.passed += 1
            self._gone(key, row)
            return
        version = as_version(row.resource_version)
        same = old is not None and old.uid == row.uid
        if same and old is not None and 0 < version <= old.version:
            statistics.dropped_known += 1
            return
        verdict = self._filter.admit(event_type, row)
        suspect = same and old is not None and self.kind.suspects(row, old)
        if same and old is not None and not verdict.passed and not suspect:
            old.version = version
            statistics.dropped_unchanged += 1
            return
        statistics.passed += 1
        kept = old if same else None
        new = (
            self.kind.from_row(row, kept) if item is None else self.kind.from_full(item, row, kept)
        )
        if not same and old is not None:
            self._filter.forget(old.uid)
        self.store.put(new)
        change = verdict.change
        if suspect:
            change |= Change.COLUMNS
        self._notify(
            Notice(
                key, change, old, new, initial=initial, token=f"{row.uid}@{row.resource_version}"
            )
        )

    def _gone(self, key: Key, row: MetaRow | None = None) -> None:
        old = self.store.remove(key)
        uid = old.uid if old is not None else row.uid if row is not None else ""
        self._filter.forget(uid)
        if old is None and row is not None:
            # Never seen alive, yet its end may free a name somebody waits for.
            old = self.kind.from_row(row, None)
        saw_deletion = row is not None and row.deletion_timestamp is not None
        self._notify(Notice(key, Change.GONE, old, None, saw_deletion=saw_deletion))
