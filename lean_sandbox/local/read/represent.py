"""The forms an object can be asked for: whole, metadata only, or as rows of a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from lean_sandbox.local import recorded
from lean_sandbox.local.errors import bad_request, not_acceptable
from lean_sandbox.local.kinds import Kind, to_events
from lean_sandbox.local.read.printers import PRINTERS, plain_cells, since
from lean_sandbox.local.request import LocalSettings
from lean_sandbox.local.schema.decoding import builtin_schema, complete
from lean_sandbox.local.store import Entry, Event

Json = dict[str, Any]

# Clients may send any header, and definitions come and go.
_REMEMBERED: Final = 256
_encode: Final = msgspec.json.Encoder().encode
_FORMS: Final = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
_ONLY_JSON: Final = (
    "only the following media types are accepted: application/json; this server reads other forms,"
    " but does not write them"
)
_PARTIAL_LIST: Final = b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1"'
_PLAIN: Final = "roles.rbac.authorization.k8s.io"
"""A kind without columns of its own; those that nothing acts on are shown like it."""
_TABLE: Final = b'{"kind":"Table","apiVersion":"meta.k8s.io/v1"'

# ------------------------------------------------------------------ which form


class Accepted(NamedTuple):
    """One form, `json` or one of ``_FORMS``, and what a row of a table shows of its object."""

    form: str
    include: str = "Metadata"


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


def choose_form(header: str, include: str, settings: LocalSettings, *, is_list: bool) -> Accepted:
    """Return the first form of an Accept header that the server has.

    Raises StatusError: 406 when there is none, or it does not fit a list or a single object.
    """
    form = _first(header, tables=settings.tables, partial=settings.partial_metadata)
    if not form:
        raise not_acceptable(_ONLY_JSON)
    if form == "Table" and include not in ("", "None", "Metadata", "Object"):
        raise bad_request(
            "Unable to convert to Table as requested: includeObject: Invalid value:"
            f" \"{include}\": must be 'Metadata', 'Object', 'None', or empty"
        )
    if form.startswith("Partial") and form.endswith("List") is not is_list:
        found = "a list" if is_list else "not a list"
        raise not_acceptable(f"you requested {form}, but the requested object is {found}")
    return Accepted(form, include or "Metadata")


@lru_cache(_REMEMBERED)
def _first(header: str, *, tables: bool, partial: bool) -> str:
    """Return the first form of an Accept header that is served, empty when there is none."""
    for media, parameters in parse_accept(header or "*/*"):
        if media not in ("application/json", "application/*", "*/*"):
            continue
        wanted = parameters.get("as")
        if wanted is None:
            return "json"
        known = parameters.get("g") == "meta.k8s.io" and parameters.get("v") == "v1"
        if known and wanted in _FORMS and (tables if wanted == "Table" else partial):
            return wanted
    return ""


# ------------------------------------------------------------------ paths of columns

JsonPath = Callable[[Any], list[Any]]

_PIECE: Final = re.compile(
    r"""
    \.(?!\.)(?P<name>(?:\\.|[^\s.,\[\]$@{}\\*])*)             # .member
  | \['(?P<path>[^']*)'\]                                     # ['member']
  | \[(?P<index>-?\d+|\*)\]                                   # [0], [-1], [*]
  | \[\?\(\s*@(?P<left>(?:[^\s=!<>()'"]|\['[^']*'\])*)\s*     # [?(@.member)]
    (?:(?P<sign>[=!]=)\s*(?P<right>'[^']*'|"[^"]*"|true|false|\d+)\s*)?\)\]   # == 'text'
    """,
    re.VERBOSE,
)


@lru_cache(maxsize=1024)
def parse_path(text: str) -> JsonPath:
    """Return the function that finds all values at a path.

    Raises ValueError: the path is no JSONPath, or has slices, unions, ``..`` or other comparisons.
    """
    steps: list[JsonPath] = []
    at = 0
    while at < len(text):
        match = _PIECE.match(text, at)
        if match is None:
            raise ValueError(f"cannot read JSONPath {text!r}")
        steps.append(_step(match))
        at = match.end()

    def find(value: Any) -> list[Any]:
        values = [value]
        for step in steps:
            values = [after for before in values for after in step(before)]
        return values

    return find


def _step(match: re.Match[str]) -> JsonPath:
    name, path, index, left, sign, right = match.groups()
    if name is not None:
        return _member(re.sub(r"\\(.?)", r"\1", name))
    if path is not None:
        return parse_path(f".{path}")
    if index is not None:
        return _item(index)
    wanted = parse_path(left)
    if sign is None:
        return lambda value: [item for item in _listed(value) if wanted(item)]
    other = right[1:-1] if right[0] in "'\"" else msgspec.json.decode(right)

    def holds(item: Any) -> bool:
        found = wanted(item)
        is_like = bool(found) and type(found[0]) is type(other)
        return is_like and (found[0] == other) is (sign == "==")

    return lambda value: [item for item in _listed(value) if holds(item)]


def _member(name: str) -> JsonPath:
    return lambda value: [value[name]] if isinstance(value, dict) and name in value else []


def _item(index: str) -> JsonPath:
    if index == "*":
        return _listed
    at = int(index)
    return lambda value: _listed(value)[at : at + 1 or None]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# ------------------------------------------------------------------ tables


@lru_cache(_REMEMBERED)
def columns_of(kind: Kind) -> bytes:
    """Return the encoded `columnDefinitions` of a kind."""
    if not kind.is_custom:
        shown = kind.qualified_plural if kind.storage in PRINTERS else _PLAIN
        return _encode(recorded.columns()[shown])
    name = recorded.columns()["configmaps"][0]
    return _encode([name, *(_definition(column) for column in _readable(kind))])


def _readable(kind: Kind) -> Sequence[Json]:
    """Return the columns before the first one whose path is no JSONPath."""
    for position, column in enumerate(kind.columns):
        try:
            parse_path(column["jsonPath"])
        except ValueError:
            return kind.columns[:position]
    return kind.columns


def _definition(column: Json) -> Json:
    path = column["jsonPath"]
    about = f"Custom resource definition column (in JSONPath format): {path}"
    return {
        "name": column["name"],
        "type": column["type"],
        "format": column.get("format", ""),
        "description": column.get("description") or about,
        "priority": column.get("priority", 0),
    }


def cells_of(kind: Kind, obj: Json, now: datetime) -> list[Any]:
    """Return the cells of one object, one for each column of its kind."""
    if kind.is_custom:
        cells = (_cell(column, obj, now) for column in _readable(kind))
        return [obj["metadata"]["name"], *cells]
    return PRINTERS.get(kind.storage, plain_cells)(obj, now)


def _cell(column: Json, obj: Json, now: datetime) -> Any:
    found = parse_path(column["jsonPath"])(obj)
    if not found:
        return None
    value = found[0]  # a column shows one value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match column["type"]:
        case "string":
            return _text(value)
        case "integer" if is_number:
            return int(value)
        case "number" if is_number:
            return value
        case "boolean" if isinstance(value, bool):
            return value
        case "date" if isinstance(value, str):
            return since(value, now)
    return None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "<no value>"
    return msgspec.json.encode(value, order="sorted").decode()


# ------------------------------------------------------------------ answers


class Renderer:
    """Writes entries, lists and events in the form that was chosen."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now

    def single(
        self, kind: Kind, entry: Entry, form: Accepted, *, with_columns: bool = True
    ) -> bytes:
        """Return one object in the chosen form; a table has no columns unless ``with_columns``."""
        if form.form == "json":
            return kind.head + _tail(kind, entry)
        if form.form == "Table":
            metadata = {"resourceVersion": str(entry.version)}
            return self._table(kind, [entry], form, metadata, with_columns=with_columns)
        return entry.partial()

    def listing(
        self, kind: Kind, entries: Iterable[Entry], form: Accepted, metadata: Mapping[str, Any]
    ) -> bytes:
        """Return a list in the chosen form."""
        if form.form == "Table":
            return self._table(kind, entries, form, metadata)
        if form.form == "PartialObjectMetadataList":
            items = b",".join(entry.partial() for entry in entries)
            return b'%s,"metadata":%s,"items":[%s]}' % (_PARTIAL_LIST, _encode(metadata), items)
        # Items of built-in lists carry no kind of their own; those of custom lists do.
        head = kind.head if kind.is_custom else b"{"
        items = b",".join(head + _tail(kind, entry) for entry in entries)
        if kind.is_custom:
            metadata = {"continue": "", **metadata}
        start = _encode({"kind": kind.list_kind, "apiVersion": kind.api_version})[:-1]
        return b'%s,"metadata":%s,"items":[%s]}' % (start, _encode(metadata), items)

    def event(
        self, kind: Kind, type_: str, entry: Entry, form: Accepted, *, first: bool = False
    ) -> bytes:
        """Return one line of a watch; the ``first`` of a table brings the columns."""
        body = self.single(kind, entry, form, with_columns=first)
        return b'{"type":"%s","object":%s}\n' % (type_.encode(), body)

    def shared(
        self, kind: Kind, change: tuple[Event, str, Entry], form: Accepted, *, first: bool
    ) -> bytes:
        """Return the line of an event, encoded once for all watchers of one form."""
        event, type_, entry = change
        key = (kind.head, type_, entry is event.entry, form, first)
        line = event.encoded.get(key)
        if line is None:
            line = event.encoded[key] = self.event(kind, type_, entry, form, first=first)
        return line

    def bookmark(
        self, kind: Kind, version: int, form: Accepted, *, ends_initial: bool = False
    ) -> bytes:
        """Return a bookmark line; ``ends_initial`` marks the end of the initial events."""
        metadata: Json = {"resourceVersion": str(version)}
        if ends_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        body: Json = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        if form.form == "json":
            body = {"kind": kind.kind, "apiVersion": kind.api_version}
            if not kind.is_custom:
                complete(body, builtin_schema(kind.kind, kind.api_version))
        body["metadata"] = metadata
        if form.form == "Table":
            row = {"cells": [""], "object": None if form.include == "None" else body}
            body = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": str(version)},
                "columnDefinitions": None,
                "rows": [row],
            }
        return b'{"type":"BOOKMARK","object":%s}\n' % _encode(body)

    def _table(
        self,
        kind: Kind,
        entries: Iterable[Entry],
        form: Accepted,
        metadata: Mapping[str, Any],
        *,
        with_columns: bool = True,
    ) -> bytes:
        now = self._now()
        return b'%s,"metadata":%s,"columnDefinitions":%s,"rows":[%s]}' % (
            _TABLE,
            _encode(metadata),
            columns_of(kind) if with_columns else b"null",
            b",".join(_row(kind, entry, form, now) for entry in entries),
        )


def _tail(kind: Kind, entry: Entry) -> bytes:
    """Return an entry without brace, kind and apiVersion, under the names of its version."""
    if kind.group == "events.k8s.io":
        return _encode(to_events(entry.load()))[1:]
    return entry.tail


def _row(kind: Kind, entry: Entry, form: Accepted, now: datetime) -> bytes:
    cells = _encode(cells_of(kind, entry.load(), now))
    shown = b"null"
    if form.include == "Metadata":
        shown = entry.partial()
    elif form.include == "Object":
        shown = kind.head + _tail(kind, entry)
    return b'{"cells":%s,"object":%s}' % (cells, shown)
