"""What one watch event costs in each representation, step by step, beside ``json.loads``.

The steps are those of the controller: cut the bytes into lines, decode and prune, let the
predicate judge, build the entry and put it into the cache. The last one is paid only by events that
pass; most do not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from filters import EventType, Filter
from lean_sandbox.bench.holder import POD_FIELDS, pick
from lean_sandbox.bench.lines import pod_lines
from lean_sandbox.clock import Clock
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import key_of
from lean_sandbox.watch.lines import LineSplitter
from lean_sandbox.watch.objects import PodEntry, row_of
from lean_sandbox.watch.representation import Representation
from lean_sandbox.watch.resources.kinds import pods
from lean_sandbox.watch.wire import MetaRow, WatchLine, column_positions

T = TypeVar("T")

_OBJECTS: Final = 300
_CHUNK_BYTES: Final = 64 * 1024
_REPEATS: Final = 5


class EventCost(msgspec.Struct, frozen=True):
    """Microseconds of each step for one event of a Pod in one representation."""

    representation: str
    line_bytes: int
    split_us: float
    decode_us: float
    predicate_us: float
    cache_us: float

    @property
    def dropped_us(self) -> float:
        """What an event costs in which nothing relevant has changed."""
        return self.split_us + self.decode_us + self.predicate_us

    @property
    def passed_us(self) -> float:
        """What an event costs that passes."""
        return self.dropped_us + self.cache_us


class LoadsCost(msgspec.Struct, frozen=True):
    """Microseconds of decoding one full line in another way."""

    way: str
    decode_us: float


class EventReport(msgspec.Struct, frozen=True):
    """Everything that ``bench events`` measured."""

    events: list[EventCost]
    others: list[LoadsCost]


class _FullLine(msgspec.Struct, Generic[T]):
    type: str
    object: T


def measure_events(clock: Clock, *, objects: int = _OBJECTS) -> EventReport:
    """Measure all representations, and other ways of decoding the full one."""
    full = [line.rstrip() for line in pod_lines(Representation.FULL, objects)]
    others: dict[str, Callable[[bytes], object]] = {
        "json.loads, keep everything": json.loads,
        "json.loads, then prune": lambda line: pick(json.loads(line)["object"], POD_FIELDS),
        "msgspec without a type": msgspec.json.decode,
        "msgspec into our Struct": _full_decoder(),
    }
    return EventReport(
        events=[_cost(clock, form, objects) for form in Representation],
        others=[LoadsCost(way, _each_us(clock, act, full)) for way, act in others.items()],
    )


def _cost(clock: Clock, representation: Representation, objects: int) -> EventCost:
    lines = pod_lines(representation, objects, rounds=2)
    stream = b"".join(lines)
    chunks = [stream[at : at + _CHUNK_BYTES] for at in range(0, len(stream), _CHUNK_BYTES)]
    splitter = LineSplitter()
    split_us = _each_us(clock, splitter.feed, chunks) * len(chunks) / len(lines)
    decode = _decoder(representation)
    rows = [decode(line) for line in lines]
    kind = pods()
    judge = Filter(kind.predicate, max_objects=2 * objects)
    store: Cache[PodEntry] = Cache(kind)

    def keep(row: tuple[MetaRow, Any]) -> None:
        meta, item = row
        old = store.get(key_of(meta.namespace, meta.name))
        store.put(kind.from_row(meta, old) if item is None else kind.from_full(item, meta, old))

    for meta, _ in rows[:objects]:
        judge.admit(EventType.ADDED, meta)
    return EventCost(
        representation=representation.value,
        line_bytes=len(stream) // len(lines),
        split_us=split_us,
        decode_us=_each_us(clock, decode, lines),
        predicate_us=_each_us(
            clock, lambda row: judge.admit(EventType.MODIFIED, row[0]), rows[objects:]
        ),
        cache_us=_each_us(clock, keep, rows),
    )


def _decoder(
    representation: Representation,
) -> Callable[[bytes], tuple[MetaRow, Any]]:
    """Return what turns a line into what predicates and the cache take."""
    if representation is Representation.FULL:
        return _full_rows()
    kind = pods()
    decode = msgspec.json.Decoder(WatchLine).decode
    positions: dict[str, int] = {}

    def take(line: bytes) -> tuple[MetaRow, Any]:
        received = decode(line).object
        if received.column_definitions:
            found = column_positions(received.column_definitions)
            positions.update((name, found[name]) for name in kind.columns)
        if received.rows is None:
            return received.metadata, None
        row = received.rows[0]
        columns = {name: str(row.cells[at]) for name, at in positions.items()}
        assert row.object is not None
        meta = row.object.metadata
        meta.columns = columns
        return meta, None

    return take


def _full_decoder() -> Callable[[bytes], _FullLine[Any]]:
    line_type: Any = _FullLine[pods().item_type]  # type: ignore[misc]
    decode: Callable[[bytes], _FullLine[Any]] = msgspec.json.Decoder(line_type).decode
    return decode


def _full_rows() -> Callable[[bytes], tuple[MetaRow, Any]]:
    kind = pods()
    envelope = msgspec.json.Decoder(WatchLine).decode
    decode = _full_decoder()
    assert kind.columns_of is not None
    columns_of = kind.columns_of

    def take(line: bytes) -> tuple[MetaRow, Any]:
        # The informer reads the head of a line first: it may be a bookmark or an error.
        envelope(line)
        item = decode(line).object
        row = row_of(item.metadata)
        row.columns = columns_of(item)
        return row, item

    return take


def _each_us(clock: Clock, act: Callable[[T], object], items: Sequence[T]) -> float:
    """Return the microseconds of ``act`` for one item: the best of some runs over all of them."""
    best_s = float("inf")
    for _ in range(_REPEATS):
        began = clock.monotonic()
        for item in items:
            act(item)
        best_s = min(best_s, clock.monotonic() - began)
    return round(best_s / len(items) * 1e6, 2)
