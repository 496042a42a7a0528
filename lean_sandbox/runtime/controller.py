"""The base of a controller: what wakes it, a queue of keys, workers, and a safety net.

A controller *watches* kinds: a method of its own is called with each relevant change and queues the
keys that it concerns. It *owns* a kind if a change of an object concerns the owner. Our own writes
cause no events, so after a write controllers call each other by a :class:`Signal`.

A lost wake-up must not last for good. So an object that is not in its final state is reconciled
again after 10 s without an event, then after twice as long each time, up to every 5 minutes. A
reconcile by the safety net alone that had to write something is counted: it shows a bug elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, ParamSpec, TypeVar

import structlog

from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import ENDING_S
from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.kube.telemetry import WRITES
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition
from lean_sandbox.runtime.queue import Cause, Item, WorkQueue
from lean_sandbox.runtime.workers import FAILED, ReconcileOutcome, ReconcileResult, Result, Workers
from lean_sandbox.turns import Rank
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Delta, Entry, Key, OwnedEntry

_FIRST_S: Final = 10.0
_LONGEST_S: Final = 300.0
# How soon a key of a namespace that could not be listed is looked at again.
_UNLISTED_S: Final = 2.0
# The rate for all keys together: each waits at least as long as all of them take at this rate.
_SAFETY_NET_PER_S: Final = 10.0

E = TypeVar("E", bound=Entry)
Owned = TypeVar("Owned", bound=OwnedEntry)
Watched = TypeVar("Watched", bound=Entry)
P = ParamSpec("P")

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Signal(list[Callable[P, None]], Generic[P]):
    """Listeners that are called, in this order, after something that no event will show."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call all listeners."""
        for listener in self:
            listener(*args, **kwargs)


