"""How the free members of one pool wait: by stage, and inside a stage by node.

Which member is next is a rule of the claim controller: of the nodes that hold the most free members
the one whose first member came earliest gives that member; members without a node come only when
none has one. Followed literally it means counting all members for each claim. Here a
:class:`Stage` keeps a line per node and a heap of lines, so that a choice looks at one member.

Both heaps drop lazily: what moved is marked or recognised as out of date, skipped when it reaches
the top, and swept out when more than half of a heap is such leftovers.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

from lean_sandbox.watch.kind import Key

# The stages of a free member, in the order in which claims want them.
READY: Final = 0  # it has an address and is Ready
NETWORKED: Final = 1  # it has an address
WAITING: Final = 2  # it has no address yet: never handed out
NOWHERE: Final = -1  # it is not free any more

_LEFTOVERS_TOLERATED: Final = 16


class Member(msgspec.Struct, frozen=True, gc=False):
    """A Sandbox of a pool that no claim has: what a claim needs to know to choose it.

    ``mark`` is for whoever takes it to judge, such as the label with the hash of its blueprint.
    It takes 72 bytes; let ``pool``, ``node`` and ``mark`` be the same object for all members that
    agree in them, and ``key`` and ``uid`` those of the cache, for else they cost 400 more.
    """

    pool: Key
    key: Key
    uid: str
    node: str = ""
    has_address: bool = False
    is_ready: bool = False
    mark: str = ""


class Place(msgspec.Struct, order=True, gc=False):
    """Where a member stands. Compared by ``number``, which rises in the order of arrival."""

    number: int
    member: Member
    stage: int = NOWHERE
    node: str = ""


class Tally(msgspec.Struct, gc=False):
    """How many members and lines were looked at to choose: the work done, in units of O(1)."""

    inspected: int = 0


def stage_of(member: Member) -> int:
    """Return the stage of a free member."""
    if not member.has_address:
        return WAITING
    return READY if member.is_ready else NETWORKED


class _Line:
    """The free members of one stage on one node, earliest first."""

    __slots__ = ("heap", "size")

    def __init__(self) -> None:
        # The top is always valid.
        self.heap: list[Place] = []
        self.size = 0


class Stage:
    """The free members of a pool at one stage."""

    __slots__ = ("_changed", "_lines", "_ranking", "_stage", "_tally", "size")

    def __init__(self, stage: int, tally: Tally) -> None:
        self._stage = stage
        self._tally = tally
        self._lines: dict[str, _Line] = {}
        # (-length, number of the first place, node); out of date where the line says otherwise.
        self._ranking: list[tuple[int, int, str]] = []
        # Nodes whose line is not in the ranking as it is now.
        self._changed: set[str] = set()
        self.size = 0

    def add(self, place: Place) -> None:
        """Line up a place that stands nowhere. Its number decides where, not the moment."""
        # Where members only wait, the node decides nothing.
        node = place.member.node if self._stage != WAITING else ""
        line = self._lines.get(node)
        if line is None:
            line = self._lines[node] = _Line()
        place.stage = self._stage
        place.node = node
        heappush(line.heap, place)
        line.size += 1
        self.size += 1
        self._settle(node, line)

    def discard(self, place: Place) -> None:
        """Take a place of this stage out of its line; it stands nowhere then."""
        node = place.node
        line = self._lines[node]
        place.stage = NOWHERE
        line.size -= 1
        self.size -= 1
        if line.size:
            while not self._holds(line.heap[0], node):
                heappop(line.heap)
                self._tally.inspected += 1
            self._settle(node, line)
        else:
            del self._lines[node]
            self._changed.discard(node)

    def first(self) -> Place | None:
        """Return the place that is next by the rule, None when there is none. It stays in line.

        O(1) members are looked at; choosing the line is O(log nodes), amortised over the changes.
        """
        lines, ranking = self._lines, self._ranking
        for node in self._changed:
            line = lines[node]
            heappush(ranking, (-line.size, line.heap[0].number, node))
        self._tally.inspected += len(self._changed)
        self._changed.clear()
        if len(ranking) > 2 * len(lines) + _LEFTOVERS_TOLERATED:
            self._tally.inspected += len(ranking)
            ranking[:] = [
                (-line.size, line.heap[0].number, node) for node, line in lines.items() if node
            ]
            heapify(ranking)
        while ranking:
            length, number, node = ranking[0]
            self._tally.inspected += 1
            found = lines.get(node)
            if found is not None and -length == found.size and number == found.heap[0].number:
                return found.heap[0]
            heappop(ranking)
        homeless = lines.get("")
        if homeless is None:
            return None
        self._tally.inspected += 1
        return homeless.heap[0]

    def places(self) -> list[Place]:
        """Return all places, in no order. O(n)."""
        return [place for node, line in self._lines.items() for place in self._sift(node, line)]

    def _settle(self, node: str, line: _Line) -> None:
        if node:
            self._changed.add(node)
        if len(line.heap) > 2 * line.size + _LEFTOVERS_TOLERATED:
            self._tally.inspected += len(line.heap)
            line.heap = self._sift(node, line)
            heapify(line.heap)

    def _sift(self, node: str, line: _Line) -> list[Place]:
        # A place that left and came back is in the heap twice.
        found = {place.number: place for place in line.heap if self._holds(place, node)}
        return list(found.values())

    def _holds(self, place: Place, node: str) -> bool:
        return place.stage == self._stage and place.node == node


class PoolLines:
    """The members of one pool: the free ones by stage, and how many are taken."""

    __slots__ = ("_stages", "_tally", "taken")

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        # A stage without members is not kept.
        self._stages: list[Stage | None] = [None, None, None]
        self.taken = 0

    def is_empty(self) -> bool:
        """Return whether there is no member, free or taken."""
        return not self.taken and self._stages == [None, None, None]

    def size(self, stage: int) -> int:
        """Return how many free members are at a stage."""
        found = self._stages[stage]
        return 0 if found is None else found.size

    def first(self, stage: int) -> Place | None:
        """Return the place at a stage that is next, None when there is none."""
        found = self._stages[stage]
        return None if found is None else found.first()

    def add(self, place: Place) -> None:
        """Line up a place that stands nowhere, at the stage its member is at."""
        wanted = stage_of(place.member)
        stage = self._stages[wanted]
        if stage is None:
            stage = self._stages[wanted] = Stage(wanted, self._tally)
        stage.add(place)

    def discard(self, place: Place) -> None:
        """Take a place out of its line; it stands nowhere then."""
        stage = self._stages[place.stage]
        assert stage is not None
        if stage.size == 1:
            self._stages[place.stage] = None
        stage.discard(place)

    def refresh(self, place: Place, member: Member) -> None:
        """Let a place have its member as it is now. It keeps its turn."""
        place.member = member
        stage = stage_of(member)
        if stage != place.stage or (stage != WAITING and member.node != place.node):
            self.discard(place)
            self.add(place)

    def places(self) -> list[Place]:
        """Return the places of all free members, in no order. O(n)."""
        return [place for stage in self._stages if stage is not None for place in stage.places()]
