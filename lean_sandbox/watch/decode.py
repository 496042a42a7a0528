"""Decodes list pages and watch lines, and hands each object to the cache.

An object that cannot be decoded, or for which a predicate or building its entry fails, is counted
and logged once for each version; the other objects are not affected. If the object is in the cache,
its metadata is still applied: a deletion is not missed, and a spec that cannot be read is not
replaced by an older one. Only two things raise: bytes that are not JSON, and errors that the server
reports. After those it is unknown which events were lost.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec
import structlog
from msgspec.structs import force_setattr

from filters import EventType
from lean_sandbox.kube.errors import Asked, ProtocolFault, from_status
from lean_sandbox.kube.resources import ListMeta, Page, PartialObject
from lean_sandbox.model.meta import ObjectMeta, as_version
from lean_sandbox.model.wire import ODD
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Entry, key_of

E = TypeVar("E", bound=Entry)
T = TypeVar("T")

log = structlog.get_logger("watch")
_TYPES = {str(event_type): event_type for event_type in EventType}
_SHOWN_BYTES = 200
# How many objects are remembered as logged.
_LOGGED = 1024
# Half of the depth that msgspec decodes; objects of Kubernetes have about thirty levels.
_DEEPEST = 500
# Replaces values that msgspec cannot decode.
_CUT: Final = b"\\u0000unreadable"
# An escaped backslash and whole pairs match first, as they contain no lone half of a pair.
_SURROGATES = re.compile(rb"(\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F]..")
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{\]}]', re.DOTALL)
# msgspec leaves the decoding of strings to Python, which raises an error of its own.
_ODD_OBJECT = (msgspec.ValidationError, UnicodeDecodeError)


class WentBackError(ProtocolFault):
    """The versions of a watch went backwards: the server's store was replaced by an older one."""


#: The steps that a reflector counts, which are the labels of its metric.
STEPS = ("list", "page", "watch", "bookmark", "relist", "fallback", "failure", "undecodable")


class _Row(msgspec.Struct, gc=False):
    object: PartialObject | None = None
    cells: list[str | int | float | bool | None] = []


class _Column(msgspec.Struct, gc=False):
    name: str = ""


