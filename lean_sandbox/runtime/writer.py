"""Requests for cached objects: each response is applied to the cache like an event.

So the event of our own write is stale when it comes; while a write is in flight the events of its
object wait for the response.

A write that was decided on a version is guarded by it. The version of an entry is 0 while it is not
known: a restored store has not shown the object yet, or the server's versions are no numbers. That
is no reason to write without a guard: the object is fetched and compared first. Apart from that
every method makes exactly one request.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from lean_sandbox.kube.client import Body, CascadeType, Client, PatchType
from lean_sandbox.kube.errors import Asked, Conflict, NotFound, Status
from lean_sandbox.kube.resources import JSON_ACCEPT, METADATA_ACCEPT, PartialObject
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Entry, Key
from lean_sandbox.watch.writes import AppliedResponse, apply_fetched, creating, known_of, writing

E = TypeVar("E", bound=Entry)


class ObjectWriter:
    """Gets, creates, patches and deletes objects, and keeps the caches up to date."""

    def __init__(self, client: Client, *, field_manager: str | None = None) -> None:
        """``field_manager`` is named in creates."""
        self.client = client
        self._field_manager = field_manager

    async def peek(self, cache: Cache[E], key: Key) -> Any | None:
        """Fetch a whole object without caching it: the watch delivers it to all controllers."""
        return await self.client.get(
            cache.kind.resource, key.name, cache.kind.item_type, namespace=key.namespace
        )

    async def get(self, cache: Cache[E], key: Key) -> AppliedResponse[E] | None:
        """Fetch an object; if it is gone, the cache forgets it and the result is ``None``."""
        held = cache.get(key)
        known = known_of(cache, key)
        type_, accept = _form(cache)
        item = await self.client.get(
            cache.kind.resource, key.name, type_, namespace=key.namespace, accept=accept
        )
        if item is None:
            if held is not None:
                cache.forget(key, held.uid)
            return None
        return apply_fetched(cache, item, known=known)

    async def guard(self, cache: Cache[E], entry: E) -> str:
        """Return the version of an object by which to guard a write that was decided on ``entry``.

        One GET if the version is unknown: a restored store has not shown the object yet, or the
        server's versions are not numbers. Raises NotFound if the object is gone, and Conflict if it
        differs from ``entry``; the cache then has the new state.
        """
        if entry.version:
            return str(entry.version)
        found = await self.get(cache, entry.key)
        asked = Asked("get", cache.kind.resource.qualified, entry.key.namespace, entry.key.name)
        if found is None:
            raise NotFound(404, asked=asked)
        version: str = found.item.metadata.resource_version
        if found.is_latest and version not in ("", "0") and _is_same(found.entry, entry):
            return version
        message = "it has changed since the write was decided on"
        raise Conflict(409, Status(reason="Conflict", message=message), asked)

    async def create(
        self,
        cache: Cache[E],
        namespace: str,
        body: Body,
        *,
        name: str = "",
        owner: str = "",
    ) -> AppliedResponse[E]:
        """Create an object called ``name``; if the server is to name it, of the uid ``owner``.

        Raises AlreadyExists.
        """
        type_, accept = _form(cache, as_metadata=cache.kind.new_columns is not None)
        with creating(cache, namespace, name=name, owner=owner) as applied:
            item = await self.client.create(
                cache.kind.resource,
                body,
                type_,
                namespace=namespace,
                field_manager=self._field_manager,
                accept=accept,
            )
            return applied(item)

    async def patch(
        self,
        cache: Cache[E],
        entry: E,
        body: dict[str, Any] | list[dict[str, Any]],
        *,
        status: msgspec.Struct | None = None,
        as_metadata: bool = True,
        generation: int = 0,
    ) -> AppliedResponse[E]:
        """Patch an object; metadata alone as response is a fraction of the bytes.

        A list of operations is a JSON Patch, anything else a merge patch. That carries the uid, so
        that it never changes a successor of the same name, unless it writes the status, where
        servers ignore the uid. Raises NotFound when the object is gone, which the cache forgets
        then; Conflict or Invalid when a guard in ``body`` does not hold, Conflict for another
        object. With a ``status`` only the status is written, and the entry remembers it; it forgets
        its status when it is unknown whether the write took place.

        A response that shows another object of the name is not applied, and the cache forgets
        ``entry``, which is gone. With a ``generation``, one that shows another spec is not applied
        either: the watch has yet to deliver that to all controllers. Changes by others that a
        response shows are reported to handlers like an event: their own event is stale.
        """
        type_, accept = _form(cache, as_metadata=as_metadata)
        if status is None and isinstance(body, dict):
            body = {**body, "metadata": {**body.get("metadata", {}), "uid": entry.uid}}
        with writing(cache, entry, body, status=status, generation=generation) as write:
            item = await self.client.patch(
                cache.kind.resource,
                entry.key.name,
                body,
                type_,
                namespace=entry.key.namespace,
                patch_type=PatchType.JSON if isinstance(body, list) else PatchType.MERGE,
                subresource="status" if status is not None else None,
                accept=accept,
            )
            return write.applied(item, as_metadata=as_metadata)

    async def delete(
        self,
        cache: Cache[E],
        entry: E,
        *,
        is_guarded: bool = False,
        cascade: CascadeType | None = None,
    ) -> bool:
        """Delete exactly this object; false when it was gone already, and the cache forgets it.

        Raises Conflict when another object has its name, or, if the deletion is guarded, when the
        object was written to since ``entry``; see :meth:`guard`.
        """
        key = entry.key
        try:
            version = await self.guard(cache, entry) if is_guarded else None
            await self.client.delete(
                cache.kind.resource,
                key.name,
                namespace=key.namespace,
                uid=entry.uid,
                resource_version=version,
                cascade=cascade,
            )
        except NotFound:
            cache.forget(key, entry.uid)
            return False
        return True

    async def remove(self, cache: Cache[E], entry: E) -> None:
        """Delete an object and forget it at once, unless an event has shown that it stays for now.

        A finalizer keeps it then, and its end will be shown.
        """
        await self.delete(cache, entry)
        held = cache.latest(entry)
        if held is not None and not held.is_deleting:
            cache.forget(entry.key, entry.uid)


def _form(cache: Cache[E], *, as_metadata: bool = False) -> tuple[Any, str]:
    """Return how an answer is decoded, and what it is asked for as."""
    if as_metadata or cache.kind.item_type is PartialObject:
        return PartialObject, METADATA_ACCEPT
    return cache.kind.item_type, JSON_ACCEPT


def _is_same(fetched: Entry, entry: Entry) -> bool:
    """Return whether a fetched object is the one that was decided on, and as it was then."""
    return fetched == msgspec.structs.replace(entry, version=fetched.version, seen=fetched.seen)
