"""What members of pools are made of: templates as they are now, and members compared with them.

The cache of templates has no spec, so a template is fetched once for each state of it. Members that
were made alike have one stamp, so one of them is fetched where the stamp is not the template's.
"""

from __future__ import annotations

from typing import Final

import msgspec
from cachetools import LRUCache

from lean_sandbox.companions.kinds import CompanionSandboxEntry, Wishes
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.resources import SANDBOXES, SANDBOXTEMPLATES
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.model.template import SandboxTemplate, view_of_template
from lean_sandbox.model.warmpool import Freshness, Staleness, unusable_template
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Key, view_or_fault

# A template may have a megabyte; most have a kilobyte.
_MOST_BYTES: Final = 8 * 1024 * 1024
_LEAST_BYTES: Final = 1024


class Blueprint(msgspec.Struct, frozen=True, eq=False):
    """One state of a template. One that cannot be used has a ``fault``, and makes nobody old."""

    uid: str
    generation: int
    staleness: Staleness | None
    fault: str


class Blueprints:
    """Fetches templates and members as far as the caches do not say what they are made of."""

    def __init__(self, client: Client, templates: Cache[Wishes]) -> None:
        self._client = client
        self._templates = templates
        self._held: LRUCache[Key, Blueprint] = LRUCache(_MOST_BYTES, getsizeof=_size_of)

    async def get(self, template: Key) -> Blueprint | None:
        """Return a template as it is as far as the cache knows; None if there is none.

        One GET for each state of it. Raises ControlPlaneError.
        """
        cached = self._templates.get(template)
        held = self._held.get(template)
        if cached is None:
            return None
        if held is not None and held.uid == cached.uid and held.generation >= cached.generation:
            return held
        return await self.fetch(template)

    async def fetch(self, template: Key) -> Blueprint | None:
        """Return a template as it is now, None if it is gone. One GET.

        The object of before is returned if it has not changed. Raises ControlPlaneError.
        """
        item = await self._client.get(
            SANDBOXTEMPLATES, template.name, SandboxTemplate, namespace=template.namespace
        )
        held = self._held.pop(template, None)
        if item is None:
            return None
        meta = item.metadata
        if held is None or (held.uid, held.generation) != (meta.uid, meta.generation):
            view, fault = view_or_fault(view_of_template, item)
            held = Blueprint(
                meta.uid,
                meta.generation,
                None if view is None else Staleness(view),
                unusable_template(template.name, fault) if fault else "",
            )
        if _size_of(held) <= _MOST_BYTES:
            self._held[template] = held
        return held

    async def is_old(self, member: CompanionSandboxEntry, staleness: Staleness) -> bool:
        """Return whether a member was made of another template than that of ``staleness``.

        One GET of the member if its labels do not decide. Raises ControlPlaneError.
        """
        freshness = staleness.by_labels(member.metadata)
        if freshness is Freshness.UNDECIDED:
            key = member.key
            whole = await self._client.get(SANDBOXES, key.name, Sandbox, namespace=key.namespace)
            if whole is None:
                return False
            freshness = staleness.by_spec(whole.metadata, whole.spec)
        return freshness is Freshness.STALE


def _size_of(blueprint: Blueprint) -> int:
    staleness = blueprint.staleness
    return _LEAST_BYTES + (0 if staleness is None else len(staleness.template.sandbox_spec_json))
