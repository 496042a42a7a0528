"""Requests for cached objects: each response is applied to the cache like an event.

So the event of our own write is stale when it comes; while a write is in flight the events of its
object wait for the response.

A write that was decided on a version is guarded by it. The version of an entry is 0 while it is not
known: a restored store has not shown the object yet, or the server's versions are no numbers. That
is no reason to write without a guard: the object is fetched and compared first. Apart from that
every method makes exactly one request.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from filters import Change
from lean_sandbox.kube.client import Body, Client, Propagation
from lean_sandbox.kube.errors import ApiError, Asked, Conflict, NotFound, Status
from lean_sandbox.kube.limits import Lane
from lean_sandbox.kube.resources import METADATA_ACCEPT, PartialObject
from lean_sandbox.model.meta import as_version
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Delta, Entry, Key

E = TypeVar("E", bound=Entry)


class Response(msgspec.Struct, Generic[E], frozen=True):
    """What a response has shown: ``item`` is the object as sent, whole or its metadata alone.

    ``entry`` is the cache entry now; ``is_latest`` says whether it is of the response's version: a
    watch event may have been faster. ``change`` is what differs from the entry before.
    """

    item: Any
    entry: E
    change: Change
    is_latest: bool


class ObjectWriter:
    """Gets, creates, patches and deletes objects, and keeps the caches up to date."""

    def __init__(self, client: Client, *, lane: Lane, field_manager: str | None = None) -> None:
        """``field_manager`` is named in creates."""
        self.client = client
        self.options: dict[str, Any] = {"lane": lane}
        self._for_metadata = {**self.options, "accept": METADATA_ACCEPT}
        self._field_manager = field_manager

    async def peek(self, cache: Cache[E], key: Key) -> Any | None:
        """Fetch a whole object without caching it: the watch delivers it to all controllers."""
        return await self.client.find(
            cache.kind.resource, key.namespace, key.name, cache.kind.item_type, **self.options
        )

    async def get(self, cache: Cache[E], key: Key) -> Response[E] | None:
        """Fetch an object; if it is gone, the cache forgets it and the result is ``None``."""
        held = cache.get(key)
        known = cache.gate.known(key.namespace, 0 if held is None else held.version)
        type_, options = self._form(cache)
        item = await self.client.find(
            cache.kind.resource, key.namespace, key.name, type_, **options
        )
        if item is None:
            if held is not None:
                cache.forget(key, held.uid)
            return None
        return _response(item, cache.apply_fetched(item, known=known))

    async def guard(self, cache: Cache[E], entry: E) -> str:
        """Return the version of an object by which to guard a write that was decided on ``entry``.

        One GET if that is unknown, as of an object that a restored store has not shown yet, or
        where the versions of a server are not numbers. Raises NotFound if the object is gone, and
        Conflict if it is not as ``entry`` says: the cache then knows how it is.
        """
        if entry.version:
            return str(entry.version)
        found = await self.get(cache, entry.key)
        asked = Asked("get", cache.kind.resource.qualified, entry.key.namespace, entry.key.name)
        if found is None:
            raise NotFound(404, asked=asked)
        version = str(found.item.metadata.resource_version)
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
        columns: dict[str, str] | None = None,
    ) -> Response[E]:
        """Create an object called ``name``; if the server is to name it, of the uid ``owner``.

        With ``columns``, the cells that a Table would have for the new object, the response is
        asked for as metadata alone, and the event of the same version is applied as well. Raises
        AlreadyExists.
        """
        type_, options = self._form(cache, as_metadata=columns is not None)
        known = cache.gate.known(namespace, cache.gate.listed_at(namespace))
        own = cache.own
        with own.writing(Key(namespace, name)) if name else own.creating(namespace, owner):
            item = await self.client.create(
                cache.kind.resource,
                namespace,
                body,
                type_,
                field_manager=self._field_manager,
                **options,
            )
            shown = item if columns is None else item.metadata.as_answered(columns)
            applied = cache.apply_response(shown, known=known, is_create=True)
            return _response(item, *applied)

    async def patch(
        self,
        cache: Cache[E],
        entry: E,
        body: dict[str, Any] | list[dict[str, Any]],
        *,
        status: msgspec.Struct | None = None,
        as_metadata: bool = True,
        generation: int = 0,
        columns: dict[str, str] | None = None,
    ) -> Response[E]:
        """Patch an object; metadata alone as response is a fraction of the bytes.

        A list of operations is a JSON Patch, anything else a merge patch. That carries the uid, so
        that it never changes a successor of the same name, unless it writes the status, where
        servers ignore the uid. Raises NotFound when the object is gone, which the cache forgets
        then; Conflict or Invalid when a guard in ``body`` does not hold, Conflict for another
        object. With a ``status`` only the status is written, and the entry remembers it; it forgets
        its status when it is unknown whether the write took place. ``columns`` are the cells that a
        Table would have for the object now.

        A response that shows another object of the name is not applied, and the cache forgets
        ``entry``, which is gone. With a ``generation``, one that shows another spec is not applied
        either: the watch has yet to deliver that to all controllers. Changes by others that a
        response shows are reported to handlers like an event: their own event is stale.
        """
        type_, options = self._form(cache, as_metadata=as_metadata)
        held = cache.latest(entry)
        known = cache.gate.known(entry.key.namespace, 0 if held is None else held.version)
        old_status = getattr(entry, "status", None)
        if status is None and isinstance(body, dict):
            body = {**body, "metadata": {**body.get("metadata", {}), "uid": entry.uid}}
        with cache.own.writing(entry.key, entry.uid, _as_merge_patch(body)):
            try:
                item = await self.client.patch(
                    cache.kind.resource,
                    entry.key.namespace,
                    entry.key.name,
                    body,
                    type_,
                    subresource="status" if status is not None else None,
                    **options,
                )
            except NotFound:
                cache.forget(entry.key, entry.uid)
                raise
            except BaseException as error:
                # After a timeout, a broken connection or a cancellation it may have taken place.
                is_clear = isinstance(error, ApiError) and error.status < 500
                if status is not None and not is_clear:
                    cache.mark(entry, status=None)
                if isinstance(error, ApiError) and error.is_of_another:
                    raise Conflict(409, error.said, error.asked) from error
                raise
            row, before = item.metadata, cache.latest(entry)
            if is_gone := row.uid != entry.uid:
                # Another has the name by now, whatever the watch has yet to show.
                cache.forget(entry.key, entry.uid)
            if is_gone or (generation and row.generation != generation):
                response = Response(item, entry, Change.NONE, is_latest=False)
            else:
                shown = row.as_answered(columns) if as_metadata else item
                response = _response(item, *cache.apply_response(shown, known=known))
            now: Any = response.entry
            # Metadata that overtook the response, such as that of another write of ours, says
            # nothing about the status; a list that overtook it may show a newer one by others.
            is_ours = response.is_latest or getattr(now, "status", None) is old_status
            if status is not None and is_ours and row.uid == now.uid == entry.uid:
                now = cache.mark(now, status=status)
                response = msgspec.structs.replace(response, entry=now)
            if response.is_latest and before is not None and not cache.own.explain(before, now):
                cache.notify(Delta(entry.key, response.change, before, now))
            return response

    async def delete(
        self,
        cache: Cache[E],
        entry: E,
        *,
        is_guarded: bool = False,
        propagation: Propagation | None = None,
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
                key.namespace,
                key.name,
                uid=entry.uid,
                resource_version=version,
                propagation=propagation,
                **self.options,
            )
        except NotFound:
            cache.forget(key, entry.uid)
            return False
        return True

    async def remove(self, cache: Cache[E], entry: E) -> None:
        """Delete an object and forget it at once, without waiting for its event."""
        await self.delete(cache, entry)
        cache.forget(entry.key, entry.uid)

    def _form(self, cache: Cache[E], *, as_metadata: bool = False) -> tuple[Any, dict[str, Any]]:
        if as_metadata or cache.kind.item_type is PartialObject:
            return PartialObject, self._for_metadata
        return cache.kind.item_type, self.options


def _is_same(fetched: Entry, entry: Entry) -> bool:
    """Return whether a fetched object is the one that was decided on, and as it was then."""
    return fetched == msgspec.structs.replace(entry, version=fetched.version, seen=fetched.seen)


def _as_merge_patch(body: dict[str, Any] | list[dict[str, Any]]) -> dict[str, Any]:
    """Return a patch as a merge patch, with null for what it removes."""
    if isinstance(body, dict):
        return body
    written: dict[str, Any] = {}
    for operation in body:
        if operation["op"] == "test":
            continue
        parts = operation["path"].split("/")[1:]
        *parents, name = [part.replace("~1", "/").replace("~0", "~") for part in parts]
        within = written
        for parent in parents:
            within = within.setdefault(parent, {})
        within[name] = operation.get("value")
    return written


def _response(item: Any, entry: E, change: Change = Change.NONE) -> Response[E]:
    is_latest = entry.version == as_version(item.metadata.resource_version)
    return Response(item, entry, change, is_latest)
