"""How many free members a pool needs, by its claims of the last hour.

A claim takes a free member, and the next one is ready only after a while. So a pool needs as many
free members as claims come in that time: the most that came in any such time of the last minutes,
or of the minutes an hour ago, since much of what comes in bursts comes by the hour. Claims also
come by chance, now and then more of them than the last minutes have seen: so a pool has at least
what is enough for nearly all that come by chance as often as in the last hour.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from itertools import accumulate, repeat
from operator import sub
from typing import Final

import msgspec

#: What came in the last minutes may come again at any time.
RECENT_S: Final = 1200.0
#: Claims come again after an hour, this much earlier or later.
_HOUR_S: Final = 3600.0
_SLACK_S: Final = 120.0
# Claims are counted by steps of time.
_STEP_S: Final = 10.0
# How long members take to become ready while none has.
_UNKNOWN_S: Final = 60.0
#: A member that takes longer has become ready again: pools replace one that does not become ready.
LONGEST_START_S: Final = 1200.0
_SAMPLES: Final = 20
# One sample in five may take longer than what is counted on.
_SHARE: Final = 0.8
# The share of claims that may find no member if they come by chance.
_MISSED: Final = 0.005
# How often a pool is looked at that has claims; that takes no request.
LOOK_S: Final = 10.0
# How long a size lasts at least: before a larger one, before a smaller one, and where somebody else
# has set it, or the server has refused ours.
BEFORE_UP_S: Final = 1.0
BEFORE_DOWN_S: Final = 60.0
BEFORE_OVERRULING_S: Final = 60.0
# What a step down leaves of a size.
_LEFT: Final = 0.75


class Demand:
    """What is known of the claims of a pool and of its members; times are in seconds."""

    def __init__(self) -> None:
        self._claims: Counter[int] = Counter()
        self._starts_s: deque[float] = deque(maxlen=_SAMPLES)

    def note_claim(self, at_s: float) -> None:
        """Count a claim that wanted a member."""
        self._claims[_step(at_s)] += 1

    def note_start(self, took_s: float) -> None:
        """Remember how long a member took to become ready."""
        if 0.0 <= took_s <= LONGEST_START_S:
            self._starts_s.append(took_s)

    def forget_before(self, now_s: float) -> None:
        """Forget what is too old to say anything about ``now_s`` and later."""
        first = _step(now_s - _HOUR_S - _SLACK_S) - self._steps
        for step in [step for step in self._claims if step < first]:
            del self._claims[step]

    def __bool__(self) -> bool:
        return bool(self._claims)

    @property
    def start_s(self) -> float:
        """How long members take to become ready, at most, but for one in five."""
        if not self._starts_s:
            return _UNKNOWN_S
        return sorted(self._starts_s)[math.ceil(_SHARE * len(self._starts_s)) - 1]

    @property
    def window_s(self) -> float:
        """The time in which a member becomes ready, in whole steps."""
        return self._steps * _STEP_S

    @property
    def _steps(self) -> int:
        """How many steps the time in which a member becomes ready may touch."""
        return math.ceil(self.start_s / _STEP_S) + 1

    def peak(self, now_s: float) -> int:
        """Return the most claims that are to be expected in the time of a start."""
        recent = self._most(now_s - RECENT_S - self.window_s, now_s)
        hour_ago_s = now_s - _HOUR_S
        again = self._most(hour_ago_s - _SLACK_S, hour_ago_s + self.window_s + _SLACK_S)
        return max(recent, again)

    def in_last_hour(self, now_s: float) -> int:
        """Return how many claims came in the last hour."""
        first = _step(now_s - _HOUR_S)
        return sum(count for step, count in self._claims.items() if step >= first)

    def needed(self, now_s: float) -> int:
        """Return how many free members are needed: one more than the peak, or more by chance.

        Without any claim that is to be expected it is 0.
        """
        peak = self.peak(now_s)
        load = self.in_last_hour(now_s) * self.start_s / _HOUR_S
        return max(peak + 1, enough_for(load)) if peak else 0

    def _most(self, first_s: float, last_s: float) -> int:
        """Return the most claims in the time of a start, of all that lie between two moments."""
        span = range(_step(first_s), _step(last_s) + 1)
        before = list(accumulate(map(self._claims.get, span, repeat(0)), initial=0))
        return max(map(sub, before[self._steps :], before), default=0)


def _step(at_s: float) -> int:
    return math.floor(at_s / _STEP_S)


def enough_for(load: float) -> int:
    """Return how many free members do for claims that come by chance.

    ``load`` is how many come on average while a member starts. By Erlang's formula for what finds
    no free place: at most one claim in 200 finds none.
    """
    size = 0
    missed = 1.0
    while missed > _MISSED:
        size += 1
        missed = load * missed / (size + load * missed)
    return size


class Bounds(msgspec.Struct, frozen=True):
    """What the annotations of a pool allow."""

    least: int
    most: int


class Past(msgspec.Struct):
    """What is remembered of a pool since ``since_s``; times are the server's, in seconds.

    ``size`` was set at ``sized_s``, by us unless ``is_ours`` is false; a refusal of another size
    counts as if somebody else had set it. Our last write made the version ``wrote``; ``told`` is
    what was said last of why nothing is done.
    """

    size: int
    since_s: float
    demand: Demand = msgspec.field(default_factory=Demand)
    sized_s: float = -math.inf
    is_ours: bool = True
    wrote: int = 0
    told: str = ""


class Plan(msgspec.Struct, frozen=True):
    """The size that a pool is to have now, and when to look again; None: after a change."""

    size: int
    look_s: float | None


def plan(past: Past, bounds: Bounds, now_s: float) -> Plan:
    """Return what is to be done about a pool: up at once, down by a quarter a minute."""
    size = past.size
    lasted_s = now_s - past.sized_s
    wanted = min(max(past.demand.needed(now_s), bounds.least), bounds.most)
    is_up = wanted > size
    pause_s = BEFORE_UP_S if is_up else BEFORE_DOWN_S
    if not past.is_ours:
        pause_s = BEFORE_OVERRULING_S
    if lasted_s < pause_s:
        return Plan(size, min(LOOK_S, pause_s - lasted_s))
    if is_up:
        size = wanted
    elif size > bounds.most:
        size = bounds.most
    elif now_s - past.since_s >= RECENT_S:
        size = max(wanted, min(size - 1, math.floor(size * _LEFT)))
    is_at_rest = size == bounds.least and not past.demand
    return Plan(size, None if is_at_rest else LOOK_S)
