"""Boolean combinations of predicates, in three values: changed, unchanged, no opinion.

================  ======================================  ==========================  ===========
combination       changed when                            unchanged when              otherwise
================  ======================================  ==========================  ===========
``any_of``        one part changed                        every part is unchanged     no opinion
``all_of``        every part changed                      one part is unchanged       no opinion
``not_``          the part is unchanged                   the part changed            no opinion
``if_known``      the part changed                        it is unchanged or silent   never
``first_known``   the first part with an opinion says so  likewise                    no opinion
================  ======================================  ==========================  ===========

What ends without an opinion passes. So ``any_of(generation(), column("Ready"))`` lets everything
through on a server without that column instead of hiding readiness; say ``if_known(...)`` or
``first_known(...)`` where missing evidence shall not count.

"Changed" always means since the event before, not since the last one that passed: two halves of
``all_of`` that change in two events pass neither. ``not_`` passes an event that repeats the same
state, as a relist does; put ``all_of(resource_version(), not_(...))`` where that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from filters.predicates import Leaf

__all__ = [
    "AllOf",
    "AnyOf",
    "FirstKnown",
    "IfKnown",
    "Judge",
    "Named",
    "Not",
    "Predicate",
    "State",
    "all_of",
    "any_of",
    "first_known",
    "if_known",
    "named",
    "not_",
]

State: TypeAlias = bool | None
"""Changed, unchanged, or no opinion (None)."""

Judge: TypeAlias = Callable[[Sequence[State]], State]
"""A predicate compiled to a function of the states of its leaves."""


@dataclass(frozen=True, slots=True)
class AnyOf:
    """See :func:`any_of`."""

    parts: tuple[Predicate, ...]

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Return the distinct leaves in the order they were written."""
        return _distinct(self.parts)


@dataclass(frozen=True, slots=True)
class AllOf:
    """See :func:`all_of`."""

    parts: tuple[Predicate, ...]

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Return the distinct leaves in the order they were written."""
        return _distinct(self.parts)


@dataclass(frozen=True, slots=True)
class Not:
    """See :func:`not_`."""

    part: Predicate

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Return the distinct leaves in the order they were written."""
        return self.part.leaves


@dataclass(frozen=True, slots=True)
class IfKnown:
    """See :func:`if_known`."""

    part: Predicate

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Return the distinct leaves in the order they were written."""
        return self.part.leaves


@dataclass(frozen=True, slots=True)
class FirstKnown:
    """See :func:`first_known`."""

    parts: tuple[Predicate, ...]

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Return the distinct leaves in the order they were written."""
        return _distinct(self.parts)


@dataclass(frozen=True, slots=True)
class Named:
    """See :func:`named`."""

    name: str
    part: Predicate

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Return the distinct leaves in the order they were written."""
        return self.part.leaves


Predicate: TypeAlias = Leaf | AnyOf | AllOf | Not | IfKnown | FirstKnown | Named
"""A leaf or a combination of predicates."""


def any_of(*parts: Predicate) -> AnyOf:
    """Pass when one of the parts changed. Raises ValueError without parts."""
    return AnyOf(_some(parts))


def all_of(*parts: Predicate) -> AllOf:
    """Pass when all parts changed in the same event. Raises ValueError without parts."""
    return AllOf(_some(parts))


def not_(part: Predicate) -> Not:
    """Pass when the part did not change."""
    return Not(part)


def if_known(part: Predicate) -> IfKnown:
    """Take "no opinion" for "unchanged": missing evidence does not make an event pass."""
    return IfKnown(part)


def first_known(*parts: Predicate) -> FirstKnown:
    """Ask the parts in turn until one has an opinion. Raises ValueError without parts."""
    return FirstKnown(_some(parts))


def named(name: str, part: Predicate) -> Named:
    """Give the part a name that explanations put in front of what it says."""
    return Named(name, part)


def compile_judge(predicate: Predicate, order: Sequence[Leaf]) -> Judge:
    """Turn a predicate into a function of leaf states, given in ``order``."""
    match predicate:
        case Leaf():
            return itemgetter(order.index(predicate))
        case AnyOf(parts):
            return _judge_any([compile_judge(part, order) for part in parts])
        case AllOf(parts):
            return _judge_all([compile_judge(part, order) for part in parts])
        case FirstKnown(parts):
            return _judge_first([compile_judge(part, order) for part in parts])
        case Not(part):
            inner = compile_judge(part, order)
            return lambda states: None if (state := inner(states)) is None else not state
        case IfKnown(part):
            inner = compile_judge(part, order)
            return lambda states: inner(states) or False
        case Named(_, part):
            return compile_judge(part, order)


def support(
    predicate: Predicate, order: Sequence[Leaf], states: Sequence[State]
) -> Iterator[tuple[str, Leaf]]:
    """Yield the leaves that decided the outcome, each with the names of the parts around it.

    For a part that changed these are the changed leaves that made it so, and in the same way for
    one that did not change or has no opinion.
    """
    yield from _support(predicate, order, states, "")


def _support(
    predicate: Predicate, order: Sequence[Leaf], states: Sequence[State], path: str
) -> Iterator[tuple[str, Leaf]]:
    match predicate:
        case Leaf():
            yield path, predicate
        case Named(name, part):
            yield from _support(part, order, states, f"{path}{name}: ")
        case Not(part) | IfKnown(part):
            yield from _support(part, order, states, path)
        case FirstKnown(parts):
            known = [part for part in parts if compile_judge(part, order)(states) is not None]
            for part in known[:1] or parts:
                yield from _support(part, order, states, path)
        case AnyOf(parts) | AllOf(parts):
            outcome = compile_judge(predicate, order)(states)
            # All parts carry an all_of that passes, even if some have no opinion.
            every = isinstance(predicate, AllOf) and outcome is not False
            for part in parts:
                if every or compile_judge(part, order)(states) is outcome:
                    yield from _support(part, order, states, path)


def _judge_any(judges: list[Judge]) -> Judge:
    def judge(states: Sequence[State]) -> State:
        result: State = False
        for part in judges:
            state = part(states)
            if state:
                return True
            if state is None:
                result = None
        return result

    return judge


def _judge_all(judges: list[Judge]) -> Judge:
    def judge(states: Sequence[State]) -> State:
        result: State = True
        for part in judges:
            state = part(states)
            if state is False:
                return False
            if state is None:
                result = None
        return result

    return judge


def _judge_first(judges: list[Judge]) -> Judge:
    def judge(states: Sequence[State]) -> State:
        for part in judges:
            state = part(states)
            if state is not None:
                return state
        return None

    return judge


def _some(parts: tuple[Predicate, ...]) -> tuple[Predicate, ...]:
    if not parts:
        raise ValueError("a combination needs at least one part")
    return parts


def _distinct(parts: tuple[Predicate, ...]) -> tuple[Leaf, ...]:
    return tuple(dict.fromkeys(leaf for part in parts for leaf in part.leaves))
