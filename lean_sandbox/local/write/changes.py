"""How objects change: the patch formats, and the fields in which two states differ.

A patch takes a private copy of the object and returns the patched one.

A set of fields is a nested dict: a key for each step of a path (``f:name`` for a member of a map,
``k:{…}`` for a list item found by its keys, ``v:…`` for an item of a set); the key ``.`` marks that
the path up to there is itself in the set. On the wire (`fieldsV1`) a path without further steps is
written as an empty map instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, TypedDict

import jsonpatch
import jsonpointer
import msgspec

from lean_sandbox.local.errors import StatusError, bad_request
from lean_sandbox.local.schema.structural import Node, child, is_same, items, key_of, list_type

Json = dict[str, Any]
_MALFORMED = (TypeError, KeyError, AttributeError)
_Operation = TypedDict(
    "_Operation",
    {"op": str | None, "path": str | None, "from": str | None, "value": Any},
    total=False,
)


def merge_patch(target: Any, patch: Any) -> Any:
    """Return ``target`` with a JSON merge patch applied; null removes a member."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(target, dict):
        target = {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            target[key] = merge_patch(target.get(key), value)
        else:
            target[key] = value
    return target


def json_patch(target: Json, operations: Any) -> Json:
    """Return ``target`` with a JSON Patch applied.

    Raises StatusError: 400 when it is no patch, 422 when an operation (a test too) fails.
    """
    try:
        listed = msgspec.convert(operations, list[_Operation | None])
    except msgspec.ValidationError as error:
        raise bad_request(f"error decoding patch: {error}") from None
    if len(operations) > 10_000:
        raise StatusError(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is 10000, got {len(operations)}",
        )
    patched: Json = target
    try:
        for operation in listed:
            patched = jsonpatch.apply_patch(
                patched, [_lenient(patched, operation or {})], in_place=True
            )
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, *_MALFORMED):
        raise StatusError(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
            details={},
        ) from None
    if not isinstance(patched, dict):
        raise bad_request("the patched object is no object")
    return patched


def _lenient(target: Json, operation: Any) -> Any:
    """Return an operation as an API server takes it: an absent member can be replaced, and is null.

    So is an absent value. RFC 6902 has none of this, but the library that API servers use has.
    """
    kind = operation.get("op")
    if kind in ("add", "replace", "test"):
        operation = {"value": None, **operation}
    if kind not in ("replace", "test"):
        return operation
    pointer = jsonpointer.JsonPointer(operation["path"])
    holder, member = pointer.to_last(target)
    is_absent = isinstance(holder, dict) and member is not None and member not in holder
    if kind == "replace":
        return {**operation, "op": "add"} if is_absent else operation
    if not is_same(None if is_absent else pointer.resolve(target), operation["value"]):
        raise jsonpatch.JsonPatchTestFailed(operation["path"])
    # Nothing is left to do: this always holds.
    return {**operation, "path": "", "value": target}


