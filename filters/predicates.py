"""Leaf predicates: each reads one aspect of an object and reduces it to a small fingerprint.

An event passes a leaf when the fingerprint differs from the one remembered for the same uid. A leaf
that finds nothing to judge by returns :data:`NO_OPINION`, which passes as well: an event is dropped
only on evidence, never for the lack of it. Absence is evidence where metadata is always complete
(no such label, no owner, no finalizer) and is none where the server may not have answered (no
generation, no such column).

Traps these leaves are documented and tested for:

- Pods have a generation only on recent servers, and their readiness never raises it: watch the
  columns of a Pod, not its generation.
- Edits of labels, annotations, finalizers and owners do not raise the generation of a custom
  resource, nor does its status when it is a subresource.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from filters.events import Change, Observed, group_of

__all__ = [
    "NO_OPINION",
    "Leaf",
    "NoOpinion",
    "annotation",
    "column",
    "computed",
    "deletion",
    "finalizers",
    "generation",
    "labels",
    "owner",
    "resource_version",
]

LONGEST_KEPT_VALUE = 64
"""Characters of an annotation kept as they are; a longer value is remembered as a digest."""


class NoOpinion:
    """The type of :data:`NO_OPINION`; compares by identity."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NO_OPINION"


NO_OPINION: Final = NoOpinion()
"""Returned by a leaf that finds nothing to judge by; such an event passes."""


class Digest(NamedTuple):
    """Stands for a value too long to remember."""

    start: str
    length: int
    digest: int

    def __str__(self) -> str:
        return f"{self.start}... ({self.length} characters)"


def show(value: object) -> str:
    """Return a fingerprint in words, short enough for a log line."""
    if value is None:
        return "none"
    if value == "":
        return "empty"
    if value is NO_OPINION:
        return "unknown"
    text = str(value)
    return text if len(text) <= LONGEST_KEPT_VALUE else f"{text[: LONGEST_KEPT_VALUE - 3]}..."


def _from_to(name: str, before: object, after: object) -> str:
    return f"{name} {show(before)} -> {show(after)}"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One aspect of an object that an event may change.

    ``read`` returns the fingerprint and must be pure; ``describe`` puts a change into words and is
    called only when somebody asks. Two leaves of the same ``name``, ``change`` and ``variant`` are
    taken for the same and read once.
    """

    name: str
    change: Change
    read: Callable[[Observed], Hashable] = field(compare=False, repr=False)
    variant: Hashable = field(default=None, repr=False)
    describe: Callable[[str, Hashable, Hashable], str] = field(
        default=_from_to, compare=False, repr=False
    )

    def __call__(self, obj: Observed) -> Hashable:
        """Return the fingerprint of the object, or NO_OPINION."""
        return self.read(obj)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Return the leaf itself: a leaf is the smallest predicate."""
        return (self,)


def generation() -> Leaf:
    """Pass when ``metadata.generation`` changed: a change of spec, as the server sees it.

    No opinion where the server sets none (reads as ``None`` or 0), as for Pods of older servers.
    """
    return Leaf("generation", Change.GENERATION, lambda obj: obj.generation or NO_OPINION)


def resource_version() -> Leaf:
    """Pass on every write, and drop what a relist or a resumed watch sends again."""
    return Leaf("resourceVersion", Change.VERSION, lambda obj: obj.resource_version or NO_OPINION)


def labels(*keys: str, exact: bool = False, brief: bool = False) -> Leaf:
    """Pass when one of the labels ``keys`` changed; without keys, when any label did.

    All labels together are remembered as a 64-bit digest; ``exact`` keeps the pairs instead, which
    costs memory and lets the explanation name the keys. Chosen labels are kept as they are;
    ``brief`` keeps a digest of them instead, 32 bytes an object.
    """
    return _keyed("label", Change.LABELS, lambda obj: obj.labels, keys, exact=exact, brief=brief)


def annotation(*keys: str, brief: bool = False) -> Leaf:
    """Pass when one of the annotations ``keys`` changed; ``brief`` as for labels.

    There is no form for all annotations: controllers and tools write their own notes there all the
    time. The package also exports this function as ``annotations``; here that name belongs to the
    ``__future__`` import. Raises ValueError without keys.
    """
    if not keys:
        raise ValueError("name the annotation keys a decision depends on")
    return _keyed(
        "annotation",
        Change.ANNOTATIONS,
        lambda obj: obj.annotations,
        keys,
        exact=False,
        brief=brief,
    )


def finalizers() -> Leaf:
    """Pass when the set of finalizers changed; their order says nothing."""

    def read(obj: Observed) -> Hashable:
        found = obj.finalizers
        return tuple(sorted(found)) if len(found) > 1 else tuple(found)

    def describe(name: str, before: Hashable, after: Hashable) -> str:
        return _from_to(name, _joined(before), _joined(after))

    return Leaf("finalizers", Change.FINALIZERS, read, describe=describe)


def owner() -> Leaf:
    """Pass when the controlling owner (uid, kind, API group) changed; other owners do not count."""

    def read(obj: Observed) -> Hashable:
        for reference in obj.owners:
            if reference.controller:
                # Interned, so that thousands of objects share the text of their owners' kind.
                kind, group = reference.kind, group_of(reference.api_version)
                return (reference.uid, sys.intern(kind), sys.intern(group))
        return None

    return Leaf("owner", Change.OWNERS, read, describe=_describe_owner)


