"""Looks at the objects of one namespace of which a watch of bare cells told first.

What a create of our own has made is told by its answer; what others have made is asked for.
Requests: one LIST of a single name for each such object, or one of all for a crowd.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.kube.limits import Lane
from lean_sandbox.watch.backoff import Backoff
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.decode import EventDecoder
from lean_sandbox.watch.store import Key

# So many at once are not asked for one by one: the whole namespace is listed anew.
_CROWD = 50

log = structlog.get_logger("watch")


class Acquaintance:
    """Gets to know what a watch of bare cells has shown; ``on_crowd`` is told of too many."""

    def __init__(
        self,
        client: Client,
        cache: Cache[Any],
        feed: EventDecoder[Any],
        namespace: str,
        *,
        clock: Clock,
        uniform: Callable[[], float],
        timeout_s: float,
        on_crowd: Callable[[], None],
    ) -> None:
        self._client = client
        self._intake = cache
        self._feed = feed
        self._namespace = namespace
        self._clock = clock
        self._backoff = Backoff(uniform)
        self._timeout_s = timeout_s
        self._on_crowd = on_crowd

    async def run(self) -> None:
        """Look at whoever stays unknown, until cancelled."""
        strangers = self._intake.strangers
        while True:
            due = await strangers.due(self._namespace)
            if len(due) <= _CROWD:
                await self._look(due[0])
                continue
            for key in due:
                strangers.take(key)
            self._on_crowd()

    async def _look(self, key: Key) -> None:
        kind = self._intake.kind
        try:
            body = await self._client.list_page(
                kind.resource,
                key.namespace,
                bytes,
                label_selector=kind.label_selector,
                field_selector=f"metadata.name={key.name}",
                accept=kind.list_as.list_accept,
                timeout_s=self._timeout_s,
                lane=Lane.BACKGROUND,
            )
            self._feed.page(body, initial=False)
        except ControlPlaneError as error:
            # The row goes on waiting: the next round asks again.
            self._feed.statistics.failures += 1
            log.warning(
                "stranger_not_seen", kind=kind.resource.plural, key=str(key), why=str(error)
            )
            await self._clock.sleep(self._backoff.after(0.0))
            return
        self._backoff.reset()
        # A page without it: it is gone already, or has left the selector.
        self._intake.strangers.take(key)
