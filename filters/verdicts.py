"""Verdicts: whether an event passed, and on demand the words for it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from filters.combine import Predicate, State, support
from filters.events import Change
from filters.predicates import NO_OPINION, Leaf

__all__ = ["Decision", "Program", "compare"]


def compare(before: Sequence[Hashable], after: Sequence[Hashable]) -> tuple[State, ...]:
    """Return for each leaf whether its fingerprint changed."""
    return tuple(
        [
            None if old is NO_OPINION or new is NO_OPINION else old != new
            for old, new in zip(before, after, strict=True)
        ]
    )


@dataclass(frozen=True, slots=True)
class Program:
    """A predicate with its leaves in the order in which fingerprints are kept."""

    predicate: Predicate
    leaves: tuple[Leaf, ...]

    def deciding(self, states: Sequence[State]) -> Iterator[tuple[str, Leaf]]:
        """Yield the leaves that decided the outcome, with the names of the parts around them."""
        return support(self.predicate, self.leaves, states)

    def explain(
        self, before: Sequence[Hashable], after: Sequence[Hashable], *, passed: bool
    ) -> str:
        """Put the difference between two sets of fingerprints into words."""
        states = compare(before, after)
        if not passed and True not in states:
            return self.nothing_changed()
        texts = []
        for path, leaf in self.deciding(states):
            index = self.leaves.index(leaf)
            if states[index]:
                told = leaf.describe(leaf.name, before[index], after[index])
            else:
                told = f"{leaf.name} {'unknown' if states[index] is None else 'unchanged'}"
            texts.append(path + told)
        text = "; ".join(dict.fromkeys(texts))
        return text if passed else f"dropped: {text}"

    def nothing_changed(self) -> str:
        """Say that no leaf changed."""
        names = dict.fromkeys(leaf.name for leaf in self.leaves)
        return f"dropped: nothing of [{', '.join(names)}] changed"


class Decision:
    """Whether an event passed; true when it did. The words are made only when asked for."""

    __slots__ = ("_after", "_before", "_program", "change", "passed")

    def __init__(
        self,
        change: Change,
        program: Program | str,
        before: tuple[Hashable, ...] = (),
        after: tuple[Hashable, ...] = (),
        *,
        passed: bool,
    ) -> None:
        """Keep what is needed to explain the verdict later."""
        self.passed = passed
        self.change = change
        self._program = program
        self._before = before
        self._after = after

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return f"Decision(passed={self.passed}, change={self.change!r}, reason={self.reason!r})"

    @property
    def reason(self) -> str:
        """Say which leaf let the event pass, or why it was dropped."""
        program = self._program
        if isinstance(program, str):
            return program
        return program.explain(self._before, self._after, passed=self.passed)

    @property
    def leaves(self) -> tuple[str, ...]:
        """Return the names of the leaves that let the event pass; none for whole-object events."""
        program = self._program
        if isinstance(program, str) or not self.passed:
            return ()
        states = compare(self._before, self._after)
        return tuple(dict.fromkeys(leaf.name for _, leaf in program.deciding(states)))
