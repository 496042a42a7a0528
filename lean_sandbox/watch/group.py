"""The reflectors of a process: one for each kind and namespace, started when they are needed."""

from __future__ import annotations

from collections.abc import Callable
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


class ReflectorGroup:
    """Starts reflectors, and reports whether they are in sync and what they fail with.

    Without ``namespaces``, one watch a kind covers all of them but ``exclude_namespaces``, which
    the server leaves out.
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
        #: In which the reflectors run; to be set before the first starts.
        self.group: TaskGroup | None = None

    def start(self, cache: Cache[Any]) -> None:
        """Start watching a kind, unless it is watched already."""
        plural = cache.kind.resource.plural
        if plural in self._reflectors:
            return
        assert self.group is not None
        reflectors = self._reflectors[plural] = [
            self._reflector(cache, namespace=namespace) for namespace in self._namespaces
        ]
        for reflector in reflectors:
            self.group.start_soon(reflector.run)

    async def synced(self, *plurals: str) -> None:
        """Wait until the kinds named, or all that were started, have had their first list."""
        for plural in plurals or tuple(self._reflectors):
            for reflector in self._reflectors[plural]:
                await reflector.synced.wait()

    async def synced_within(self, plural: str, patience_s: float) -> str | None:
        """Wait for a kind's first list; return the problem if it is not complete in time.

        A list that is known to fail is not waited for.
        """
        for reflector in self._reflectors[plural]:
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
            for plural, reflectors in self._reflectors.items()
            for one in reflectors
            if not one.synced.is_set()
        }

    def collect(self, into: Exposition, resource: str) -> None:
        """Add what lists and watches of a kind did, and whether one of them fails."""
        reflectors = self._reflectors.get(resource, [])
        received = sum(one.received_bytes for one in reflectors)
        steps = {step: sum(one.steps[step] for one in reflectors) for step in STEPS}
        into.one(families.WATCH_BYTES, received, resource)
        into.add(families.WATCH_STEPS, [((resource, step), n) for step, n in steps.items()])
        fails = any(one.problem is not None for one in reflectors)
        into.one(families.WATCH_PROBLEMS, int(fails), resource)
