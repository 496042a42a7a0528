"""What schemas say: formats and ranges of values, the members of an object, how lists merge.

Objects are pruned and get their defaults in place; schemas never change.
"""

from __future__ import annotations

import base64
import binascii
import copy
import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
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
QUANTITY_TEXT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
# As the format of a schema has it: any separator before the fraction, any offset.
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(.\d+)?(z|[+-]\d\d:\d\d)\Z", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
_UUID = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\Z")


def _parses(parse: Callable[[Any], object], text: str) -> bool:
    try:
        parse(text)
    except (ValueError, binascii.Error):
        return False
    return True


def is_date_time(text: str) -> bool:
    """Say whether a schema takes a text for a time; what follows another "T" does not count."""
    day, *rest = text.lower().split("t")
    found = _CLOCK.match(rest[0]) if rest else None
    if found is None or not _is_date(day):
        return False
    hour, minute, second = found.group(1, 2, 3)
    return hour <= "23" and minute <= "59" and second <= "59"


def _is_date(text: str) -> bool:
    # The year 0 is unknown to Python; it has the days of the year 4.
    known = "0004" + text[4:] if text.startswith("0000") else text
    return _DATE.match(text) is not None and _parses(date.fromisoformat, known)


_CHECKS: dict[str, Callable[[str], bool]] = {
    "date-time": is_date_time,
    "datetime": is_date_time,
    "date": _is_date,
    "byte": lambda text: _parses(lambda data: base64.b64decode(data, validate=True), text),
    "ipv4": lambda text: _parses(ipaddress.IPv4Address, text),
    "ipv6": lambda text: _parses(ipaddress.IPv6Address, text),
    "cidr": lambda text: "/" in text and _parses(ipaddress.ip_interface, text),
    "uuid": lambda text: _UUID.match(text) is not None,
}


_RE2: Final = re2.Options()
_RE2.log_errors = False


class PatternError(ValueError):
    """A text is no regular expression of RE2."""


@lru_cache(maxsize=512)
def compile_pattern(text: str) -> Any:
    """Return a pattern of RE2, whose time is linear in the length of a text. Raises PatternError.

    It is asked by `search`.
    """
    try:
        return re2.compile(text, _RE2)
    except re2.error as error:
        said = error.args[0]
        shown = said.decode(errors="replace") if isinstance(said, bytes) else said
        raise PatternError(f"error parsing regexp: {shown}") from None


def matches_format(text: str, name: str) -> bool:
    """Say whether a text has a format; formats that are not known are not checked."""
    check = _CHECKS.get(name)
    return check is None or check(text)


_DECIMAL: Final = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"} | {
    18: "E"
}
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def canonical_quantity(value: Any) -> str | None:
    """Return the one way to write a quantity in its family of suffixes, None for other values."""
    text = str(value).strip()
    amount = None if isinstance(value, bool) else parse_quantity(text)
    if amount is None:
        return None
    if amount == 0:
        return "0"
    if text.endswith("i") and abs(amount) >= 1024 and amount.denominator == 1:
        return _binary(int(amount))
    return _decimal(amount, is_exponent=re.search(r"[eE][+-]?\d", text) is not None)


def _binary(amount: int) -> str:
    power = 0
    while amount % 1024 == 0 and power < len(_BINARY) - 1:
        amount = amount // 1024
        power = power + 1
    return f"{amount}{_BINARY[power]}"


def _decimal(amount: Fraction, *, is_exponent: bool = False) -> str:
    nanos = int(amount * 10**9)
    power = -9
    while nanos % 1000 == 0 and power < 18:
        nanos = nanos // 1000
        power = power + 3
    if is_exponent:
        return f"{nanos}e{power}" if power else str(nanos)
    return f"{nanos}{_DECIMAL[power]}"


# ------------------------------------------------------------------ members

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


def apply_defaults(value: Any, schema: Json) -> None:
    """Write the schema's defaults into an object, in place.

    A null that the schema does not allow counts as absent: it becomes the default or disappears.
    A number without a fraction becomes an integer where the schema says integer.
    """
    if isinstance(value, dict):
        for name, item, field in list(members(value, schema)):
            if item is None and not field.get("nullable"):
                del value[name]
                if "default" in field:
                    value[name] = copy.deepcopy(field["default"])
        for name, field in (schema.get("properties") or {}).items():
            if name not in value and "default" in field:
                value[name] = copy.deepcopy(field["default"])
    for key, item, field in members(value, schema):
        if isinstance(item, dict | list):
            apply_defaults(item, field)
        elif isinstance(item, float) and field.get("type") == "integer" and item.is_integer():
            value[key] = int(item)
