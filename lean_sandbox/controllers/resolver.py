"""Resolves the pool and the template that a claim or a pool names, as the caches show them.

A pool or template that is not in the cache is fetched before it is reported as missing: clients
give up at once on that reason, and the watch may only be late. An absence found by a GET holds for
all claims that were there when it was sent; a later claim leads to another GET, at most one a
second for each name. An object found by a GET is returned and not cached: when the watch delivers
it, it is new to all controllers, first of all to those of pools and templates.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import msgspec
from cachetools import TTLCache

from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.resources import SANDBOXTEMPLATES, SANDBOXWARMPOOLS, Resource
from lean_sandbox.model.claim_status import ClaimError, ClaimFault
from lean_sandbox.model.names import is_object_name
from lean_sandbox.model.template import (
    SandboxTemplate,
    TemplateView,
    policy_name,
    policy_name_fault,
    view_of_template,
)
from lean_sandbox.model.warmpool import (
    PoolView,
    SandboxWarmPool,
    Staleness,
    unusable_template,
    view_of_pool,
)
from lean_sandbox.model.wire import ODD
from lean_sandbox.runtime.workers import UNSEEN_S
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources import Caches
from lean_sandbox.watch.resources.extensions import PoolEntry, TemplateEntry

T = TypeVar("T")

# The plural of a kind, and the key of an object.
_Name: TypeAlias = tuple[str, Key]

# How many names are remembered, so that one is fetched once in UNSEEN_S at most.
_MOST_NAMES = 4096
# How long an absence holds that no event has contradicted.
_ABSENT_S = 600.0


class _Fetch(msgspec.Struct):
    """A GET of a name: when it was sent, and whether it found nothing and no claim came since."""

    at: float
    is_absent: bool = False


class NotYetError(Exception):
    """Nothing can be said of a claim yet: reconcile it again after ``after_s``, write nothing."""

    def __init__(self, after_s: float = UNSEEN_S) -> None:
        super().__init__(f"not known before {after_s:g} s")
        self.after_s = after_s


class TemplateResolver:
    """Resolves names of pools and templates within one namespace."""

    def __init__(self, client: Client, caches: Caches, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._clock = clock
        # The latest GET for each name that was not found, or whose GET is in flight.
        self._fetches: TTLCache[_Name, _Fetch] = TTLCache(_MOST_NAMES, _ABSENT_S, clock.monotonic)
        # The verdicts by templates that are cached.
        self._staleness: dict[Key, Staleness] = {}
        caches.templates.listeners.append(self._forget_verdicts)
        self._by_template = caches.pools.index(_template_of)

    def known_pool(self, key: Key) -> PoolView | None:
        """Return the pool if the cache has it."""
        entry = self._caches.pools.get(key)
        return entry.view if entry is not None else None

    def known_template(self, key: Key) -> TemplateView | None:
        """Return the template if the cache has it."""
        entry = self._caches.templates.get(key)
        return entry.view if entry is not None else None

    def template_fault(self, key: Key) -> str:
        """Return why a cached template cannot be used, "" if it can or is not cached."""
        entry = self._caches.templates.get(key)
        return unusable_template(key.name, entry.fault) if entry is not None and entry.fault else ""

    def known_template_of(self, pool: Key) -> TemplateView | None:
        """Return the template of a pool if the caches have both."""
        view = self.known_pool(pool)
        return None if view is None else self.known_template(Key(pool.namespace, view.template))

    def staleness(self, template: TemplateView) -> Staleness:
        """Return what has been compared with a template; kept until the template changes."""
        key = Key(template.namespace, template.name)
        held = self._staleness.get(key)
        if held is None or held.template is not template:
            held = Staleness(template)
            if self.known_template(key) is template:
                self._staleness[key] = held
        return held

    def _forget_verdicts(self, old: TemplateEntry | None, new: TemplateEntry | None) -> None:
        if old is not None and (new is None or new.view is not old.view):
            self._staleness.pop(old.key, None)

    def pools_of(self, template: Key) -> list[Key]:
        """Return the cached pools that name a template."""
        return self._by_template.find(*template)

    def unprotected(self, template: TemplateView) -> ClaimError | None:
        """Return what keeps Pods from being started: a managed policy that does not exist.

        A policy of that name that is somebody else's counts as existing: it is not ours to replace,
        and would hold up the Pods for ever.
        """
        if not template.is_managed:
            return None
        if fault := policy_name_fault(template.name):
            return ClaimError(ClaimFault.POLICY_IMPOSSIBLE, fault)
        policy = policy_name(template.name)
        if Key(template.namespace, policy) in self._caches.policies:
            return None
        text = (
            f'waiting for NetworkPolicy "{policy}"; if it does not come, the Events of '
            f'SandboxTemplate "{template.name}" say why'
        )
        return ClaimError(ClaimFault.POLICY_PENDING, text)

    def forget_absence(self, pool: Key) -> None:
        """Note that a claim is new or changed: its pool and template may have come before it."""
        view = self.known_pool(pool)
        if view is None:
            self._forget_absence(SANDBOXWARMPOOLS, pool)
        else:
            self._forget_absence(SANDBOXTEMPLATES, Key(pool.namespace, view.template))

    def _forget_absence(self, resource: Resource, key: Key) -> None:
        name = (resource.plural, key)
        last = self._fetches.get(name)
        if last is not None:
            # A new record: what a GET in flight finds may be older.
            self._fetches[name] = _Fetch(last.at)

    async def pool(self, key: Key) -> PoolView:
        """Return the pool. At most one GET.

        Raises ClaimError (WarmPoolNotFound) when there is none, NotYetError when it is too early.
        """
        view = self.known_pool(key)
        if view is not None:
            return view
        found = await self._fetch(SANDBOXWARMPOOLS, key, SandboxWarmPool)
        if found is None:
            text = f'SandboxWarmPool "{key.name}" not found'
            raise ClaimError(ClaimFault.WARM_POOL_NOT_FOUND, text)
        view = view_of_pool(found)
        # Only now is it known which template is meant.
        self._forget_absence(SANDBOXTEMPLATES, Key(key.namespace, view.template))
        return view

    async def template(self, key: Key) -> TemplateView:
        """Return the template. At most one GET.

        Raises ClaimError when there is none (TemplateNotFound) or an unusable one, NotYetError when
        it is too early to ask the server.
        """
        view = self.known_template(key)
        if view is not None:
            return view
        if fault := self.template_fault(key):
            raise ClaimError(ClaimFault.OTHER, fault)
        found = await self._fetch(SANDBOXTEMPLATES, key, SandboxTemplate)
        if found is None:
            text = f'SandboxTemplate "{key.name}" not found'
            raise ClaimError(ClaimFault.TEMPLATE_NOT_FOUND, text)
        try:
            return view_of_template(found)
        except ODD as error:
            raise ClaimError(ClaimFault.OTHER, unusable_template(key.name, str(error))) from error

    async def template_of(self, pool: Key) -> TemplateView:
        """Return the template of a pool. At most two GETs; raises as the two methods above do."""
        view = await self.pool(pool)
        return await self.template(Key(pool.namespace, view.template))

    async def _fetch(self, resource: Resource, key: Key, type_: type[T]) -> T | None:
        """Ask the server for an object that the cache does not have; ``None`` when it is absent."""
        if not is_object_name(key.name):
            return None
        name = (resource.plural, key)
        now = self._clock.monotonic()
        last = self._fetches.get(name)
        if last is not None and last.is_absent:
            return None
        if last is not None and now < last.at + UNSEEN_S:
            raise NotYetError(last.at + UNSEEN_S - now)
        last = self._fetches[name] = _Fetch(now)
        found = await self._client.get(resource, key.name, type_, namespace=key.namespace)
        if found is None:
            last.is_absent = True
        else:
            # The watch is late, and the next caller may ask at once.
            self._fetches.pop(name, None)
        return found


def _template_of(pool: PoolEntry) -> str | None:
    return pool.view.template if pool.view is not None else None
