"""What was asked of the API server and has not shown up on the watch yet.

A controller that counts its children from a watch must not create or delete more of them while its
own last creations and deletions are still on their way, or it overshoots. So it records them here,
and acts again when each was seen, or after five minutes in which one was lost.

Every creation is one slot. It is anonymous until the answer names the object's uid, and it is met
by an event for exactly that uid, whoever owns the object by then. An event that overtakes the
answer is remembered while slots are anonymous. Neither a foreign object nor an adoption in between
can therefore lower or block the expectation of an owner.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import msgspec

from lean_sandbox.clock import Clock

__all__ = ["EXPECTATIONS_TIMEOUT_S", "Expectations", "ExpectationsStatistics", "Pending"]

EXPECTATIONS_TIMEOUT_S: Final = 300.0

OwnerT = TypeVar("OwnerT", bound=Hashable)


class Pending(msgspec.Struct, frozen=True, gc=False):
    """What an owner still waits for."""

    creations: int
    deletions: int


class ExpectationsStatistics(msgspec.Struct, frozen=True, gc=False):
    """Counters at one moment."""

    owners: int
    pending_uids: int
    unnamed_creations: int
    expired: int
    refused: int


class _Record:
    __slots__ = ("created", "deleted", "raised_at", "unnamed")

    def __init__(self, now: float) -> None:
        self.raised_at = now
        self.unnamed = 0
        self.created: set[str] = set()
        self.deleted: set[str] = set()

    @property
    def is_met(self) -> bool:
        return not (self.unnamed or self.created or self.deleted)


class Expectations(Generic[OwnerT]):
    """Pending creations and deletions of each owner. All operations are atomic (no await).

    ``OwnerT`` is any hashable name of an owner; with its uid in it, a re-created owner starts anew.
    Bounded by ``max_owners``: beyond it nothing is recorded and the caller is told not to act.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        timeout_s: float = EXPECTATIONS_TIMEOUT_S,
        max_owners: int = 10_000,
        max_early: int = 4096,
    ) -> None:
        """Let a record go when nothing was raised for more than ``timeout_s`` seconds.

        ``max_early``: how many uids seen before their answer are remembered at once.
        """
        self._clock = clock
        self._timeout_s = timeout_s
        self._max_owners = max_owners
        self._max_early = max_early
        self._records: dict[OwnerT, _Record] = {}
        self._creator: dict[str, OwnerT] = {}
        self._deleter: dict[str, OwnerT] = {}
        self._early: OrderedDict[str, None] = OrderedDict()
        self._unnamed = 0
        self._expired = 0
        self._refused = 0

    def satisfied(self, owner: OwnerT) -> bool:
        """Return whether the owner waits for nothing; a record that timed out is dropped."""
        return self._live(owner) is None

    def pending(self, owner: OwnerT) -> Pending:
        """Return what the owner waits for."""
        record = self._live(owner)
        if record is None:
            return Pending(0, 0)
        return Pending(record.unnamed + len(record.created), len(record.deleted))

    def expect_creations(self, owner: OwnerT, count: int) -> bool:
        """Record ``count`` creations about to be asked for, if the owner waits for nothing.

        Returns whether they were recorded; if not, nothing may be created. Each creation must then
        be settled by :meth:`created` or :meth:`creation_failed`.
        """
        if count <= 0:
            return False
        if self._live(owner) is not None or not self._has_room():
            self._refused += 1
            return False
        record = self._records[owner] = _Record(self._clock.monotonic())
        record.unnamed = count
        self._unnamed += count
        return True

    def created(self, owner: OwnerT, uid: str) -> None:
        """Note the answer to one creation: the object has this uid, its event is awaited."""
        record = self._take_unnamed(owner)
        if record is None:
            return
        if uid and uid not in self._early:
            record.created.add(uid)
            self._creator[uid] = owner
        self._early.pop(uid, None)
        self._settle(owner, record)

    def creation_failed(self, owner: OwnerT, count: int = 1) -> None:
        """Lower the expectation by creations that failed or were not sent."""
        for _ in range(count):
            record = self._take_unnamed(owner)
            if record is None:
                return
            self._settle(owner, record)

    def observe_creation(self, uid: str) -> OwnerT | None:
        """Note an object on the watch; return the owner that had waited for it.

        Call it for every event that shows an object's existence, before its owner is queued.
        """
        owner = self._creator.pop(uid, None)
        if owner is not None:
            record = self._records[owner]
            record.created.discard(uid)
            self._settle(owner, record)
        elif self._unnamed and uid:
            # May be the event of a creation whose answer is still on its way.
            self._early[uid] = None
            if len(self._early) > self._max_early:
                self._early.popitem(last=False)
        return owner

    def expect_deletion(self, owner: OwnerT, uid: str) -> bool:
        """Record a deletion about to be asked for; return whether it may be.

        Before the request, because its event may come before its answer.
        """
        if not uid:
            return False
        deleter = self._deleter.get(uid)
        is_pending = deleter is not None and self._live(deleter) is not None
        record = self._live(owner)
        if is_pending or (record is None and not self._has_room()):
            self._refused += 1
            return False
        now = self._clock.monotonic()
        if record is None:
            record = self._records[owner] = _Record(now)
        record.raised_at = now
        record.deleted.add(uid)
        self._deleter[uid] = owner
        return True

    def is_deletion_pending(self, owner: OwnerT, uid: str) -> bool:
        """Return whether the owner waits for this object to go."""
        record = self._live(owner)
        return record is not None and uid in record.deleted

    def deletion_failed(self, uid: str) -> None:
        """Lower the expectation of a deletion that failed, or that found nothing."""
        self._forget_deletion(uid)

    def observe_deletion(self, uid: str) -> OwnerT | None:
        """Note that an object is gone, or no longer the owner's; return who had waited for it."""
        waited_for_creation = self.observe_creation(uid)
        return self._forget_deletion(uid) or waited_for_creation

    def forget(self, owner: OwnerT) -> None:
        """Drop everything about an owner, because it is gone."""
        record = self._records.pop(owner, None)
        if record is not None:
            self._release(record)

    def statistics(self) -> ExpectationsStatistics:
        """Return the counters as they are now."""
        return ExpectationsStatistics(
            owners=len(self._records),
            pending_uids=len(self._creator) + len(self._deleter),
            unnamed_creations=self._unnamed,
            expired=self._expired,
            refused=self._refused,
        )

    def _live(self, owner: OwnerT) -> _Record | None:
        record = self._records.get(owner)
        if record is None or not self._is_expired(record):
            return record
        self._expired += 1
        self.forget(owner)
        return None

    def _is_expired(self, record: _Record) -> bool:
        return self._clock.monotonic() - record.raised_at > self._timeout_s

    def _has_room(self) -> bool:
        if len(self._records) < self._max_owners:
            return True
        for owner in list(self._records):
            self._live(owner)
        return len(self._records) < self._max_owners

    def _take_unnamed(self, owner: OwnerT) -> _Record | None:
        record = self._live(owner)
        if record is None or not record.unnamed:
            return None
        record.unnamed -= 1
        self._unnamed -= 1
        return record

    def _forget_deletion(self, uid: str) -> OwnerT | None:
        owner = self._deleter.pop(uid, None)
        if owner is not None:
            record = self._records[owner]
            record.deleted.discard(uid)
            self._settle(owner, record)
        return owner

    def _settle(self, owner: OwnerT, record: _Record) -> None:
        if record.is_met:
            self._records.pop(owner, None)
        self._drop_early_if_idle()

    def _release(self, record: _Record) -> None:
        self._unnamed -= record.unnamed
        for uid in record.created:
            self._creator.pop(uid, None)
        for uid in record.deleted:
            self._deleter.pop(uid, None)
        self._drop_early_if_idle()

    def _drop_early_if_idle(self) -> None:
        if not self._unnamed:
            self._early.clear()
