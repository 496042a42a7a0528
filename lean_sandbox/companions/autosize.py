"""autosize: a pool gets as many free members as its claims need, between the bounds it names.

How many that are is decided in :mod:`lean_sandbox.companions.sizing`. A change
is a PATCH of ``scale`` and an Event; nothing else is asked, as claims, Sandboxes and
HorizontalPodAutoscalers are watched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from lean_sandbox.companions.annotations import MAX_REPLICAS, MIN_REPLICAS
from lean_sandbox.companions.autoscalers import AutoscalerEntry
from lean_sandbox.companions.common import Companion, Kit, whole_number
from lean_sandbox.companions.kinds import (
    CompanionClaimEntry,
    CompanionPoolEntry,
    CompanionSandboxEntry,
)
from lean_sandbox.companions.sizing import BEFORE_OVERRULING_S, LOOK_S, Bounds, Past, plan
from lean_sandbox.kube.errors import ApiError, message_of
from lean_sandbox.kube.resources import SANDBOXWARMPOOLS, PartialObject
from lean_sandbox.model import names
from lean_sandbox.model.meta import as_version
from lean_sandbox.model.times import parse_rfc3339
from lean_sandbox.runtime.workers import Result
from lean_sandbox.watch.kind import Delta, Key
from lean_sandbox.words import counted

_WISHES: Final = frozenset({MIN_REPLICAS, MAX_REPLICAS})
# The lower bound of a pool that names none.
_LEAST: Final = 1


class _ScaleSpec(msgspec.Struct, frozen=True):
    # Left out of the answer if it is 0.
    replicas: int = 0


class _Scale(PartialObject, frozen=True):
    """The size of a pool, as the server has stored it."""

    spec: _ScaleSpec = _ScaleSpec()


class Autosize(Companion[CompanionPoolEntry]):
    """Sizes the pools that name bounds, but for those that an autoscaler sizes."""

    def __init__(self, kit: Kit) -> None:
        caches = kit.caches
        super().__init__("autosize", kit, caches.pools)
        self._pasts: dict[Key, Past] = {}
        self.watches(caches.pools, self.on_pool)
        self.watches(caches.claims, self.on_claim)
        self.watches(caches.sandboxes, self.on_sandbox)
        self.watches(caches.autoscalers, self.on_autoscaler)

    def on_pool(self, delta: Delta[CompanionPoolEntry]) -> None:
        """Look at a pool that names a bound, or did so."""
        new = delta.new
        has_wish = new is not None and not new.annotations.keys().isdisjoint(_WISHES)
        if has_wish or delta.key in self._pasts:
            self.wake(delta.key, reason=self.name)

    def on_claim(self, delta: Delta[CompanionClaimEntry]) -> None:
        """Count a new claim."""
        old = delta.old
        new = delta.new
        if new is None or (old is not None and old.uid == new.uid):
            return
        pool = Key(new.key.namespace, new.pool)
        if (past := self._pasts.get(pool)) is not None:
            self._note_claim(past, new)
            self.wake(pool, reason=self.name)

    def on_sandbox(self, delta: Delta[CompanionSandboxEntry]) -> None:
        """Learn how long a member took to become ready."""
        old = delta.old
        new = delta.new
        if new is None or (old is not None and old.ready_since):
            return
        pool = new.owner_key(names.SANDBOX_WARM_POOL_KIND)
        if pool is not None and (past := self._pasts.get(pool)) is not None:
            _note_start(past, new)

    def on_autoscaler(self, delta: Delta[AutoscalerEntry]) -> None:
        """Look at the pool that an autoscaler names, or has named."""
        for entry in (delta.old, delta.new):
            pool = None if entry is None else Key(delta.key.namespace, entry.pool)
            if pool in self._pasts:
                self.wake(pool, reason="autoscaler")

    async def act(self, key: Key) -> Result:
        """Give a pool the size that its claims need."""
        pool = self.cache.get(key)
        if pool is None or pool.is_deleting or (bounds := self._bounds(pool)) is None:
            self._pasts.pop(key, None)
            return Result()
        past = self._pasts.get(key) or self._learn(pool)
        now_s = self._kit.server_time.now_s()
        past.demand.forget_before(now_s)
        is_recent = now_s - past.sized_s < BEFORE_OVERRULING_S
        if is_recent and pool.version < past.wrote:
            # The watch is yet to show our last write.
            return Result(requeue_after_s=LOOK_S)
        if pool.replicas != past.size:
            past.size = pool.replicas
            past.sized_s = now_s
            past.is_ours = False
        scalers = self._kit.caches.autoscalers.owned_by(key.namespace, key.name)
        if scalers:
            note = f'HorizontalPodAutoscaler "{scalers[0].key.name}" sizes this pool: remove it, or'
            self._tell_once(pool, past, "AutosizeStandsBack", f"{note} {MAX_REPLICAS}")
            return Result()
        found = plan(past, bounds, now_s)
        if found.size != past.size:
            await self._resize(pool, past, found.size, now_s)
        return Result(requeue_after_s=found.look_s)

    def _bounds(self, pool: CompanionPoolEntry) -> Bounds | None:
        """Return what a pool asks for; None if that is nothing, or wrong."""
        most = self.wish(self.cache, pool, MAX_REPLICAS, whole_number(1))
        if most is None and MAX_REPLICAS in pool.annotations:
            return None
        least = self.nearest_wish([(self.cache, pool)], MIN_REPLICAS, _least_for(most), _LEAST)
        return None if most is None or least is None else Bounds(least, most)

    def _learn(self, pool: CompanionPoolEntry) -> Past:
        """Learn from the claims and members that a pool has."""
        past = Past(pool.replicas, self._kit.server_time.now_s())
        caches = self._kit.caches
        key = pool.key
        for claim in caches.claims.owned_by(key.namespace, key.name):
            self._note_claim(past, claim)
        for member in caches.sandboxes.owned_by(key.namespace, pool.uid):
            _note_start(past, member)
        self._pasts[key] = past
        return past

    def _note_claim(self, past: Past, claim: CompanionClaimEntry) -> None:
        if not claim.is_made_to_order:
            time = self._kit.server_time
            past.demand.note_claim(time.now_s() - time.age_s(claim.created_at))

    async def _resize(self, pool: CompanionPoolEntry, past: Past, size: int, now_s: float) -> None:
        """Set the size of a pool, if nobody has written it since. One PATCH of its scale."""
        writer = self._kit.writer
        guard = {"uid": pool.uid, "resourceVersion": await writer.guard(self.cache, pool)}
        refusal = ""
        try:
            scale = await writer.client.patch(
                SANDBOXWARMPOOLS,
                pool.key.name,
                {"metadata": guard, "spec": {"replicas": size}},
                _Scale,
                namespace=pool.key.namespace,
                subresource="scale",
            )
            if scale.spec.replicas != size:
                refusal = f"a policy or webhook makes it {scale.spec.replicas}"
        except ApiError as error:
            if not error.is_refusal:
                raise
            refusal = message_of(error)
        if refusal:
            past.sized_s = now_s
            past.is_ours = False
            self._tell_once(pool, past, "ResizeRefused", f"Not resized to {size}: {refusal}")
            return
        before = past.size
        past.size = size
        past.sized_s = now_s
        past.is_ours = True
        past.told = ""
        past.wrote = as_version(scale.metadata.resource_version)
        demand = past.demand
        note = (
            f"Resized from {before} to {counted(size, 'free member', 'free members')}: up to"
            f" {counted(demand.peak(now_s), 'claim', 'claims')} came in {demand.window_s:.0f} s,"
            f" and {demand.in_last_hour(now_s)} in the last hour"
        )
        self.report(self.cache, pool, "PoolResized", note)

    def _tell_once(self, pool: CompanionPoolEntry, past: Past, reason: str, note: str) -> None:
        if past.told != note:
            past.told = note
            self.report(self.cache, pool, reason, note, type_="Warning")


def _least_for(most: int | None) -> Callable[[str], int]:
    """Return what reads the lower bound beside an upper one, which is None if there is none."""

    def read(text: str) -> int:
        least = whole_number(0)(text)
        if most is None:
            raise ValueError(f"has no effect without {MAX_REPLICAS}: set that as well")
        if least > most:
            raise ValueError(f"is more than {MAX_REPLICAS}, {most}: lower one or raise the other")
        return least

    return read


def _note_start(past: Past, member: CompanionSandboxEntry) -> None:
    if member.ready_since:
        made_s = parse_rfc3339(member.created_at).timestamp()
        past.demand.note_start(parse_rfc3339(member.ready_since).timestamp() - made_s)
