"""OpenAPI v3 schemas of Kubernetes types, read off the models by introspection.

A model (a msgspec Struct of `lightkube.models`) tells the names of fields, their base types and
what is required; `facts` adds what models lack.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from tests.model.crds import facts

Json = dict[str, Any]
Nested = Callable[[type], Json]

# The pattern that Kubernetes' own CRD tooling puts on quantities (apimachinery resource.Quantity).
QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?"
    r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_EITHER: list[Json] = [{"type": "integer"}, {"type": "string"}]
QUANTITY: Json = {
    "anyOf": _EITHER,
    "pattern": QUANTITY_PATTERN,
    "x-kubernetes-int-or-string": True,
}
INT_OR_STRING: Json = {"anyOf": _EITHER, "x-kubernetes-int-or-string": True}
_ANYTHING: Json = {"x-kubernetes-preserve-unknown-fields": True}
_OPEN_OBJECT: Json = {"type": "object", **_ANYTHING}
_DATE_TIME: Json = {"type": "string", "format": "date-time"}
_STRING_MAP: Json = {"type": "object", "additionalProperties": {"type": "string"}}

_SCALARS: dict[str, Json] = {
    "str": {"type": "string"},
    "bool": {"type": "boolean"},
    "float": {"type": "number", "format": "double"},
    "Quantity": QUANTITY,
    "IntOrString": INT_OR_STRING,
    "RawExtension": _OPEN_OBJECT,
    "FieldsV1": _OPEN_OBJECT,
    "Time": _DATE_TIME,
    "MicroTime": _DATE_TIME,
    "datetime": _DATE_TIME,
    "JSON": _ANYTHING,
    "JSONSchemaPropsOrArray": _ANYTHING,
    "JSONSchemaPropsOrBool": _ANYTHING,
    "CustomResourceSubresourceStatus": {"type": "object"},
}
# Of ObjectMeta, what a template inside another object may carry.
_EMBEDDED_METADATA: Json = {
    "type": "object",
    "properties": {"annotations": _STRING_MAP, "labels": _STRING_MAP},
}


class _Field(NamedTuple):
    name: str
    is_list: bool
    base: str
    is_required: bool


def model(module: str, name: str) -> type:
    """Return a model type, e.g. ``model("core_v1", "PodSpec")``; imports only that module."""
    found = getattr(importlib.import_module(f"lightkube.models.{module}"), name)
    assert isinstance(found, type)
    return found


def _fields(struct: type) -> Iterable[_Field]:
    for field in msgspec.structs.fields(struct):
        text = str(struct.__annotations__[field.name])
        optional = text.startswith("Optional[")
        text = text[len("Optional[") : -1] if optional else text
        is_list = text.startswith("List[")
        base = text[len("List[") : -1] if is_list else text
        yield _Field(field.encode_name, is_list, base, not optional)


def _resolve(struct: type, base: str) -> Any:
    scope: Any = sys.modules[struct.__module__]
    for part in base.split("."):
        scope = getattr(scope, part)
    return scope


def _base_schema(struct: type, field: _Field, nested: Nested) -> Json:
    key = f"{struct.__name__}.{field.name}"
    short = field.base.rpartition(".")[2]
    if short == "dict":
        values = QUANTITY if key in facts.QUANTITY_MAPS else {"type": "string"}
        return {"type": "object", "additionalProperties": dict(values)}
    if short == "int":
        return {"type": "integer", "format": "int64" if key in facts.INT64 else "int32"}
    if short in _SCALARS:
        return dict(_SCALARS[short])
    resolved = _resolve(struct, field.base)
    # A few models are plain dicts: types that upstream documents without fields.
    is_struct = isinstance(resolved, type) and issubclass(resolved, msgspec.Struct)
    return nested(resolved) if is_struct else dict(_OPEN_OBJECT)


def _list_annotations(key: str) -> Json:
    if keys := facts.MAP_LISTS.get(key):
        return {"x-kubernetes-list-map-keys": list(keys), "x-kubernetes-list-type": "map"}
    return {"x-kubernetes-list-type": "set" if key in facts.SET_LISTS else "atomic"}


def _struct_schema(struct: type, nested: Nested) -> Json:
    properties: Json = {}
    fields = sorted(_fields(struct))
    for field in fields:
        key = f"{struct.__name__}.{field.name}"
        schema = _base_schema(struct, field, nested)
        if field.is_list:
            schema = {"type": "array", "items": schema, **_list_annotations(key)}
        extra: Json = {}
        if key in facts.DEFAULTS:
            extra["default"] = facts.DEFAULTS[key]
        if key in facts.ATOMIC_FIELDS:
            extra["x-kubernetes-map-type"] = "atomic"
        properties[field.name] = {**extra, **schema}
    result: Json = {"type": "object", "properties": properties}
    if needed := [field.name for field in fields if field.is_required]:
        result["required"] = needed
    if struct.__name__ in facts.ATOMIC_TYPES:
        result["x-kubernetes-map-type"] = "atomic"
    return result


def tree_schema(struct: type) -> Json:
    """Return a structural schema without references, for use inside a CustomResourceDefinition.

    ObjectMeta inside the type is reduced to labels and annotations. Recursive types do not end.
    """

    def nested(inner: type) -> Json:
        if inner.__name__ == "ObjectMeta":
            return _EMBEDDED_METADATA
        return _struct_schema(inner, nested)

    return nested(struct)
