"""Which pool and template a claim or a pool means, as the caches show them.

A pool or template that the cache does not have is looked for once at the server before anybody is
told that it is missing: clients give up at once on that word, and the watch may only be late. What
such a look shows serves the asker alone and is not remembered: when the watch brings the object, it
is news to everybody, to the controllers of pools and templates first of all.
"""

from __future__ import annotations

from typing import Any

from lean_sandbox.api.client import Client
from lean_sandbox.api.errors import NotFound
from lean_sandbox.api.limits import Lane
from lean_sandbox.api.resources import SANDBOXTEMPLATES, SANDBOXWARMPOOLS
from lean_sandbox.model.claim_status import (
    ClaimError,
    ClaimFault,
    pool_not_found,
    template_not_found,
)
from lean_sandbox.model.names import is_object_name
from lean_sandbox.model.template import SandboxTemplate, TemplateView, view_of_template
from lean_sandbox.model.warmpool import (
    PoolView,
    SandboxWarmPool,
    unusable_template,
    view_of_pool,
)
from lean_sandbox.model.wire import ODD
from lean_sandbox.watch.extension_caches import ExtensionCaches
from lean_sandbox.watch.store import Key

__all__ = ["Blueprints"]


class Blueprints:
    """Resolves names of pools and templates within one namespace."""

    def __init__(self, client: Client, caches: ExtensionCaches, *, timeout_s: float) -> None:
        self._client = client
        self._caches = caches
        self._options: dict[str, Any] = {"lane": Lane.CLIENT, "timeout_s": timeout_s}

    def known_pool(self, key: Key) -> PoolView | None:
        """Return the pool if the cache has it."""
        entry = self._caches.pools.get(key)
        return entry.view if entry is not None else None

    def known_template(self, key: Key) -> TemplateView | None:
        """Return the template if the cache has it."""
        entry = self._caches.templates.get(key)
        return entry.view if entry is not None else None

    def template_fault(self, key: Key) -> str:
        """Return in words why a template that is there cannot be used, "" where that is unknown."""
        entry = self._caches.templates.get(key)
        return unusable_template(key.name, entry.fault) if entry is not None and entry.fault else ""

    def known_template_of(self, pool: Key) -> TemplateView | None:
        """Return the template of a pool if the caches have both."""
        view = self.known_pool(pool)
        return None if view is None else self.known_template(Key(pool.namespace, view.template))

    async def pool(self, key: Key) -> PoolView:
        """Return the pool; raises ClaimError (WarmPoolNotFound) after one GET that found none."""
        view = self.known_pool(key)
        if view is not None:
            return view
        if is_object_name(key.name):
            try:
                found = await self._client.get(
                    SANDBOXWARMPOOLS, key.namespace, key.name, SandboxWarmPool, **self._options
                )
            except NotFound:
                pass
            else:
                return view_of_pool(found)
        raise pool_not_found(key.name)

    async def template(self, key: Key) -> TemplateView:
        """Return the template; raises ClaimError if it is odd, or missing after one GET."""
        view = self.known_template(key)
        if view is not None:
            return view
        if fault := self.template_fault(key):
            raise ClaimError(ClaimFault.OTHER, fault)
        if is_object_name(key.name):
            try:
                found = await self._client.get(
                    SANDBOXTEMPLATES, key.namespace, key.name, SandboxTemplate, **self._options
                )
            except NotFound:
                pass
            else:
                return _view_of(found)
        raise template_not_found(key.name)


def _view_of(template: SandboxTemplate) -> TemplateView:
    try:
        return view_of_template(template)
    except ODD as error:
        fault = unusable_template(template.metadata.name, str(error))
        raise ClaimError(ClaimFault.OTHER, fault) from error
