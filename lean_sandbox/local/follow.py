"""A small list-and-watch loop, enough for the simulated kubelet and the bench.

It lists, watches from that version, watches again from the last version seen when a connection
ends, and lists again when the server says that version is gone. Deletions missed in between are
found by comparing the list with what was known. It never gives up: errors are logged and waited
out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar
from urllib.parse import urlencode

import anyio
import msgspec
import structlog

from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import Asked, ControlPlaneError, Gone, from_status
from lean_sandbox.kube.http1 import LineSplitter
from lean_sandbox.kube.resources import JSON_ACCEPT, Resource, path

log = structlog.get_logger("kubelet")
_PAGE = 500
_WATCH_TIMEOUT_S = 290
# Longer than the server lets a watch live: only a dead connection is silent for so long.
_SILENCE_S = _WATCH_TIMEOUT_S + 30.0
_CONNECT_TIMEOUT_S = 10.0
_BACKOFF_FIRST_S = 0.1
_BACKOFF_CAP_S = 10.0
# A watch that lived so long did not fail for the reason the last one did.
_LIVED_S = 5.0


class _Meta(Protocol):
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class Followed(Protocol):
    """What an object needs to be followed."""

    @property
    def metadata(self) -> _Meta:
        """Return the object's identity and version."""


O = TypeVar("O", bound=Followed)  # noqa: E741


class _ListMeta(msgspec.Struct, frozen=True):
    resourceVersion: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, frozen=True):
    """A page whose items are decoded one by one, so that an odd one does not hide the others."""

    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct, frozen=True):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"{}")


_events = msgspec.json.Decoder(_Event)


class Follower(Generic[O]):
    """Follows one kind, across all namespaces unless one is named.

    ``on_change`` is called with each object seen, ``on_gone`` with the uid of each one that is no
    more; both must not block. ``synced`` is set after the first complete list. ``accept`` is the
    form that watches are asked for.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        resource: Resource,
        type_: type[O],
        *,
        on_change: Callable[[O], None],
        on_gone: Callable[[str], None],
        namespace: str | None = None,
        label_selector: str | None = None,
        accept: str = JSON_ACCEPT,
    ) -> None:
        self._client = client
        self._clock = clock
        self._resource = resource
        self._decoder = msgspec.json.Decoder(type_)
        self._on_change = on_change
        self._on_gone = on_gone
        self._namespace = namespace
        self._label_selector = label_selector
        self._accept = accept
        self._known: set[str] = set()
        self._version = ""
        self._events = 0
        self.synced = anyio.Event()

    async def run(self) -> None:
        """Follow until cancelled."""
        backoff_s = _BACKOFF_FIRST_S
        while True:
            began, before = self._clock.monotonic(), self._events
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except Gone:
                self._version = ""
            except (ControlPlaneError, msgspec.MsgspecError, TimeoutError) as problem:
                log.debug("watch failed", of=self._resource.plural, problem=repr(problem))
            if self._events > before or self._clock.monotonic() - began > _LIVED_S:
                backoff_s = _BACKOFF_FIRST_S
            await self._clock.sleep(backoff_s)
            backoff_s = min(_BACKOFF_CAP_S, backoff_s * 2)

    async def _list(self) -> None:
        seen: set[str] = set()
        version, token = "", ""
        while True:
            page = await self._client.list_page(
                self._resource,
                self._namespace,
                _List,
                limit=_PAGE,
                continue_=token or None,
                label_selector=self._label_selector,
            )
            for raw in page.items or ():
                found = self._decode(raw)
                if found is not None:
                    seen.add(found.metadata.uid)
                    self._on_change(found)
            version, token = page.metadata.resourceVersion, page.metadata.continue_
            if not token:
                break
        for uid in self._known - seen:
            self._on_gone(uid)
        self._known, self._version = seen, version
        self.synced.set()

    async def _watch(self) -> None:
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_TIMEOUT_S),
            "resourceVersion": self._version,
            "labelSelector": self._label_selector or "",
        }
        splitter = LineSplitter()
        async with self._client.transport.stream(
            f"{path(self._resource, self._namespace)}?{urlencode(query)}",
            headers={"Accept": self._accept},
            connect_timeout_s=_CONNECT_TIMEOUT_S,
            asked=Asked("watch", self._resource.qualified),
        ) as stream:
            with anyio.fail_after(_SILENCE_S) as deadline:

                def take(chunk: bytes) -> None:
                    deadline.deadline = anyio.current_time() + _SILENCE_S
                    for line in splitter.feed(chunk):
                        self._take(line)

                await stream.feed(take)

    def _take(self, line: bytes) -> None:
        event = _events.decode(line)
        if event.type == "ERROR":
            raise from_status(bytes(event.object), Asked("watch", self._resource.qualified))
        self._events += 1
        found = self._decode(event.object)
        if found is None:
            return
        self._version = found.metadata.resource_version or self._version
        uid = found.metadata.uid
        if event.type == "DELETED":
            self._known.discard(uid)
            self._on_gone(uid)
        elif event.type in ("ADDED", "MODIFIED"):
            self._known.add(uid)
            self._on_change(found)

    def _decode(self, raw: msgspec.Raw) -> O | None:
        try:
            return self._decoder.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            log.warning("cannot be read", of=self._resource.plural, problem=repr(problem))
            return None
