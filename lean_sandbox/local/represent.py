"""The forms an object can be asked for: whole, metadata only, or as rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from cachetools import LRUCache

from lean_sandbox.local.errors import StatusError, bad_request, not_acceptable
from lean_sandbox.local.eventconv import to_events
from lean_sandbox.local.registry import Kind
from lean_sandbox.local.serversettings import LocalSettings
from lean_sandbox.local.store import Entry, Event
from lean_sandbox.local.tables import cells_of, columns_of

# Clients may send any header, and definitions come and go.
_REMEMBERED: Final = 256
_encode: Final = msgspec.json.Encoder().encode
_PARTIAL_LIST: Final = b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1"'
_TABLE: Final = b'{"kind":"Table","apiVersion":"meta.k8s.io/v1"'


class Accepted(NamedTuple):
    """One form (`json`, `partial`, `partial-list`, `table`) and what a row shows of its object."""

    form: str
    include: str = "Metadata"


JSON: Final = Accepted("json")


def parse_accept(header: str) -> list[tuple[str, Mapping[str, str]]]:
    """Return the media types of an Accept header with their parameters, in order."""
    found: list[tuple[str, Mapping[str, str]]] = []
    for clause in header.split(","):
        media, *rest = clause.split(";")
        pairs = (part.partition("=") for part in rest)
        found.append(
            (media.strip().lower(), {key.strip().lower(): value.strip() for key, _, value in pairs})
        )
    return found


class Negotiator:
    """Chooses the form of an answer; remembers what it decided for a header."""

    def __init__(self, settings: LocalSettings) -> None:
        self._settings = settings
        self._known: LRUCache[str, Accepted | None] = LRUCache(_REMEMBERED)

    def choose(self, header: str, include: str, *, is_list: bool) -> Accepted:
        """Return the first form of the Accept header that the server has.

        Raises:
            StatusError: 406 when there is none, or it does not fit a list or a single object.

        """
        try:
            chosen = self._known[header]
        except KeyError:
            chosen = self._known[header] = self._first(header)
        if chosen is None:
            raise not_acceptable()
        if chosen.form == "table":
            if include not in ("", "None", "Metadata", "Object"):
                raise bad_request(
                    "Unable to convert to Table as requested: includeObject: Invalid value:"
                    f" \"{include}\": must be 'Metadata', 'Object', 'None', or empty"
                )
            return Accepted("table", include or "Metadata")
        if chosen.form == "partial" and is_list:
            raise not_acceptable(
                "you requested PartialObjectMetadata, but the requested object is a list"
            )
        if chosen.form == "partial-list" and not is_list:
            raise not_acceptable(
                "you requested PartialObjectMetadataList, but the requested object is not a list"
            )
        return chosen

    def _first(self, header: str) -> Accepted | None:
        if not header:
            return JSON
        for media, parameters in parse_accept(header):
            if media not in ("application/json", "application/*", "*/*"):
                continue
            wanted = parameters.get("as")
            if wanted is None:
                return JSON
            if parameters.get("g") != "meta.k8s.io" or parameters.get("v") not in (
                "v1",
                "v1beta1",
            ):
                continue
            if wanted == "Table" and self._settings.tables:
                return Accepted("table")
            if wanted == "PartialObjectMetadata" and self._settings.partial_metadata:
                return Accepted("partial")
            if wanted == "PartialObjectMetadataList" and self._settings.partial_metadata:
                return Accepted("partial-list")
        return None


class Renderer:
    """Writes entries, lists and events in the form that was chosen."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._columns: LRUCache[Kind, bytes] = LRUCache(_REMEMBERED)

    def tail(self, kind: Kind, entry: Entry) -> bytes:
        """Return an entry without brace, kind and apiVersion, under the names of its version."""
        if kind.group == "events.k8s.io":
            return _encode(to_events(entry.load()))[1:]
        return entry.tail

    def whole(self, kind: Kind, entry: Entry) -> bytes:
        """Return the whole object."""
        return kind.head + self.tail(kind, entry)

    def single(self, kind: Kind, entry: Entry, form: Accepted) -> bytes:
        """Return one object in the chosen form."""
        if form.form == "partial":
            return entry.partial()
        if form.form == "table":
            metadata = {"resourceVersion": str(entry.version)}
            return self._table(kind, [entry], form, metadata, with_columns=True)
        return self.whole(kind, entry)

    def listing(
        self, kind: Kind, entries: Iterable[Entry], form: Accepted, metadata: Mapping[str, Any]
    ) -> bytes:
        """Return a list in the chosen form."""
        if form.form == "table":
            return self._table(kind, entries, form, metadata, with_columns=True)
        if form.form == "partial-list":
            items = b",".join(entry.partial() for entry in entries)
            return b'%s,"metadata":%s,"items":[%s]}' % (_PARTIAL_LIST, _encode(metadata), items)
        # Items of built-in lists carry no kind of their own; those of custom lists do.
        head = kind.head if kind.is_custom else b"{"
        items = b",".join(head + self.tail(kind, entry) for entry in entries)
        if kind.is_custom:
            metadata = {"continue": "", **metadata}
        start = _encode({"kind": kind.list_kind, "apiVersion": kind.api_version})[:-1]
        return b'%s,"metadata":%s,"items":[%s]}' % (start, _encode(metadata), items)

    def event(
        self, kind: Kind, type_: str, entry: Entry, form: Accepted, *, first: bool = False
    ) -> bytes:
        """Return one line of a watch."""
        if form.form == "table":
            metadata = {"resourceVersion": str(entry.version)}
            body = self._table(kind, [entry], form, metadata, with_columns=first)
        elif form.form == "json":
            body = self.whole(kind, entry)
        else:
            body = entry.partial()
        return b'{"type":"%s","object":%s}\n' % (type_.encode(), body)

    def shared(self, kind: Kind, event: Event, type_: str, entry: Entry, form: Accepted) -> bytes:
        """Return the line of an event, encoded once for all watchers of one form."""
        key = (kind.head, type_, entry is event.entry, form)
        line = event.encoded.get(key)
        if line is None:
            line = event.encoded[key] = self.event(kind, type_, entry, form)
        return line

    def bookmark(
        self, kind: Kind, version: int, form: Accepted, *, ends_initial: bool = False
    ) -> bytes:
        """Return a bookmark line; ``ends_initial`` marks the end of the initial events."""
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if ends_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        partial = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
        }
        body: dict[str, Any]
        if form.form == "json":
            body = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        elif form.form == "table":
            shown = None if form.include == "None" else partial
            body = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": str(version)},
                "columnDefinitions": None,
                "rows": [{"cells": [""], "object": shown}],
            }
        else:
            body = partial
        return b'{"type":"BOOKMARK","object":%s}\n' % _encode(body)

    @staticmethod
    def error(error: StatusError) -> bytes:
        """Return the error line that ends a watch."""
        return b'{"type":"ERROR","object":%s}\n' % error.body()

    def _table(
        self,
        kind: Kind,
        entries: Iterable[Entry],
        form: Accepted,
        metadata: Mapping[str, Any],
        *,
        with_columns: bool,
    ) -> bytes:
        columns = b"null"
        if with_columns:
            columns = self._columns.get(kind, b"")
            if not columns:
                columns = self._columns[kind] = _encode(columns_of(kind))
        now = self._now()
        rows = b",".join(self._row(kind, entry, form, now) for entry in entries)
        return b'%s,"metadata":%s,"columnDefinitions":%s,"rows":[%s]}' % (
            _TABLE,
            _encode(metadata),
            columns,
            rows,
        )

    def _row(self, kind: Kind, entry: Entry, form: Accepted, now: datetime) -> bytes:
        cells = _encode(cells_of(kind, entry.load(), now))
        if form.include == "Metadata":
            shown = entry.partial()
        elif form.include == "Object":
            shown = self.whole(kind, entry)
        else:
            return b'{"cells":%s,"object":null}' % cells
        return b'{"cells":%s,"object":%s}' % (cells, shown)
