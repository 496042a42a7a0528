"""Our own requests: what is known when one is sent, and what its response makes of the cache.

A response is applied like an event, so that the event of our own write is stale when it comes. What
it shows beyond our own writes is reported to handlers, for its event is stale as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import msgspec

from filters import Change
from lean_sandbox.kube.errors import ApiError, Conflict, NotFound
from lean_sandbox.model.meta import ObjectMeta, as_version
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Delta, Entry, Key, key_of
from lean_sandbox.watch.versions import Age, Known

E = TypeVar("E", bound=Entry)


class AppliedResponse(msgspec.Struct, Generic[E], frozen=True):
    """What a response has shown: ``item`` is the object as sent, whole or its metadata alone.

    ``entry`` is the cache entry now; ``is_latest`` says whether it is of the response's version: a
    watch event may have been faster.
    """

    item: Any
    entry: E
    is_latest: bool


def _response(item: Any, entry: E) -> AppliedResponse[E]:
    return AppliedResponse(item, entry, entry.version == as_version(item.metadata.resource_version))


def known_of(cache: Cache[E], key: Key) -> Known:
    """Return what is known at a request about one object; it has to be applied with that."""
    held = cache.get(key)
    return cache.gate.known(key.namespace, 0 if held is None else held.version)


class Write(Generic[E]):
    """A patch of ours to a cached object, from its request to its response.

    With a ``status`` only that is written, and the entry remembers it. With a ``generation``, a
    response that shows another spec is not applied: the watch has yet to deliver that to all.
    """

    def __init__(
        self, cache: Cache[E], entry: E, *, status: msgspec.Struct | None, generation: int
    ) -> None:
        self._cache = cache
        self._entry = entry
        self._status = status
        self._generation = generation
        held = cache.latest(entry)
        self._known = cache.gate.known(entry.key.namespace, 0 if held is None else held.version)

    def applied(self, item: Any, *, as_metadata: bool) -> AppliedResponse[E]:
        """Apply the response; if it shows another object of the name, ours is gone."""
        cache = self._cache
        entry = self._entry
        status = self._status
        row = item.metadata
        before = cache.latest(entry)
        if is_gone := row.uid != entry.uid:
            # Another object has the name now, even if the watch has not shown it yet.
            cache.forget(entry.key, entry.uid)
        if is_gone or (self._generation and row.generation != self._generation):
            return AppliedResponse(item, entry, is_latest=False)
        columns_of = cache.kind.status_columns
        columns = columns_of(status) if columns_of is not None and status is not None else None
        shown = row.as_answered(columns) if as_metadata else item
        now, change = apply_response(cache, shown, known=self._known, status=status)
        response = _response(item, now)
        if not response.is_latest:
            # Metadata that overtook the response, such as that of another write of ours, says
            # nothing about the status; a list that overtook it may show a newer one by others.
            is_ours = getattr(now, "status", None) is getattr(entry, "status", None)
            if status is not None and is_ours and now.uid == entry.uid:
                return AppliedResponse(item, cache.mark(now, status=status), is_latest=False)
        elif (
            before is not None and change is not Change.GONE and not cache.own.explain(before, now)
        ):
            cache.handlers.call(Delta(entry.key, change, before, now))
        return response

    def failed(self, error: BaseException) -> None:
        """Note what an error means; raises Conflict for one that tells of another object."""
        cache = self._cache
        entry = self._entry
        if isinstance(error, NotFound):
            cache.forget(entry.key, entry.uid)
        elif self._status is not None and not (isinstance(error, ApiError) and error.status < 500):
            # After a timeout, a broken connection or a cancellation it may have taken place.
            cache.mark(entry, status=None)
        if isinstance(error, ApiError) and error.is_of_another:
            raise Conflict(409, error.answer, error.asked) from error


@contextmanager
def writing(
    cache: Cache[E],
    entry: E,
    body: dict[str, Any] | list[dict[str, Any]],
    *,
    status: msgspec.Struct | None = None,
    generation: int = 0,
) -> Iterator[Write[E]]:
    """Patch an object in the body of the ``with``; its events wait until the response is applied.

    See :class:`Write`. If the object is gone, its entry is removed; if it is unclear whether a
    status was written, the status is forgotten.
    """
    write = Write(cache, entry, status=status, generation=generation)
    with cache.own.writing(entry.key, entry.uid, _as_merge_patch(body)):
        try:
            yield write
        except BaseException as error:
            write.failed(error)
            raise


@contextmanager
def creating(
    cache: Cache[E], namespace: str, *, name: str, owner: str
) -> Iterator[Callable[[Any], AppliedResponse[E]]]:
    """Create an object in the body of the ``with``, which applies the response by what it gets.

    The events wait of the object called ``name``, or else of all new ones of the uid ``owner``.
    """
    known = cache.gate.known(namespace, cache.gate.listed_at(namespace))

    def applied(item: Any) -> AppliedResponse[E]:
        columns = cache.kind.new_columns
        shown = item if columns is None else item.metadata.as_answered(columns)
        return _response(item, apply_response(cache, shown, known=known, is_create=True)[0])

    own = cache.own
    with own.writing(Key(namespace, name)) if name else own.creating(namespace, owner):
        yield applied


def apply_fetched(cache: Cache[E], item: Any, *, known: Known) -> AppliedResponse[E]:
    """Apply the object that a GET has returned.

    Handlers are called for what no event has shown yet. They are called as well for a response
    older than the newest event, though it is not applied: the event may have been dropped because
    the response was expected to show as much. ``known``: see :func:`apply_response`.
    """
    before = cache.get(Key(item.metadata.namespace, item.metadata.name))
    entry, change = apply_response(cache, item, known=known)
    if entry is before:
        cache.handlers.call(Delta(entry.key, Change.COLUMNS, before, entry))
    elif change and change is not Change.GONE:
        cache.handlers.call(Delta(entry.key, change, before, entry))
    return _response(item, entry)


def apply_response(
    cache: Cache[E],
    shown: Any,
    *,
    known: Known,
    is_create: bool = False,
    status: msgspec.Struct | None = None,
) -> tuple[E, Change]:
    """Remember an object, or its metadata, as the response to a request shows it.

    ``known`` is what was known when the request was sent, with the version of the cached object or,
    for a create, of the last list. A response that is older than that, or shows an object alive
    whose end had been seen by then, comes from a restored store and is accepted. ``status`` is the
    status that the request has written.

    Returns the entry and what the predicates see changed. Handlers are called only if the object
    has left the selector. A response that was overtaken changes nothing: the entry is then the
    newer one, perhaps with another uid, or (with GONE) one that is not cached as it has ended.
    """
    item = None if isinstance(shown, ObjectMeta) else shown
    row = shown if item is None else cache.kind.row_of(item)
    key = key_of(row.namespace, row.name)
    version = as_version(row.resource_version)
    if 0 < version < known.version:
        cache.forget_version(key)
    old = cache.get(key)
    age = cache.gate.of_response(old, row.namespace, row.uid, version, known)
    if old is not None and age is Age.KNOWN:
        return old, Change.NONE
    kept = old if old is not None and old.uid == row.uid else None
    new = cache.kind.build_on(kept, row, item)
    if status is not None:
        new = msgspec.structs.replace(new, status=status)
    if _note_end(cache, row, age, is_cached=kept is not None):
        return new, Change.GONE
    decision, seen = cache.detector.examine(kept.seen if kept else (), row, is_event=False)
    cache.advance(new, version, seen)
    cache.put(new)
    if item is not None:
        cache.gate.half_known.discard(key)
    elif is_create:
        # The event of the same version may show more than the metadata, such as that a Pod is held
        # back by scheduling gates from the start.
        cache.gate.half_known.add(key)
    return new, decision.change


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


def _note_end(cache: Cache[E], row: ObjectMeta, age: Age, *, is_cached: bool) -> bool:
    """Note that an object has ended or left the selector, if it has; return whether."""
    if age is Age.ENDED:
        # Nothing would ever remove it.
        return True
    if age is not Age.UNLISTED and cache.selects(row):
        return False
    version = as_version(row.resource_version)
    # The watch sends a delete for one that left, but a list after a gap misses only cached objects.
    if age is Age.UNLISTED or is_cached:
        cache.end(key_of(row.namespace, row.name), version, row)
    else:
        cache.gate.note_end(row.uid, version)
    return True
