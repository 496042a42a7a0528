"""What a server makes of the JSON of a built-in object: it is decoded, and later encoded, by Go.

Decoding drops unknown fields and nulls, leaves out what Go leaves out when it is empty, writes
quantities and times in their one form, and refuses JSON types that do not fit. Completing adds
what Go always writes.
"""

from __future__ import annotations

import base64
import copy
import re
import string
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from lean_sandbox.local import recorded
from lean_sandbox.local.schema.causes import member
from lean_sandbox.local.schema.structural import (
    EMBEDDED,
    INTEGER_RANGES,
    JSON_TYPES,
    METADATA,
    canonical_quantity,
    members,
    quantity_problem,
)
from lean_sandbox.model.times import format_micro_time, format_rfc3339, parse_rfc3339

Json = dict[str, Any]

# Of the steps to a value: a schema inside a schema is two of them.
_DEEPEST: Final = 150
_EXTENSIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_GO_NAMES: Final = {"boolean": "bool", "integer": "number"}
_TAKEN: Final = dict.fromkeys(("integer", "number"), ("integer", "number"))
_LAYOUTS: Final = {
    "Time": "2006-01-02T15:04:05Z07:00",
    "MicroTime": "2006-01-02T15:04:05.000000Z07:00",
}


_BASE64: Final = f"{string.ascii_letters}{string.digits}+/"
# What has to follow the last whole or begun four digits, by how many have begun.
_PADDING: Final = {0: "", 2: "==", 3: "="}


class DecodeError(ValueError):
    """The first value whose JSON type does not fit its field."""


@cache
def builtin_schema(kind: str, api_version: str = "v1") -> Json:
    """Return the schema of a built-in kind, which nobody changes. Raises KeyError."""
    return recorded.linked_schema(recorded.component_of(api_version, kind))


def decode(obj: Json, schema: Json, kind: str) -> list[str]:
    """Decode an object in place, and return the paths of the fields that it should not have.

    Raises:
        DecodeError: a value does not fit; the text is that of Go's decoder.

    """
    decoder = _Decoder()
    decoder.fields(obj, schema, kind)
    return decoder.unknown


def decode_metadata(obj: Json) -> list[str]:
    """Decode and complete the metadata of a custom object in the same way. Raises DecodeError."""
    metadata = obj.get("metadata")
    schema = recorded.linked_schema(METADATA)
    if metadata is None:
        return []
    decoder = _Decoder()
    complete(decoder.value(metadata, schema, "ObjectMeta"), schema)
    return [f"metadata.{path}" for path in decoder.unknown]


def decode_embedded(value: Any, schema: Json, path: str = "") -> None:
    """Decode what every object has, in the objects inside a custom one. Raises DecodeError."""
    if schema.get(EMBEDDED) and isinstance(value, dict):
        for name in ("apiVersion", "kind"):
            if not isinstance(given := value.get(name, ""), str):
                shown = msgspec.json.encode(given).decode()
                raise DecodeError(f"{path}.{name}: Invalid value: {shown}: must be a string")
        metadata = {} if (found := value.get("metadata")) is None else found
        try:
            _Decoder().value(metadata, recorded.linked_schema(METADATA), "ObjectMeta")
        except DecodeError as error:
            shown = msgspec.json.encode(metadata).decode()
            raise DecodeError(f"{path}.metadata: Invalid value: {shown}: {error}") from None
    for key, item, field in members(value, schema):
        if isinstance(item, dict | list):
            decode_embedded(item, field, member(path, key))


# ------------------------------------------------------------------ decoding


def _go_type(schema: Json) -> str:
    kind = schema.get("type")
    if kind == "array":
        return "[]" + _go_type(schema["items"])
    if kind == "object":
        others = schema.get("additionalProperties")
        if isinstance(others, dict):
            if _is_quantity(others):
                return "v1.ResourceList"
            return "map[string]" + _go_type(others)
        return f"v1.{schema.get('title', 'Object')}"
    if schema.get("format") == "byte":
        return "[]uint8"
    if kind == "integer":
        return str(schema.get("format", "int32"))
    if kind == "boolean":
        return "bool"
    if schema.get("x-kubernetes-int-or-string"):
        return "resource.Quantity" if _is_quantity(schema) else "int32"
    return "time.Time" if schema.get("format") == "date-time" else "string"


