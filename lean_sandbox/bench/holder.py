"""Small processes that list the same objects and hold them in one of three ways.

Started as ``python -m lean_sandbox.bench.holder WAY URL``; prints one line of JSON with its own
memory. All ways import the same modules and list the same pages, so that only the way of decoding
and holding differs. ``empty`` holds nothing: the cost of the process itself.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Mapping
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from lean_sandbox.bench.process import Memory, memory_of
from lean_sandbox.kube.resources import path
from lean_sandbox.kube.wire import Page
from lean_sandbox.watch.kind import Kind
from lean_sandbox.watch.objects import row_of
from lean_sandbox.watch.resources.kinds import pods, sandboxes

_PAGE_SIZE = 500
_TIMEOUT_S = 60.0
# A tree of the fields to keep; None keeps everything below.
Fields = Mapping[str, Any]
_METADATA_FIELDS: Fields = dict.fromkeys(
    (
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "labels",
        "annotations",
        "ownerReferences",
        "deletionTimestamp",
    )
)
SANDBOX_FIELDS: Fields = {
    "metadata": _METADATA_FIELDS,
    "spec": {
        **dict.fromkeys(("operatingMode", "service", "shutdownTime", "shutdownPolicy")),
        "podTemplate": {
            "metadata": None,
            "spec": {"containers": {"ports": None}},
        },
        "volumeClaimTemplates": {"metadata": {"name": None}},
    },
    "status": None,
}
POD_FIELDS: Fields = {
    "metadata": _METADATA_FIELDS,
    "spec": {"nodeName": None},
    "status": {
        "phase": None,
        "podIPs": None,
        "conditions": dict.fromkeys(("type", "status", "reason", "message")),
    },
}

# From the bytes of a page to what is held of it, and the token of the next page.
Decode = Callable[[bytes], tuple[list[Any], str]]


class Held(msgspec.Struct, frozen=True):
    """What one process holds and what it takes."""

    objects: int
    memory: Memory


def _while_decoding(kind: Kind[Any], _fields: Fields) -> Decode:
    """Decode only the fields the controller names, and hold its own cache entries."""
    decode = msgspec.json.Decoder(Page[kind.item_type]).decode  # type: ignore[name-defined]

    def take(body: bytes) -> tuple[list[Any], str]:
        page = decode(body)
        held = []
        for item in page.items:
            row = row_of(item.metadata)
            if kind.columns_of is not None:
                row.columns = kind.columns_of(item)
            held.append(kind.from_full(item, row, None))
        return held, page.metadata.continue_

    return take


def _after_decoding(_kind: Kind[Any], fields: Fields) -> Decode:
    """Decode everything into dicts, then keep the fields that the cache entries are made of."""

    def take(body: bytes) -> tuple[list[Any], str]:
        page = json.loads(body)
        return [pick(item, fields) for item in page["items"]], page["metadata"].get("continue", "")

    return take


def _not_at_all(_kind: Kind[Any], _fields: Fields) -> Decode:
    """Decode everything into dicts and hold it, as an informer without a transform does."""

    def take(body: bytes) -> tuple[list[Any], str]:
        page = json.loads(body)
        return page["items"], page["metadata"].get("continue", "")

    return take


WAYS: Mapping[str, Callable[[Kind[Any], Fields], Decode]] = {
    "while": _while_decoding,
    "after": _after_decoding,
    "never": _not_at_all,
}


def pick(value: Any, fields: Fields | None) -> Any:
    """Return a copy of decoded JSON with only the fields of the tree; lists item by item."""
    if fields is None:
        return value
    if isinstance(value, list):
        return [pick(item, fields) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: pick(value[key], below) for key, below in fields.items() if key in value}


def hold(way: str, url: str) -> list[Any]:
    """List all Sandboxes and Pods, page by page, and return what the way keeps of them.

    Raises OSError when the server does not answer, ValueError when it answers with an error.
    """
    held: list[Any] = []
    if way == "empty":
        return held
    connection = HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT_S)
    kinds: tuple[tuple[Kind[Any], Fields], ...] = (
        (sandboxes(), SANDBOX_FIELDS),
        (pods(), POD_FIELDS),
    )
    for kind, fields in kinds:
        take = WAYS[way](kind, fields)
        token = ""
        while True:
            target = f"{path(kind.resource)}?limit={_PAGE_SIZE}&continue={quote(token)}"
            connection.request("GET", target, headers={"Accept": "application/json"})
            response = connection.getresponse()
            body = response.read()
            if response.status != 200:
                raise ValueError(f"{target}: {response.status} {body[:200]!r}")
            found, token = take(body)
            del body
            held += found
            if not token:
                break
    connection.close()
    return held


def main(way: str, url: str) -> None:
    """Hold the objects and print what that takes."""
    held = hold(way, url)
    gc.collect()
    told = Held(len(held), memory_of("self"))
    sys.stdout.write(msgspec.json.encode(told).decode() + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
