"""Schemas of definitions: what they may say to be structural, and whether their rules compile."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import errors
from lean_sandbox.local.schema.checks import Check, broken, needed, one_of
from lean_sandbox.local.schema.expressions import RuleError
from lean_sandbox.local.schema.structural import (
    EMBEDDED,
    OPEN,
    PatternError,
    compile_pattern,
    prune,
)
from lean_sandbox.local.schema.validation import check_rule, validate

Json = dict[str, Any]

_REASONS: Final = ("Duplicate", "Forbidden", "Invalid", "Required")


def _absent(value: Any, where: str) -> Iterator[ErrorCause]:
    if value is not None:
        yield errors.forbidden(where, f"{where.rpartition('.')[2]} is not supported")


def _not_quadratic(value: Any, where: str) -> Iterator[ErrorCause]:
    if value:
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield errors.forbidden(where, text)


def _pattern(pattern: Any, where: str) -> Iterator[ErrorCause]:
    try:
        compile_pattern(pattern or "")
    except PatternError as error:
        text = f"must be a valid regular expression, but isn't: {error}"
        yield errors.invalid(where, pattern, text)


def _not_false(value: Any, where: str) -> Iterator[ErrorCause]:
    if value is False:
        yield errors.invalid(where, value, "must be true or undefined")


def _unset(text: str) -> Check:
    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        if value:
            yield errors.forbidden(where, f"must be {text} to be structural")

    return check


_UNKNOWN: Final = (
    *("$ref", "definitions", "id", "patternProperties", "dependencies", "additionalItems"),
)
_KEYWORDS: Final[Json] = {
    **dict.fromkeys(_UNKNOWN, _absent),
    "uniqueItems": _not_quadratic,
    "pattern": _pattern,
    "type": one_of("array", "boolean", "integer", "number", "object", "string"),
    "x-kubernetes-list-type": one_of("atomic", "set", "map"),
    "x-kubernetes-map-type": one_of("atomic", "granular"),
    OPEN: _not_false,
}
# Within anyOf, oneOf, allOf and not these say nothing that a value could be pruned by.
_BRANCH: Final[Json] = {
    "type": _unset("empty"),
    "default": _unset("undefined"),
    "additionalProperties": _unset("undefined"),
    "nullable": _unset("false"),
    "pattern": _pattern,
}


def _check_type(schema: Json, path: str, *, is_root: bool) -> Iterator[ErrorCause]:
    kind = schema.get("type") or ""
    where = f"{path}.type"
    if not kind and is_root:
        yield errors.required(where, "must not be empty at the root")
    elif not kind and not (schema.get("x-kubernetes-int-or-string") or schema.get(OPEN)):
        yield errors.required(where, "must not be empty for specified object fields")
    elif is_root and kind and kind != "object":
        yield errors.invalid(where, kind, "must be object at the root")
    elif schema.get(EMBEDDED) and kind != "object":
        yield errors.invalid(where, kind, f"must be object if {EMBEDDED} is true")
    elif kind != "array" and schema.get("x-kubernetes-list-type"):
        text = "must be array if x-kubernetes-list-type is specified"
        yield errors.invalid(where, kind, text)
    if schema.get(EMBEDDED) and not schema.get("properties") and not schema.get(OPEN):
        text = f"must not be empty if {EMBEDDED} is true without {OPEN}"
        yield errors.required(f"{path}.properties", text)


def _check_items(schema: Json, path: str) -> Iterator[ErrorCause]:
    items = schema.get("items")
    kind = schema.get("x-kubernetes-list-type")
    if schema.get("type") == "array" and items is None:
        yield errors.required(f"{path}.items", "must be specified")
    if isinstance(items, list):
        text = "items must be a schema object and not an array"
        yield errors.forbidden(f"{path}.items", text)
    if not isinstance(items, dict):
        items = {}
    map_type = items.get("x-kubernetes-map-type")
    if kind == "set" and items.get("type") == "object" and map_type != "atomic":
        text = "must be atomic as item of a list with x-kubernetes-list-type=set"
        yield errors.invalid(f"{path}.items.x-kubernetes-map-type", map_type, text)
    if kind == "map":
        yield from _check_keys(schema.get("x-kubernetes-list-map-keys") or [], items, path)


def _check_keys(keys: list[str], items: Json, path: str) -> Iterator[ErrorCause]:
    where = f"{path}.x-kubernetes-list-map-keys"
    yield from needed("must not be empty if x-kubernetes-list-type is map")(keys, where)
    for key in keys:
        field = (items.get("properties") or {}).get(key)
        if field is None:
            yield errors.invalid(where, key, "entries must all be names of item properties")
        elif "default" not in field and key not in (items.get("required") or ()):
            text = (
                "this property is in x-kubernetes-list-map-keys, "
                "so it must have a default or be a required property"
            )
            yield errors.required(f"{path}.items.properties[{key}].default", text)


def _check_default(schema: Json, path: str) -> Iterator[ErrorCause]:
    if "default" not in schema:
        return
    where = f"{path}.default"
    given = {"value": schema["default"]}
    around = {"properties": {"value": schema}}
    for error in validate(given, around):
        yield ErrorCause(error.reason, error.message.replace("value in body", " in body"), where)
    if prune(copy.deepcopy(given), around):
        yield errors.invalid(where, schema["default"], "must not have unknown fields")


def _check_branches(schema: Json, path: str) -> Iterator[ErrorCause]:
    if schema.get("x-kubernetes-int-or-string"):
        return
    for name in ("allOf", "anyOf", "oneOf"):
        for position, branch in enumerate(schema.get(name) or ()):
            yield from _check_branch(branch or {}, f"{path}.{name}[{position}]")
    yield from _check_branch(schema.get("not") or {}, f"{path}.not")


def _check_branch(branch: Json, path: str) -> Iterator[ErrorCause]:
    yield from broken(branch, path, _BRANCH)
    if branch:
        yield from _check_branches(branch, path)
    for name, field in (branch.get("properties") or {}).items():
        yield from _check_branch(field or {}, f"{path}.properties[{name}]")


def _check_metadata(field: Json, where: str) -> Iterator[ErrorCause]:
    if field.get("type") not in (None, "object"):
        yield errors.invalid(f"{where}.type", field["type"], "must be object")
    if set(field.get("properties") or ()) - {"name", "generateName"}:
        text = "must not specify anything other than name and generateName"
        yield errors.forbidden(where, f"{text}, but metadata is implicitly specified")


def _check_rule(rule: Json, schema: Json, where: str, *, is_root: bool) -> Iterator[ErrorCause]:
    text = rule.get("rule") or ""
    expression = rule.get("messageExpression") or ""
    if not text.strip():
        yield errors.required(f"{where}.rule", "rule is not specified")
        return
    if "\n" in (message := rule.get("message") or ""):
        yield errors.invalid(f"{where}.message", message, "must not contain line breaks")
    if expression and not expression.strip():
        problem = "messageExpression must be non-empty if specified"
        yield errors.required(f"{where}.messageExpression", problem)
        expression = ""
    reasons = one_of(*(f"FieldValue{word}" for word in _REASONS))
    yield from reasons(rule.get("reason"), f"{where}.reason")
    if (field := rule.get("fieldPath")) and not _has_field(schema, field):
        yield errors.invalid(f"{where}.fieldPath", field, "must be a valid path")
    for name, source in (("rule", text), ("messageExpression", expression)):
        try:
            check_rule(source or "true", schema, is_root=is_root)
        except RuleError as error:
            prefix = "" if name == "rule" else f"{name} "
            why = f"{prefix}compilation failed: {error}"
            yield errors.invalid(f"{where}.{name}", source, why)


def _has_field(schema: Json, path: str) -> bool:
    """Say whether a path such as `.a['b']` names a declared field."""
    steps = re.findall(r"\.(\w+)|\['([^']*)'\]", path)
    if "".join(f".{a}" if a else f"['{b}']" for a, b in steps) != path:
        return False
    for a, b in steps:
        others = schema.get("additionalProperties")
        inner = (schema.get("properties") or {}).get(a or b, others)
        if not isinstance(inner, dict):
            return False
        schema = inner
    return True


def check_schema(schema: Json, path: str, *, is_root: bool = False) -> Iterator[ErrorCause]:
    """Give what keeps a schema from being structural, and its rules from being compiled."""
    yield from broken(schema, path, _KEYWORDS)
    yield from _check_type(schema, path, is_root=is_root)
    yield from _check_items(schema, path)
    yield from _check_default(schema, path)
    yield from _check_branches(schema, path)
    for position, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        where = f"{path}.x-kubernetes-validations[{position}]"
        yield from _check_rule(rule or {}, schema, where, is_root=is_root)
    properties: Json = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    items = schema.get("items")
    if properties and others is not None:
        text = "additionalProperties and properties are mutual exclusive"
        yield errors.forbidden(f"{path}.additionalProperties", text)
    for name, field in properties.items():
        where = f"{path}.properties[{name}]"
        if name == "metadata" and (is_root or schema.get(EMBEDDED)):
            yield from _check_metadata(field or {}, where)
        else:
            yield from check_schema(field or {}, where)
    for name, inner in (("additionalProperties", others), ("items", items)):
        if isinstance(inner, dict):
            yield from check_schema(inner, f"{path}.{name}")
