"""The frame of a controller: a queue of keys, workers that reconcile them, and a safety net."""

from __future__ import annotations

from typing import Generic, TypeVar

from lean_sandbox.clock import Clock
from lean_sandbox.metrics.registry import Exposition
from lean_sandbox.runtime.queue import LOW, Item, WorkQueue
from lean_sandbox.runtime.safetynet import SafetyNet
from lean_sandbox.runtime.workers import Result, Workers
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Entry, Key

E = TypeVar("E", bound=Entry)


class Controller(Generic[E]):
    """What all controllers have in common. Each says how it reconciles a key and when it is done.

    ``cache`` holds the objects whose keys are reconciled.
    """

    def __init__(self, name: str, cache: Cache[E], clock: Clock, *, workers: int) -> None:
        """``name`` is that of the metrics and of the log."""
        self.name = name
        self.cache = cache
        self.queue: WorkQueue[Key] = WorkQueue(clock, group_of=_namespace_of)
        self.workers: Workers[Key] = Workers(
            self.queue,
            self.reconcile,
            count=workers,
            clock=clock,
            retry_no_later_than_s=self.due_in_s,
            net=SafetyNet(self.queue, clock, is_final=self.is_final, doubt=self.doubt),
            name=name,
        )

    async def reconcile(self, item: Item[Key]) -> Result:
        """Bring one object to what its spec asks for; an error has it repeated."""
        raise NotImplementedError

    def is_final(self, key: Key) -> bool:  # noqa: ARG002 -- for those that override it
        """Return whether nothing is to be expected of an object until something else changes."""
        return True

    def due_in_s(self, key: Key) -> float | None:  # noqa: ARG002 -- for those that override it
        """Return after how long a failed key must be tried again at the latest, however often."""
        return None

    def doubt(self, key: Key) -> None:
        """Have the next reconcile ask the server: the key has not been final for minutes."""

    def collect(self, into: Exposition) -> None:
        """Add the series of this controller's queue and workers, and of what else it counts."""
        self.workers.collect(into, self.name)
        self.queue.collect(into, self.name)

    def enqueue_all(self, reason: str) -> None:
        """Begin as after a start: of what happened before, only the cache knows."""
        self.queue.is_paused = False
        for entry in self.cache:
            self.queue.add(entry.key, priority=LOW, reason=reason)


def _namespace_of(key: Key) -> str:
    """Return the group of a key: tenants take turns."""
    return key.namespace