def strategic_patch(target: Any, patch: Any, node: Node) -> Any:
    """Return ``target`` with a strategic merge patch applied by the merge keys of its schema.

    Knows `$patch: replace|delete|merge`, `$retainKeys`, `$deleteFromPrimitiveList/…` and
    `$setElementOrder/…`. Raises StatusError: 500 for a directive it does not know and an item
    without its key.
    """
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise _failed(f"unknown patch type: {directive} in map: {_shown(patch)}")
    result: Json = target if isinstance(target, dict) else {}
    retained = patch.get("$retainKeys")
    if retained is not None:
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            if isinstance(result.get(field), list):
                result[field] = [item for item in result[field] if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = strategic_patch(result.get(key), value, child(node, key))
        elif isinstance(value, list):
            result[key] = _merge_list(result.get(key), value, child(node, key))
        else:
            result[key] = value
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            field = key.partition("/")[2]
            found = result.get(field)
            by = _merge_key(child(node, field))
            _check_order(order, patch.get(field) or [], by)
            if isinstance(found, list):
                result[field] = _ordered(found, order, found, by)
    return result


def _failed(why: str) -> StatusError:
    # API servers take a patch that cannot be merged for a failure of their own.
    return StatusError(500, "", why)


def _shown(value: Any) -> str:
    """Return a value as Go prints it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_shown(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_shown, value))}]"
    return str(value)


def _merge_key(node: Node) -> str | None:
    """Return the key by which a list merges: empty for plain values, None if it is replaced."""
    known = node or {}
    if "merge" not in str(known.get("x-kubernetes-patch-strategy") or "").split(","):
        return None
    return str(known.get("x-kubernetes-patch-merge-key") or "")


def _merge_list(current: Any, patch: list[Any], node: Node) -> list[Any]:
    key = _merge_key(node)
    replaces = any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch)
    if key is None or replaces or not isinstance(current, list):
        return [
            strategic_patch({}, item, items(node)) if isinstance(item, dict) else item
            for item in patch
            if not (isinstance(item, dict) and "$patch" in item)
        ]
    if key == "":
        return _ordered(
            current + [item for item in patch if item not in current], patch, current, key
        )
    result = list(current)
    for item in patch:
        if not isinstance(item, dict) or item.get(key) is None:
            raise _failed(f"map: {_shown(item)} does not contain declared merge key: {key}")
        at = next(
            (
                index
                for index, old in enumerate(result)
                if isinstance(old, dict) and old.get(key) == item[key]
            ),
            None,
        )
        if item.get("$patch") == "delete":
            result = [old for old in result if old.get(key) != item[key]]
        elif at is None:
            result.append(strategic_patch({}, item, items(node)))
        else:
            result[at] = strategic_patch(result[at], item, items(node))
    return _ordered(result, patch, current, key)


def _name(item: Any, key: str | None) -> Any:
    return item.get(key) if key and isinstance(item, dict) else item


def _check_order(order: Any, patch: Any, key: str | None) -> None:
    """Refuse an order that leaves out items which the patch changes, or has them in another."""
    if not isinstance(order, list) or not isinstance(patch, list):
        raise _failed("invalid value for an ordered list")
    names = iter([_name(item, key) for item in order])
    changed = [item for item in patch if not (isinstance(item, dict) and "$patch" in item)]
    if order and not all(_name(item, key) in names for item in changed):
        shown = f"The order in patch list:\n{_shown(patch)}\n doesn't match"
        raise _failed(f"{shown} $setElementOrder list:\n{_shown(order)}\n")


def _ordered(values: list[Any], order: list[Any], live: list[Any], key: str | None) -> list[Any]:
    """Put the items that ``order`` names in that order, the others where they were.

    An item that ``order`` does not name comes before the next one that it does and that was behind
    it in ``live``; what was not there before comes first.
    """
    name = partial(_name, key=key)
    wanted = [name(item) for item in order]
    places = [name(item) for item in live]
    named = sorted((v for v in values if name(v) in wanted), key=lambda v: wanted.index(name(v)))
    others = [value for value in values if name(value) not in wanted]
    result: list[Any] = []
    for item in named:
        place = places.index(name(item)) if name(item) in places else -1
        while others and name(others[0]) in places and places.index(name(others[0])) < place:
            result.append(others.pop(0))
        result.append(item)
    return result + others


# ------------------------------------------------------------------ sets of fields


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
    return difference(left, difference(left, right))


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
    steps = _steps(value, node)
    if len(set(steps)) < len(value):
        return None
    return {step: (item, items(node)) for step, item in zip(steps, value, strict=True)}


def _steps(values: list[Any], node: Node) -> list[str]:
    """Return the steps to the items of a list, but for those that do not fit into it."""
    is_map = list_type(node) == "map"
    fitting = dict if is_map else str | int | float
    return [
        ("k:" if is_map else "v:") + _encode(key_of(item, node)).decode()
        for item in values
        if isinstance(item, fitting)
    ]


def repeated(value: Any, node: Node, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Give the items that a list has twice though their keys have to tell them apart, as text."""
    if isinstance(value, list) and list_type(node) in ("set", "map"):
        for step, count in Counter(_steps(value, node)).items():
            if count > 1:
                yield f"{path_text(above)}: duplicate entries for key {path_text((step,))}"
    for step, (item, below) in (parts(value, node) or {}).items():
        yield from repeated(item, below, (*above, step))


def rebuilt(like: Any, found: Mapping[str, Any]) -> Any:
    """Return a map or list of these parts."""
    if isinstance(like, dict):
        return {step.removeprefix("f:"): below for step, below in found.items()}
    return list(found.values())


def fields_of(value: Any, node: Node, *, with_self: bool = True) -> Fields:
    """Return the paths an applied value claims; ``with_self`` adds items and leaves themselves."""
    found = parts(value, node)
    itself: Fields = {_SELF: {}} if isinstance(value, list) else {}
    if not found:
        is_empty_list = found is not None and isinstance(value, list)
        return {_SELF: {}} if with_self and not is_empty_list else {}
    fields = {step: itself | fields_of(item, below) for step, (item, below) in found.items()}
    return {step: below for step, below in fields.items() if below}


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
