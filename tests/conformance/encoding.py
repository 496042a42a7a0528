"""Objects as typed clients in Go send them: encoded with the recorded numbers of fields."""

from __future__ import annotations

import base64
import json
import struct
from datetime import datetime
from typing import Any

from lean_sandbox.local import recorded

Json = dict[str, Any]

_NUMBERS = ("int32", "int64", "bool")


def varint(value: int) -> bytes:
    """Return a number as protobuf writes it."""
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: bytes | str | int) -> bytes:
    """Return one field."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def encode(obj: Json) -> bytes:
    """Return the body of a request."""
    version = obj["apiVersion"]
    kind = obj["kind"]
    raw = _message(recorded.component_of(version, kind), obj)
    return b"k8s\x00" + field(1, field(1, version) + field(2, kind)) + field(2, raw)


def _message(component: str, obj: Json) -> bytes:
    out = b""
    for number, name, type_, flags in recorded.protobuf()[component]:
        if "i" in flags:
            out += field(number, _message(type_, obj))
            continue
        value = obj.get(name)
        if "m" in flags:
            for key, item in (value or {}).items():
                out += field(number, field(1, key) + _field(2, type_, item))
        elif "l" in flags:
            for item in value or ():
                out += _field(number, type_, item)
        elif value is not None or "p" not in flags:
            # What is no pointer in Go is always sent, as its zero value if need be.
            out += _field(number, type_, value)
    return out


def _field(number: int, type_: str, value: Any) -> bytes:
    if type_ in _NUMBERS:
        return field(number, int(value or 0))
    if type_ == "double":
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return field(number, _bytes(type_, value))


def _bytes(type_: str, value: Any) -> bytes:
    match type_.rpartition(".")[2]:
        case "string":
            return (value or "").encode()
        case "bytes":
            return base64.b64decode(value or "")
        case "Quantity":
            return field(1, value or "0")
        case "IntOrString":
            is_text = isinstance(value, str)
            return field(1, int(is_text)) + field(3 if is_text else 2, value or 0)
        case "Time" | "MicroTime":
            if value is None:
                return b""
            moment = datetime.fromisoformat(value)
            return field(1, int(moment.timestamp())) + field(2, moment.microsecond * 1000)
        case "JSON" | "RawExtension" | "FieldsV1":
            return b"" if value is None else field(1, json.dumps(value))
        case "JSONSchemaPropsOrBool":
            return field(1, int(value is not False)) + (
                field(2, _message(_inner(type_), value)) if isinstance(value, dict) else b""
            )
        case "JSONSchemaPropsOrArray":
            listed = value if isinstance(value, list) else ()
            return b"".join(field(2, _message(_inner(type_), item)) for item in listed) or field(
                1, _message(_inner(type_), value)
            )
    return _message(type_, value or {})


def _inner(type_: str) -> str:
    return type_.rpartition("Or")[0]