def _is_quantity(schema: Json) -> bool:
    return schema.get("title") == "Quantity"


def _empty_item(schema: Json) -> Any:
    """Return what a null in a list or a map becomes."""
    empty = {"object": {}, "array": [], "boolean": False, "integer": 0, "number": 0}
    return "0" if _is_quantity(schema) else empty.get(schema.get("type", ""), "")


def _is_plain(item: Any, schema: Json) -> bool:
    """Say whether there is nothing to decode: most values are texts that are not empty."""
    if item.__class__ is str:
        return bool(item) and schema.get("type") == "string" and "format" not in schema
    return item is True and schema.get("type") == "boolean"


class _Key(str):
    """A key of a map; Go does not take it for the name of a field."""

    __slots__ = ()


class _Decoder:
    """Decodes one object; knows where in it it is."""

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self._trail: list[str | int] = []

    def _path(self) -> str:
        text = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in self._trail)
        return text.removeprefix(".")

    def _misfit(self, value: Any, schema: Json, owner: str, number: str = "") -> DecodeError:
        where = ".".join([owner, *(step for step in self._trail if type(step) is str)])
        name = _GO_NAMES.get(JSON_TYPES[type(value)], JSON_TYPES[type(value)])
        shown = f"{name} {number}".rstrip()
        text = f"cannot unmarshal {shown} into Go struct field {where}"
        return DecodeError(f"json: {text} of type {_go_type(schema)}")

    def fields(self, value: Json, schema: Json, owner: str) -> None:
        """Decode the fields of an object in place."""
        if len(self._trail) > _DEEPEST:
            raise DecodeError("exceeded max depth")
        properties: Json = schema["properties"]
        marks = recorded.flags(schema["component"]) if "component" in schema else {}
        inner = schema.get("title", owner)
        for name, item in list(value.items()):
            field = properties.get(name)
            if field is not None and _is_plain(item, field):
                continue
            self._trail.append(name)
            if field is None:
                del value[name]
                self.unknown.append(self._path())
            elif item is None:
                del value[name]
            else:
                made = value[name] = self.value(item, field, inner)
                mark = marks.get(name, "p")
                if made is None or (not made and "p" not in mark and not _is_struct(field)):
                    del value[name]
            self._trail.pop()

    def value(self, value: Any, schema: Json, owner: str) -> Any:
        """Return a value decoded; objects and lists are changed in place."""
        kind = schema.get("type")
        if schema.get("x-kubernetes-int-or-string"):
            return self._int_or_string(value, schema, owner)
        if kind is None:
            return self._any(value, schema, owner)
        if JSON_TYPES[type(value)] not in _TAKEN.get(kind, (kind,)):
            raise self._misfit(value, schema, owner)
        if kind == "string":
            return _text(value, schema)
        if kind == "integer":
            low, high = INTEGER_RANGES[schema.get("format", "int32")]
            if not (isinstance(value, int) and low <= value <= high):
                raise self._misfit(value, schema, owner, str(value))
        elif kind == "array":
            self._members(value, range(len(value)), schema["items"], owner)
        elif schema.get("properties"):
            self.fields(value, schema, owner)
        elif isinstance(others := schema.get("additionalProperties"), dict):
            self._members(value, list(value), others, owner)
        elif kind == "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
            self.fields(value, {"properties": {}}, owner)
        return value

    def _members(self, values: Any, keys: Any, schema: Json, owner: str) -> None:
        for key in keys:
            item = values[key]
            if _is_plain(item, schema):
                continue
            if item is None:
                item = _empty_item(schema)
            self._trail.append(key if isinstance(key, int) else _Key(key))
            values[key] = self.value(item, schema, owner)
            self._trail.pop()

    def _any(self, value: Any, schema: Json, owner: str) -> Any:
        """Decode a value of several types: a schema, schemas or a boolean; other JSON stays."""
        title = schema.get("title", "")
        if title not in ("JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool"):
            return value
        inner = recorded.linked_schema(f"{_EXTENSIONS}.JSONSchemaProps")
        if isinstance(value, dict):
            return self.value(value, inner, owner)
        if title.endswith("Bool"):
            if not isinstance(value, bool):
                raise DecodeError("boolean or JSON schema expected")
            return value
        if isinstance(value, list):
            self._members(value, range(len(value)), inner, owner)
            return value
        return None

    def _int_or_string(self, value: Any, schema: Json, owner: str) -> Any:
        if _is_quantity(schema):
            quantity = canonical_quantity(value)
            if quantity is None:
                raise DecodeError(quantity_problem(value))
            return quantity
        low, high = INTEGER_RANGES["int32"]
        if isinstance(value, float) or (isinstance(value, int) and not low <= value <= high):
            raise self._misfit(value, schema, owner, str(value))
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self._misfit(value, schema, owner)
        return value


