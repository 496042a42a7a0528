"""A cache that is fed by hand: events in, deltas out."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from filters import Change
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.decode import EventDecoder
from lean_sandbox.watch.kind import Delta, Entry, Key, Kind
from lean_sandbox.watch.versions import Known
from lean_sandbox.watch.writes import apply_response
from tests.support.clock import FakeClock

E = TypeVar("E", bound=Entry)


class Hand(Generic[E]):
    """A cache and the decoder before it, without any network."""

    def __init__(self, kind: Kind[E], *, namespace: str | None = None) -> None:
        """Start empty; ``namespace`` is what is watched, all of them by default."""
        self.kind = kind
        self.deltas: list[Delta[E]] = []
        self.clock = FakeClock()
        self.cache: Cache[E] = Cache(kind, monotonic=self.clock.monotonic)
        self.cache.handlers.append(self.deltas.append)
        self.feed: EventDecoder[E] = EventDecoder(self.cache, namespace=namespace)

    def listed(self, *items: Any) -> None:
        """Take a complete list at the version of its newest object."""
        versions = [int(item["metadata"]["resourceVersion"]) for item in items]
        body = {"metadata": {"resourceVersion": str(max(versions, default=1))}, "items": items}
        self.cache.begin_list(None)
        self.feed.page(msgspec.json.encode(body), initial=True)
        self.cache.end_list(None)
        self.deltas.clear()

    def saw(self, *events: Any) -> list[Change]:
        """Take watch events and return the changes that were told."""
        self.deltas.clear()
        for event in events:
            self.feed.line(msgspec.json.encode(event))
        return [delta.change for delta in self.deltas]

    def learn(self, obj: Any) -> tuple[E, Change]:
        """Take a whole object for the answer to a request of our own."""
        item = msgspec.json.decode(msgspec.json.encode(obj), type=self.kind.item_type)
        return apply_response(self.cache, item, known=Known())

    @staticmethod
    def decode(obj: Any, item_type: type[Any]) -> Any:
        """Return an object as it is decoded from the wire."""
        return msgspec.json.decode(msgspec.json.encode(obj), type=item_type)

    def learn_metadata(self, obj: Any, columns: dict[str, str] | None = None) -> tuple[E, Change]:
        """Take an object's metadata for the answer to a request of our own."""
        item = msgspec.json.decode(msgspec.json.encode(obj), type=self.kind.item_type)
        return apply_response(self.cache, item.metadata.with_columns(columns), known=Known())

    def find(self, name: str) -> E | None:
        """Return what is remembered of an object."""
        return self.cache.get(Key("ns", name))

    def get(self, name: str) -> E:
        """Return what is remembered of an object; fails when there is nothing."""
        entry = self.find(name)
        assert entry is not None, f"{name} is not remembered"
        return entry
