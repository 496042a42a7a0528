"""Replays claims against pools of a fixed size and against one that autosize sizes.

A replay goes by the decisions of the companion and by no server: a claim takes a ready member, or
is cold; a pool has its size at once, and a new member is ready after two to three minutes. Loads
and starts are drawn from a seed, so that each run has the same figures.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

import msgspec

from lean_sandbox.companions.sizing import LOOK_S, RECENT_S, Bounds, Past, plan

DAY_S: Final = 86400.0
SLOW_START_S: Final = 180.0
QUICK_START_S: Final = 120.0
BOUNDS: Final = Bounds(1, 100)
#: The size of a pool that supplies 0.8 members a minute, each of which takes 2.5 minutes.
SUPPLIED: Final = 2
# Claims a minute by the hour of a working day; between these hours as on a line.
_DAY: Final = (
    (0.0, 0.02),
    (7.0, 0.02),
    (9.0, 2.0),
    (12.0, 3.0),
    (13.0, 1.5),
    (14.0, 3.0),
    (17.0, 2.0),
    (19.0, 0.2),
    (24.0, 0.02),
)


class Replay(msgspec.Struct, frozen=True):
    """What became of the claims of a day; ``sizes`` has the moment and size of each change."""

    claims: int
    cold: int
    mean: float
    sizes: list[tuple[float, int]]


def steady() -> list[float]:
    """Return when claims come that are 1.5 a minute, by chance."""
    return _by_chance(lambda _at_s: 1.5)


def bursts() -> list[float]:
    """Return when claims come that are fifty within 20 s, each hour to within 45 s."""
    rolled = random.Random(3)  # noqa: S311 -- no secret
    begins = [3600.0 * (hour + 0.5) + rolled.uniform(-45.0, 45.0) for hour in range(24)]
    return sorted(begin + rolled.uniform(0.0, 20.0) for begin in begins for _ in range(50))


def working_day() -> list[float]:
    """Return when claims come that are few at night and up to 3 a minute by day, by chance."""
    return _by_chance(_rate)


LOADS: Final[dict[str, Callable[[], list[float]]]] = {
    "steady, 1.5 claims a minute": steady,
    "50 at once each hour": bursts,
    "a working day": working_day,
}


def _rate(at_s: float) -> float:
    hour = at_s / 3600.0
    begin, end = next((one, after) for one, after in pairwise(_DAY) if one[0] <= hour <= after[0])
    part = (hour - begin[0]) / (end[0] - begin[0])
    return begin[1] + part * (end[1] - begin[1])


def _by_chance(rate: Callable[[float], float]) -> list[float]:
    rolled = random.Random(7)  # noqa: S311 -- no secret
    most = 3.0
    found = []
    at_s = rolled.expovariate(most / 60.0)
    while at_s < DAY_S:
        if rolled.random() < rate(at_s) / most:
            found.append(at_s)
        at_s += rolled.expovariate(most / 60.0)
    return found


def _moments(claims: list[float]) -> Iterator[tuple[float, bool]]:
    """Return all moments at which something is decided, and whether a claim comes then."""
    looks = ((number * LOOK_S, False) for number in range(int(DAY_S / LOOK_S)))
    return heapq.merge(looks, ((at_s, True) for at_s in claims))


class _Members:
    """The free members of a pool, ready or not."""

    def __init__(self, size: int) -> None:
        self.ready = size
        self.starting: list[tuple[float, float]] = []
        self._rolled = random.Random(1)  # noqa: S311 -- no secret

    def begin(self, now_s: float, size: int) -> list[float]:
        """Let those become ready whose time has come; return how long each took."""
        took = []
        while self.starting and self.starting[0][0] <= now_s:
            took.append(heapq.heappop(self.starting)[1])
            self.ready += 1
        while self.ready + len(self.starting) < size:
            start_s = self._rolled.uniform(QUICK_START_S, SLOW_START_S)
            heapq.heappush(self.starting, (now_s + start_s, start_s))
        while self.ready + len(self.starting) > size:
            if self.starting:
                self.starting.remove(max(self.starting))
                heapq.heapify(self.starting)
            else:
                self.ready -= 1
        return took


def replay(claims: list[float], fixed: int | None = None) -> Replay:
    """Replay a day of claims, against a pool of a fixed size or one that is sized."""
    size = BOUNDS.least if fixed is None else fixed
    past = Past(size, -RECENT_S)
    members = _Members(size)
    sizes = [(0.0, size)]
    cold = 0
    for now_s, is_claim in _moments(claims):
        for took_s in members.begin(now_s, size):
            past.demand.note_start(took_s)
        if is_claim:
            past.demand.note_claim(now_s)
            if members.ready:
                members.ready -= 1
            else:
                cold += 1
        if fixed is None:
            past.demand.forget_before(now_s)
            past.size = plan(past, BOUNDS, now_s).size
            if past.size != size:
                size = past.size
                past.sized_s = now_s
                sizes.append((now_s, size))
        members.begin(now_s, size)
    ends = [at_s for at_s, _ in sizes[1:]] + [DAY_S]
    area = sum(one * (end - at_s) for (at_s, one), end in zip(sizes, ends, strict=True))
    return Replay(len(claims), cold, area / DAY_S, sizes)


class Compared(msgspec.Struct, frozen=True):
    """One load against a pool that is sized, a fixed one of its mean, and one of two members."""

    load: str
    sized: Replay
    same: Replay
    supplied: Replay


def compared() -> list[Compared]:
    """Replay each load; the fixed pool has the mean of the one that is sized, rounded up."""
    found = []
    for load, claims_of in LOADS.items():
        claims = claims_of()
        sized = replay(claims)
        same = replay(claims, math.ceil(sized.mean))
        found.append(Compared(load, sized, same, replay(claims, SUPPLIED)))
    return found
