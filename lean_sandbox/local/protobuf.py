"""Request bodies in protobuf, for the few kinds kubectl sends that way (it never asks first).

Only fields that mean something here are named; others are skipped. Numbers are those of the
`generated.proto` files of the Kubernetes API.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"

Json = dict[str, Any]
Message = Mapping[int, "Field"]


class Field(NamedTuple):
    """Name and type of a field: text, number, flag, bytes, a map of text or bytes, or a message."""

    name: str
    type: str = "text"
    message: Message | None = None
    repeated: bool = False


def _text(*names: str, start: int = 1) -> dict[int, Field]:
    return {number: Field(name) for number, name in enumerate(names, start)}


_OWNER: Final = {
    5: Field("apiVersion"),
    1: Field("kind"),
    3: Field("name"),
    4: Field("uid"),
    6: Field("controller", "flag"),
    7: Field("blockOwnerDeletion", "flag"),
}
_METADATA: Final = {
    1: Field("name"),
    2: Field("generateName"),
    3: Field("namespace"),
    5: Field("uid"),
    6: Field("resourceVersion"),
    11: Field("labels", "map"),
    12: Field("annotations", "map"),
    13: Field("ownerReferences", "message", _OWNER, repeated=True),
    14: Field("finalizers", repeated=True),
}
_META: Final = Field("metadata", "message", _METADATA)
_DELETE_OPTIONS: Final = {
    1: Field("gracePeriodSeconds", "number"),
    2: Field("preconditions", "message", _text("uid", "resourceVersion")),
    3: Field("orphanDependents", "flag"),
    4: Field("propagationPolicy"),
    5: Field("dryRun", repeated=True),
}
_ACCESS: Final = {
    1: Field(
        "resourceAttributes",
        "message",
        _text("namespace", "verb", "group", "version", "resource", "subresource", "name"),
    ),
    2: Field("nonResourceAttributes", "message", _text("path", "verb")),
}
_RULE: Final = {
    number: Field(name, repeated=True)
    for number, name in enumerate(
        ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"), 1
    )
}
_ROLE: Final = {1: _META, 2: Field("rules", "message", _RULE, repeated=True)}
_SUBJECT: Final = _text("kind", "apiGroup", "name", "namespace")
_BINDING: Final = {
    1: _META,
    2: Field("subjects", "message", _SUBJECT, repeated=True),
    3: Field("roleRef", "message", _text("apiGroup", "kind", "name")),
}
_TOKEN: Final = {
    1: Field("audiences", repeated=True),
    4: Field("expirationSeconds", "number"),
}
_KINDS: Final[Mapping[str, Message]] = {
    "Namespace": {1: _META},
    "ServiceAccount": {1: _META},
    "ConfigMap": {
        1: _META,
        2: Field("data", "map"),
        3: Field("binaryData", "bytes-map"),
        4: Field("immutable", "flag"),
    },
    "Secret": {
        1: _META,
        2: Field("data", "bytes-map"),
        3: Field("type"),
        4: Field("stringData", "map"),
        5: Field("immutable", "flag"),
    },
    "Role": _ROLE,
    "ClusterRole": _ROLE,
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "DeleteOptions": _DELETE_OPTIONS,
    "Eviction": {1: _META, 2: Field("deleteOptions", "message", _DELETE_OPTIONS)},
    "SelfSubjectReview": {1: _META},
    "SelfSubjectAccessReview": {1: _META, 2: Field("spec", "message", _ACCESS)},
    "SelfSubjectRulesReview": {1: _META, 2: Field("spec", "message", _text("namespace"))},
    "TokenRequest": {1: _META, 2: Field("spec", "message", _TOKEN)},
}


def decode_body(body: bytes) -> Json | str:
    """Return the object of a protobuf body, the name of a kind that is only taken as JSON.

    Raises:
        ValueError: the bytes are no such body.

    """
    if not body.startswith(_MAGIC):
        raise ValueError("no protobuf envelope")
    envelope = _message(body[4:], {1: Field("type", "message", _text("apiVersion", "kind")),
                                   2: Field("raw", "raw")})  # fmt: skip
    kind = envelope["type"]
    name: str = kind.get("kind", "")
    known = _KINDS.get(name)
    if known is None:
        return name
    return {**kind, **_message(envelope.get("raw", b""), known)}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("truncated")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == 0:
            number, at = _varint(data, at)
            yield tag >> 3, number
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        elif wire == 2:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise ValueError("truncated")
            yield tag >> 3, data[at : at + length]
            at += length
        else:
            raise ValueError(f"wire type {wire}")


def _message(data: bytes, known: Message) -> Json:
    found: Json = {}
    for number, raw in _fields(data):
        field = known.get(number)
        if field is None:
            continue
        if field.type in ("map", "bytes-map"):
            pair = dict(_fields(raw if isinstance(raw, bytes) else b""))
            value = _value(pair.get(2, b""), Field("", field.type.removesuffix("-map")))
            found.setdefault(field.name, {})[_value(pair.get(1, b""), Field(""))] = value
            continue
        value = _value(raw, field)
        if field.repeated:
            found.setdefault(field.name, []).append(value)
        elif value != "":
            found[field.name] = value
    return found


def _value(raw: int | bytes, field: Field) -> Any:
    if isinstance(raw, int):
        if field.type == "flag":
            return bool(raw)
        return raw - (1 << 64) if raw >= 1 << 63 else raw
    if field.type == "message":
        return _message(raw, field.message or {})
    if field.type == "bytes":
        return base64.b64encode(raw).decode()
    return raw if field.type == "raw" else raw.decode()
