"""The members of a pool as the cache shows them, and the Sandboxes that could be members."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from lean_sandbox.model import names
from lean_sandbox.model.conditions import find
from lean_sandbox.model.times import parse_rfc3339
from lean_sandbox.model.warmpool import PoolView
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.resources.sandbox import SandboxEntry, orphans_of

# By which age a member's status is known, unless another process led before.
_LOOKED_AT_S = 10.0
# How soon a pool is reconciled again whose members' status is not known yet.
_LOOK_AGAIN_S = 1.0
# A member's grace is checked this much after it ended, so that clocks need not agree.
_GRACE_SLACK_S = 2.0
_WAITING = frozenset({names.REASON_UNSCHEDULABLE, names.REASON_SCHEDULING_GATED})


class PoolMembers(msgspec.Struct):
    """The members of a pool, by state."""

    active: list[SandboxEntry] = []
    ready: int = 0
    terminating: int = 0
    held: int = 0
    # Without a known status since another process led: neither ready nor stuck.
    unknown: int = 0
    stuck: list[SandboxEntry] = []
    # Without the label of a warm launch.
    unlabelled: list[SandboxEntry] = []
    # Seconds until members have to be checked again, for each of them that has to be.
    looks_s: list[float] = []

    @property
    def total(self) -> int:
        """Members that take a place, those being deleted included."""
        return len(self.active) + self.terminating


def take_census(
    sandboxes: Cache[SandboxEntry],
    pool: PoolView,
    *,
    now_s: float,
    readiness_grace_s: float,
) -> PoolMembers:
    """Count the members of a pool; the loop is hot, so a ready member costs next to nothing."""
    census = PoolMembers()
    for entry in sandboxes.owned_by(pool.namespace, pool.uid):
        labels = entry.labels or {}
        if labels.get(names.WARM_POOL_LABEL) != pool.pool_hash:
            continue
        if entry.owner_key(names.SANDBOX_WARM_POOL_KIND) is None:
            continue
        if entry.is_deleting:
            census.terminating += 1
            continue
        census.active.append(entry)
        if labels.get(names.LAUNCH_TYPE_LABEL) != names.LAUNCH_TYPE_WARM:
            census.unlabelled.append(entry)
        if entry.is_ready:
            census.ready += 1
        elif entry.created_at:
            _judge(census, entry, now_s - _seconds_of(entry.created_at), readiness_grace_s)
    return census


def _judge(census: PoolMembers, entry: SandboxEntry, age_s: float, grace_s: float) -> None:
    """Count a member that is not ready, by its age, not by how long it has been unready."""
    if entry.status is None and age_s > _LOOKED_AT_S:
        census.unknown += 1
        census.looks_s.append(_LOOK_AGAIN_S)
    elif age_s <= grace_s:
        census.looks_s.append(grace_s - age_s + _GRACE_SLACK_S)
    elif _waits_for_a_place(entry):
        census.held += 1
    else:
        census.stuck.append(entry)


def _waits_for_a_place(entry: SandboxEntry) -> bool:
    held = entry.status.conditions if entry.status is not None else ()
    found = find(held, names.POD_SCHEDULED)
    return found is not None and found.status == names.FALSE and found.reason in _WAITING


def victims(members: Iterable[SandboxEntry], count: int) -> list[SandboxEntry]:
    """Return the ``count`` members to delete first: unready before ready, the newest first."""

    def order(entry: SandboxEntry) -> tuple[bool, float, str]:
        created_s = _seconds_of(entry.created_at) if entry.created_at else 0.0
        return entry.is_ready, -created_s, entry.key.name

    return sorted(members, key=order)[: max(0, count)]


@lru_cache(maxsize=1024)
def _seconds_of(created_at: str) -> float:
    # Whole seconds: the members of one batch share a few of them.
    return parse_rfc3339(created_at).timestamp()


def find_orphans(sandboxes: Cache[SandboxEntry], pool: PoolView) -> list[SandboxEntry]:
    """Return the Sandboxes with the label of the pool and no owner, which it may adopt.

    Somebody may have written their index key as the uid of an owner, so the owner is checked.
    """
    found = sandboxes.owned_by(pool.namespace, orphans_of(pool.pool_hash))
    return sorted(
        (entry for entry in found if entry.owner is None and not entry.is_deleting),
        key=lambda entry: entry.key,
    )
