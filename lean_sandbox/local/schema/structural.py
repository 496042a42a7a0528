"""What schemas say: formats and ranges of values, the members of an object, how lists merge.

Objects are pruned and get their defaults in place; schemas never change.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import msgspec
import re2

from lean_sandbox.local import recorded
from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import causes
from lean_sandbox.model.comparison import parse_quantity

Json = dict[str, Any]

METADATA: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
INTEGER_RANGES = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
JSON_TYPES: Final = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_RE2: Final = re2.Options()
_RE2.log_errors = False


# What Go calls the problems that RE2 finds.
_GO_PROBLEMS: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "invalid named capture group": "invalid named capture",
}


class PatternError(ValueError):
    """A text is no regular expression of RE2."""


@lru_cache(maxsize=512)
def compile_pattern(text: str) -> Any:
    """Return a pattern of RE2, whose time is linear in the length of a text. Raises PatternError.

    It is asked by `search`.
    """
    if re.search(r"(?<!\\)(\\\\)*\\C", text):
        raise PatternError("error parsing regexp: invalid escape sequence: `\\C`")
    try:
        return re2.compile(text, _RE2)
    except re2.error as error:
        said = error.args[0]
        shown = said.decode(errors="replace") if isinstance(said, bytes) else said
        problem, _, part = shown.partition(": ")
        problem = _GO_PROBLEMS.get(problem, problem)
        raise PatternError(f"error parsing regexp: {problem}: `{part}`") from None


# ------------------------------------------------------------------ quantities

_DECIMAL: Final = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"} | {
    18: "E"
}
_POWERS: Final = {letter: power for power, letter in _DECIMAL.items()}
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_MOST_INT: Final = INTEGER_RANGES["int64"][1]
_SPELLED: Final = re.compile(
    r"[+-]?0*(\d*)(?:\.(\d*))?([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i|)", re.ASCII
)
_SHAPED: Final = re.compile(r"[+-]?\d*(\.\d*)?[eEinumkKMGTP]*[+-]?\d*", re.ASCII)


def quantity_problem(value: Any) -> str:
    """Return what Go says of a value that is no quantity."""
    if (text := str(value).strip()) and _SHAPED.fullmatch(text):
        return "unable to parse quantity's suffix"
    shape = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
    return f"quantities must match the regular expression '{shape}'"


def canonical_quantity(value: Any) -> str | None:
    """Return a quantity as Go writes it, None for other values.

    That is the one way to write it in its family of suffixes, or what was given if Go takes that
    for it.
    """
    text = str(value).strip()
    found = None if isinstance(value, bool) else _SPELLED.fullmatch(text)
    if found is None or not text:
        return None
    whole, fraction, suffix = found.groups(default="")
    # A suffix alone is a quantity as well.
    amount = parse_quantity(text) if re.search(r"\d", text) else Fraction()
    if amount is None:
        return None
    if amount == 0:
        return "0"
    if _is_kept(whole or "0", fraction, suffix):
        return text
    if suffix.endswith("i") and abs(amount) >= 1024 and amount.denominator == 1:
        return _binary(min(int(amount), _MOST_INT))
    return _decimal(amount, is_exponent=suffix not in _POWERS and suffix[-1:] != "i")


def _is_kept(whole: str, fraction: str, suffix: str) -> bool:
    """Say whether Go keeps a spelling, because it is short and looks as if it were canonical."""
    if suffix.endswith("i"):
        is_short = len(whole) + 3 * _BINARY.index(suffix) <= 14
        return is_short and not fraction and int(whole) % 8 != 0
    digits = whole + fraction
    power = (_POWERS[suffix] if suffix in _POWERS else int(suffix[1:])) - len(fraction)
    is_short = len(digits) <= 18 and power >= -9
    return is_short and power % 3 == 0 and digits[0] != "0" and not digits.endswith("000")


def _binary(amount: int) -> str:
    power = 0
    while amount % 1024 == 0 and power < len(_BINARY) - 1:
        amount = amount // 1024
        power = power + 1
    return f"{amount}{_BINARY[power]}"


def _decimal(amount: Fraction, *, is_exponent: bool) -> str:
    nanos = int(amount * 10**9)
    power = -9
    while nanos % 1000 == 0 and (power < 18 or is_exponent):
        nanos = nanos // 1000
        power = power + 3
    if is_exponent:
        return f"{nanos}e{power}" if power else str(nanos)
    return f"{nanos}{_DECIMAL[power]}"


# ------------------------------------------------------------------ members

INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
"""What a schema of a number or text may say with anyOf."""
EMBEDDED: Final = "x-kubernetes-embedded-resource"
OPEN: Final = "x-kubernetes-preserve-unknown-fields"
MISSING: Final = object()
"""Stands for the old value of what is new."""

_encode: Final = msgspec.json.Encoder(order="sorted").encode


def is_same(one: Any, other: Any) -> bool:
    """Say whether two values are the same JSON: for Python, 1 is also true and 1.0."""
    return bool(one == other) and _encode(one) == _encode(other)


Node = Json | None
"""The schema of one place in an object, None where nothing is known."""


def child(node: Node, name: str) -> Node:
    """Return the node of a member of a map."""
    known = node or {}
    found = (known.get("properties") or {}).get(name, known.get("additionalProperties"))
    return found if isinstance(found, dict) else None


def items(node: Node) -> Node:
    """Return the node of the items of a list."""
    found = (node or {}).get("items")
    return found if isinstance(found, dict) else None


def list_type(node: Node) -> str:
    """Return whether a list is a ``set`` or a ``map`` by keys; others are replaced whole."""
    return str((node or {}).get("x-kubernetes-list-type") or "")


def key_of(item: Any, node: Node) -> Any:
    """Return what tells an item of a set or a map list apart: itself, or its keys with defaults."""
    if node is None or list_type(node) != "map":
        return item
    if not isinstance(item, dict):
        return {}
    found = {}
    for name in sorted(node.get("x-kubernetes-list-map-keys") or ()):
        value = item.get(name)
        found[name] = (child(items(node), name) or {}).get("default") if value is None else value
    return {name: value for name, value in found.items() if value is not None}


def with_metadata(schema: Node) -> Node:
    """Return an object's schema with that of its metadata in place."""
    properties = dict((schema or {}).get("properties") or {})
    properties["metadata"] = recorded.linked_schema(METADATA)
    return {**(schema or {}), "properties": properties}