class Controller(Generic[E]):
    """The base of all controllers. Each defines how to reconcile a key and when that is final.

    ``name`` is used in metrics and the log, ``cache`` holds the objects to reconcile.
    """

    def __init__(self, name: str, cache: Cache[E], clock: Clock, *, workers: int) -> None:
        self.name = name
        self._log = log.bind(controller=name)
        self.cache = cache
        #: The caches of the kinds whose changes wake it.
        self.watched: list[Cache[Any]] = []
        self.queue: WorkQueue[Key] = WorkQueue(
            clock, group_of=lambda key: key.namespace, most_running=workers
        )
        self.workers: Workers[Key] = Workers(
            self.queue,
            self._unless_ending,
            clock=clock,
            due_in_s=self.due_in_s,
            name=name,
        )
        self.workers.on_begin.append(self._begin)
        self.workers.on_end.append(self._end)
        #: Whether a namespace is being deleted with all that is in it: then nothing is done there.
        self.is_ending: Callable[[str], bool] = lambda _namespace: False
        #: Whether a namespace has not been listed yet, so that what is cached of it says nothing.
        self.is_unlisted: Callable[[str], bool] = lambda _namespace: False
        # The safety net's interval for each key that is not final.
        self._intervals_s: dict[Key, float] = {}
        #: How many reconciles by the safety net alone had to write something.
        self.caught = 0

    # -- what wakes it ---------------------------------------------------------------------------

    def watches(self, cache: Cache[Watched], handler: Callable[[Delta[Watched]], None]) -> None:
        """Call a method of this controller with each relevant change of a kind."""
        self.watched.append(cache)
        cache.handlers.append(handler)

    def owns(self, cache: Cache[Owned]) -> None:
        """Reconcile the owner of each object of a kind that changes, before and after the change.

        Lists wake nobody: they also show the owners.
        """
        self.watches(cache, self.on_owned)

    def forget_failures(self, delta: Delta[E]) -> None:
        """Let an object that was edited, or made anew under its name, be retried soon.

        What has failed before says nothing of another spec, nor of another object.
        """
        old = delta.old
        new = delta.new
        if delta.has_ended:
            self.queue.forget(delta.key)
        elif old is not None and new is not None and new.generation != old.generation:
            self.queue.shorten(delta.key)

    def on_change(self, delta: Delta[E]) -> None:
        """Reconcile an object that has changed, or that a list has shown."""
        self.forget_failures(delta)
        cause = Cause.LISTED if delta.initial else Cause.EVENT
        self.wake(delta.key, cause=cause, reason=self.name)

    def on_owned(self, delta: Delta[Owned]) -> None:
        """Reconcile the owners of an object that has changed."""
        resource = self.cache.kind.resource
        for entry in (delta.old, delta.new):
            owner = entry.owner_key(resource.kind) if entry is not None else None
            if owner is not None and owner in self.cache and not delta.initial:
                self.wake(owner, reason="owned")

    def wake(
        self, key: Key, *, after_s: float = 0.0, cause: Cause = Cause.EVENT, reason: str
    ) -> None:
        """Queue a key with the rank that its object has for this cause."""
        entry = self.cache.get(key)
        rank = Rank.CLIENT if entry is None else self.rank_of(entry, cause)
        self.queue.add(key, rank=rank, after_s=after_s, cause=cause, reason=reason)

    def rank_of(self, entry: E, cause: Cause) -> Rank:  # noqa: ARG002 -- for those that override it
        """Return whether a client waits for the reconcile of an object.

        By default a client waits for every change, but not for objects that only a list has shown.
        """
        return Rank.SPARE if cause is Cause.LISTED else Rank.CLIENT

    def enqueue_all(self, reason: str) -> None:
        """End a pause and queue every cached object, as after a start."""
        self.queue.is_paused = False
        for entry in self.cache:
            self.wake(entry.key, cause=Cause.LISTED, reason=reason)

    # -- what it does ----------------------------------------------------------------------------

    async def _unless_ending(self, item: Item[Key]) -> Result:
        # What has gone is forgotten all the same.
        if item.key in self.cache and self.is_ending(item.key.namespace):
            return Result(requeue_after_s=ENDING_S)
        if self.is_unlisted(item.key.namespace):
            return Result(requeue_after_s=_UNLISTED_S)
        try:
            return await self.reconcile(item)
        except ControlPlaneError as error:
            if not error.namespace_terminating:
                raise
            return Result(requeue_after_s=ENDING_S)

    async def reconcile(self, item: Item[Key]) -> Result:
        """Bring one object to the state that its spec asks for; an error is retried.

        If the error only says that the namespace is being deleted, the object waits for that
        instead.
        """
        raise NotImplementedError

    def is_final(self, entry: E) -> bool:  # noqa: ARG002 -- for those that override it
        """Return whether a living object is in its final state until something changes."""
        return True

    def due_in_s(self, key: Key) -> float | None:  # noqa: ARG002 -- for those that override it
        """Return the seconds until a failed key is retried whatever its backoff; see Workers."""
        return None

    def mark_stale(self, key: Key) -> None:
        """Treat what is cached for a key as possibly stale: it has not been final for minutes."""

    def collect(self, into: Exposition) -> None:
        """Add the series of this controller's queue and workers, and of what else it counts."""
        self.workers.collect(into, self.name)
        self.queue.collect(into, self.name)
        into.one(families.SAFETY_NET, self.caught, self.name)

    def _begin(self, item: Item[Key]) -> None:
        WRITES.set([])
        if item.is_safety_net and self._intervals_s.get(item.key, 0.0) >= _LONGEST_S:
            self.mark_stale(item.key)

    def _end(self, report: ReconcileResult[Key]) -> None:
        item = report.item
        key = report.item.key
        writes = WRITES.get()
        self._log.debug(
            "reconciled",
            key=str(key),
            why=item.reasons,
            outcome=report.outcome.value,
            took_ms=round(report.took_s * 1000.0, 1),
            writes=writes,
            next_s=report.next_s,
        )
        if report.outcome in FAILED and report.next_s is not None:
            return
        # An event that came during the reconcile, which may have acted on it, was not lost.
        if item.is_safety_net and writes and not self.queue.has_event(key):
            self.caught += 1
            self._log.error("safety_net_caught", key=str(key), writes=writes)
        self._schedule_look(report, is_quiet=item.is_safety_net and not writes)

    def _schedule_look(self, report: ReconcileResult[Key], *, is_quiet: bool) -> None:
        """Have the safety net look at a key that is not final; twice as late after a quiet look."""
        key = report.item.key
        before_s = self._intervals_s.pop(key, None)
        entry = self.cache.get(key)
        is_final = entry is None or entry.is_deleting or self.is_final(entry)
        if is_final or (before_s is None and report.outcome is ReconcileOutcome.TERMINAL):
            return
        interval_s = _FIRST_S
        if before_s is not None and is_quiet:
            interval_s = min(2.0 * before_s, _LONGEST_S)
        self._intervals_s[key] = interval_s
        after_s = max(interval_s, len(self._intervals_s) / _SAFETY_NET_PER_S)
        # A timer within minutes of the look replaces it: merged, its work would count as caught.
        if report.next_s is None or report.next_s > after_s + _LONGEST_S:
            self.queue.add(
                key,
                rank=Rank.SPARE,
                after_s=after_s,
                cause=Cause.SAFETY_NET,
                reason="safety net",
            )
