"""From the bytes of a list page or a watch line to the intake.

One object that cannot be understood never stops the others: it is skipped, counted and said. What
raises is only what leaves unknown what was missed: bytes that are no JSON, and the server's errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from filters import EventType
from lean_sandbox.api.errors import ApiError, ProtocolFault, from_status
from lean_sandbox.watch.intake import Intake
from lean_sandbox.watch.kind import Kind
from lean_sandbox.watch.store import Entry, key_of
from lean_sandbox.watch.strangers import CellsRow
from lean_sandbox.watch.wire import (
    ColumnDefinition,
    ListMeta,
    MetaRow,
    PartialItem,
    TableRow,
    WatchLine,
    column_positions,
)

__all__ = ["Feed", "UnreadableForm", "WatchStatistics"]

E = TypeVar("E", bound=Entry)
T = TypeVar("T")

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_TYPES = {str(event_type): event_type for event_type in EventType}
_SHOWN_BYTES = 200
_NAME = "Name"
# Cells are given up where they hide too much: looks at Pods cost more than the bytes saved.
_MANY_DOUBTS = 32
_DOUBTS_IN = 4
_RECENT_ROWS = 1024
# msgspec decodes texts when it comes to them, and lets Python complain about bytes that are none.
_ODD_OBJECT = (msgspec.ValidationError, UnicodeDecodeError)


class UnreadableForm(ProtocolFault):
    """A watch came in a form that cannot be made sense of here; another form may serve."""


@dataclass(slots=True)
class WatchStatistics:
    """Counters of one informer since its start."""

    lists: int = 0
    pages: int = 0
    watches: int = 0
    bookmarks: int = 0
    undecodable: int = 0
    failures: int = 0
    relists: int = 0
    received_bytes: int = 0
    fallbacks: int = 0

    def add(self, other: WatchStatistics) -> None:
        """Count what another informer has counted."""
        for counter in fields(self):
            setattr(self, counter.name, getattr(self, counter.name) + getattr(other, counter.name))


class _Page(msgspec.Struct, Generic[T]):
    metadata: ListMeta
    items: list[T] | None = None


class _FullLine(msgspec.Struct, Generic[T]):
    type: str
    object: T


class Feed(Generic[E]):
    """Decodes what the server sends of one kind and hands it to the intake.

    ``version`` is the newest resource version taken in; ``None`` before the first list and after
    one that can no longer be resumed from. ``namespace`` is the one that is watched, which rows of
    bare cells do not name. ``on_event`` is told the namespace of each event of a watch.
    """

    def __init__(
        self,
        kind: Kind[E],
        intake: Intake[E],
        statistics: WatchStatistics,
        logger: Any = None,
        *,
        namespace: str | None = None,
        on_event: Callable[[str], None] | None = None,
    ) -> None:
        self._kind = kind
        self._intake = intake
        self._namespace = namespace
        self._on_event = on_event
        self.statistics = statistics
        self._log = logger or structlog.get_logger("watch")
        page_type: Any = _Page[kind.item_type]  # type: ignore[name-defined]
        line_type: Any = _FullLine[kind.item_type]  # type: ignore[name-defined]
        self._decode_page = msgspec.json.Decoder(page_type).decode
        self._decode_full = msgspec.json.Decoder(line_type).decode
        self._decode_line = msgspec.json.Decoder(WatchLine).decode
        self._positions: dict[str, int] = {}
        self._last_position = self._name_position = -1
        self._said_missing: list[str] = []
        self._rows = self._doubts = 0
        self.version: str | None = None

    # -- lists -----------------------------------------------------------------------------------

    def page(self, body: bytes, *, initial: bool) -> ListMeta:
        """Take one page of a list and return its head. Raises ProtocolFault."""
        try:
            page: Any = self._decode_page(body)
        except _ODD_OBJECT:
            return self._page_one_by_one(body, initial=initial)
        except msgspec.DecodeError as error:
            raise self._garbage("a list page", error) from error
        for item in page.items or ():
            self._intake.full(EventType.ADDED, item, initial=initial)
        metadata: ListMeta = page.metadata
        return metadata

    def _page_one_by_one(self, body: bytes, *, initial: bool) -> ListMeta:
        """Save a page from the objects on it that do not decode."""
        try:
            page = msgspec.json.decode(body, type=_Page[msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._garbage("a list page", error) from error
        for raw in page.items or ():
            try:
                item = msgspec.json.decode(raw, type=self._kind.item_type)
            except _ODD_OBJECT as error:
                self._skip(bytes(raw), error)
                self._note_present(bytes(raw))
                continue
            self._intake.full(EventType.ADDED, item, initial=initial)
        return page.metadata

    def listed_line(self, line: bytes, *, initial: bool) -> str | None:
        """Take a line of a list that comes as a stream; return its version at the marked end.

        Raises ProtocolFault and the server's own errors.
        """
        head = self._envelope(line)
        if head is None:
            return None
        meta = head.object.metadata
        if head.type == "BOOKMARK":
            return (
                meta.resource_version
                if (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true"
                else None
            )
        if not self._full(line, initial=initial):
            self._intake.present(meta.namespace, meta.name)
        return None

    def _note_present(self, raw: bytes) -> None:
        """Keep what is known of an object that was listed and not understood."""
        try:
            meta = msgspec.json.decode(raw, type=PartialItem).metadata
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        self._intake.present(meta.namespace, meta.name)

    # -- watches ---------------------------------------------------------------------------------

    def begin_watch(self) -> None:
        """Forget the columns of the watch before: each one tells them anew."""
        self._positions = {}
        self._last_position = self._name_position = -1

    def line(self, line: bytes) -> None:
        """Take one line of a Table or partial metadata watch.

        Raises ProtocolFault and the server's own errors.
        """
        event = self._envelope(line)
        if event is None:
            return
        received = event.object
        if received.column_definitions:
            # The server sends them with the first event only, and that may be a bookmark.
            self._learn_columns(received.column_definitions)
        rows = received.rows
        if event.type == "BOOKMARK":
            self._bookmark(received.metadata.resource_version or _version_of(rows))
            return
        event_type = _TYPES.get(event.type)
        if event_type is None:
            self._skip(line, ValueError(f"an event of type {event.type!r}"))
        elif rows is None:
            # Partial metadata, or an object the server could not turn into a row.
            self._row(event_type, received.metadata)
        else:
            for row in rows:
                if row.object is None and self._kind.reads_cells and self._namespace is not None:
                    self._cells(event_type, row, received.metadata.resource_version)
                    continue
                if row.object is None:
                    self._skip(line, ValueError("a row without its object"))
                    continue
                meta = row.object.metadata
                meta.columns = self._columns(row)
                self._row(event_type, meta)

    def full_line(self, line: bytes) -> None:
        """Take one line of a watch of full objects; raises as :meth:`line` does."""
        head = self._envelope(line)
        if head is None:
            return
        version = head.object.metadata.resource_version
        if head.type == "BOOKMARK":
            self._bookmark(version)
            return
        self._full(line, initial=False)
        self.version = version or self.version

    def _row(self, event_type: EventType, meta: MetaRow) -> None:
        self._intake.row(event_type, meta)
        self.version = meta.resource_version or self.version
        if self._on_event is not None:
            self._on_event(meta.namespace)

    def _cells(self, event_type: EventType, row: TableRow, version: str) -> None:
        """Take a row that has nothing but cells; the version is that of the whole Table."""
        columns = self._columns(row)
        at = self._name_position
        namespace = self._namespace
        if columns is None or not 0 <= at < len(row.cells) or not version or namespace is None:
            raise UnreadableForm(
                f"a row of {self._kind.resource.plural} has no object, and its cells do not do"
            )
        key = key_of(namespace, str(row.cells[at]))
        is_doubt = self._intake.cells(key, CellsRow(event_type, version, columns))
        self.version = version
        if self._on_event is not None:
            self._on_event(namespace)
        self._weigh(doubts=int(is_doubt))

    def _weigh(self, *, doubts: int) -> None:
        """Count a row and the doubts it raised. Raises UnreadableForm where cells do not pay."""
        self._rows += 1
        self._doubts += doubts
        if self._doubts >= _MANY_DOUBTS and self._doubts * _DOUBTS_IN >= self._rows:
            raise UnreadableForm(
                f"too much happens to {self._kind.resource.plural} that no cell shows"
            )
        if self._rows >= _RECENT_ROWS:
            self._rows //= 2
            self._doubts //= 2

    def _full(self, line: bytes, *, initial: bool) -> bool:
        try:
            event: Any = self._decode_full(line)
            event_type = _TYPES.get(event.type)
            if event_type is None:
                raise ValueError(f"an event of type {event.type!r}")  # noqa: TRY301 -- same end
        except (*_ODD_OBJECT, ValueError) as error:
            self._skip(line, error)
            return False
        self._intake.full(event_type, event.object, initial=initial)
        return True

    def _envelope(self, line: bytes) -> WatchLine | None:
        """Decode a line; ``None`` when its object is odd. Raises what the server reports."""
        try:
            event = self._decode_line(line)
        except _ODD_OBJECT as error:
            self._skip(line, error)
            return None
        except msgspec.DecodeError as error:
            # The bytes are not JSON: a line was cut or mixed. What was missed is unknown.
            raise self._garbage("a line of the watch", error) from error
        if event.type == "ERROR":
            raise self._reported(event)
        return event

    def _columns(self, row: TableRow) -> dict[str, str] | None:
        cells = row.cells
        if not self._positions or len(cells) <= self._last_position:
            return None
        return {
            name: "" if cells[at] is None else str(cells[at])
            for name, at in self._positions.items()
        }

    def _learn_columns(self, definitions: list[ColumnDefinition]) -> None:
        found = column_positions(definitions)
        wanted = self._kind.columns
        more = [name for name in self._kind.more_columns if name in found]
        missing = [name for name in wanted if name not in found]
        if missing != self._said_missing:
            self._said_missing = missing
            if missing:
                self._log.warning("columns_missing", columns=missing, using="metadata")
        # Half of the columns would be taken for the whole: better none.
        self._positions = {} if missing else {name: found[name] for name in (*wanted, *more)}
        self._name_position = found.get(_NAME, -1)
        self._last_position = max(self._positions.values(), default=-1)

    def _bookmark(self, version: str) -> None:
        self.statistics.bookmarks += 1
        self.version = version or self.version

    # -- what goes wrong -------------------------------------------------------------------------

    def _skip(self, line: bytes, error: Exception) -> None:
        self.statistics.undecodable += 1
        begins = line[:_SHOWN_BYTES].decode("utf-8", "replace")
        self._log.error("object_not_understood", error=str(error), begins=begins)

    def _garbage(self, what: str, error: Exception) -> ProtocolFault:
        return ProtocolFault(f"{what} of {self._kind.resource.plural} is not understood: {error}")

    def _reported(self, event: WatchLine) -> ApiError:
        return from_status(
            msgspec.json.encode(event.object), verb="watch", resource=self._kind.resource.qualified
        )


def _version_of(rows: list[TableRow] | None) -> str:
    """Return the version of a bookmark that came as a Table; its mark sits inside the only row."""
    if rows and rows[0].object is not None:
        return rows[0].object.metadata.resource_version
    return ""