def deletion() -> Leaf:
    """Pass when ``metadata.deletionTimestamp`` appeared.

    Only its presence counts: a shorter grace period moves the time and changes nothing to decide.
    """

    def describe(_name: str, _before: Hashable, after: Hashable) -> str:
        return "deletion asked for" if after is True else "deletion withdrawn"

    return Leaf(
        "deletion",
        Change.DELETING,
        lambda obj: obj.deletion_timestamp is not None,
        describe=describe,
    )


def column(name: str, *, classify: Callable[[str], Hashable] | None = None) -> Leaf:
    """Pass when the cell of the printer column ``name`` changed.

    ``classify`` maps many words to one class, so that steps inside a class are dropped (the words a
    Pod's Status runs through while it waits); it may return NO_OPINION. No opinion when the event
    has no such column. Raises ValueError for the column Age, whose text changes with time alone;
    Restarts is of the same kind once it reads ``3 (2m ago)`` and needs a ``classify``.
    """
    if name.lower() == "age":
        raise ValueError("the column Age changes with time, not with the object")
    if classify is None:

        def read(obj: Observed) -> Hashable:
            columns = obj.columns
            return NO_OPINION if columns is None else columns.get(name, NO_OPINION)

    else:

        def read(obj: Observed) -> Hashable:
            columns = obj.columns
            cell = None if columns is None else columns.get(name)
            return NO_OPINION if cell is None else classify(cell)

    return Leaf(f"column {name}", Change.COLUMNS, read, variant=classify)


def computed(name: str, change: Change, function: Callable[[Observed], Hashable]) -> Leaf:
    """Pass when ``function(obj)`` changed; it may return NO_OPINION and must be pure.

    What the function raises is not caught: a faulty predicate must not drop events in silence.
    """
    return Leaf(name, change, function, variant=function)


def _keyed(
    what: str,
    change: Change,
    mapping_of: Callable[[Observed], Mapping[str, str] | None],
    keys: tuple[str, ...],
    *,
    exact: bool,
    brief: bool,
) -> Leaf:
    keys = tuple(dict.fromkeys(keys))
    if not keys:
        return Leaf(f"{what}s", change, _all_of(mapping_of, exact=exact), exact, _describe_pairs)
    if brief:
        return Leaf(f"{what}s {', '.join(keys)}", change, _brief(mapping_of, keys), "brief", _tell)
    if len(keys) == 1:
        key = keys[0]

        def read(obj: Observed) -> Hashable:
            mapping = mapping_of(obj)
            value = mapping.get(key) if mapping else None
            return value if value is None or len(value) <= LONGEST_KEPT_VALUE else _digest(value)

        return Leaf(f"{what} {key}", change, read)
    nothing = (None,) * len(keys)

    def read_several(obj: Observed) -> Hashable:
        mapping = mapping_of(obj)
        if not mapping:
            return nothing
        values = tuple([mapping.get(key) for key in keys])
        if values == nothing:
            return nothing
        for value in values:
            if value is not None and len(value) > LONGEST_KEPT_VALUE:
                return tuple([_short(value) for value in values])
        return values

    def describe(_name: str, before: Hashable, after: Hashable) -> str:
        olds, news = _as_tuple(before, nothing), _as_tuple(after, nothing)
        pairs = zip(keys, olds, news, strict=True)
        return ", ".join(
            _from_to(f"{what} {key}", old, new) for key, old, new in pairs if old != new
        )

    return Leaf(f"{what}s {', '.join(keys)}", change, read_several, describe=describe)


def _all_of(
    mapping_of: Callable[[Observed], Mapping[str, str] | None], *, exact: bool
) -> Callable[[Observed], Hashable]:
    def pairs(obj: Observed) -> Hashable:
        return frozenset((mapping_of(obj) or {}).items())

    def digest(obj: Observed) -> Hashable:
        mapping = mapping_of(obj)
        return hash(frozenset(mapping.items())) if mapping else 0

    return pairs if exact else digest


def _brief(
    mapping_of: Callable[[Observed], Mapping[str, str] | None], keys: tuple[str, ...]
) -> Callable[[Observed], Hashable]:
    nothing = (None,) * len(keys)

    def digest(obj: Observed) -> Hashable:
        mapping = mapping_of(obj)
        if not mapping:
            return None
        values = tuple([mapping.get(key) for key in keys])
        return None if values == nothing else hash(values)

    return digest


def _tell(name: str, _before: Hashable, _after: Hashable) -> str:
    return f"{name} changed"


def _describe_pairs(name: str, before: Hashable, after: Hashable) -> str:
    if not isinstance(before, frozenset) or not isinstance(after, frozenset):
        return f"{name} changed"
    old, new = dict(before), dict(after)
    return ", ".join(
        _from_to(f"{name.removesuffix('s')} {key}", old.get(key), new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    )


def _describe_owner(name: str, before: Hashable, after: Hashable) -> str:
    texts = []
    for fingerprint in (before, after):
        uid, kind, group = _as_tuple(fingerprint, (None, None, None))
        texts.append(None if uid is None else f"{'.'.join(filter(None, (kind, group)))} {uid}")
    return _from_to(name, *texts)


def _digest(value: str) -> Digest:
    return Digest(value[:24], len(value), hash(value))


def _short(value: str | None) -> Hashable:
    return value if value is None or len(value) <= LONGEST_KEPT_VALUE else _digest(value)


def _as_tuple(value: Hashable, otherwise: tuple[None, ...]) -> tuple[str | None, ...]:
    return value if isinstance(value, tuple) else otherwise


def _joined(value: Hashable) -> str:
    return ", ".join(value) if isinstance(value, tuple) else show(value)
