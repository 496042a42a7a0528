"""Objects known not to exist, so that nothing is asked for or deleted twice.

Absence needs proof: a 404, or a watch that is in sync and does not have the object. The proof is
void as soon as the object shows up (:meth:`KnownAbsent.forget`) or the watch of its kind may have
missed something (:meth:`KnownAbsent.new_epoch`); the time limit is only a safety net.

A 404 can be out of date when it arrives: the object may have been created, and its event handled,
while the answer was on its way. Whoever asks takes a :meth:`KnownAbsent.ticket` first and hands it
in with the answer; an answer older than what is known is not believed.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import TypeAlias

import msgspec
from cachetools import TTLCache

from lean_sandbox.clock import Clock
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition

_Name: TypeAlias = tuple[str, str, str]


class Proof(Enum):
    """How an absence was learned."""

    SYNCED_WATCH = "synced-watch"
    NOT_FOUND = "not-found"


class _Absence(msgspec.Struct, frozen=True, gc=False):
    proof: Proof
    # The moment of the proof, in the order of everything that happened here.
    moment: int


class KnownAbsent:
    """A bounded memory of (kind, namespace, name) that do not exist.

    Evicting an entry, by age or for room, costs one more question and nothing else.
    """

    def __init__(
        self, max_entries: int, ttl_s: float, clock: Clock, *, max_sightings: int = 1024
    ) -> None:
        """Keep at most ``max_entries`` for ``ttl_s`` seconds each.

        ``max_sightings``: how many forgotten names are kept to judge answers that come late; an
        answer under way while more than these were seen is not believed.
        """
        self._entries: TTLCache[_Name, _Absence] = TTLCache(
            max_entries, ttl_s, timer=clock.monotonic
        )
        self._max_sightings = max_sightings
        self._moment = 0
        self._epochs: dict[str, int] = {}
        # When names were last forgotten; tickets older than the oldest kept are not believed.
        self._sightings: OrderedDict[_Name, int] = OrderedDict()
        self._oldest_ticket = 0
        #: Questions, and how many of them the server was spared; answers that came too late.
        self.asked = 0
        self.saved = 0
        self.outdated = 0

    def ticket(self) -> int:
        """Return this moment, to be handed in with the answer to a question asked now."""
        return self._moment

    def remember(
        self, kind: str, ns: str, name: str, proof: Proof, *, since: int | None = None
    ) -> bool:
        """Note an absence proven by an answer to a question asked at ``since`` (None: just now).

        Returns whether it is believed: not if the object was seen, or the epoch of its kind ended,
        after the question was asked.
        """
        key = (kind, ns, name)
        if since is not None and (
            since < self._epochs.get(kind, 0)
            or since < self._oldest_ticket
            or since < self._sightings.get(key, 0)
        ):
            self.outdated += 1
            return False
        self._entries[key] = _Absence(proof, self._moment)
        return True

    def proof_of(self, kind: str, ns: str, name: str) -> Proof | None:
        """Return how the absence of an object was learned, None when it may exist."""
        key = (kind, ns, name)
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.moment < self._epochs.get(kind, 0):
            del self._entries[key]
            return None
        return entry.proof

    def is_absent(self, kind: str, ns: str, name: str) -> bool:
        """Return whether the object is known not to exist. False means: ask the server."""
        self.asked += 1
        known = self.proof_of(kind, ns, name) is not None
        self.saved += known
        return known

    def forget(self, kind: str, ns: str, name: str) -> None:
        """Note that an object exists, or may: it was created or seen on a watch."""
        key = (kind, ns, name)
        self._moment += 1
        self._entries.pop(key, None)
        self._sightings[key] = self._moment
        self._sightings.move_to_end(key)
        if len(self._sightings) > self._max_sightings:
            self._oldest_ticket = self._sightings.popitem(last=False)[1]

    def drop(self, kind: str, ns: str, name: str) -> None:
        """Drop what is known of a name that nobody will ask for any more."""
        self._entries.pop((kind, ns, name), None)

    def new_epoch(self, kind: str) -> None:
        """Forget all of a kind at once, because its watch may have missed a creation. O(1)."""
        self._moment += 1
        self._epochs[kind] = self._moment

    def collect(self, into: Exposition) -> None:
        """Add what knowing that objects do not exist has saved."""
        into.one(families.ABSENCE, self.saved, "saved")
        into.one(families.ABSENCE, self.asked - self.saved, "asked")
        into.one(families.ABSENCE, self.outdated, "outdated")
        into.one(families.ABSENCE_ENTRIES, len(self))

    def __len__(self) -> int:
        return len(self._entries)
