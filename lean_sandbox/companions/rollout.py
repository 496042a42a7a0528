"""rollout: free members of an old template are replaced, a few at a time.

A member is old if the pool's controller would replace it under the strategy Recreate. Old ones are
deleted as long as no more members are missing or not ready than the annotation permits; the
controller makes the next ones. Requests for a member: a GET of the template and a DELETE; for a
step: a PATCH of the pool, an Event. Which template a member was made of takes a GET of the
template for each state of it, and one of a member for each stamp that another state or another
controller has left.

Where a policy changes what is made, new members look as old as those before. One is replaced all
the same, as the controller may only have been late to see the template, but after growing pauses.
"""

from __future__ import annotations

from typing import Final

import msgspec
from cachetools import LRUCache

from lean_sandbox.companions.annotations import ROLLING_UPDATE, ROLLOUT_STATUS
from lean_sandbox.companions.blueprints import Blueprint, Blueprints
from lean_sandbox.companions.common import Companion, Kit
from lean_sandbox.companions.freemembers import (
    COMPLETE,
    PROGRESSING,
    STALLED,
    FreeMembers,
    Share,
    choose,
    read_share,
    state_of,
    status_of,
    word_of,
)
from lean_sandbox.companions.kinds import CompanionPoolEntry, CompanionSandboxEntry, Wishes
from lean_sandbox.kube.errors import Conflict, ControlPlaneError
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition
from lean_sandbox.model import names
from lean_sandbox.model.conditions import find
from lean_sandbox.model.times import parse_rfc3339
from lean_sandbox.model.warmpool import ReplacementPace, Staleness
from lean_sandbox.runtime.workers import AT_ONCE_S, Requeue, Result
from lean_sandbox.watch.kind import Delta, Key

# Changes of members within this time are looked at together.
_GATHER_S: Final = 0.2
# The status is written at most this often while it is the same but for its numbers.
_STATUS_S: Final = 5.0
_MOST_POOLS: Final = 4096
_WISHES: Final = frozenset({ROLLING_UPDATE, ROLLOUT_STATUS})


class _Pace(msgspec.Struct):
    """How far a rollout to one state of a template is, and what was last written of it, and when.

    ``least`` is the smallest number of old members so far, ``since`` when it was reached. When the
    first one was deleted, none had been made after the date ``newest``. ``in_doubt`` is the uid of
    the member whose DELETE got no answer, so that it may be gone.
    """

    status: str
    state: tuple[str, int] = ("", 0)
    since: float = 0.0
    least: int = 0
    newest: str = ""
    repeats: ReplacementPace = msgspec.field(default_factory=ReplacementPace)
    written_at: float = -_STATUS_S
    in_doubt: str = ""

    def follow(self, blueprint: Blueprint, left: int, now: float) -> None:
        """Note how many members are old."""
        state = (blueprint.uid, blueprint.generation)
        is_another = self.state != state
        if is_another:
            self.state = state
            self.newest = ""
            self.repeats = ReplacementPace()
        begins_again = self.least == 0 and left > 0
        if is_another or begins_again or left < self.least:
            self.least = left
            self.since = now

    def wait_s(self, census: FreeMembers, now_s: float) -> float:
        """Return how long to wait because the member made last is old: what is made may stay so."""
        last = census.made_last
        is_in_vain = last is not None and self.newest and last.created_at > self.newest
        return self.repeats.wait_s(now_s) if is_in_vain else 0.0

    def deleted(self, census: FreeMembers, now_s: float) -> None:
        """Note that a member was deleted of those that were counted before."""
        last = census.made_last
        if last is not None:
            self.newest = self.newest or last.created_at
            self.repeats.replaced(parse_rfc3339(last.created_at).timestamp(), now_s)


