"""Gives busy namespaces a watch of their own, while one watch of all namespaces serves the rest.

Only a watch of one namespace can be read as bare cells, a tenth of the bytes. A connection to the
server for each of thousands of namespaces would cost more than that saves, so few have one: those
where most happens. The watch of all namespaces is told to leave them out.

Requests: two WATCH when a namespace gets its own, from the version that is known; no LIST.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import structlog
from anyio.abc import TaskGroup

from lean_sandbox.clock import Clock
from lean_sandbox.watch.reflector import Reflector, WatchStatistics

_MOST_OF_THEIR_OWN = 8
# What makes a namespace busy, in events of one period.
_BUSY_EVENTS = 30
_PERIOD_S = 600.0
# By how much a namespace must be busier to take the watch of another.
_BUSIER = 4

log = structlog.get_logger("watch")


class Spread:
    """Decides which namespaces have a watch of their own, and moves them.

    ``make`` builds the informer of one namespace, ``informers`` is the list that it is to be found
    in. Until :meth:`begin` nothing is moved; ``admits`` says which namespaces matter at all.
    """

    def __init__(
        self,
        clock: Clock,
        make: Callable[[str | None, Callable[[str], None]], Reflector[Any]],
        informers: list[Reflector[Any]],
        admits: Callable[[str], bool],
    ) -> None:
        self._clock = clock
        self._make = make
        self._informers = informers
        self._admits = admits
        self._counts: Counter[str] = Counter()
        self._period_ends_at = 0.0
        self._own: dict[str, tuple[Reflector[Any], anyio.CancelScope]] = {}
        self._group: TaskGroup | None = None
        #: What the watches counted that were given up: counters never go back.
        self.retired = WatchStatistics()
        self.wide = make(None, self._saw)
        informers.append(self.wide)

    def begin(self, group: TaskGroup) -> None:
        """Allow moves from now on; the watches run in ``group``."""
        self._group = group

    def _saw(self, namespace: str) -> None:
        """Count an event; called by the informers while they take it in, so that both are at rest.

        Everything up to the event's version has then been taken in, and nothing after it.
        """
        counts = self._counts
        counts[namespace] += 1
        if counts[namespace] % _BUSY_EVENTS or self._group is None or namespace in self._own:
            return
        now = self._clock.monotonic()
        if now >= self._period_ends_at:
            self._period_ends_at = now + _PERIOD_S
            # What was long ago counts for less, and who has been quiet for long is forgotten.
            self._counts = Counter({name: held // 2 for name, held in counts.items() if held > 1})
            self._counts[namespace] = counts[namespace]
        version = self.wide.version
        if self._admits(namespace) and self._has_room(self._counts[namespace]):
            self._move(namespace, version, self._group)

    def _has_room(self, events: int) -> bool:
        """Make room if need be and deserved: the quietest of the others goes back to all."""
        if len(self._own) < _MOST_OF_THEIR_OWN:
            return True
        quietest = min(self._own, key=self._counts.__getitem__)
        informer, scope = self._own[quietest]
        if self._counts[quietest] * _BUSIER > events or not informer.is_settled:
            return False
        scope.cancel()
        del self._own[quietest]
        self._informers.remove(informer)
        self.retired.add(informer.statistics)
        self.wide.begin_from_earlier(informer.version)
        return True

    def _move(self, namespace: str, version: str | None, group: TaskGroup) -> None:
        informer = self._make(namespace, self._saw)
        informer.continue_from(version)
        scope = anyio.CancelScope()
        self._own[namespace] = (informer, scope)
        self._informers.append(informer)
        self.wide.leave_out(self._own)
        log.debug("namespace_watched_by_itself", namespace=namespace, of=len(self._own))

        async def run() -> None:
            with scope:
                await informer.run()

        group.start_soon(run)
