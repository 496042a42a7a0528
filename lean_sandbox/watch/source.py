"""The requests by which one kind is listed and watched, and what the server has sent of it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import urlencode

from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import Asked
from lean_sandbox.kube.http1 import HttpConnection
from lean_sandbox.kube.resources import JSON_ACCEPT, PartialObject, path
from lean_sandbox.watch.kind import (
    METADATA_LIST_ACCEPT,
    METADATA_WATCH_ACCEPT,
    Kind,
    Representation,
)

# For a page of a list, and for the start of a watch.
_REQUEST_TIMEOUT_S = 30.0
# The size from which a page of several objects is given up for a smaller one.
_MOST_PAGE_BYTES = 4 * 1024 * 1024


class Source:
    """The objects of one kind that a reflector asks for, and the requests for them.

    They are those of one namespace, or of all (None), which the label selector of the kind and
    ``field_selector`` choose. Servers without sharding ignore ``shard_selector``: the cache has to
    drop foreign objects.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind[Any],
        *,
        clock: Clock,
        namespace: str | None,
        field_selector: str,
        shard_selector: str,
    ) -> None:
        self._client = client
        self._kind = kind
        self._clock = clock
        self._field_selector = field_selector
        self.namespace = namespace
        self.shard_selector = shard_selector
        forms = list(Representation)
        self._forms = forms[forms.index(kind.watch_as) :]
        #: When the server last sent anything.
        self.heard_at = clock.monotonic()
        #: The bytes of the bodies of lists and watches.
        self.received_bytes = 0

    def note(self, chunk: bytes) -> None:
        """Note that the server has sent something."""
        self.heard_at = self._clock.monotonic()
        self.received_bytes += len(chunk)

    @property
    def representation(self) -> Representation:
        """The form in which the watch is requested at present."""
        return self._forms[0]

    @property
    def can_fall_back(self) -> bool:
        """Whether there is another form of watch that the server has not refused."""
        return len(self._forms) > 1

    def fall_back(self) -> Representation:
        """Request the watch in the next form from now on: the server refuses the one returned."""
        return self._forms.pop(0)

    async def page(self, limit: int, continue_: str | None = None) -> bytes:
        """Read a page of the list. Raises AnswerTooLarge for a large one of several objects."""
        is_partial = self._kind.item_type is PartialObject
        body = await self._client.list(
            self._kind.resource,
            bytes,
            namespace=self.namespace,
            chunk_size=limit,
            continue_=continue_,
            labels=str(self._kind.label_selector) or None,
            fields=self._field_selector or None,
            shard_selector=self.shard_selector or None,
            accept=METADATA_LIST_ACCEPT if is_partial else JSON_ACCEPT,
            timeout_s=_REQUEST_TIMEOUT_S,
            max_body_bytes=None if limit == 1 else _MOST_PAGE_BYTES,
        )
        self.note(body)
        return body

    def watch(
        self, version: str | None, timeout_s: float
    ) -> AbstractAsyncContextManager[HttpConnection]:
        """Watch from a version, in the present form; the server ends the watch in ``timeout_s``."""
        resource = self._kind.resource
        parameters = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(timeout_s)),
            "resourceVersion": version,
            "labelSelector": str(self._kind.label_selector),
            "fieldSelector": self._field_selector,
            "shardSelector": self.shard_selector,
        }
        query = urlencode({name: value for name, value in parameters.items() if value})
        return self._client.transport.stream(
            f"{path(resource, self.namespace)}?{query}",
            headers={"Accept": METADATA_WATCH_ACCEPT.get(self.representation, JSON_ACCEPT)},
            connect_timeout_s=_REQUEST_TIMEOUT_S,
            asked=Asked("watch", resource.qualified, self.namespace or ""),
        )
