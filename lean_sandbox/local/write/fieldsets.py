"""Sets of field paths, as `managedFields` records them, and how they come from objects.

A set is a nested dict: a key for each step of a path (``f:name`` for a member of a map,
``k:{…}`` for a list item found by its keys, ``v:…`` for an item of a set); the key ``.`` marks that
the path up to there is itself in the set. On the wire (`fieldsV1`) a path without further steps is
written as an empty map instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from lean_sandbox.local.schema.structural import Node, child, is_same, items, key_of, list_type

Fields = dict[str, Any]
_SELF: Final = "."
_encode: Final = msgspec.json.Encoder(order="sorted").encode


def from_wire(wire: Any) -> Fields:
    """Return the set written as `fieldsV1`."""
    tree: Fields = {}
    for key, below in wire.items():
        if key == _SELF:
            tree[_SELF] = {}
        else:
            tree[key] = from_wire(below) if below else {_SELF: {}}
    return tree


def to_wire(tree: Fields) -> Fields:
    """Return the set in the form of `fieldsV1`."""
    wire: Fields = {}
    for key in sorted(tree):
        below = tree[key]
        if key == _SELF or (len(below) == 1 and _SELF in below):
            wire[key] = {}
        else:
            wire[key] = to_wire(below)
    return wire


def union(left: Fields, right: Fields) -> Fields:
    """Return the paths in either set."""
    if not left:
        return right
    if not right:
        return left
    merged = dict(left)
    for key, below in right.items():
        known = merged.get(key)
        merged[key] = below if known is None else union(known, below)
    return merged


def difference(left: Fields, right: Fields) -> Fields:
    """Return the paths of ``left`` that are not in ``right``."""
    kept: Fields = {}
    for key, below in left.items():
        other = right.get(key)
        if other is None:
            kept[key] = below
        elif key != _SELF:
            rest = difference(below, other)
            if rest:
                kept[key] = rest
    return kept


def intersection(left: Fields, right: Fields) -> Fields:
    """Return the paths in both sets."""
    shared: Fields = {}
    for key, below in left.items():
        other = right.get(key)
        if other is None:
            continue
        if key == _SELF:
            shared[_SELF] = {}
        else:
            both = intersection(below, other)
            if both:
                shared[key] = both
    return shared


def members(tree: Fields, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every path of the set."""
    for key, below in tree.items():
        if key == _SELF:
            yield above
        else:
            yield from members(below, (*above, key))


def path_text(path: tuple[str, ...]) -> str:
    """Return a path as conflict messages show it."""
    text = ""
    for step in path:
        kind, _, rest = step.partition(":")
        if kind == "f":
            text += "." + rest
        elif kind == "k":
            keys = msgspec.json.decode(rest)
            shown = ",".join(f"{key}={_encode(keys[key]).decode()}" for key in sorted(keys))
            text += f"[{shown}]"
        else:
            text += f"[={rest}]"
    return text


def parts(value: Any, node: Node) -> dict[str, tuple[Any, Node]] | None:
    """Return what a map or list is made of, by the step to each; None for what is one piece.

    One piece is also a list whose items cannot be told apart.
    """
    if isinstance(value, dict) and (node or {}).get("x-kubernetes-map-type") != "atomic":
        return {"f:" + key: (below, child(node, key)) for key, below in value.items()}
    of = list_type(node)
    if not isinstance(value, list) or of not in ("set", "map"):
        return None
    found: dict[str, tuple[Any, Node]] = {}
    for item in value:
        step = ("k:" if of == "map" else "v:") + _encode(key_of(item, node)).decode()
        fits = isinstance(item, dict) if of == "map" else isinstance(item, str | int | float)
        if not fits or step in found:
            return None
        found[step] = (item, items(node))
    return found


def rebuilt(like: Any, found: Mapping[str, Any]) -> Any:
    """Return a map or list of these parts."""
    if isinstance(like, dict):
        return {step.removeprefix("f:"): below for step, below in found.items()}
    return list(found.values())


def fields_of(value: Any, node: Node, *, with_self: bool = True) -> Fields:
    """Return the paths an applied value claims; ``with_self`` adds items and leaves themselves."""
    found = parts(value, node)
    if not found:
        return {_SELF: {}} if with_self else {}
    itself: Fields = {_SELF: {}} if isinstance(value, list) else {}
    return {step: itself | fields_of(item, below) for step, (item, below) in found.items()}


def changes(old: Any, new: Any, node: Node) -> tuple[Fields, Fields]:
    """Return the paths added or changed, and the paths removed, between two values."""
    if is_same(old, new):
        return {}, {}
    before = parts(old, node)
    after = parts(new, node)
    if before is None or after is None or isinstance(old, dict) is not isinstance(new, dict):
        return {_SELF: {}}, {}
    changed: Fields = {}
    removed: Fields = {}
    for step, (value, below) in after.items():
        if step not in before:
            changed[step] = _whole(value, below)
            continue
        more, less = changes(before[step][0], value, below)
        if more:
            changed[step] = more
        if less:
            removed[step] = less
    for step, (value, below) in before.items():
        if step not in after:
            removed[step] = _whole(value, below)
    return changed, removed


def _whole(value: Any, node: Node) -> Fields:
    """Return the paths of a subtree that appears or disappears, inner nodes included."""
    found = parts(value, node) or {}
    return {_SELF: {}, **{step: _whole(item, below) for step, (item, below) in found.items()}}
