"""A reflector lists and watches one kind to keep its cache up to date.

Without a version it lists, by pages. With a version it watches until the stream ends, and resumes
from the last version it saw. When that version is too old, it lists again.

Versions go backwards when etcd is restored from a backup. A reflector notices that by an event or
bookmark below the version it watched from, by the error "too large resource version", or, after a
watch without any event, by asking the server for its version. In each case it lists again. A list
names no version, and so contains every write made before it was requested, even when an API server
lags behind another. A list below the versions known before it began therefore comes from a restored
store, and replaces the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, TypeVar
from urllib.parse import urlencode

import anyio
import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.kube import errors
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.http1 import LineSplitter
from lean_sandbox.kube.resources import JSON_ACCEPT, PartialObject, path
from lean_sandbox.model.meta import as_version
from lean_sandbox.turns import RANK, Rank
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.decode import EventDecoder, WentBackError
from lean_sandbox.watch.failures import Failures, why_unserved
from lean_sandbox.watch.kind import (
    METADATA_LIST_ACCEPT,
    METADATA_WATCH_ACCEPT,
    Entry,
    Representation,
)

E = TypeVar("E", bound=Entry)

# After how long the server ends a watch, how much later its end may arrive, and the share by which
# that time varies, so that watches do not all end together.
_SERVER_TIMEOUT_S = 290.0
_END_SLACK_S = 30.0
_TIMEOUT_SPREAD = 0.1
# A watch that sent bookmarks (about one a minute) and then nothing for this long is cancelled, up
# to a third later; one without bookmarks when the server has not ended it in time.
_SILENCE_S = 90.0
# A watch that ends before this age, or a version that expires this soon after a list, counts as a
# failure, so that a server that closes at once is not asked in a loop.
_HASTY_END_S = 5.0
# A watch that lived for this long starts the pauses over. Load balancers cut what is idle for less
# than the minute between two bookmarks.
_HEALTHY_S = 30.0
# For a page of a list, and for the start of a watch.
_REQUEST_TIMEOUT_S = 30.0
# After this long without a stream everything is listed and compared with the cache before the next
# watch, as at once after a broken connection: the server may have been started over a restored
# store, whose versions soon catch up.
_AWAY_S = 5.0
# How long after a list everything is listed anew and compared with the cache, plus up to a tenth.
_RESYNC_S = 36_000.0
# Objects on the first page of a list: enough for most kinds, and few if they are large.
_FIRST_PAGE = 25
# The size a page should have, and the size from which a page is given up for a smaller one.
_PAGE_BYTES = 2 * 1024 * 1024
_MOST_PAGE_BYTES = 4 * 1024 * 1024
# How often to try a kind that the server does not know: its definition may be applied soon.
_LOOK_AGAIN_S = 5.0


class _Listing(msgspec.Struct):
    """Everything is to be listed, from the beginning or from where a busy server refused a page.

    ``compare_at`` is from when on the list is compared with the cache, even where the versions are
    the same.
    """

    compare_at: float
    limit: int = 0
    continue_: str | None = None


class _Listed(msgspec.Struct):
    """Everything was listed ``at`` a time: the next watch begins at the version reached.

    ``lost_at`` is when the last stream ended, until another begins.
    """

    at: float
    resync_at: float
    lost_at: float = math.inf


class _Watching(msgspec.Struct):
    """A watch is open, or about to be; cancelling ``scope`` ends it."""

    listed: _Listed
    scope: anyio.CancelScope
    began_at: float
    bookmarks_before: int


class Reflector(Generic[E]):
    """Keeps the cache of one kind up to date, for one namespace or for all.

    ``run`` never returns and raises nothing but cancellation. Failures, bugs included, are logged
    and counted, and the attempt is repeated with backoff; ``problem`` is the last failure, ``None``
    while the watch works. ``synced`` is set after the first complete list.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache[E],
        *,
        clock: Clock,
        uniform: Callable[[], float],
        namespace: str | None = None,
        field_selector: str = "",
        shard_selector: str = "",
        page_size: int = 250,
    ) -> None:
        """A page of a list has at most ``page_size`` objects, fewer if they are large.

        Servers without sharding ignore ``shard_selector``: the cache has to drop foreign objects.
        """
        self._client = client
        kind = self._kind = cache.kind
        self._cache = cache
        self._clock = clock
        self._uniform = uniform
        self._page_size = page_size
        self._namespace = namespace
        self._field_selector = field_selector
        self._shard_selector = shard_selector
        forms = list(Representation)
        self._representations = forms[forms.index(kind.watch_as) :]
        self._state: _Listing | _Listed | _Watching = _Listing(compare_at=math.inf)
        #: When the server last sent anything of this kind.
        self.heard_at = clock.monotonic()
        self.synced = anyio.Event()
        #: Whether the server has refused the first list for want of a right.
        self.is_forbidden = False
        self._decoder = EventDecoder(cache, namespace=namespace)
        self._log = self._decoder.log
        self._failures = Failures(clock, uniform, self._log)
        #: How often each step was done, by the names in ``STEPS``.
        self.steps = self._decoder.steps
        self.received_bytes = 0

    @property
    def problem(self) -> str | None:
        """The last failure, ``None`` while the watch works."""
        return self._failures.problem

    @property
    def representation(self) -> Representation:
        """The form in which the watch is requested at present."""
        return self._representations[0]

    async def run(self) -> None:
        """List and watch until cancelled."""
        # Nothing is reconciled before the first list is complete.
        RANK.set(Rank.CLIENT)
        async with anyio.create_task_group() as group:
            self._group = group
            group.start_soon(self._guard)
            while True:
                await self._attempt()

    def list_anew(self) -> None:
        """Begin anew with a list of full objects, as at the start; ``synced`` is set after it."""
        self.synced = anyio.Event()
        state, self._state = self._state, _Listing(compare_at=self._clock.monotonic())
        if isinstance(state, _Watching):
            state.scope.cancel()

    def _list_again(self) -> None:
        self._state = _Listing(self._compare_at)
        self.steps["relist"] += 1

    async def _attempt(self) -> None:
        at_least_s, at_most_s = 0.0, math.inf
        try:
            if not isinstance(self._state, _Listed) or self._is_resync_due:
                await self._list()
            began_at, received_before = self._clock.monotonic(), self.received_bytes
            if not await self._watch():
                return
            if self._clock.monotonic() - began_at >= _HASTY_END_S:
                if self.received_bytes == received_before:
                    await self._check_version()
                self._failures.recovered()
                self._failures.start_over()
                await self._clock.sleep(0.1 * self._uniform())
                return
            problem = "the server ended the watch at once"
        except (errors.Gone, WentBackError) as error:
            # The server does not have the version: only a list helps, no retry.
            state = self._state
            self._list_again()
            if isinstance(state, _Listed) and self._clock.monotonic() - state.at >= _HASTY_END_S:
                return
            problem = str(error)
        except errors.NotAcceptable as error:
            if error.asked.verb == "watch" and self._fall_back(str(error)):
                return
            problem = str(error)
        except (errors.NotServed, errors.NotFound) as error:
            # Without the kind there are no objects, and the version means nothing.
            self._state = _Listing(self._compare_at)
            problem = why_unserved(self._kind.resource) or str(error)
            at_most_s = _LOOK_AGAIN_S
        except errors.ControlPlaneError as error:
            if isinstance(error, errors.ApiError) and error.has_cause("ResourceVersionTooLarge"):
                self._list_again()
            if isinstance(error, errors.TransportError) and self._decoder.version is not None:
                self._state = _Listing(compare_at=self._clock.monotonic())
            problem = str(error)
            self.is_forbidden = isinstance(error, errors.Forbidden)
            at_least_s = error.retry_after_s or 0.0
        except Exception as error:  # noqa: BLE001 -- a bug here must not end the other watches
            self._log.exception("watch_panicked")
            problem = f"{type(error).__name__}: {error}"[:200]
        self.steps["failure"] += 1
        await self._failures.pause(problem, at_least_s=at_least_s, at_most_s=at_most_s)

    @property
    def _compare_at(self) -> float:
        """From when on everything is to be listed and compared with the cache."""
        state = self._state.listed if isinstance(self._state, _Watching) else self._state
        if isinstance(state, _Listing):
            return state.compare_at
        return min(state.resync_at, state.lost_at + _AWAY_S)

    @property
    def _is_resync_due(self) -> bool:
        return self._clock.monotonic() >= self._compare_at

    def _fall_back(self, why: str) -> bool:
        if len(self._representations) == 1:
            return False
        refused = self._representations.pop(0)
        self.steps["fallback"] += 1
        self._log.warning(
            "representation_refused",
            refused=refused.value,
            using=self.representation.value,
            why=why,
        )
        return True

    # -- listing ---------------------------------------------------------------------------------

    async def _list(self) -> None:
        """List by pages, beginning with a small one.

        Each next page has as many objects as should fit, judging by the page before. A page that is
        far too large is dropped and requested again with fewer objects; a single object is read
        whatever its size.
        """
        state = self._state
        if not isinstance(state, _Listing):
            state = self._state = _Listing(self._compare_at)
        initial = not self.synced.is_set()
        dropped_before = self._cache.dropped_elsewhere
        if state.continue_ is None:
            self.steps["list"] += 1
            reached = as_version(self._decoder.version or "")
            self._cache.begin_list(self._namespace, reached=reached, resync=self._is_resync_due)
            state.limit = min(_FIRST_PAGE, self._page_size)
        limit, continue_ = state.limit, state.continue_
        state.continue_ = None
        while True:
            try:
                body = await self._page(limit, continue_)
            except errors.AnswerTooLarge:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)
                continue
            except errors.ApiError as error:
                if continue_ and error.status in (429, 503):
                    state.limit, state.continue_ = limit, continue_
                raise
            self.steps["page"] += 1
            self.heard_at = self._clock.monotonic()
            self.received_bytes += len(body)
            metadata = self._decoder.page(body, initial=initial)
            continue_ = metadata.continue_
            if not continue_:
                break
            limit = min(max(1, _PAGE_BYTES * limit // len(body)), self._page_size)
        version = metadata.resourceVersion
        if not version:
            raise errors.ProtocolFault(f"the list of {self._kind.resource.plural} has no version")
        self._cache.end_list(self._namespace)
        dropped = self._cache.dropped_elsewhere - dropped_before
        if self._shard_selector and dropped:
            self._log.info("shard_selector_ignored", dropped=dropped)
        self._decoder.version = version
        spread = 1.0 + _TIMEOUT_SPREAD * self._uniform()
        now = self._clock.monotonic()
        self._state = _Listed(at=now, resync_at=now + spread * _RESYNC_S)
        self.is_forbidden = False
        self.synced.set()

    async def _page(self, limit: int, continue_: str | None) -> bytes:
        is_partial = self._kind.item_type is PartialObject
        return await self._client.list(
            self._kind.resource,
            bytes,
            namespace=self._namespace,
            chunk_size=limit,
            continue_=continue_,
            labels=str(self._kind.label_selector) or None,
            fields=self._field_selector or None,
            shard_selector=self._shard_selector or None,
            accept=METADATA_LIST_ACCEPT if is_partial else JSON_ACCEPT,
            timeout_s=_REQUEST_TIMEOUT_S,
            max_body_bytes=None if limit == 1 else _MOST_PAGE_BYTES,
        )

    # -- watching --------------------------------------------------------------------------------

    async def _watch(self) -> bool:
        """Apply the lines of a watch until it ends; return whether the server ended it.

        Raises RequestTimeout for a watch that is silent for too long.
        """
        listed = self._state
        assert isinstance(listed, _Listed)
        self._decoder.begin_watch()
        self.steps["watch"] += 1
        with anyio.CancelScope() as scope:
            now, bookmarks = self._clock.monotonic(), self.steps["bookmark"]
            watching = self._state = _Watching(listed, scope, now, bookmarks)
            try:
                await self._receive(watching)
            finally:
                if self._state is watching:
                    self._state = listed
        if scope.cancelled_caught and self._is_silent(watching):
            raise errors.RequestTimeout(
                f"the watch of {self._kind.resource.plural} was silent for"
                f" {self._longest_silence_s(watching):g} s"
            )
        return not scope.cancelled_caught

    async def _receive(self, watching: _Watching) -> None:
        is_full = self.representation is Representation.FULL
        apply = self._decoder.full_line if is_full else self._decoder.line
        splitter = LineSplitter()
        async with self._client.transport.stream(
            self._target(),
            headers={"Accept": METADATA_WATCH_ACCEPT.get(self.representation, JSON_ACCEPT)},
            connect_timeout_s=_REQUEST_TIMEOUT_S,
            asked=errors.Asked("watch", self._kind.resource.qualified, self._namespace or ""),
        ) as response:
            watching.listed.lost_at = math.inf
            self.heard_at = self._clock.monotonic()
            if self.problem is not None:
                self._group.start_soon(self._confirm, watching)

            def take(chunk: bytes) -> None:
                self.heard_at = self._clock.monotonic()
                self.received_bytes += len(chunk)
                for line in splitter.feed(chunk):
                    apply(line)

            try:
                await response.feed(take)
            finally:
                now = watching.listed.lost_at = self._clock.monotonic()
                if now - watching.began_at >= _HEALTHY_S:
                    self._failures.start_over()

    async def _check_version(self) -> None:
        """Raise WentBackError if the server has not reached the version that was watched from.

        A watch from a future version is silent and ends in time like any other. Costs one LIST of
        one object; not needed where bookmarks arrive.
        """
        body = await self._page(1, None)
        self.received_bytes += len(body)
        self._decoder.check_list(body)

    async def _confirm(self, watching: _Watching) -> None:
        await self._clock.sleep(_HASTY_END_S)
        if self._state is watching:
            self._failures.recovered()

    def _target(self) -> str:
        timeout_s = int(_SERVER_TIMEOUT_S * (1.0 + _TIMEOUT_SPREAD * self._uniform()))
        parameters = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_s),
            "resourceVersion": self._decoder.version,
            "labelSelector": str(self._kind.label_selector),
            "fieldSelector": self._field_selector,
            "shardSelector": self._shard_selector,
        }
        query = urlencode({name: value for name, value in parameters.items() if value})
        return f"{path(self._kind.resource, self._namespace)}?{query}"

    async def _guard(self) -> None:
        """Cancel a watch that was silent for too long, or end it when a resync is due."""
        while True:
            await self._clock.sleep(_SILENCE_S / 3)
            state = self._state
            if isinstance(state, _Watching) and (self._is_silent(state) or self._is_resync_due):
                state.scope.cancel()

    def _is_silent(self, watching: _Watching) -> bool:
        since = max(self.heard_at, watching.began_at)
        return self._clock.monotonic() - since >= self._longest_silence_s(watching)

    def _longest_silence_s(self, watching: _Watching) -> float:
        if self.steps["bookmark"] > watching.bookmarks_before:
            return _SILENCE_S
        return (1.0 + _TIMEOUT_SPREAD) * _SERVER_TIMEOUT_S + _END_SLACK_S