def members(value: Any, schema: Node) -> Iterator[tuple[Any, Any, Json]]:
    """Give key, value and schema of each member of a map or list that the schema describes."""
    if isinstance(value, dict):
        for name, item in value.items():
            if (field := child(schema, name)) is not None:
                yield name, item, field
    elif isinstance(value, list) and (field := items(schema)) is not None:
        for position, item in enumerate(value):
            yield position, item, field


def former(old: Any, schema: Json) -> Callable[[Any, Any], Any]:
    """Return a function of key and value that finds what a member was before, or MISSING."""
    if isinstance(old, dict):
        return lambda name, _item: old.get(name, MISSING)
    if not isinstance(old, list) or list_type(schema) != "map":
        return lambda _position, _item: MISSING
    known = {_encode(key_of(item, schema)): item for item in old}
    return lambda _position, item: known.get(_encode(key_of(item, schema)), MISSING)


def repeated(value: list[Any], schema: Json, path: str) -> Iterator[ErrorCause]:
    """Give an error for each value that a set, or each key that a map list, holds twice."""
    if list_type(schema) not in ("map", "set"):
        return
    seen: Counter[bytes] = Counter()
    for position, item in enumerate(value):
        key = key_of(item, schema)
        seen[_encode(key)] += 1
        # Each repeated value is reported once, however often it comes back.
        if seen[_encode(key)] == 2:
            yield causes.duplicate(f"{path}[{position}]", key)


def prune(obj: Json, schema: Json) -> list[str]:
    """Remove unknown fields in place and return their paths, sorted.

    A field below a removed one is not listed on its own. apiVersion, kind and metadata of the root
    and of embedded resources stay; unknown fields inside such metadata go.
    """
    dropped: list[str] = []
    _prune(obj, {**schema, EMBEDDED: True}, "", dropped)
    return sorted(dropped)


def _prune(value: Any, schema: Json, path: str, dropped: list[str]) -> None:
    if isinstance(value, dict):
        properties: Json = schema.get("properties") or {}
        if schema.get(EMBEDDED):
            own = {"apiVersion": {}, "kind": {}, "metadata": recorded.linked_schema(METADATA)}
            properties = {**properties, **own}
            schema = {**schema, "properties": properties}
        if not schema.get(OPEN) and schema.get("additionalProperties") in (None, False):
            for name in value.keys() - properties.keys():
                del value[name]
                dropped.append(causes.child(path, name))
    for key, item, field in members(value, schema):
        if isinstance(item, dict | list):
            _prune(item, field, causes.member(path, key), dropped)


def apply_defaults(value: Any, schema: Json, *, drops_nulls: bool = True) -> None:
    """Write the schema's defaults into an object, in place.

    A null that the schema does not allow becomes the default. Without one it counts as absent
    where ``drops_nulls``.
    A number without a fraction becomes an integer where the schema says integer.
    """
    if isinstance(value, dict):
        for name, item, field in list(members(value, schema)):
            if item is None and not field.get("nullable"):
                if "default" in field:
                    value[name] = copy.deepcopy(field["default"])
                elif drops_nulls:
                    del value[name]
        for name, field in (schema.get("properties") or {}).items():
            if name not in value and "default" in field:
                value[name] = copy.deepcopy(field["default"])
    for key, item, field in members(value, schema):
        if isinstance(item, dict | list):
            apply_defaults(item, field, drops_nulls=drops_nulls)
        elif isinstance(item, float) and field.get("type") == "integer":
            # Larger ones are no integers for Go.
            value[key] = int(item) if item.is_integer() and abs(item) < 2**53 else item
