"""The members of a pool as the cache shows them, and what one pass has to do about them.

Pure, except for reading the cache: from members and what was deleted already to a count.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from lean_sandbox.model import names
from lean_sandbox.model.conditions import is_true
from lean_sandbox.model.times import parse_rfc3339
from lean_sandbox.model.warmpool import (
    Member,
    PoolView,
    Readiness,
    is_waiting_on_scheduling,
    judge_readiness,
)
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# By when a new member has been looked at in any case that is not a takeover.
_LOOKED_AT_S = 10.0
# How soon a pool comes back to members that have yet to be looked at.
_LOOK_AGAIN_S = 1.0


class PoolMembers(msgspec.Struct):
    """Who belongs to the pool, and how they are."""

    active: list[SandboxEntry] = []
    ready: int = 0
    terminating: int = 0
    held: int = 0
    # Of which nothing is known since another process led: neither ready nor stuck.
    unknown: int = 0
    stuck: list[SandboxEntry] = []
    # Without the label of a warm launch.
    unlabelled: list[SandboxEntry] = []
    # Seconds until the earliest grace of a young member ends.
    grace_s: float | None = None

    @property
    def total(self) -> int:
        """Members that take a place, those on their way out included."""
        return len(self.active) + self.terminating

    def members(self) -> list[Member]:
        """Return the facts of the active members."""
        return [facts_of(entry) for entry in self.active]


def take_census(
    caches: Caches,
    pool: PoolView,
    deleted: frozenset[str],
    *,
    now_s: float,
    readiness_grace_s: float,
) -> PoolMembers:
    """Count the members of a pool; ``deleted`` are the uids that this process has deleted.

    The loop is the hot one of a large pool: a ready member costs no more than looking at it.
    """
    census = PoolMembers()
    for entry in caches.sandboxes.owned_by(pool.namespace, pool.uid):
        labels = entry.labels or {}
        if labels.get(names.WARM_POOL_LABEL) != pool.pool_hash:
            continue
        owner = entry.owner
        if owner is None or not owner.is_a(names.SANDBOX_WARM_POOL_KIND, names.EXTENSIONS_GROUP):
            continue
        if entry.is_deleting or entry.uid in deleted:
            census.terminating += 1
            continue
        census.active.append(entry)
        if labels.get(names.LAUNCH_TYPE_LABEL) != names.LAUNCH_TYPE_WARM:
            census.unlabelled.append(entry)
        if entry.status is not None and is_true(entry.status.conditions, names.READY):
            census.ready += 1
        else:
            _judge(census, entry, now_s, readiness_grace_s)
    return census


def _judge(
    census: PoolMembers, entry: SandboxEntry, now_s: float, readiness_grace_s: float
) -> None:
    """Count a member that is not ready."""
    facts = facts_of(entry)
    if entry.status is None and now_s - (facts.created_s or now_s) > _LOOKED_AT_S:
        census.unknown += 1
        census.grace_s = min(census.grace_s or _LOOK_AGAIN_S, _LOOK_AGAIN_S)
        return
    judged = judge_readiness(facts, now_s, readiness_grace_s)
    if judged.readiness is Readiness.YOUNG and judged.remaining_s is not None:
        soonest = census.grace_s
        census.grace_s = judged.remaining_s if soonest is None else min(soonest, judged.remaining_s)
    elif judged.readiness is Readiness.HELD:
        census.held += 1
    elif judged.readiness is Readiness.STUCK:
        census.stuck.append(entry)


def facts_of(entry: SandboxEntry) -> Member:
    """Return what a pool judges a member by."""
    conditions = entry.status.conditions if entry.status is not None else ()
    return Member(
        name=entry.key.name,
        created_s=_seconds_of(entry.created_at) if entry.created_at else None,
        is_ready=is_true(conditions, names.READY),
        is_waiting=is_waiting_on_scheduling(conditions),
    )


@lru_cache(maxsize=1024)
def _seconds_of(created_at: str) -> float:
    # Whole seconds: the members of one batch share a few of them.
    return parse_rfc3339(created_at).timestamp()