class WatchObject(msgspec.Struct, rename="camel", gc=False):
    """The object of a watch event: a Table, or one object's metadata."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    column_definitions: list[_Column] | None = None
    rows: list[_Row] | None = None


class Line(msgspec.Struct, Generic[T], gc=False):
    """One line of a watch."""

    type: str
    object: T


class EventDecoder(Generic[E]):
    """Decodes the objects of one kind and hands them to its cache.

    ``version`` is the newest resource version applied, from which a watch can be resumed unless the
    server no longer has it; ``None`` before the first list.
    """

    def __init__(self, cache: Cache[E], *, namespace: str | None = None) -> None:
        kind = self._kind = cache.kind
        self._cache = cache
        self._namespace = namespace
        self.steps = Counter(dict.fromkeys(STEPS, 0))
        self.log = log.bind(kind=kind.resource.plural, namespace=namespace or "*")
        self._decode_item = msgspec.json.Decoder(kind.item_type).decode
        self._logged: dict[str, str] = {}
        self._positions: dict[str, int] = {}
        self._logged_missing: list[str] = []
        self.version: str | None = None

    # -- lists -----------------------------------------------------------------------------------

    def page(self, body: bytes, *, initial: bool) -> ListMeta:
        """Apply one page of a list and return its metadata. Raises ProtocolFault."""
        page = self._split(body)
        self._cache.begin_page(self._namespace, page.metadata.resourceVersion)
        for raw in page.items:
            self._whole(EventType.ADDED, bytes(raw), initial=initial)
        return page.metadata

    def check_list(self, body: bytes) -> None:
        """Raise WentBackError if a list is older than the version applied; apply nothing."""
        self._check_advance(self._split(body).metadata.resourceVersion)

    def _split(self, body: bytes) -> Page[msgspec.Raw]:
        try:
            return _patiently(_decode_page, body)
        except ODD as error:
            raise self._garbage("a list page", error) from error

    # -- watches ---------------------------------------------------------------------------------

    def begin_watch(self) -> None:
        """Forget the columns of the previous watch: each watch begins with its own definitions."""
        self._positions = {}

    def line(self, line: bytes) -> None:
        """Apply one line of a watch of Tables or partial metadata.

        Raises ProtocolFault, and errors that the server reports.
        """
        try:
            event = _decode_line(line)
            event_type = _TYPES[event.type]
            received = event.object
        except ODD:
            raw = self._raw_event(line)
            if raw is None:
                return
            try:
                event_type = raw[0]
                received = _patiently(_decode_object, raw[1])
            except ODD as error:
                self._skip(line, error)
                return
        if received.column_definitions:
            # The server sends them with the first event only, and that may be a bookmark.
            self._learn_columns(received.column_definitions)
        rows = received.rows
        if rows is None:
            # Metadata alone, which is also sent for an object that cannot be turned into a row.
            rows = [_Row(PartialObject(received.metadata))]
        for row in rows:
            if row.object is None:
                self._skip(line, ValueError("a row without its object"))
                continue
            meta = row.object.metadata
            if row.cells:
                force_setattr(meta, "columns", self._columns(row))
            try:
                self._cache.apply(event_type, meta)
            except Exception as error:  # noqa: BLE001 -- any bug costs this object alone
                self._skip(b"", error, meta)
            self._advance(meta.resource_version)

    def full_line(self, line: bytes) -> None:
        """Apply one line of a watch of full objects; raises as :meth:`line` does."""
        if (event := self._raw_event(line)) is not None:
            self._advance(self._whole(*event, initial=False))

    def _raw_event(self, line: bytes) -> tuple[EventType, bytes] | None:
        """Apply a bookmark; raise a reported error; return the object of any other event."""
        try:
            event = _patiently(_decode_raw_line, line)
        except _ODD_OBJECT as error:
            self._skip(line, error)
            return None
        except ODD as error:
            # The bytes are not JSON: a line was cut or mixed, and it is unknown what was lost.
            raise self._garbage("a line of the watch", error) from error
        raw = bytes(event.object)
        if event.type == "ERROR":
            raise from_status(raw, Asked("watch", self._kind.resource.qualified))
        if event.type == "BOOKMARK":
            self._bookmark(raw)
        elif event.type in _TYPES:
            return _TYPES[event.type], raw
        else:
            self._skip(line, ValueError(f"an event of type {event.type!r}"))
        return None

    def _bookmark(self, raw: bytes) -> None:
        self.steps["bookmark"] += 1
        try:
            received = _patiently(_decode_object, raw)
        except ODD as error:
            self._skip(raw, error)
            return
        if received.column_definitions:
            self._learn_columns(received.column_definitions)
        version = received.metadata.resource_version
        if received.rows and received.rows[0].object is not None:
            # As a Table: the version is that of the object in its only row.
            version = received.rows[0].object.metadata.resource_version
        self._advance(version)

    def _whole(self, event_type: EventType, raw: bytes, *, initial: bool) -> str:
        """Apply a full object; return its version, "" when that cannot be read."""
        try:
            item = self._decode_item(raw)
            if _CUT in raw:
                raise ValueError("nested too deeply, or no text")  # noqa: TRY301 -- same end
            self._cache.full(event_type, item, initial=initial)
        except Exception as error:  # noqa: BLE001 -- any bug costs this object alone
            return self._as_metadata(event_type, raw, error)
        return str(item.metadata.resource_version)

    def _as_metadata(self, event_type: EventType, raw: bytes, error: Exception) -> str:
        """Apply the metadata of an object that cannot be applied as a whole; return its version."""
        try:
            meta = _patiently(_decode_partial, raw).metadata
        except ODD:
            self._skip(raw, error)
            return ""
        self._skip(raw, error, meta)
        self._cache.present(meta.namespace, meta.name)
        is_known = key_of(meta.namespace, meta.name) in self._cache
        if is_known or event_type is EventType.DELETED:
            try:
                self._cache.apply(event_type, meta)
            except Exception as odd:  # noqa: BLE001 -- as above
                self._skip(b"", odd, meta)
        return meta.resource_version

    def _columns(self, row: _Row) -> dict[str, str] | None:
        cells = row.cells
        try:
            return {
                name: "" if cells[at] is None else str(cells[at])
                for name, at in self._positions.items()
            } or None
        except IndexError:
            return None

    def _learn_columns(self, definitions: list[_Column]) -> None:
        found = {definition.name: at for at, definition in enumerate(definitions)}
        wanted = self._kind.columns
        missing = [name for name in wanted if name not in found]
        if missing != self._logged_missing:
            self._logged_missing = missing
            if missing:
                self.log.warning("columns_missing", columns=missing, using="metadata")
        # Predicates take columns to be complete: none is better than some.
        self._positions = {} if missing else {name: found[name] for name in wanted}

    def _advance(self, version: str) -> None:
        """Remember the version up to which everything was applied. Raises WentBackError."""
        if version:
            self._check_advance(version)
            self.version = version

    def _check_advance(self, version: str) -> None:
        held = self.version
        if held is not None and 0 < as_version(version) < as_version(held):
            raise WentBackError(
                f"the watch of {self._kind.resource.plural} has gone back from version {held} to"
                f" {version}: was etcd restored from a backup?"
            )

    # -- failures --------------------------------------------------------------------------------

    def _skip(self, raw: bytes, error: Exception, meta: ObjectMeta | None = None) -> None:
        """Count an object that could not be applied, and log it once for each version."""
        self.steps["undecodable"] += 1
        meta = meta or ObjectMeta()
        name = f"{meta.namespace}/{meta.name}"
        if meta.name and self._logged.get(name) == meta.resource_version:
            return
        if len(self._logged) >= _LOGGED:
            self._logged.clear()
        self._logged[name] = meta.resource_version
        self.log.error(
            "object_not_understood",
            object=name,
            version=meta.resource_version,
            error=f"{type(error).__name__}: {error}"[:_SHOWN_BYTES],
            # Not its beginning, which has the annotations: they may hold secrets.
            bytes=len(raw),
            # A broken schema needs no traceback; anything else is a bug.
            exc_info=None if isinstance(error, ODD) else error,
        )

    def _garbage(self, what: str, error: Exception) -> ProtocolFault:
        return ProtocolFault(f"{what} of {self._kind.resource.plural} is not understood: {error}")


_decode_page = msgspec.json.Decoder(Page[msgspec.Raw]).decode
_decode_line = msgspec.json.Decoder(Line[WatchObject]).decode
_decode_raw_line = msgspec.json.Decoder(Line[msgspec.Raw]).decode
_decode_object = msgspec.json.Decoder(WatchObject).decode
_decode_partial = msgspec.json.Decoder(PartialObject).decode


def _patiently(decode: Callable[[bytes], T], text: bytes) -> T:
    """Decode a text; if the decoder gives up, decode it without the parts that make it do so."""
    try:
        return decode(text)
    except _ODD_OBJECT:
        raise
    except ODD:
        return decode(_readable(text))


def _readable(text: bytes) -> bytes:
    """Return JSON with a mark in place of values nested too deeply and halves of surrogate pairs.

    One of them, even in a field that is skipped, makes msgspec refuse the whole text; without them
    the metadata can be read.
    """
    text = _SURROGATES.sub(lambda found: found[1] or _CUT, text)
    kept: list[bytes] = []
    depth = at = 0
    for token in _TOKENS.finditer(text):
        mark = text[token.start()]
        if mark in b"[{":
            depth += 1
            if depth == _DEEPEST + 1:
                kept += (text[at : token.start()], b'"' + _CUT + b'"')
        elif mark in b"]}":
            if depth == _DEEPEST + 1:
                at = token.end()
            depth -= 1
    kept.append(text[at:])
    return b"".join(kept)
