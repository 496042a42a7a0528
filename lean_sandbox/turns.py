"""Who goes first: one rule, for the reconciles of a work queue and for the requests of the process.

1. Work that a client waits for goes before work that can wait (:class:`Rank`). A reconcile has the
   rank of what led to it, and its requests have the rank of the reconcile (:data:`RANK`).
2. Inside a rank the groups (namespaces) take turns; inside a group the first in is the first out.
3. The last eighth of the slots is for groups that hold none: even if all work of one tenant hangs,
   slots are left for the others.
4. SPARE holds few slots, never the last of several, and one while a CLIENT waits in line. It always
   has that one, in turns with CLIENT where slots are that few: nothing starves.

Nothing else decides who goes first. What decides *when* something may begin stands elsewhere: due
times and backoff in the work queue, rates that users set, windows of a launch's statuses.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from collections.abc import Container, Hashable
from contextvars import ContextVar
from enum import IntEnum
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

#: The share of SPARE: with more, a claim that comes alone meets more requests of others at the API
#: server (docs/design.md has figures).
SPARE_SHARE: Final = 4


class Rank(IntEnum):
    """Who waits for a piece of work; the higher rank goes first."""

    #: Nobody: pools are filled, annotations written, Events posted, statuses acknowledged.
    SPARE = 0
    #: A client, for something that was made or changed.
    CLIENT = 1


#: The rank of the requests that the current task makes, unless they name another.
RANK: ContextVar[Rank] = ContextVar("RANK", default=Rank.SPARE)


def count_down(counted: Counter[K], key: K) -> None:
    """Lower the count of a key by one; remove the key at zero."""
    counted[key] -= 1
    if not counted[key]:
        del counted[key]


class Turns(Generic[K]):
    """A line in which groups take turns; inside a group the first in is the first out."""

    def __init__(self) -> None:
        self._groups: OrderedDict[Hashable, OrderedDict[K, None]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def __bool__(self) -> bool:
        return bool(self._groups)

    def join(self, group: Hashable, key: K) -> None:
        """Add a key at the end of its group, a group that was empty after all others."""
        self._groups.setdefault(group, OrderedDict())[key] = None

    def leave(self, group: Hashable, key: K) -> None:
        """Take a key out, whoever's turn it is."""
        line = self._groups[group]
        del line[key]
        if not line:
            del self._groups[group]

    def first(self, skipped: Container[Hashable] = ()) -> tuple[Hashable, K] | None:
        """Return the next group that is not ``skipped``, and its first key."""
        for group, line in self._groups.items():
            if group not in skipped:
                return group, next(iter(line))
        return None

    def first_of_most(self) -> tuple[Hashable, K]:
        """Return the group with the most keys, and its first."""
        group = max(self._groups, key=lambda one: len(self._groups[one]))
        return group, next(iter(self._groups[group]))

    def take(self, group: Hashable, key: K) -> None:
        """Take out a key whose turn it is, and put its group behind all others."""
        self._groups.move_to_end(group)
        self.leave(group, key)


class Slots(Generic[K]):
    """Slots for work, and the lines of the keys that wait for one, by the rule of this module.

    ``shared`` slots are for all groups, those up to ``most`` for groups that hold none; ``spare``
    is the share of SPARE.
    """

    def __init__(
        self, shared: int = sys.maxsize, most: int = sys.maxsize, *, spare: int = SPARE_SHARE
    ) -> None:
        self.shared = shared
        self.most = most
        self.spare = spare
        #: Slots that are held, by rank.
        self.held: dict[Rank, int] = dict.fromkeys(Rank, 0)
        self._lines: dict[Rank, Turns[K]] = {rank: Turns() for rank in Rank}
        # How many slots each group holds.
        self._holders: Counter[Hashable] = Counter()
        self._last = Rank.SPARE

    def waiting(self, rank: Rank) -> int:
        """Return how many keys of a rank are in line."""
        return len(self._lines[rank])

    @property
    def in_use(self) -> int:
        """How many slots are held."""
        return self.held[Rank.SPARE] + self.held[Rank.CLIENT]

    @property
    def is_idle(self) -> bool:
        """Whether no slot is held, and nobody is in line."""
        return not self.in_use and not any(self._lines.values())

    def join(self, rank: Rank, group: Hashable, key: K) -> None:
        """Put a key in line."""
        self._lines[rank].join(group, key)

    def leave(self, rank: Rank, group: Hashable, key: K) -> None:
        """Take a key out of its line."""
        self._lines[rank].leave(group, key)

    def next(self) -> tuple[Rank, Hashable, K] | None:
        """Return the rank, group and key that may take a slot now; ``None`` while nobody may."""
        in_use = self.in_use
        if in_use >= self.most:
            return None
        skipped = self._holders if in_use >= self.shared else ()
        client = self._lines[Rank.CLIENT].first(skipped)
        # SPARE comes first only with nothing in hand, and not twice in a row.
        is_due = not self.held[Rank.SPARE] and self._last is not Rank.SPARE
        if client is not None and not (is_due and self._lines[Rank.SPARE]):
            return Rank.CLIENT, *client
        if self.held[Rank.SPARE] < self._spare_share():
            spare = self._lines[Rank.SPARE].first(skipped)
            if spare is not None:
                return Rank.SPARE, *spare
        return (Rank.CLIENT, *client) if client is not None else None

    def take(self, rank: Rank, group: Hashable, key: K) -> None:
        """Give a slot to the key that :meth:`next` has returned."""
        self._lines[rank].take(group, key)
        self.hold(rank, group)

    def hold(self, rank: Rank, group: Hashable) -> None:
        """Hold a slot for work that was not in line; :meth:`is_open` says whether it may."""
        self.held[rank] += 1
        self._holders[group] += 1
        self._last = rank

    def is_open(self, rank: Rank, group: Hashable) -> bool:
        """Return whether work that comes now may take a slot without waiting in line."""
        in_use = self.in_use
        if in_use >= self.most or any(self._lines.values()):
            return False
        if rank is Rank.SPARE and self.held[Rank.SPARE] >= self._spare_share():
            return False
        return in_use < self.shared or group not in self._holders

    def give_back(self, rank: Rank, group: Hashable) -> None:
        """Give a slot back; what :meth:`next` returns may be another from now on."""
        self.held[rank] -= 1
        count_down(self._holders, group)

    def _spare_share(self) -> int:
        return 1 if self._lines[Rank.CLIENT] else min(self.spare, max(1, self.most - 1))
