"""One list+watch state machine on raw bytes.

The machine has two states. Without a version it lists: pages of pruned full objects, or a streaming
initial list where the server offers one. With a version it watches, in the leanest representation
the server gives, until the stream ends; then it resumes from the last version it saw. A version
that is too old sends it back to listing, and what disappeared in the gap is delivered as deleted.

Requests: one LIST per page and (re)list, one WATCH per connection. Nothing else, ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import anyio
import msgspec
import structlog

from filters import EventType
from lean_sandbox.api.client import Client
from lean_sandbox.api.errors import (
    ApiError,
    ControlPlaneError,
    Gone,
    Invalid,
    NotAcceptable,
    ProtocolFault,
    RequestTimeout,
    from_response,
    from_status,
)
from lean_sandbox.api.limits import Lane
from lean_sandbox.api.resources import path
from lean_sandbox.api.telemetry import Label
from lean_sandbox.clock import Clock
from lean_sandbox.watch.backoff import Backoff
from lean_sandbox.watch.intake import Intake
from lean_sandbox.watch.kind import Kind
from lean_sandbox.watch.lines import LineSplitter, LineTooLongError
from lean_sandbox.watch.representation import Representation
from lean_sandbox.watch.store import Entry
from lean_sandbox.watch.wire import ListMeta, WatchLine, column_positions

__all__ = ["Informer", "WatchOptions", "WatchStatistics"]

E = TypeVar("E", bound=Entry)
T = TypeVar("T")

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
log = structlog.get_logger("watch")
_NO_CELLS: list[str | int | float | bool | None] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """Options of every informer.

    ``page_size``: objects a list page; larger pages cost memory while decoding.
    ``streams_initial_list``: ask for the initial list as a stream first. ``server_timeout_s``:
    after how long the server ends a watch. ``silence_s``: a watch that has sent nothing for this
    long, not even a bookmark (the server sends one about every minute), is taken for dead.
    ``hasty_end_s``: a watch that ends cleanly before this age is treated as a failure, so that a
    server that closes at once is not asked in a loop.
    """

    page_size: int = 500
    streams_initial_list: bool = False
    server_timeout_s: int = 290
    silence_s: float = 90.0
    hasty_end_s: float = 5.0
    request_timeout_s: float = 30.0


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


class _Page(msgspec.Struct, Generic[T]):
    metadata: ListMeta
    items: list[T] | None = None


class _FullLine(msgspec.Struct, Generic[T]):
    type: str
    object: T


class Informer(Generic[E]):
    """Keeps a store true to one kind, in one namespace or in all, and reports relevant changes.

    ``run`` never returns and raises nothing but cancellation; what it cannot do is told by
    ``problem`` (the last failure in words, ``None`` while all is well) and counted. ``synced`` is
    set after the first complete list.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind[E],
        intake: Intake[E],
        *,
        clock: Clock,
        uniform: Callable[[], float],
        options: WatchOptions | None = None,
        namespace: str | None = None,
    ) -> None:
        self._client = client
        self._kind = kind
        self._intake = intake
        self._clock = clock
        self._uniform = uniform
        self._options = options or WatchOptions()
        self._namespace = namespace
        self._backoff = Backoff(uniform)
        self._version: str | None = None
        self._representations = list(kind.watch_order)
        self._streams_initial_list = self._options.streams_initial_list
        self._positions: dict[str, int] = {}
        self._lacks_columns = False
        self._scope: anyio.CancelScope | None = None
        self._heard_at = 0.0
        self._decode_line = msgspec.json.Decoder(WatchLine).decode
        page_type: Any = _Page[kind.item_type]  # type: ignore[name-defined]
        line_type: Any = _FullLine[kind.item_type]  # type: ignore[name-defined]
        self._decode_page = msgspec.json.Decoder(page_type).decode
        self._decode_full_line = msgspec.json.Decoder(line_type).decode
        self._label = Label("watch", kind.resource.qualified)
        self.synced = anyio.Event()
        self.problem: str | None = None
        self.statistics = WatchStatistics()
        self._log = log.bind(kind=kind.resource.plural, namespace=namespace or "*")

    @property
    def representation(self) -> Representation:
        """The form in which the watch is asked for at present."""
        return self._representations[0]

    @property
    def version(self) -> str | None:
        """The resource version up to which everything has been taken in; ``None`` before a list."""
        return self._version

    async def run(self) -> None:
        """List and watch until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._guard)
            while True:
                await self._attempt()

    async def _attempt(self) -> None:
        began = self._clock.monotonic()
        at_least_s = 0.0
        try:
            if self._version is None:
                await self._list()
            began = self._clock.monotonic()
            await self._watch(self._version or "0")
            if self._clock.monotonic() - began >= self._options.hasty_end_s:
                self._settled()
                await self._clock.sleep(0.1 * self._uniform())
                return
            self._failed("the server ended the watch at once")
        except Gone:
            # The version is no longer served. A list is the cure, not a retry.
            self._version = None
            self.statistics.relists += 1
            if self._clock.monotonic() - began >= self._options.hasty_end_s:
                return
            self._failed("the version to resume from is too old")
        except NotAcceptable as error:
            if self._fall_back(str(error)):
                return
            self._failed(str(error))
        except ControlPlaneError as error:
            self._failed(str(error))
            at_least_s = getattr(error, "retry_after_s", None) or 0.0
        lived_s = self._clock.monotonic() - began
        await self._clock.sleep(self._backoff.after(lived_s, at_least_s=at_least_s))

    def _failed(self, problem: str) -> None:
        self.statistics.failures += 1
        if problem != self.problem:
            self._log.warning("watch_interrupted", problem=problem)
        self.problem = problem

    def _settled(self) -> None:
        if self.problem is not None:
            self._log.info("watch_resumed")
        self.problem = None
        self._backoff.reset()

    def _fall_back(self, why: str) -> bool:
        if len(self._representations) == 1:
            return False
        refused = self._representations.pop(0)
        self.statistics.fallbacks += 1
        self._log.warning(
            "representation_refused",
            refused=refused.value,
            using=self.representation.value,
            why=why,
        )
        return True

    # -- listing ---------------------------------------------------------------------------------

    async def _list(self) -> None:
        self.statistics.lists += 1
        initial = not self.synced.is_set()
        self._intake.begin_list(self._namespace)
        if self._streams_initial_list:
            try:
                self._version = await self._list_by_stream(initial=initial)
            except Invalid as error:
                self._streams_initial_list = False
                self._log.warning("streaming_list_refused", why=str(error))
                self._version = await self._list_by_pages(initial=initial)
        else:
            self._version = await self._list_by_pages(initial=initial)
        self._intake.end_list(self._namespace)
        self.synced.set()

    async def _list_by_pages(self, *, initial: bool) -> str:
        continue_: str | None = None
        while True:
            body = await self._client.list_page(
                self._kind.resource,
                self._namespace,
                bytes,
                limit=self._options.page_size,
                continue_=continue_,
                label_selector=self._kind.label_selector,
                field_selector=self._kind.field_selector,
                accept=self._kind.list_as.list_accept,
                timeout_s=self._options.request_timeout_s,
                lane=Lane.BACKGROUND,
            )
            self.statistics.pages += 1
            self.statistics.received_bytes += len(body)
            metadata = self._take_page(body, initial=initial)
            if not metadata.continue_:
                return metadata.resource_version
            continue_ = metadata.continue_

    def _take_page(self, body: bytes, *, initial: bool) -> ListMeta:
        try:
            page = self._decode_page(body)
        except msgspec.ValidationError:
            return self._take_page_one_by_one(body, initial=initial)
        except msgspec.DecodeError as error:
            raise ProtocolFault(f"a list page of {self._kind.resource.plural}: {error}") from error
        for item in page.items or ():
            self._intake.full(EventType.ADDED, item, initial=initial)
        metadata: ListMeta = page.metadata
        return metadata

    def _take_page_one_by_one(self, body: bytes, *, initial: bool) -> ListMeta:
        """Save the page from one object that does not decode: skip that one, count it, say it."""
        page = msgspec.json.decode(body, type=_Page[msgspec.Raw])
        for raw in page.items or ():
            try:
                item = msgspec.json.decode(raw, type=self._kind.item_type)
            except msgspec.ValidationError as error:
                self._undecodable(bytes(raw), error)
                continue
            self._intake.full(EventType.ADDED, item, initial=initial)
        return page.metadata

    async def _list_by_stream(self, *, initial: bool) -> str:
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        accept = self._kind.list_as.streamed_list_accept
        version: list[str] = []

        def take(line: bytes) -> bool:
            head = self._envelope(line)
            meta = head.object.metadata
            if head.type == "BOOKMARK":
                if (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true":
                    version.append(meta.resource_version)
                    return False
                return True
            if head.type == "ERROR":
                raise _stream_error(head, self._kind)
            self._take_full_line(line, initial=initial)
            return True

        await self._stream(query, accept, take)
        if not version:
            raise ProtocolFault("the streaming list ended before its end was marked")
        return version[0]

    # -- watching --------------------------------------------------------------------------------

    async def _watch(self, version: str) -> None:
        self._positions = {}
        self._lacks_columns = False
        representation = self.representation
        take = self._take_full_watch_line if representation is Representation.FULL else self._take
        await self._stream({"resourceVersion": version}, representation.watch_accept, take)

    async def _stream(
        self, query: dict[str, str], accept: str, take: Callable[[bytes], bool]
    ) -> None:
        """Open a watch and hand each line to ``take`` until it says stop or the stream ends."""
        target = self._target(query)
        splitter = LineSplitter()
        self.statistics.watches += 1
        self._heard_at = self._clock.monotonic()
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                async with self._client.transport.stream(
                    target, headers={"Accept": accept}, label=self._label
                ) as response:
                    if response.status != 200:
                        raise from_response(
                            response.status,
                            await response.read(),
                            response.headers,
                            verb="watch",
                            resource=self._kind.resource.qualified,
                            namespace=self._namespace or "",
                        )
                    while True:
                        chunk = await response.receive()
                        self._heard_at = self._clock.monotonic()
                        self.statistics.received_bytes += len(chunk)
                        for line in splitter.feed(chunk):
                            if not take(line):
                                return
            except anyio.EndOfStream:
                return
            except LineTooLongError as error:
                raise ProtocolFault(str(error)) from error
            finally:
                self._scope = None
        if scope.cancelled_caught:
            raise RequestTimeout(
                f"the watch of {self._kind.resource.plural} was silent for"
                f" {self._options.silence_s:g} s"
            )

    def _target(self, query: dict[str, str]) -> str:
        timeout_s = int(self._options.server_timeout_s * (1.0 + 0.1 * self._uniform()))
        parameters = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_s),
            **query,
        }
        if self._kind.label_selector:
            parameters["labelSelector"] = self._kind.label_selector
        if self._kind.field_selector:
            parameters["fieldSelector"] = self._kind.field_selector
        return f"{path(self._kind.resource, self._namespace)}?{urlencode(parameters)}"

    async def _guard(self) -> None:
        """Cancel a watch from which nothing has been heard for too long."""
        while True:
            await self._clock.sleep(self._options.silence_s / 3)
            silent_s = self._clock.monotonic() - self._heard_at
            if self._scope is not None and silent_s >= self._options.silence_s:
                self._scope.cancel()

    def _envelope(self, line: bytes) -> WatchLine:
        try:
            return self._decode_line(line)
        except msgspec.DecodeError as error:
            raise ProtocolFault(
                f"a line of the watch of {self._kind.resource.plural} is not an event: {error}"
            ) from error

    def _take(self, line: bytes) -> bool:
        """Take one line of a Table or partial metadata watch."""
        try:
            event = self._decode_line(line)
        except msgspec.ValidationError as error:
            self._undecodable(line, error)
            return True
        except msgspec.DecodeError as error:
            # The bytes are not JSON: a line was cut or mixed. What was missed is unknown.
            raise ProtocolFault(f"a watch line is not JSON: {error}") from error
        received = event.object
        if received.column_definitions:
            # The server sends them with the first event only, and that may be a bookmark.
            self._learn_columns(column_positions(received.column_definitions))
        if event.type == "BOOKMARK":
            self._bookmark(received.metadata.resource_version or _row_version(received.rows))
            return True
        if event.type == "ERROR":
            raise _stream_error(event, self._kind)
        if received.rows is None:
            # Partial metadata, or an object the server could not turn into a row.
            rows = [(received.metadata, _NO_CELLS)]
        else:
            rows = [(row.object.metadata, row.cells) for row in received.rows if row.object]
        for meta, cells in rows:
            if cells and not self._lacks_columns:
                meta.columns = {
                    name: "" if cells[at] is None else str(cells[at])
                    for name, at in self._positions.items()
                }
            self._intake.row(EventType(event.type), meta)
            self._version = meta.resource_version or self._version
        return True

    def _learn_columns(self, positions: dict[str, int]) -> None:
        missing = [name for name in self._kind.columns if name not in positions]
        self._lacks_columns = bool(missing)
        if missing:
            self._log.warning("columns_missing", columns=missing, using="metadata")
        self._positions = {
            name: positions[name] for name in self._kind.columns if name in positions
        }

    def _take_full_watch_line(self, line: bytes) -> bool:
        head = self._envelope(line)
        meta = head.object.metadata
        if head.type == "BOOKMARK":
            self._bookmark(meta.resource_version)
        elif head.type == "ERROR":
            raise _stream_error(head, self._kind)
        else:
            self._take_full_line(line, initial=False)
            self._version = meta.resource_version or self._version
        return True

    def _take_full_line(self, line: bytes, *, initial: bool) -> None:
        try:
            event: Any = self._decode_full_line(line)
        except msgspec.ValidationError as error:
            self._undecodable(line, error)
            return
        self._intake.full(EventType(event.type), event.object, initial=initial)

    def _bookmark(self, version: str) -> None:
        self.statistics.bookmarks += 1
        if version:
            self._version = version

    def _undecodable(self, line: bytes, error: Exception) -> None:
        """Skip one odd object without stopping the others; it is counted and said."""
        self.statistics.undecodable += 1
        self._log.error(
            "object_not_understood", error=str(error), begins=line[:200].decode("utf-8", "replace")
        )


def _row_version(rows: list[Any] | None) -> str:
    """Return the version of a bookmark that came as a Table; its mark sits inside the only row."""
    if rows and rows[0].object is not None:
        version: str = rows[0].object.metadata.resource_version
        return version
    return ""


def _stream_error(event: WatchLine, kind: Kind[Any]) -> ApiError:
    return from_status(
        msgspec.json.encode(event.object), verb="watch", resource=kind.resource.qualified
    )


def with_label_selector(kind: Kind[E], selector: str | None) -> Kind[E]:
    """Return ``kind`` restricted by a label selector on the server's side."""
    return replace(kind, label_selector=selector)
