"""Explains a recorded watch: what the controller's cache of that kind does with each event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import json, structs

from filters import Decision, EventType
from filters.replay import Decide
from lean_sandbox.errors import ConfigError
from lean_sandbox.kube.resources import PartialObject
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.wire import ODD
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.resources import build_caches


def caches_by_kind() -> dict[str, Cache[Any]]:
    """Return an empty cache for each kind that the controller watches, by name."""
    caches = structs.asdict(build_caches())
    return {cache.kind.resource.kind: cache for cache in caches.values()}


def by_kind(default: str) -> Decide:
    """Return a function that decides by the cache of the kind that an object names.

    Metadata alone, rows and items of lists name none: they count as of the kind ``default``, by its
    name or as kubectl names it in the plural. Raises ConfigError for a kind that is not watched.
    """
    caches = caches_by_kind()
    kinds = {cache.kind.resource.plural: kind for kind, cache in caches.items()}
    kinds |= {kind.lower(): kind for kind in caches}
    if (wanted := kinds.get(default.lower())) is None:
        raise ConfigError(f"{default} is not watched", way_out=f"use {', '.join(caches)}")
    deciders = {kind: by_cache(cache) for kind, cache in caches.items()}
    deciders["PartialObjectMetadata"] = deciders[wanted]

    def decide(
        event_type: EventType, obj: Mapping[str, Any], columns: Mapping[str, str] | None
    ) -> tuple[ObjectMeta, Decision]:
        kind = str(obj.get("kind") or wanted)
        if kind not in deciders:
            raise ValueError(f"{kind} is not watched")
        return deciders[kind](event_type, obj, columns)

    return decide


def by_cache(cache: Cache[Any]) -> Decide:
    """Return a function that decides on events as the controller with this cache does.

    An event is dropped if its version is not newer than the cached one.
    """
    kind = cache.kind
    decode_full = json.Decoder(kind.item_type).decode
    decode_metadata = json.Decoder(PartialObject).decode
    decisions: list[tuple[ObjectMeta, Decision]] = []
    cache.observer = lambda _plural, _type, row, decision: decisions.append((row, decision))

    def decide(
        event_type: EventType, obj: Mapping[str, Any], columns: Mapping[str, str] | None
    ) -> tuple[ObjectMeta, Decision]:
        try:
            encoded = json.encode(obj)
            if columns is None and ("spec" in obj or "status" in obj):
                cache.full(event_type, decode_full(encoded), initial=False)
            else:
                row = decode_metadata(encoded).metadata
                cache.apply(event_type, row.with_columns(_wanted(kind.columns, columns)))
        except ODD as error:
            raise ValueError(f"not understood: {error}") from error
        return decisions.pop()

    return decide


def _wanted(names: tuple[str, ...], columns: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the columns that a kind reads, ``None`` unless the Table has all of them."""
    if not names or columns is None or any(name not in columns for name in names):
        return None
    return {name: columns[name] for name in names}