def _text(text: str, schema: Json) -> str:
    form = schema.get("format")
    if form == "date-time":
        return _time(text, schema.get("title", "Time"))
    if form == "byte":
        return base64.b64encode(_octets(text)).decode()
    return text


def _octets(text: str) -> bytes:
    """Decode base64. Raises DecodeError, which names the same place as Go does."""
    text = re.sub(r"[\r\n]", "", text)
    rest = text.lstrip(_BASE64)
    size = len(text) - len(rest)
    padding = _PADDING.get(size % 4)
    if rest == padding:
        return base64.b64decode(text)
    at = size
    if not rest:
        at = size - size % 4
    elif padding and rest.startswith(padding):
        at = size + len(padding)
    elif padding and padding.startswith(rest):
        at = size + len(rest)
    raise DecodeError(f"illegal base64 data at input byte {at}")


def _time(text: str, kind: str) -> str:
    problem = f'parsing time "{text}" as "{_LAYOUTS[kind]}": cannot parse'
    # Go tells "T" and "Z" from "t" and "z".
    try:
        moment = parse_rfc3339(text if text == text.upper() else "")
    except ValueError:
        raise DecodeError(f'{problem} "{text}" as "2006"') from None
    if kind == "Time":
        return format_rfc3339(moment)
    fraction = text[19:].rstrip("Z").partition("+")[0].partition("-")[0]
    if len(fraction) != 7:
        raise DecodeError(f'{problem} "{text[19:]}" as ".000000"')
    return format_micro_time(moment)


# ------------------------------------------------------------------ completing


class _Shape(NamedTuple):
    """What is always there in a struct, and which of its fields lead to more structs."""

    zeros: tuple[tuple[str, Any], ...]
    inner: tuple[tuple[str, Json], ...]


def _is_struct(schema: Json) -> bool:
    """Say whether Go has a struct, which is never left out for being empty."""
    is_time = schema.get("format") == "date-time"
    return "properties" in schema or is_time or bool(schema.get("x-kubernetes-int-or-string"))


def _is_left_out(schema: Json, mark: str) -> bool:
    """Say whether Go writes nothing for a field that nobody set."""
    return "o" in mark and ("p" in mark or not _is_struct(schema))


def _zero(schema: Json, mark: str) -> Any:
    """Return what Go writes for a field that nobody set: its default, or what is empty."""
    if "default" in schema:
        return schema["default"]
    if "p" in mark or schema.get("format") == "date-time":
        return None
    if "properties" in schema:
        return {}
    if schema.get("x-kubernetes-int-or-string"):
        return "0" if _is_quantity(schema) else 0
    return None if schema.get("type") in (None, "array", "object") else _empty_item(schema)


@cache
def _shape(component: str) -> _Shape:
    schema = recorded.linked_schema(component)
    marks = recorded.flags(component)
    zeros = []
    inner = []
    for name, field in schema.get("properties", {}).items():
        nested = field.get("items") or field.get("additionalProperties") or field
        if isinstance(nested, dict) and "component" in nested and "properties" in nested:
            inner.append((name, nested))
        is_silent = component == METADATA and name == "creationTimestamp"
        is_written = "default" in field or not _is_left_out(field, marks.get(name, ""))
        if name in marks and not is_silent and is_written:
            zeros.append((name, _zero(field, marks[name])))
    return _Shape(tuple(zeros), tuple(inner))


def complete(obj: Json, schema: Json) -> None:
    """Add in place what Go writes in any case: structs, defaults, fields not left out empty."""
    shape = _shape(schema["component"])
    for name, zero in shape.zeros:
        if name not in obj:
            obj[name] = copy.copy(zero)
    for name, nested in shape.inner:
        value = obj.get(name)
        if not value and value != {}:
            continue
        is_map = "properties" not in schema["properties"][name] and isinstance(value, dict)
        held = value if isinstance(value, list) else value.values() if is_map else [value]
        for each in held:
            complete(each, nested)
