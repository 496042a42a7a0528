"""The caches and intakes of the extension kinds, side by side."""

from __future__ import annotations

from dataclasses import dataclass, field

from lean_sandbox.watch.extension_objects import ClaimEntry, PolicyEntry, PoolEntry, TemplateEntry
from lean_sandbox.watch.intake import Intake
from lean_sandbox.watch.store import Store

__all__ = ["ExtensionCaches", "ExtensionIntakes"]


@dataclass(frozen=True, slots=True)
class ExtensionCaches:
    """One store for each watched kind."""

    claims: Store[ClaimEntry] = field(default_factory=Store)
    pools: Store[PoolEntry] = field(default_factory=Store)
    templates: Store[TemplateEntry] = field(default_factory=Store)
    policies: Store[PolicyEntry] = field(default_factory=Store)


@dataclass(frozen=True, slots=True)
class ExtensionIntakes:
    """One intake for each watched kind."""

    claims: Intake[ClaimEntry]
    pools: Intake[PoolEntry]
    templates: Intake[TemplateEntry]
    policies: Intake[PolicyEntry]
