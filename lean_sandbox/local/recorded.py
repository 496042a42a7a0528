"""What a real kube-apiserver says of its built-in kinds, read from the recording in ``data/``.

Everything is decoded when first asked for, and shared: nobody changes it.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

Json = dict[str, Any]

RELEASE: Final = ("1", "36", "v1.36.3")
"""The Kubernetes release that was recorded, whose API the server speaks."""
_REFERENCE: Final = "#/components/schemas/"
_EITHER: Final = [{"type": "integer"}, {"type": "string"}]
_ANYTHING: Final[Json] = {"x-kubernetes-preserve-unknown-fields": True}
_OPEN: Final[Json] = {"type": "object", **_ANYTHING}
# Types whose JSON is not that of their members.
_SPECIAL: Final[dict[str, Json]] = {
    "Quantity": {
        "anyOf": _EITHER,
        "pattern": (
            r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?"
            r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
        ),
        "x-kubernetes-int-or-string": True,
    },
    "IntOrString": {"anyOf": _EITHER, "x-kubernetes-int-or-string": True},
    "RawExtension": _OPEN,
    "FieldsV1": _OPEN,
    "JSON": _ANYTHING,
    "JSONSchemaPropsOrArray": _ANYTHING,
    "JSONSchemaPropsOrBool": _ANYTHING,
    "JSONSchemaPropsOrStringArray": _ANYTHING,
}


@cache
def _read(section: str) -> Any:
    return msgspec.json.decode(
        gzip.decompress((files("lean_sandbox.local") / "data" / f"{section}.json.gz").read_bytes())
    )


def schemas() -> dict[str, Json]:
    """Return the OpenAPI v3 schema of every type by the name of its component."""
    found: dict[str, Json] = _read("schemas")
    return found


def descriptions() -> dict[str, dict[str, str]]:
    """Return what is said of each component, under "", and of its fields, by their names."""
    found: dict[str, dict[str, str]] = _read("descriptions")
    return found


def discovery() -> list[Json]:
    """Return the items of the aggregated discovery, the core group first.

    Each resource that can be listed has ``selectable`` besides: the fields of field selectors.
    """
    found: list[Json] = _read("discovery")
    return found


def columns() -> dict[str, list[Json]]:
    """Return the ``columnDefinitions`` of tables by ``plural`` or ``plural.group``."""
    found: dict[str, list[Json]] = _read("columns")
    return found


def protobuf() -> dict[str, list[tuple[int, str, str, str]]]:
    """Return the fields of every message by the name of its component.

    A field is number, name in JSON, type and flags. The type is a scalar of protobuf or the name
    of another component. Flags: ``l`` a list, ``m`` a map from strings, ``p`` a pointer in Go,
    ``o`` left out of JSON when empty, ``i`` inlined, so that JSON has its members instead.
    """
    found: dict[str, list[tuple[int, str, str, str]]] = _read("protobuf")
    return found


def roles() -> list[Json]:
    """Return the cluster roles of a new cluster, without kind, times and versions."""
    found: list[Json] = _read("roles")
    return found


@cache
def component_of(api_version: str, kind: str) -> str:
    """Return the name of the component of a kind.

    Raises KeyError: no built-in kind of that name was recorded.
    """
    return _components()[api_version, kind]


@cache
def _components() -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for name, schema in schemas().items():
        for identity in schema.get("x-kubernetes-group-version-kind", ()):
            group = identity["group"]
            version = identity["version"]
            api_version = f"{group}/{version}" if group else version
            found.setdefault((api_version, identity["kind"]), name)
    return found


@cache
def flags(component: str) -> dict[str, str]:
    """Return the flags of a type's fields, as `protobuf` has them, by their names in JSON."""
    found: dict[str, str] = {}
    for _, name, type_, marks in protobuf().get(component, ()):
        found.update(flags(type_) if "i" in marks else {name: marks})
    return found


_linked: dict[str, Json] = {}


def linked_schema(component: str) -> Json:
    """Return the schema of a component without references: recursive types make cycles.

    Objects carry the name of their type as ``title`` and that of their component as
    ``component``. Empty defaults are left out where they only say that a field is no pointer in Go.
    """
    found = _linked.get(component)
    if found is None:
        title = component.rpartition(".")[2]
        found = _linked[component] = {"title": title, "component": component}
        found.update(_SPECIAL.get(title) or _without_references(schemas()[component], component))
    return found


def _without_references(schema: Json, component: str = "", *, is_pointer: bool = False) -> Json:
    found: Json = {}
    for reference in (schema, *schema.get("allOf", ())):
        if "$ref" in reference:
            found = linked_schema(reference["$ref"].removeprefix(_REFERENCE))
    # A few fields say more than their type; the others share its schema.
    more: Json = {}
    for key, value in schema.items():
        if key == "properties":
            marks = flags(component)
            more[key] = {
                name: _without_references(field, is_pointer="p" in marks.get(name, ""))
                for name, field in value.items()
            }
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            more[key] = _without_references(value)
        elif key == "default":
            if is_pointer or not _is_empty(value):
                more[key] = value
        elif key not in ("$ref", "allOf", "x-kubernetes-group-version-kind"):
            more[key] = value
    return {**found, **more} if more else found


def _is_empty(value: Any) -> bool:
    return all(map(_is_empty, value.values())) if isinstance(value, dict) else not value
