"""Sets of field paths, as `managedFields` records them, and how they come from objects.

A set is a nested dict: a key for each step of a path (``f:name`` for a member of a map,
``k:{…}`` for a list item found by its keys, ``v:…`` for an item of a set); the key ``.`` marks that
the path up to there is itself in the set. On the wire (`fieldsV1`) a path without further steps is
written as an empty map instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from lean_sandbox.local.structure import Node, child, is_atomic_map, items, key_of, map_keys

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


def item_step(keys: tuple[str, ...], found: tuple[Any, ...]) -> str:
    """Return the step to the list item whose keys have the values ``found``."""
    if not keys:
        return "v:" + _encode(found[0]).decode()
    return "k:" + _encode(dict(zip(keys, found, strict=True))).decode()


def indexed(node: Node, keys: tuple[str, ...], values: list[Any]) -> dict[str, Any] | None:
    """Return the items of a list by their step, None when some have no or the same keys."""
    found: dict[str, Any] = {}
    for value in values:
        key = key_of(node, keys, value)
        if key is None:
            return None
        step = item_step(keys, key)
        if step in found:
            return None
        found[step] = value
    return found


def fields_of(value: Any, node: Node, *, with_self: bool = True) -> Fields:
    """Return the paths an applied value claims; ``with_self`` adds items and leaves themselves."""
    if isinstance(value, dict) and value and not is_atomic_map(node):
        return {"f:" + key: fields_of(below, child(node, key)) for key, below in value.items()}
    if isinstance(value, list) and value:
        keys = map_keys(node)
        found = None if keys is None else indexed(node, keys, value)
        if found is not None:
            below_node = items(node)
            return {
                step: {_SELF: {}, **(fields_of(item, below_node) if keys else {})}
                for step, item in found.items()
            }
    return {_SELF: {}} if with_self else {}


def changes(old: Any, new: Any, node: Node) -> tuple[Fields, Fields]:
    """Return the paths added or changed, and the paths removed, between two values."""
    if isinstance(old, dict) and isinstance(new, dict) and not is_atomic_map(node):
        return _map_changes(old, new, node)
    if isinstance(old, list) and isinstance(new, list):
        keys = map_keys(node)
        if keys is not None:
            before, after = indexed(node, keys, old), indexed(node, keys, new)
            if before is not None and after is not None:
                return _item_changes(before, after, items(node))
    if old == new:
        return {}, {}
    return {_SELF: {}}, {}


def _whole(value: Any, node: Node) -> Fields:
    """Return the paths of a subtree that appears or disappears, inner nodes included."""
    tree = fields_of(value, node)
    if isinstance(value, dict) and value and not is_atomic_map(node):
        tree = {
            _SELF: {},
            **{"f:" + key: _whole(below, child(node, key)) for key, below in value.items()},
        }
    elif isinstance(value, list):
        keys = map_keys(node)
        found = None if keys is None else indexed(node, keys, value)
        if found:
            below_node = items(node)
            tree = {_SELF: {}}
            for step, item in found.items():
                tree[step] = _whole(item, below_node) if keys else {_SELF: {}}
    return tree


def _map_changes(old: Fields, new: Fields, node: Node) -> tuple[Fields, Fields]:
    changed: Fields = {}
    removed: Fields = {}
    for key, value in new.items():
        if key not in old:
            changed["f:" + key] = _whole(value, child(node, key))
            continue
        before = old[key]
        if before == value:
            continue
        more, less = changes(before, value, child(node, key))
        if more:
            changed["f:" + key] = more
        if less:
            removed["f:" + key] = less
    for key, value in old.items():
        if key not in new:
            removed["f:" + key] = _whole(value, child(node, key))
    return changed, removed


def _item_changes(old: Fields, new: Fields, node: Node) -> tuple[Fields, Fields]:
    changed: Fields = {}
    removed: Fields = {}
    for step, value in new.items():
        if step not in old:
            changed[step] = _whole(value, node)
        elif old[step] != value:
            more, less = changes(old[step], value, node)
            if more:
                changed[step] = more
            if less:
                removed[step] = less
    for step, value in old.items():
        if step not in new:
            removed[step] = _whole(value, node)
    return changed, removed
