"""What bodies say in JSON and YAML, and in protobuf, as Go sends built-in kinds unless told."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, ClassVar, Final

import msgspec
import yaml

from lean_sandbox.local import recorded

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_VARINT = 0
_FIXED64 = 1
_BYTES = 2
_FIXED32 = 5
_WIDTHS: Final = {"bool": 64, "int32": 32, "int64": 64}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Json = dict[str, Any]


_decode_json: Final = msgspec.json.Decoder().decode


def _decode(body: bytes) -> Any:
    """Decode JSON as Go does: bytes that are no UTF-8 become replacement characters."""
    try:
        return _decode_json(body)
    except UnicodeDecodeError:
        return _decode_json(body.decode("utf-8", "replace"))


def decode(body: bytes, content_type: str) -> Any:
    """Return a decoded JSON, YAML or protobuf body; of YAML it is the first document.

    Raises msgspec.DecodeError: it is none of them.
    """
    if content_type == PROTOBUF:
        try:
            return decode_protobuf(body)
        except ValueError as error:
            raise msgspec.DecodeError(str(error)) from None
    if "yaml" not in content_type:
        return _decode(body)
    if body.lstrip()[:1] in (b"{", b"["):
        # Much faster, where JSON it is.
        with suppress(UnicodeDecodeError):
            return _decode_json(body)
    try:
        return next(yaml.load_all(body, _YamlLoader), None)
    except (yaml.YAMLError, ValueError) as error:
        raise msgspec.DecodeError(str(error)) from None


class _YamlLoader(yaml.SafeLoader):
    """Reads YAML as API servers do, to values of JSON: dates and all that has a tag are text."""

    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        f"tag:yaml.org,2002:{name}": yaml.SafeLoader.yaml_constructors[f"tag:yaml.org,2002:{name}"]
        for name in ("null", "bool", "int", "float", "str", "seq", "map")
    }
    bool_values: ClassVar[dict[str, bool]] = {**yaml.SafeLoader.bool_values, "y": True, "n": False}

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001, FBT002 - as it is called
    ) -> dict[Hashable, Any]:
        self.flatten_mapping(node)
        return {
            _key(self.construct_object(key)): self.construct_object(value, deep=deep)
            for key, value in node.value
        }

    def construct_whole(self, node: yaml.ScalarNode) -> Any:
        text = self.construct_scalar(node)
        # Numbers of base 60 are none in Go.
        return text if ":" in text else self.construct_yaml_int(node)

    def construct_tagged(self, node: yaml.Node) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self.construct_mapping(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            return self.construct_sequence(node, deep=True)
        return node.value


def _key(key: Any) -> str:
    return key if isinstance(key, str) else msgspec.json.encode(key).decode()


_YamlLoader.add_constructor("tag:yaml.org,2002:int", _YamlLoader.construct_whole)
_YamlLoader.add_constructor(None, _YamlLoader.construct_tagged)
_YamlLoader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("[yYnN]$"), list("yYnN"))


# ------------------------------------------------------------------ protobuf


def decode_protobuf(body: bytes) -> Json:
    """Return the object of a protobuf body as its JSON would be.

    Raises ValueError: the bytes are no such body, or of a kind that is not built in.
    """
    if not body.startswith(_MAGIC):
        raise ValueError("provided data does not appear to be a protobuf message")
    envelope = {number: raw for number, _, raw in _fields(body[4:])}
    identity = {number: _text(raw) for number, _, raw in _fields(_bytes(envelope.get(1, b"")))}
    version = identity.get(1, "")
    kind = identity.get(2, "")
    try:
        # Every group and version has options of its own; they are all the same.
        component = recorded.component_of("v1" if kind == "DeleteOptions" else version, kind)
    except KeyError:
        raise ValueError(f'no kind "{kind}" is registered for version "{version}"') from None
    try:
        found = _message(_bytes(envelope.get(2, b"")), component)
    except (RecursionError, OverflowError, msgspec.DecodeError) as error:
        raise ValueError(f"proto: {error}") from None
    return {"apiVersion": version, "kind": kind, **found}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        if at >= len(data):
            raise ValueError("unexpected EOF")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("proto: integer overflow")


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield number, wire type and value of each field."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == _VARINT:
            number, at = _varint(data, at)
            yield tag >> 3, wire, number
            continue
        if wire == _BYTES:
            length, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"proto: illegal wireType {wire}")
        if at + length > len(data):
            raise ValueError("unexpected EOF")
        yield tag >> 3, wire, data[at : at + length]
        at += length


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise ValueError("proto: wrong wireType")  # noqa: TRY004 - of the request, not of a call
    return raw


def _text(raw: int | bytes) -> str:
    return _bytes(raw).decode("utf-8", "replace")


@cache
def _members(component: str) -> Mapping[int, tuple[str, str, str]]:
    known = recorded.protobuf().get(component, ())
    return {number: (name, type_, flags) for number, name, type_, flags in known}


def _message(data: bytes, component: str) -> Json:
    found: Json = {}
    members = _members(component)
    for number, wire, raw in _fields(data):
        if number not in members:
            continue
        name, type_, flags = members[number]
        if "i" in flags:
            found.update(_message(_bytes(raw), type_))
        elif "m" in flags:
            pair = {number: value for number, _, value in _fields(_bytes(raw))}
            value = _value(type_, pair.get(2, 0 if type_ in _WIDTHS else b""))
            found.setdefault(name, {})[_text(pair.get(1, b""))] = value
        elif "l" in flags:
            packed = wire == _BYTES and type_ in _WIDTHS
            values = _packed(_bytes(raw)) if packed else [raw]
            found.setdefault(name, []).extend(_value(type_, value) for value in values)
        else:
            value = _value(type_, raw)
            # Go always sends what is no pointer: an empty value says as much as none.
            is_unset = value in ("", 0, {}) and "p" not in flags
            if value is not None and not is_unset:
                found[name] = value
    return found


def _packed(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _value(type_: str, raw: int | bytes) -> Any:
    width = _WIDTHS.get(type_)
    if width is not None:
        if isinstance(raw, bytes):
            raise ValueError("proto: wrong wireType")
        number = raw & ((1 << width) - 1)
        return bool(number) if type_ == "bool" else _signed(number, width)
    data = _bytes(raw)
    if type_ == "string":
        return _text(data)
    if type_ == "bytes":
        return base64.b64encode(data).decode()
    if type_ == "double":
        return _double(data)
    special = _SPECIAL.get(type_.rpartition(".")[2])
    return special(data, type_) if special else _message(data, type_)


def _signed(number: int, width: int) -> int:
    return number - (1 << width) if number >= 1 << (width - 1) else number


def _double(data: bytes) -> float:
    if len(data) != 8:
        raise ValueError("proto: wrong wireType")
    (number,) = struct.unpack("<d", data)
    return int(number) if number.is_integer() else float(number)


# Types whose JSON is not an object of their fields.


def _time(data: bytes, component: str) -> str | None:
    if not data:
        return None
    parts = _message(data, component)
    moment = _EPOCH + timedelta(seconds=parts.get("seconds", 0))
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    if component.endswith("MicroTime"):
        text += f".{parts.get('nanos', 0) // 1000:06d}"
    return text + "Z"


def _int_or_string(data: bytes, component: str) -> Any:
    parts = _message(data, component)
    return parts.get("strVal", "") if parts.get("type") else parts.get("intVal", 0)


def _json(data: bytes, component: str) -> Any:
    raw = next(iter(_message(data, component).values()), "")
    return msgspec.json.decode(base64.b64decode(raw)) if raw else None


def _only_member(data: bytes, component: str) -> Any:
    ((name, _, flags),) = _members(component).values()
    return _message(data, component).get(name, [] if "l" in flags else "")


def _either(data: bytes, component: str) -> Any:
    """Return a schema or strings, a list of them or, where there is nothing, whether any may be."""
    listed: list[Any] = []
    allowed = False
    for number, _, raw in _fields(data):
        _, type_, flags = _members(component).get(number, ("", "bytes", ""))
        value = _value(type_, raw)
        if "l" in flags:
            listed.append(value)
        elif type_ == "bool":
            allowed = value
        elif isinstance(value, dict):
            return value
    return listed or allowed


_SPECIAL: Final[Mapping[str, Callable[[bytes, str], Any]]] = {
    "ExtraValue": _only_member,
    "FieldsV1": _json,
    "IntOrString": _int_or_string,
    "JSON": _json,
    "JSONSchemaPropsOrArray": _either,
    "JSONSchemaPropsOrBool": _either,
    "JSONSchemaPropsOrStringArray": _either,
    "MicroTime": _time,
    "Quantity": _only_member,
    "RawExtension": _json,
    "Time": _time,
}
