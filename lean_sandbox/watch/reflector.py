"""Reflectors, each of which lists and watches one kind to keep its cache up to date; their group.

Without a version a reflector lists, by pages. With a version it watches until the stream ends, and
resumes from the last version it saw. When that version is too old, it lists again.

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
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import anyio
from anyio.abc import TaskGroup

from filters import exclude_namespaces as excluding
from lean_sandbox.clock import Clock
from lean_sandbox.kube import errors
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.http1 import LineSplitter
from lean_sandbox.kube.limits import Lane
from lean_sandbox.kube.resources import JSON_ACCEPT, PartialObject, path
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition
from lean_sandbox.model.meta import as_version
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.decode import STEPS, EventDecoder, WentBackError
from lean_sandbox.watch.failures import pause_s, why_unserved
from lean_sandbox.watch.kind import METADATA_LIST_ACCEPT, WATCH_ACCEPT, Entry, Representation

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
# How often a problem that lasts is logged.
_TELL_AGAIN_S = 60.0
# Objects on the first page of a list: enough for most kinds, and few if they are large.
_FIRST_PAGE = 25
# The size a page should have, and the size from which a page is given up for a smaller one.
_PAGE_BYTES = 2 * 1024 * 1024
_MOST_PAGE_BYTES = 4 * 1024 * 1024
# How often to try a kind that the server does not know: its definition may be applied soon.
_LOOK_AGAIN_S = 5.0


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
        self._failures = 0
        forms = list(Representation)
        self._representations = forms[forms.index(kind.watch_as) :]
        self._resync_at = math.inf
        # When the last stream ended, until another begins or everything has been listed.
        self._lost_at = math.inf
        self._scope: anyio.CancelScope | None = None
        #: When the server last sent anything of this kind.
        self.heard_at = clock.monotonic()
        # When the attempt began, or its watch.
        self._began_at = 0.0
        # When a problem that lasts is to be logged again.
        self._tell_at = -math.inf
        self._bookmarks_before = 0
        # When the last list was complete; in the future before the first, and during one.
        self._listed_at = math.inf
        # Whether no watch can begin at the version reached, or there is none.
        self._must_list = True
        # Where to continue a list of which a busy server refused a page: page size and token.
        self._place: tuple[int, str | None] | None = None
        self.synced = anyio.Event()
        #: Whether the server has refused the first list for want of a right.
        self.is_forbidden = False
        self.problem: str | None = None
        self._decoder = EventDecoder(cache, namespace=namespace)
        self._log = self._decoder.log
        #: How often each step was done, by the names in ``STEPS``.
        self.steps = self._decoder.steps
        self.received_bytes = 0

    @property
    def representation(self) -> Representation:
        """The form in which the watch is requested at present."""
        return self._representations[0]

    async def run(self) -> None:
        """List and watch until cancelled."""
        async with anyio.create_task_group() as group:
            self._group = group
            group.start_soon(self._guard)
            while True:
                await self._attempt()

    def list_anew(self) -> None:
        """Begin anew with a list of full objects, as at the start; ``synced`` is set after it."""
        self.synced = anyio.Event()
        self._resync_at, self._place = self._clock.monotonic(), None
        if self._scope is not None:
            self._scope.cancel()

    def _list_again(self) -> None:
        self._must_list = True
        self.steps["relist"] += 1

    async def _attempt(self) -> None:
        self._began_at = self._clock.monotonic()
        at_least_s, at_most_s = 0.0, math.inf
        try:
            if self._must_list or self._is_resync_due:
                await self._list()
                self._began_at = self._clock.monotonic()
            received_before = self.received_bytes
            if not await self._watch():
                return
            if self._clock.monotonic() - self._began_at >= _HASTY_END_S:
                if self.received_bytes == received_before:
                    await self._check_version()
                self._recovered()
                self._failures = 0
                await self._clock.sleep(0.1 * self._uniform())
                return
            self._failed("the server ended the watch at once")
        except (errors.Gone, WentBackError) as error:
            # The server does not have the version: only a list helps, no retry.
            self._list_again()
            if self._clock.monotonic() - self._listed_at >= _HASTY_END_S:
                return
            self._failed(str(error))
        except errors.NotAcceptable as error:
            if error.asked.verb == "watch" and self._fall_back(str(error)):
                return
            self._failed(str(error))
        except (errors.NotServed, errors.NotFound) as error:
            # Without the kind there are no objects, and the version means nothing.
            self._must_list = True
            self._failed(why_unserved(self._kind.resource) or str(error))
            at_most_s = _LOOK_AGAIN_S
        except errors.ControlPlaneError as error:
            if isinstance(error, errors.ApiError) and error.has_cause("ResourceVersionTooLarge"):
                self._list_again()
            if isinstance(error, errors.TransportError) and self._decoder.version is not None:
                self._resync_at = self._clock.monotonic()
            self._failed(str(error))
            self.is_forbidden = isinstance(error, errors.Forbidden)
            at_least_s = error.retry_after_s or 0.0
        except Exception as error:  # noqa: BLE001 -- a bug here must not end the other watches
            self._log.exception("watch_panicked")
            self._failed(f"{type(error).__name__}: {error}"[:200])
        self._failures += 1
        next_s = pause_s(
            self._failures, self._uniform(), at_least_s=at_least_s, at_most_s=at_most_s
        )
        if self._clock.monotonic() >= self._tell_at:
            self._tell_at = self._clock.monotonic() + _TELL_AGAIN_S
            self._log.warning("watch_interrupted", problem=self.problem, next_s=round(next_s, 1))
        await self._clock.sleep(next_s)

    @property
    def _is_resync_due(self) -> bool:
        now = self._clock.monotonic()
        return now >= self._resync_at or now >= self._lost_at + _AWAY_S

    def _failed(self, problem: str) -> None:
        self.steps["failure"] += 1
        if problem != self.problem:
            self._tell_at = -math.inf
        self.problem = problem

    def _recovered(self) -> None:
        if self.problem is not None:
            self._log.info("watch_resumed")
        self.problem = None

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
        self._listed_at = math.inf
        initial = not self.synced.is_set()
        dropped_before = self._cache.dropped_elsewhere
        if self._place is None:
            self.steps["list"] += 1
            reached = as_version(self._decoder.version or "")
            self._cache.begin_list(self._namespace, reached=reached, resync=self._is_resync_due)
            self._place = min(_FIRST_PAGE, self._page_size), None
        (limit, continue_), self._place = self._place, None
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
                    self._place = limit, continue_
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
        self._decoder.version, self._must_list = version, False
        self._listed_at = self._clock.monotonic()
        spread = 1.0 + _TIMEOUT_SPREAD * self._uniform()
        self._resync_at = self._listed_at + spread * _RESYNC_S
        self._lost_at, self.is_forbidden = math.inf, False
        self.synced.set()

    async def _page(self, limit: int, continue_: str | None) -> bytes:
        is_partial = self._kind.item_type is PartialObject
        return await self._client.list_page(
            self._kind.resource,
            self._namespace,
            bytes,
            limit=limit,
            continue_=continue_,
            label_selector=self._kind.label_selector,
            field_selector=self._field_selector or None,
            shard_selector=self._shard_selector or None,
            accept=METADATA_LIST_ACCEPT if is_partial else JSON_ACCEPT,
            timeout_s=_REQUEST_TIMEOUT_S,
            max_body_bytes=None if limit == 1 else _MOST_PAGE_BYTES,
            # Whoever waits for anything waits for what it shows: until then nothing is watched.
            lane=Lane.CLIENT,
        )

    # -- watching --------------------------------------------------------------------------------

    async def _watch(self) -> bool:
        """Apply the lines of a watch until it ends; return whether the server ended it.

        Raises RequestTimeout for a watch that is silent for too long.
        """
        self._decoder.begin_watch()
        self.steps["watch"] += 1
        self._bookmarks_before = self.steps["bookmark"]
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                await self._receive(scope)
            finally:
                self._scope = None
        if scope.cancelled_caught and self._is_silent:
            raise errors.RequestTimeout(
                f"the watch of {self._kind.resource.plural} was silent for"
                f" {self._longest_silence_s:g} s"
            )
        return not scope.cancelled_caught

    async def _receive(self, scope: anyio.CancelScope) -> None:
        is_full = self.representation is Representation.FULL
        apply = self._decoder.full_line if is_full else self._decoder.line
        splitter = LineSplitter()
        async with self._client.transport.stream(
            self._target(),
            headers={"Accept": WATCH_ACCEPT[self.representation]},
            connect_timeout_s=_REQUEST_TIMEOUT_S,
            asked=errors.Asked("watch", self._kind.resource.qualified, self._namespace or ""),
        ) as response:
            self._lost_at = math.inf
            self.heard_at = self._clock.monotonic()
            if self.problem is not None:
                self._group.start_soon(self._confirm, scope)

            def take(chunk: bytes) -> None:
                self.heard_at = self._clock.monotonic()
                self.received_bytes += len(chunk)
                for line in splitter.feed(chunk):
                    apply(line)

            try:
                await response.feed(take)
            finally:
                self._lost_at = self._clock.monotonic()
                if self._lost_at - self._began_at >= _HEALTHY_S:
                    self._failures = 0

    async def _check_version(self) -> None:
        """Raise WentBackError if the server has not reached the version that was watched from.

        A watch from a future version is silent and ends in time like any other. Costs one LIST of
        one object; not needed where bookmarks arrive.
        """
        body = await self._page(1, None)
        self.received_bytes += len(body)
        self._decoder.check_list(body)

    async def _confirm(self, scope: anyio.CancelScope) -> None:
        await self._clock.sleep(_HASTY_END_S)
        if self._scope is scope:
            self._recovered()

    def _target(self) -> str:
        timeout_s = int(_SERVER_TIMEOUT_S * (1.0 + _TIMEOUT_SPREAD * self._uniform()))
        parameters = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_s),
            "resourceVersion": self._decoder.version,
            "labelSelector": self._kind.label_selector,
            "fieldSelector": self._field_selector,
            "shardSelector": self._shard_selector,
        }
        query = urlencode({name: value for name, value in parameters.items() if value})
        return f"{path(self._kind.resource, self._namespace)}?{query}"

    async def _guard(self) -> None:
        """Cancel a watch that was silent for too long, or end it when a resync is due."""
        while True:
            await self._clock.sleep(_SILENCE_S / 3)
            if self._scope is not None and (self._is_silent or self._is_resync_due):
                self._scope.cancel()

    @property
    def _is_silent(self) -> bool:
        since = max(self.heard_at, self._began_at)
        return self._clock.monotonic() - since >= self._longest_silence_s

    @property
    def _longest_silence_s(self) -> float:
        if self.steps["bookmark"] > self._bookmarks_before:
            return _SILENCE_S
        return (1.0 + _TIMEOUT_SPREAD) * _SERVER_TIMEOUT_S + _END_SLACK_S


class ReflectorGroup:
    """Starts reflectors, and reports whether they are in sync and what they fail with.

    Without ``namespaces``, one watch for each kind covers all of them but ``exclude_namespaces``,
    which the server leaves out.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        uniform: Callable[[], float],
        page_size: int,
        namespaces: tuple[str, ...] = (),
        exclude_namespaces: tuple[str, ...] = (),
    ) -> None:
        self._clock = clock
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self._reflector = partial(
            Reflector,
            client,
            clock=clock,
            uniform=uniform,
            field_selector="" if namespaces else excluding(*exclude_namespaces),
            page_size=page_size,
        )
        self._reflectors: dict[str, list[Reflector[Any]]] = {}
        #: The task group in which the reflectors run; set before the first starts.
        self.group: TaskGroup
        #: Selects the objects that servers with sharding send; set before the first starts.
        self.shard_selector = ""

    def start(self, cache: Cache[Any]) -> None:
        """Start watching a kind, unless it is watched already."""
        plural = cache.kind.resource.plural
        if plural in self._reflectors:
            return
        reflectors = self._reflectors[plural] = [
            self._reflector(cache, namespace=namespace, shard_selector=self.shard_selector)
            for namespace in self._namespaces
        ]
        for reflector in reflectors:
            self.group.start_soon(reflector.run)

    async def list_anew(self, *caches: Cache[Any]) -> None:
        """List kinds that are watched already, and wait until their caches have full objects."""
        again = [one for cache in caches for one in self._reflectors[cache.kind.resource.plural]]
        for reflector in again:
            reflector.list_anew()
        if again:
            await self.synced(*(cache.kind.resource.plural for cache in caches))

    async def synced(self, *plurals: str) -> None:
        """Wait until the kinds named, or all that were started, have had their first list."""
        for plural in plurals or tuple(self._reflectors):
            while awaited := self._awaited(plural):
                await self._clock.wait(awaited[0].synced, _LOOK_AGAIN_S)

    def _awaited(self, plural: str) -> list[Reflector[Any]]:
        """Return those that have not had their first list, but of namespaces that are passed over.

        These are where the first kind, the Sandboxes, may not be listed, while elsewhere it may.
        """
        firsts = next(iter(self._reflectors.values()))
        may_pass = any(first.synced.is_set() for first in firsts)
        return [
            one
            for one, first in zip(self._reflectors[plural], firsts, strict=True)
            if not (one.synced.is_set() or (may_pass and first.is_forbidden))
        ]

    def lacks(self, namespace: str, *plurals: str) -> bool:
        """Whether a namespace, one of those chosen, has not had the first list of a kind."""
        at = self._namespaces.index(namespace)
        return not all(self._reflectors[plural][at].synced.is_set() for plural in plurals)

    async def synced_within(self, plural: str, patience_s: float) -> str | None:
        """Wait for a kind's first list; return the problem if it is not complete in time.

        Returns at once for a list that is known to fail.
        """
        for reflector in self._awaited(plural):
            if reflector.problem is None:
                await self._clock.wait(reflector.synced, patience_s)
            if not reflector.synced.is_set():
                return reflector.problem or "their list is not complete yet"
        return None

    @property
    def missing(self) -> dict[str, str]:
        """The reason why a kind has no complete first list yet, by resource."""
        return {
            plural: one.problem or "not listed yet"
            for plural in self._reflectors
            for one in self._awaited(plural)
        }

    def collect(self, into: Exposition, resource: str) -> None:
        """Add the series of a kind's lists and watches: steps, bytes, problems, longest silence."""
        reflectors = self._reflectors.get(resource, [])
        received = sum(one.received_bytes for one in reflectors)
        steps = {step: sum(one.steps[step] for one in reflectors) for step in STEPS}
        into.one(families.WATCH_BYTES, received, resource)
        into.add(families.WATCH_STEPS, [((resource, step), n) for step, n in steps.items()])
        fails = any(one.problem is not None for one in reflectors)
        into.one(families.WATCH_PROBLEMS, int(fails), resource)
        if reflectors:
            heard_at = min(one.heard_at for one in reflectors)
            into.one(families.WATCH_SILENCE, self._clock.monotonic() - heard_at, resource)
