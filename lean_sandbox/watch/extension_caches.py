"""The caches and intakes of the extension kinds, side by side."""

from __future__ import annotations

import msgspec

from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.resources.extension_objects import (
    ClaimEntry,
    PolicyEntry,
    PoolEntry,
    TemplateEntry,
)
from lean_sandbox.watch.store import Store


class ExtensionCaches(msgspec.Struct, frozen=True):
    """One store for each watched kind."""

    claims: Store[ClaimEntry] = msgspec.field(default_factory=Store)
    pools: Store[PoolEntry] = msgspec.field(default_factory=Store)
    templates: Store[TemplateEntry] = msgspec.field(default_factory=Store)
    policies: Store[PolicyEntry] = msgspec.field(default_factory=Store)


class ExtensionIntakes(msgspec.Struct, frozen=True):
    """One cache for each watched kind."""

    claims: Cache[ClaimEntry]
    pools: Cache[PoolEntry]
    templates: Cache[TemplateEntry]
    policies: Cache[PolicyEntry]