class Rollout(Companion[CompanionPoolEntry]):
    """Replaces the old members of pools that ask for it."""

    def __init__(self, kit: Kit) -> None:
        caches = kit.caches
        super().__init__("rollout", kit, caches.pools)
        self._sandboxes = caches.sandboxes
        self._blueprints = Blueprints(kit.writer.client, caches.templates)
        self._paces: LRUCache[str, _Pace] = LRUCache(_MOST_POOLS)
        self._left: dict[Key, int] = {}
        self.watches(caches.pools, self.on_pool)
        self.watches(caches.templates, self.on_template)
        self.watches(caches.sandboxes, self.on_member)

    def on_pool(self, delta: Delta[CompanionPoolEntry]) -> None:
        """Look at a pool that asks for it, or has asked before."""
        if delta.new is None:
            self._left.pop(delta.key, None)
        self._look_at(delta.key)

    def on_template(self, delta: Delta[Wishes]) -> None:
        """Look at the pools of a template that has changed."""
        old = delta.old
        new = delta.new
        if old is None or new is None or old.generation != new.generation:
            for pool in self._kit.caches.pools_by_template.find(*delta.key):
                self._look_at(pool)

    def on_member(self, delta: Delta[CompanionSandboxEntry]) -> None:
        """Look at the pool of a member, before and after the change."""
        for entry in filter(None, (delta.old, delta.new)):
            if (pool := entry.owner_key(names.SANDBOX_WARM_POOL_KIND)) is not None:
                self._look_at(pool)

    def _look_at(self, key: Key) -> None:
        pool = self.cache.get(key)
        if pool is not None and not _WISHES.isdisjoint(pool.annotations):
            self.wake(key, after_s=_GATHER_S, reason=self.name)

    async def act(self, key: Key) -> Result:
        """Take the next step of the rollout of a pool, and say how far it is."""
        pool = self.cache.get(key)
        self._left.pop(key, None)
        if pool is None or pool.is_deleting:
            return Result()
        share = self._share_of(pool)
        if share is None:
            await self._announce(pool, "")
            return Result()
        blueprint = await self._blueprints.get(pool.template_key)
        if blueprint is None:
            return Result()
        staleness = blueprint.staleness
        if staleness is None:
            return Result(requeue_after_s=await self._announce(pool, STALLED, blueprint.fault))
        found = await self._members(pool, staleness)
        self._left[key] = found.left
        permitted = share.of(pool.replicas)
        pace = self._pace_of(pool)
        pace.follow(blueprint, found.left, self._kit.clock.monotonic())
        wait_s = pace.wait_s(found, self._kit.server_time.now_s())
        if wait_s > 0.0 or not choose(found, permitted):
            return await self._report(pool, found, permitted, wait_s)
        # The controller may have seen a change of the template already that this has not.
        if await self._blueprints.fetch(pool.template_key) is not blueprint:
            return Result(requeue_after_s=AT_ONCE_S)
        # First, so that whoever follows this process knows that there is an end to tell.
        if word_of(pace.status) in ("", COMPLETE):
            await self._announce(pool, status_of(PROGRESSING, found))
        # Others may have changed what was counted before these requests.
        found = await self._members(pool, staleness)
        if doomed := choose(found, permitted):
            await self._delete(pool, doomed[0])
            pace.deleted(found, self._kit.server_time.now_s())
        return Result(requeue_after_s=AT_ONCE_S)

    def _share_of(self, pool: CompanionPoolEntry) -> Share | None:
        share = self.wish(self.cache, pool, ROLLING_UPDATE, read_share)
        if share is None or not pool.is_recreate:
            return share
        fault = (
            "does nothing while spec.updateStrategy.type is Recreate, which replaces all old"
            " members at once: set it to OnReplenish, or remove the annotation"
        )
        self._kit.reports.wrong(self.name, self.cache, pool, ROLLING_UPDATE, fault)
        return None

    async def _members(self, pool: CompanionPoolEntry, staleness: Staleness) -> FreeMembers:
        """Count the free members; a GET for each stamp that is new, and for one in doubt."""
        pace = self._pace_of(pool)
        found = FreeMembers(pool.replicas)
        for member in self._sandboxes.owned_by(pool.key.namespace, pool.uid):
            entry: CompanionSandboxEntry | None = member
            if member.uid == pace.in_doubt:
                await self._kit.writer.get(self._sandboxes, member.key)
                pace.in_doubt = ""
                entry = self._sandboxes.latest(member)
            if entry is None or entry.is_deleting:
                continue
            is_old = await self._blueprints.is_old(entry, staleness)
            if entry.ready_since:
                (found.old if is_old else found.renewed).append(entry)
            else:
                (found.old_unready if is_old else found.starting).append(entry)
        return found

    async def _delete(self, pool: CompanionPoolEntry, member: CompanionSandboxEntry) -> None:
        """Delete a member. One DELETE; raises Conflict if somebody has written to it since."""
        try:
            await self._kit.writer.delete(self._sandboxes, member, is_guarded=True)
        except Conflict:
            raise
        except ControlPlaneError:
            self._pace_of(pool).in_doubt = member.uid
            raise
        # No event of a later version can say otherwise.
        self._sandboxes.mark(member, is_deleting=True)
        note = f'Deleted Sandbox "{member.key.name}", made of another template than now'
        self.report(self.cache, pool, "MemberRenewed", note)

    async def _report(
        self, pool: CompanionPoolEntry, census: FreeMembers, permitted: int, wait_s: float
    ) -> Result:
        """Say how far a rollout is that can delete nothing at present, or not for ``wait_s``."""
        pace = self._pace_of(pool)
        if not census.left and word_of(pace.status) in ("", COMPLETE):
            return Result()
        grace_s = pool.grace_s or self._kit.settings.sandbox_warm_pool_readiness_grace_period
        left_s = pace.since + grace_s - self._kit.clock.monotonic()
        state = state_of(census, permitted, is_stuck=left_s <= 0.0)
        why = ""
        if state == STALLED and word_of(pace.status) != STALLED:
            why = await self._why_stuck(census, permitted, is_in_vain=wait_s > 0.0)
        requeue = Requeue()
        requeue.within(await self._announce(pool, status_of(state, census), why))
        requeue.within(left_s if state == PROGRESSING else None)
        requeue.within(wait_s or None)
        return requeue.result

    async def _announce(self, pool: CompanionPoolEntry, status: str, why: str = "") -> float | None:
        """Write a status, with an Event if it is the end or a stop.

        One PATCH, unless it is the same as before. Returns how long to wait if it is too early.
        """
        pace = self._pace_of(pool)
        now = self._kit.clock.monotonic()
        before = word_of(pace.status)
        state = word_of(status)
        if status == pace.status:
            return None
        if state == before and now < pace.written_at + _STATUS_S:
            return pace.written_at + _STATUS_S - now
        await self.write(pool, {"metadata": {"annotations": {ROLLOUT_STATUS: status or None}}})
        pace.status = status
        pace.written_at = now
        if state == STALLED != before:
            self.report(self.cache, pool, "RolloutStalled", why, type_="Warning")
        if state == COMPLETE != before:
            note = f'All free members are made of template "{pool.template}" as it is now'
            self.report(self.cache, pool, "RolloutComplete", note)
        return None

    async def _why_stuck(self, census: FreeMembers, permitted: int, *, is_in_vain: bool) -> str:
        """Return why no member can be deleted. One GET of a new one that is not ready, if any."""
        last = census.made_last if is_in_vain else None
        if last is not None:
            return (
                f'sandbox "{last.key.name}" was made since and is not as the template says: see'
                " which policy or webhook changes it"
            )
        why = (
            f"{census.missing} of {census.wanted} members are missing or not ready, of which"
            f" {ROLLING_UPDATE} permits {permitted}"
        )
        for member in census.starting[:1]:
            found = await self._kit.writer.peek(self._sandboxes, member.key)
            ready = find(found.status.conditions, names.READY) if found is not None else None
            if ready is not None:
                why += f'; sandbox "{member.key.name}": {ready.message or ready.reason}'
        return why

    def _pace_of(self, pool: CompanionPoolEntry) -> _Pace:
        if pool.uid not in self._paces:
            self._paces[pool.uid] = _Pace(pool.annotations.get(ROLLOUT_STATUS, ""))
        return self._paces[pool.uid]

    def collect(self, into: Exposition) -> None:
        """Add the series of this companion."""
        super().collect(into)
        into.one(families.ROLLOUT_LEFT, sum(self._left.values()))
