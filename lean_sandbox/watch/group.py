"""The informers of a process: one for each kind and namespace, started together or when needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyio.abc import TaskGroup

from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.reflector import Reflector, WatchOptions, WatchStatistics


class ReflectorGroup:
    """Starts informers, knows when they are in sync, and what they are failing with.

    ``namespaces`` empty watches all of them with one watch a kind, except what is in
    ``exclude_namespaces``: the server is asked not to send that.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        uniform: Callable[[], float],
        options: WatchOptions,
        namespaces: tuple[str, ...] = (),
        exclude_namespaces: tuple[str, ...] = (),
    ) -> None:
        self._client = client
        self._clock = clock
        self._uniform = uniform
        self._options = options
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self._excluded = () if namespaces else exclude_namespaces
        self._informers: dict[str, list[Reflector[Any]]] = {}
        self._group: TaskGroup | None = None

    def enter(self, group: TaskGroup) -> None:
        """Say where the informers are to run."""
        self._group = group

    def start(self, cache: Cache[Any]) -> None:
        """Start watching a kind, unless it is watched already."""
        plural = cache.kind.resource.plural
        if plural in self._informers:
            return
        assert self._group is not None, "enter() comes first"

        informers = self._informers[plural] = [
            Reflector(
                self._client,
                cache.kind,
                cache,
                clock=self._clock,
                uniform=self._uniform,
                options=self._options,
                namespace=namespace,
                exclude_namespaces=self._excluded,
            )
            for namespace in self._namespaces
        ]
        for informer in informers:
            self._group.start_soon(informer.run)

    async def synced(self, *plurals: str) -> None:
        """Wait until the kinds named, or all that were started, have had their first list."""
        for plural in plurals or tuple(self._informers):
            for informer in self._informers[plural]:
                await informer.synced.wait()

    async def synced_within(self, plural: str, patience_s: float) -> str | None:
        """Wait a while for a kind's first list; return in words what is in the way, if it failed.

        A list that is known to be failing is not waited for.
        """
        for informer in self._informers[plural]:
            if informer.problem is None:
                await self._clock.wait(informer.synced, patience_s)
            if not informer.synced.is_set():
                return informer.problem or "their list is not complete yet"
        return None

    @property
    def problems(self) -> dict[str, str]:
        """What each watch is failing with at present, by resource; empty while all is well."""
        return {
            plural: informer.problem
            for plural, informers in self._informers.items()
            for informer in informers
            if informer.problem is not None
        }

    @property
    def missing(self) -> dict[str, str]:
        """Why kinds that were started have not had their first list, by resource, in words."""
        return {
            plural: informer.problem or "not listed yet"
            for plural, informers in self._informers.items()
            for informer in informers
            if not informer.synced.is_set()
        }

    def seen_versions(self) -> dict[str, list[str | None]]:
        """Return up to which resource version each watch has taken everything in, by resource."""
        return {
            plural: [informer.version for informer in informers]
            for plural, informers in self._informers.items()
        }

    def statistics(self, plural: str) -> tuple[WatchStatistics, ...]:
        """Return the counters of the watches of one kind."""
        return tuple(informer.statistics for informer in self._informers.get(plural, ()))
