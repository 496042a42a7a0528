"""defaults: claims that name no lifecycle get the one that their pool has for them.

A claim gets it once, when it has a Sandbox: one PATCH of the claim and an Event. One that has no
Sandbox for too long is deleted: one DELETE, and an Event on the pool.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final, Literal

import msgspec
from cachetools import LRUCache

from lean_sandbox.companions.annotations import CLAIM_DEFAULTS, DEFAULTS_APPLIED
from lean_sandbox.companions.common import Companion, Kit
from lean_sandbox.companions.kinds import CompanionClaimEntry, CompanionPoolEntry
from lean_sandbox.model.times import format_rfc3339
from lean_sandbox.runtime.workers import Result
from lean_sandbox.watch.kind import Delta, Key

_MOST_REMEMBERED: Final = 4096
_MOST_SECONDS: Final = 2**31 - 1

_Seconds = Annotated[int, msgspec.Meta(ge=0, le=_MOST_SECONDS)]
_SomeSeconds = Annotated[int, msgspec.Meta(ge=1, le=_MOST_SECONDS)]


class ClaimDefaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the annotation of a pool says; what is None is not said."""

    shutdownPolicy: Literal["Retain", "Delete", "DeleteForeground"] | None = None
    ttlSecondsAfterFinished: _Seconds | None = None
    lifetimeSeconds: _SomeSeconds | None = None
    unboundSeconds: _SomeSeconds | None = None


def read_defaults(text: str) -> ClaimDefaults:
    """Return what an annotation says. Raises ValueError, naming the field."""
    try:
        return msgspec.json.decode(text, type=ClaimDefaults)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"is not what it may be: {error}. It is JSON with any of shutdownPolicy,"
            " ttlSecondsAfterFinished, lifetimeSeconds and unboundSeconds"
        ) from None


class Give(msgspec.Struct, frozen=True):
    """Give the claim its lifecycle; ``lifetime_s`` from now on is its ``shutdownTime``."""

    lifecycle: dict[str, Any]
    lifetime_s: int | None = None


class Remove(msgspec.Struct, frozen=True):
    """Delete the claim: it has had no Sandbox for too long."""


class Wait(msgspec.Struct, frozen=True):
    """Do nothing for a while; ``for_s`` None: until something changes."""

    for_s: float | None = None


def plan(claim: CompanionClaimEntry, defaults: ClaimDefaults, age_s: float) -> Give | Remove | Wait:
    """Return what is to be done about a claim of this age."""
    if claim.has_lifecycle or DEFAULTS_APPLIED in claim.annotations:
        return Wait()
    if not claim.sandbox:
        if defaults.unboundSeconds is None:
            return Wait()
        left_s = defaults.unboundSeconds - age_s
        return Wait(left_s) if left_s > 0.0 else Remove()
    said = {
        "shutdownPolicy": defaults.shutdownPolicy,
        "ttlSecondsAfterFinished": defaults.ttlSecondsAfterFinished,
    }
    lifecycle = {name: value for name, value in said.items() if value is not None}
    if not lifecycle and defaults.lifetimeSeconds is None:
        return Wait()
    return Give(lifecycle, defaults.lifetimeSeconds)


class Defaults(Companion[CompanionClaimEntry]):
    """Gives claims the lifecycle of their pool, and ends those that wait for too long."""

    def __init__(self, kit: Kit) -> None:
        super().__init__("defaults", kit, kit.caches.claims)
        self._pools = kit.caches.pools
        # The uids of claims that have got it, also where somebody has taken it off again.
        self._given: LRUCache[str, bool] = LRUCache(_MOST_REMEMBERED)
        self.watches(kit.caches.claims, self.on_claim)
        self.watches(kit.caches.pools, self.on_pool)

    def on_claim(self, delta: Delta[CompanionClaimEntry]) -> None:
        """Look at a claim of a pool with defaults."""
        new = delta.new
        if new is not None and self._pool_of(new) is not None:
            self.wake(new.key, reason=self.name)

    def on_pool(self, delta: Delta[CompanionPoolEntry]) -> None:
        """Read the defaults of a pool, and look at its claims."""
        old = delta.old
        new = delta.new
        before = old.annotations.get(CLAIM_DEFAULTS) if old is not None else None
        if new is None or new.annotations.get(CLAIM_DEFAULTS) in (None, before):
            return
        self._defaults_of(new)
        for claim in self.cache.owned_by(*delta.key):
            self.wake(claim.key, reason=self.name)

    def _pool_of(self, claim: CompanionClaimEntry) -> CompanionPoolEntry | None:
        pool = self._pools.get(Key(claim.key.namespace, claim.pool))
        return pool if pool is not None and CLAIM_DEFAULTS in pool.annotations else None

    def _defaults_of(self, pool: CompanionPoolEntry) -> ClaimDefaults | None:
        return self.wish(self._pools, pool, CLAIM_DEFAULTS, read_defaults)

    async def act(self, key: Key) -> Result:
        """Do what is to be done about one claim."""
        claim = self.cache.get(key)
        if claim is None or claim.is_deleting or claim.uid in self._given:
            return Result()
        pool = self._pool_of(claim)
        if pool is None or (defaults := self._defaults_of(pool)) is None:
            return Result()
        match plan(claim, defaults, self._kit.server_time.age_s(claim.created_at)):
            case Wait(for_s):
                return Result(requeue_after_s=for_s)
            case Remove():
                await self._remove(claim, pool, defaults)
            case Give() as gift:
                await self._give(claim, gift)
        return Result()

    async def _give(self, claim: CompanionClaimEntry, gift: Give) -> None:
        lifecycle = dict(gift.lifecycle)
        now = self._kit.server_time.now()
        if gift.lifetime_s is not None:
            lifecycle["shutdownTime"] = format_rfc3339(now + timedelta(seconds=gift.lifetime_s))
        annotations = {DEFAULTS_APPLIED: format_rfc3339(now)}
        written = await self.write(
            claim, {"metadata": {"annotations": annotations}, "spec": {"lifecycle": lifecycle}}
        )
        self._given[claim.uid] = True
        stored = written.spec.lifecycle or {}
        stored = {name: msgspec.json.decode(one) for name, one in stored.items()}
        lost = {name: one for name, one in lifecycle.items() if stored.get(name) != one}
        note = f'Set the lifecycle to the defaults of pool "{claim.pool}": {_listed(lifecycle)}'
        if not lost:
            self.report(self.cache, claim, "ClaimDefaultsApplied", note)
        else:
            note = f"{note}; a policy or webhook has taken off or changed {_listed(lost)}"
            self.report(self.cache, claim, "ClaimDefaultsChanged", note, type_="Warning")

    async def _remove(
        self, claim: CompanionClaimEntry, pool: CompanionPoolEntry, defaults: ClaimDefaults
    ) -> None:
        if await self._kit.writer.delete(self.cache, claim, is_guarded=True):
            note = (
                f'Deleted claim "{claim.key.name}": it had no Sandbox for'
                f" {defaults.unboundSeconds} s (unboundSeconds)"
            )
            self.report(self._pools, pool, "UnboundClaimDeleted", note)


def _listed(lifecycle: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in lifecycle.items())
