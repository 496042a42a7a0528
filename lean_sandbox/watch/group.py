"""The reflectors of all kinds and namespaces that one process watches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from anyio.abc import TaskGroup

from filters import exclude_namespaces as excluding
from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.decode import STEPS
from lean_sandbox.watch.reflector import Reflector

# How often to check whether a missing list can be passed over.
_LISTED_AGAIN_S = 5.0


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
        shard_selector: str = "",
    ) -> None:
        self._clock = clock
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self._field_selector = "" if namespaces else excluding(*exclude_namespaces)
        self._reflector = partial(
            Reflector,
            client,
            clock=clock,
            uniform=uniform,
            shard_selector=shard_selector,
            page_size=page_size,
        )
        self._reflectors: dict[str, list[Reflector[Any]]] = {}
        #: The task group in which the reflectors run; set before the first starts.
        self.group: TaskGroup

    def start(self, cache: Cache[Any]) -> None:
        """Start watching a kind, unless it is watched already."""
        name = cache.kind.name
        if name in self._reflectors:
            return
        selectors = self._field_selector, cache.kind.field_selector
        reflectors = self._reflectors[name] = [
            self._reflector(
                cache, namespace=namespace, field_selector=",".join(filter(None, selectors))
            )
            for namespace in self._namespaces
        ]
        for reflector in reflectors:
            self.group.start_soon(reflector.run)

    async def list_anew(self, *caches: Cache[Any]) -> None:
        """List kinds that are watched already, and wait until their caches have full objects."""
        again = [one for cache in caches for one in self._reflectors[cache.kind.name]]
        for reflector in again:
            reflector.list_anew()
        if again:
            await self.synced(*(cache.kind.name for cache in caches))

    async def synced(self, *plurals: str) -> None:
        """Wait until the kinds named, or all that were started, have had their first list."""
        for plural in plurals or tuple(self._reflectors):
            while awaited := self._awaited(plural):
                await self._clock.wait(awaited[0].synced, _LISTED_AGAIN_S)

    def _awaited(self, plural: str) -> list[Reflector[Any]]:
        """Return those that have not had their first list, but of namespaces that are passed over.

        These are where the kind may not be listed, while elsewhere it may.
        """
        of_kind = self._reflectors[plural]
        may_pass = any(one.synced.is_set() for one in of_kind)
        return [
            one for one in of_kind if not (one.synced.is_set() or (may_pass and one.is_forbidden))
        ]

    def lacks(self, plurals: Sequence[str], namespace: str) -> bool:
        """Return whether a namespace has not had the first list of one of these kinds."""
        return not all(self._of(plural, namespace).synced.is_set() for plural in plurals)

    async def synced_within(self, plural: str, namespace: str, patience_s: float) -> str | None:
        """Wait for the first list of a kind in a namespace; return the problem if it is late.

        Returns at once for a list that is known to fail.
        """
        reflector = self._of(plural, namespace)
        if reflector.problem is None and not reflector.synced.is_set():
            await self._clock.wait(reflector.synced, patience_s)
        if reflector.synced.is_set():
            return None
        return reflector.problem or "their list is not complete yet"

    def _of(self, plural: str, namespace: str) -> Reflector[Any]:
        at = self._namespaces.index(namespace) if namespace in self._namespaces else 0
        return self._reflectors[plural][at]

    @property
    def missing(self) -> dict[str, str]:
        """The reason why a kind has no complete first list yet, by the name of the kind."""
        return {
            plural: one.problem or "not listed yet"
            for plural in self._reflectors
            for one in self._awaited(plural)
        }

    def collect(self, into: Exposition, resource: str) -> None:
        """Add the series of a kind's lists and watches: steps, bytes, problems, longest silence."""
        reflectors = self._reflectors.get(resource, [])
        received = sum(one.source.received_bytes for one in reflectors)
        steps = {step: sum(one.steps[step] for one in reflectors) for step in STEPS}
        into.one(families.WATCH_BYTES, received, resource)
        into.add(families.WATCH_STEPS, [((resource, step), n) for step, n in steps.items()])
        fails = any(one.problem is not None for one in reflectors)
        into.one(families.WATCH_PROBLEMS, int(fails), resource)
        if reflectors:
            heard_at = min(one.source.heard_at for one in reflectors)
            into.one(families.WATCH_SILENCE, self._clock.monotonic() - heard_at, resource)
