"""Comparing two states of an object, for callers who keep the fingerprints themselves.

:class:`filters.memory.Filter` is this plus a memory by uid. Who holds something for each object
anyway saves that memory by keeping the fingerprints there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeAlias

from filters.combine import Predicate, State, compile_judge
from filters.events import Change, Observed
from filters.predicates import NO_OPINION
from filters.verdicts import Decision, Program, compare

__all__ = ["ChangeDetector", "FilterStatistics", "Fingerprints"]

Fingerprints: TypeAlias = tuple[Hashable, ...]
"""What is remembered of an object: one small value for each leaf of the predicate."""

_NO_CHANGE = Change(0)


@dataclass(slots=True)
class _Outcome:
    """What a combination of leaf states leads to, and how often it came up."""

    passed: bool
    change: Change
    count: int = 0


@dataclass(frozen=True, slots=True)
class FilterStatistics:
    """A snapshot of what a filter has seen and done."""

    seen: int
    """Events judged; always ``passed + dropped``."""
    passed: int
    dropped: int
    first_seen: int
    recreated: int
    gone: int
    observed: int
    """States taken note of that were not events."""
    evicted: int
    """Objects forgotten for lack of room; each costs one extra pass at most."""
    objects: int
    """Objects remembered now."""
    by_leaf: dict[str, int]
    """Passed events in which the leaf had changed; one event may count for several leaves."""
    unknown: dict[str, int]
    """Events of remembered objects for which the leaf had no opinion."""


class ChangeDetector:
    """Judges events by fingerprints that the caller hands in, and counts what it judged.

    Remembers nothing of any object. ``objects`` tells the statistics how many the caller holds.
    """

    __slots__ = (
        "_first_seen",
        "_gone",
        "_judge",
        "_objects",
        "_observed",
        "_outcomes",
        "_program",
        "_quiet",
        "_quiet_count",
        "_reads",
        "_recreated",
    )

    def __init__(self, predicate: Predicate, *, objects: Callable[[], int] = lambda: 0) -> None:
        leaves = predicate.leaves
        self._program = Program(predicate, leaves)
        self._reads = tuple(leaf.read for leaf in leaves)
        self._judge = compile_judge(predicate, leaves)
        self._objects = objects
        # Leaves change in few combinations, and a look-up is cheaper than judging one again.
        self._outcomes: dict[tuple[State, ...], _Outcome] = {}
        self._observed = self._first_seen = self._recreated = self._gone = 0
        # Nearly every dropped event repeats all fingerprints: they share this one verdict. A
        # predicate with not_ may pass such an event and has none.
        judged = self._judge([False] * len(leaves))
        quiet = Decision(_NO_CHANGE, self._program.nothing_changed(), passed=False)
        self._quiet = quiet if judged is False else None
        self._quiet_count = 0

    @property
    def predicate(self) -> Predicate:
        """Return the predicate this detector was made with."""
        return self._program.predicate

    def read(self, obj: Observed) -> Fingerprints:
        """Return the fingerprints of a state."""
        return tuple([read(obj) for read in self._reads])

    def examine(self, before: Fingerprints, obj: Observed) -> tuple[Decision, Fingerprints]:
        """Judge an event of an object by what was remembered; return what to remember now.

        A text that did not change stays the object it was, so that holders go on sharing it.
        """
        after = tuple([read(obj) for read in self._reads])
        if after == before and self._quiet is not None and NO_OPINION not in after:
            self._quiet_count += 1
            return self._quiet, before
        states = compare(before, after)
        outcome = self._outcomes.get(states)
        if outcome is None:
            outcome = self._outcomes[states] = self._decide(states)
        outcome.count += 1
        after = tuple(
            [
                old if state is False else new
                for state, old, new in zip(states, before, after, strict=True)
            ]
        )
        verdict = Decision(outcome.change, self._program, before, after, passed=outcome.passed)
        return verdict, after

    def update_baseline(
        self, before: Fingerprints | None, obj: Observed
    ) -> tuple[Change, Fingerprints]:
        """Take note of a state that was no event; return what changed and what to remember now.

        ``before`` is None at first sight. Change is empty for what would not have passed.
        """
        self._observed += 1
        after = self.read(obj)
        if before is None:
            return Change.FIRST_SEEN, after
        states = compare(before, after)
        outcome = self._outcomes.get(states)
        if outcome is None:
            outcome = self._outcomes[states] = self._decide(states)
        return outcome.change if outcome.passed else _NO_CHANGE, after

    def first_seen(self, obj: Observed) -> tuple[Decision, Fingerprints]:
        """Pass the first sight of an object."""
        self._first_seen += 1
        return Decision(Change.FIRST_SEEN, "first sight", passed=True), self.read(obj)

    def recreated(self, previous_uid: str, obj: Observed) -> tuple[Decision, Fingerprints]:
        """Pass an object that took the name of another one."""
        self._recreated += 1
        reason = f"re-created: uid {previous_uid} -> {obj.uid}"
        return Decision(Change.RECREATED, reason, passed=True), self.read(obj)

    def deleted(self) -> Decision:
        """Pass the end of an object."""
        self._gone += 1
        return Decision(Change.GONE, "deleted", passed=True)

    def statistics(self, *, evicted: int = 0) -> FilterStatistics:
        """Return the counters as they are now."""
        passed = self._first_seen + self._recreated + self._gone
        dropped = self._quiet_count
        by_leaf = {leaf.name: 0 for leaf in self._program.leaves}
        unknown = dict(by_leaf)
        for states, outcome in self._outcomes.items():
            if outcome.passed:
                passed += outcome.count
            else:
                dropped += outcome.count
            for leaf, state in zip(self._program.leaves, states, strict=True):
                if state is None:
                    unknown[leaf.name] += outcome.count
                elif state and outcome.passed:
                    by_leaf[leaf.name] += outcome.count
        return FilterStatistics(
            seen=passed + dropped,
            passed=passed,
            dropped=dropped,
            first_seen=self._first_seen,
            recreated=self._recreated,
            gone=self._gone,
            observed=self._observed,
            evicted=evicted,
            objects=self._objects(),
            by_leaf=by_leaf,
            unknown=unknown,
        )

    def _decide(self, states: tuple[State, ...]) -> _Outcome:
        change = _NO_CHANGE
        for leaf, state in zip(self._program.leaves, states, strict=True):
            if state is not False:
                change |= leaf.change
        return _Outcome(self._judge(states) is not False, change)
