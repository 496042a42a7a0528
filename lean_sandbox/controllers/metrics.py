"""What the caches hold, counted at the moment of a scrape.

One walk over the Sandboxes gives both gauges. It lets others run every thousand entries, about a
millisecond of work, and gives up when it has taken too long (spec, 7.5; pools, section 8).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

import anyio.lowlevel

from lean_sandbox.clock import Clock
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import MOST_SERIES, Exposition, Labels, Living
from lean_sandbox.model import names
from lean_sandbox.model.conditions import find, is_true
from lean_sandbox.model.sandbox import SandboxStatus
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.resources.extensions import PoolEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# What the labels say where there is nothing to tell.
UNKNOWN_TEMPLATE: Final = "unknown"
# On the metrics of claims, which cannot be joined with the others then (changes, v1.0.5).
UNKNOWN_TEMPLATE_OF_CLAIM: Final = "__unknown__"
_NO_TEMPLATE: Final = frozenset({UNKNOWN_TEMPLATE, UNKNOWN_TEMPLATE_OF_CLAIM})
_OWNERS: Final = frozenset({names.SANDBOX_CLAIM_KIND, names.SANDBOX_WARM_POOL_KIND})

_STATUSES = ("ready", "pending", "succeeded", "failed")
_BY_OUTCOME = {names.REASON_POD_SUCCEEDED: "succeeded", names.REASON_POD_FAILED: "failed"}
# References, those of the walk included, up to which an object counts as its holder's alone: a key
# is in the indices as well, what entries share has many more.
_OWN_REFERENCES = 6


def owned_by(entry: SandboxEntry) -> str:
    """Return the value of the label of that name: the kind of the owner, if it is an extension."""
    owner = entry.owner
    if owner is not None and owner.group == names.EXTENSIONS_GROUP and owner.kind in _OWNERS:
        return owner.kind
    return "None"


def template_of(entry: SandboxEntry) -> str:
    """Return the template that a Sandbox was made from; empty when it names none that can be."""
    named = (entry.notes or {}).get(names.TEMPLATE_REF_ANNOTATION, "")
    return named if names.is_object_name(named) else ""


async def survey(
    into: Exposition,
    sandboxes: Cache[SandboxEntry],
    pools: Iterable[PoolEntry],
    clock: Clock,
) -> bool:
    """Count Sandboxes and the members of pools; return false, and add nothing, if it takes 5 s."""
    deadline = clock.monotonic() + 5.0
    counts: dict[Labels, int] = {}
    sizes: dict[Labels, int] = {}
    # By namespace and uid of a pool: its name and its template.
    alive: dict[tuple[str, str], tuple[str, str]] = {}
    for pool in pools:
        if not pool.is_deleting and pool.view is not None:
            named = pool.view.template
            template = named if names.is_object_name(named) else UNKNOWN_TEMPLATE
            alive[pool.key.namespace, pool.uid] = (pool.key.name, template)
            for status in _STATUSES:
                sizes[pool.key.namespace, pool.key.name, template, status] = 0
    for number, entry in enumerate(list(sandboxes), 1):
        labels = _labels(entry)
        if labels not in counts and len(counts) >= MOST_SERIES:
            labels = (*labels[:4], UNKNOWN_TEMPLATE, *labels[5:])
        counts[labels] = counts.get(labels, 0) + 1
        if alive and entry.owner is not None and not entry.is_deleting:
            held = alive.get((entry.key.namespace, entry.owner.uid))
            if held is not None and owned_by(entry) == names.SANDBOX_WARM_POOL_KIND:
                name, template = held
                template = template_of(entry) or template
                member = (entry.key.namespace, name, template, _member_status(entry.status))
                sizes[member] = sizes.get(member, 0) + 1
        if number % 1000 == 0:
            await anyio.lowlevel.checkpoint()
            if clock.monotonic() >= deadline:
                return False
    into.living = Living(
        now_s=clock.monotonic(),
        namespaces=frozenset(labels[0] for labels in counts),
        templates=frozenset(labels[4] for labels in counts) | _NO_TEMPLATE,
    )
    into.add(families.SANDBOXES, list(counts.items()))
    into.add(families.POOL_SIZE, list(sizes.items()))
    return True


def _labels(entry: SandboxEntry) -> Labels:
    labels = entry.labels or {}
    ready = entry.ready
    is_warm = labels.get(names.LAUNCH_TYPE_LABEL) == names.LAUNCH_TYPE_WARM
    return (
        entry.key.namespace,
        "true" if ready is not None and ready.status == names.TRUE else "false",
        "true" if ready is not None and ready.reason == names.REASON_SANDBOX_EXPIRED else "false",
        names.LAUNCH_TYPE_WARM if is_warm else names.LAUNCH_TYPE_COLD,
        template_of(entry) or UNKNOWN_TEMPLATE,
        owned_by(entry),
        names.normalise_created_by(labels.get(names.CREATED_BY_LABEL)) or names.CREATED_BY_UNKNOWN,
        # An absent or unknown operating mode is Running.
        "Suspended" if entry.view is not None and entry.view.is_suspended else "Running",
    )


def _member_status(status: SandboxStatus | None) -> str:
    conditions = status.conditions if status is not None else ()
    finished = find(conditions, names.FINISHED)
    if finished is not None and finished.status == names.TRUE and finished.reason in _BY_OUTCOME:
        return _BY_OUTCOME[finished.reason]
    return "ready" if is_true(conditions, names.READY) else "pending"


def cache_size(into: Exposition, store: Cache[Any]) -> None:
    """Add how many objects of a kind are remembered, and about how much memory that takes."""
    resource = store.kind.resource.plural
    into.one(families.CACHE_OBJECTS, len(store), resource)
    sample = [entry for entry, _ in zip(store, range(32), strict=False)]
    each = sum(map(_own_bytes, sample)) / len(sample) if sample else 0.0
    into.one(families.CACHE_BYTES, round(each * len(store)), resource)


def _own_bytes(entry: Any) -> int:
    """Return the size of an entry and of what only it refers to."""
    total = 0
    waiting = [entry]
    while waiting:
        held = waiting.pop()
        total += sys.getsizeof(held)
        if isinstance(held, dict):
            parts = [*held, *held.values()]
        elif isinstance(held, tuple):
            parts = list(held)
        else:
            parts = [getattr(held, name) for name in getattr(held, "__struct_fields__", ())]
        for index in range(len(parts)):
            part = parts[index]
            if part is not None and sys.getrefcount(part) <= _OWN_REFERENCES:
                waiting.append(part)
    return total
