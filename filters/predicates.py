"""Predicates: what has to change in an object for an event to pass.

A leaf reads one aspect of an object and reduces it to a small fingerprint; :func:`any_of` combines
leaves. A leaf has changed when its fingerprint differs from the one remembered for the object. A
leaf without evidence returns :data:`NO_OPINION`, and then the event passes as well, unless the leaf
is wrapped in :func:`if_known`: an event is dropped only on evidence. Absence is evidence where
metadata is always complete (no such label, no owner), but not where the server may have left the
field out (no generation, no such column).

The generation of a Pod does not change with its readiness, nor that of a custom resource with its
labels, annotations, owners, or a status subresource.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from filters.events import Change, Observed, Owner

_LONGEST_SHOWN = 80


NO_OPINION: Final[Hashable] = object()
"""Returned by a leaf that has no evidence; compared by identity."""


def _words(value: object) -> str:
    if value is None:
        return "none"
    if value == "":
        return "empty"
    return str(value)[:_LONGEST_SHOWN]


def _from_to(name: str, before: object, after: object) -> str:
    return f"{name} {_words(before)} -> {_words(after)}"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One aspect of an object that an event may change: the smallest predicate.

    ``read`` returns the fingerprint and must be pure. ``describe`` puts a change into words, on
    demand only. With ``is_optional``, having no opinion does not make an event pass.
    """

    name: str
    change: Change
    read: Callable[[Observed], Hashable] = field(compare=False)
    describe: Callable[[str, Hashable, Hashable], str] = field(default=_from_to, compare=False)
    is_optional: bool = False

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaf itself."""
        return (self,)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Leaves, any one of which passes an event when it has changed."""

    leaves: tuple[Leaf, ...]


Predicate: TypeAlias = Leaf | AnyOf


def any_of(*parts: Predicate) -> AnyOf:
    """Pass when one of the parts changed. Raises ValueError without parts."""
    if not parts:
        raise ValueError("a combination needs at least one part")
    return AnyOf(tuple(leaf for part in parts for leaf in part.leaves))


def if_known(part: Predicate) -> AnyOf:
    """Treat "no opinion" as "unchanged": missing evidence does not make an event pass."""
    return AnyOf(tuple(replace(leaf, is_optional=True) for leaf in part.leaves))


def generation() -> Leaf:
    """Pass when ``metadata.generation`` changed: a change of spec, as the server sees it.

    No opinion where the server sets none (reads as ``None`` or 0), as for Pods of older servers.
    """
    return Leaf("generation", Change.GENERATION, lambda obj: obj.generation or NO_OPINION)


def resource_version() -> Leaf:
    """Pass on every write, and drop what a relist or a resumed watch sends again."""
    return Leaf("resourceVersion", Change.VERSION, lambda obj: obj.resource_version or NO_OPINION)


def labels(*keys: str) -> Leaf:
    """Pass when one of the labels ``keys`` changed; without keys, when any label did.

    Their values are remembered as a digest, so that long ones cost no more than short ones.
    """
    if not keys:
        return Leaf("labels", Change.LABELS, _digest_of_labels, _changed)
    return _keyed("label", Change.LABELS, lambda obj: obj.labels, keys)


def annotation(*keys: str) -> Leaf:
    """Pass when one of the annotations ``keys`` changed, which are remembered as labels are.

    Raises ValueError without keys: tools write annotations of their own all the time.
    """
    if not keys:
        raise ValueError("name the annotation keys a decision depends on")
    return _keyed("annotation", Change.ANNOTATIONS, lambda obj: obj.annotations, keys)


def owners() -> Leaf:
    """Pass when the controlling owner changed; without one, when the others did."""

    def read(obj: Observed) -> Hashable:
        references: Sequence[Owner] = obj.owners
        for reference in references:
            if reference.controller:
                return reference.uid
        return tuple([reference.uid for reference in references]) or None

    return Leaf("owners", Change.OWNERS, read)


def deletion() -> Leaf:
    """Pass when ``metadata.deletionTimestamp`` appeared.

    Only its presence counts: a shorter grace period moves the time and changes nothing to decide.
    """
    return Leaf(
        "deletion",
        Change.DELETING,
        lambda obj: obj.deletion_timestamp is not None,
        lambda _name, _before, after: f"deletion {'asked for' if after is True else 'withdrawn'}",
    )


def column(
    name: str, *, classify: Callable[[str], Hashable] = sys.intern, brief: bool = False
) -> Leaf:
    """Pass when the cell of the printer column ``name`` changed.

    ``classify`` maps many words to one class, so that steps inside a class are dropped; it may
    return NO_OPINION. No opinion when the event has no such column. Raises ValueError for the
    column Age, whose text changes with time alone; so does that of Restarts, which therefore needs
    a ``classify``. With ``brief`` the reason only says that the column changed.
    """
    if name.lower() == "age":
        raise ValueError("the column Age changes with time, not with the object")

    def read(obj: Observed) -> Hashable:
        columns = obj.columns
        cell = None if columns is None else columns.get(name)
        return NO_OPINION if cell is None else classify(cell)

    return Leaf(f"column {name}", Change.COLUMNS, read, _changed if brief else _from_to)


def condition(type_: str) -> Leaf:
    """Pass when the status of a condition changed, as the printer column of its type shows it."""
    return replace(column(type_), name=f"condition {type_}")


def computed(
    name: str, change: Change, function: Callable[[Any], Hashable], *, brief: bool = False
) -> Leaf:
    """Pass when ``function(obj)`` changed; it may return NO_OPINION and must be pure.

    The function may read more of an object than :class:`Observed` has. What it raises is not
    caught: a faulty predicate must not drop events in silence. ``brief`` as for columns.
    """
    return Leaf(name, change, function, _changed if brief else _from_to)


def _digest_of_labels(obj: Observed) -> Hashable:
    found = obj.labels
    return hash(frozenset(found.items())) if found else 0


def _changed(name: str, _before: Hashable, _after: Hashable) -> str:
    return f"{name} changed"


def _keyed(
    what: str,
    change: Change,
    mapping_of: Callable[[Observed], Mapping[str, str] | None],
    keys: tuple[str, ...],
) -> Leaf:
    """Return the leaf for chosen keys of a mapping; its fingerprint is ``None`` without any."""
    keys = tuple(dict.fromkeys(keys))
    nothing = (None,) * len(keys)

    def read(obj: Observed) -> Hashable:
        mapping = mapping_of(obj)
        if not mapping:
            return None
        values = tuple([mapping.get(key) for key in keys])
        return None if values == nothing else hash(values)

    name = f"{what} {keys[0]}" if len(keys) == 1 else f"{what}s {', '.join(keys)}"
    return Leaf(name, change, read, _changed)
