"""Schemas in CustomResourceDefinitions: whether they are structural, and their rules compile.

An unknown function or a syntax error of a rule shows here and not at the first object.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.causes import Check, broken, needed, never, one_of, prohibited
from lean_sandbox.local.schema.expressions import RuleError
from lean_sandbox.local.schema.rules import RuleSet, check_rule
from lean_sandbox.local.schema.structural import (
    EMBEDDED,
    INT_OR_STRING,
    OPEN,
    PatternError,
    compile_pattern,
    prune,
)
from lean_sandbox.local.schema.validation import check_value

Json = dict[str, Any]

_reason: Final = one_of(
    *(f"FieldValue{word}" for word in ("Duplicate", "Forbidden", "Invalid", "Required"))
)


def _unset(text: str) -> Check:
    """Return a check that nothing is said but what is empty."""

    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        if value:
            yield causes.forbidden(where, text)

    return check


def _pattern(pattern: Any, where: str) -> Iterator[ErrorCause]:
    try:
        compile_pattern(pattern or "")
    except PatternError as error:
        text = f"must be a valid regular expression, but isn't: {error}"
        yield causes.invalid(where, pattern, text)


_UNKNOWN: Final = (
    *(
        "$schema",
        "$ref",
        "definitions",
        "id",
        "patternProperties",
        "dependencies",
        "additionalItems",
    ),
)
_KEYWORDS: Final[Json] = {
    **{name: prohibited(f"{name} is not supported") for name in _UNKNOWN},
    "uniqueItems": _unset(
        "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
    ),
    "pattern": _pattern,
    "type": one_of("array", "boolean", "integer", "number", "object", "string"),
    "x-kubernetes-list-type": one_of("atomic", "set", "map"),
    "x-kubernetes-map-type": one_of("atomic", "granular"),
    OPEN: never(lambda value: value is False, "must be true or undefined"),
}
_RULES: Final = "x-kubernetes-validations"
_LIST_TYPE: Final = "x-kubernetes-list-type"
_LIST_KEYS: Final = "x-kubernetes-list-map-keys"
_MAP_TYPE: Final = "x-kubernetes-map-type"
_EITHER: Final = "x-kubernetes-int-or-string"
# Within anyOf, oneOf, allOf and not these say nothing that a value could be pruned by.
_BRANCH: Final[Json] = {
    **dict.fromkeys(
        ("type", "title", "description", _LIST_KEYS, _RULES),
        _unset("must be empty to be structural"),
    ),
    **dict.fromkeys(
        ("default", "additionalProperties", _LIST_TYPE, _MAP_TYPE),
        _unset("must be undefined to be structural"),
    ),
    **dict.fromkeys(
        ("nullable", OPEN, EMBEDDED, _EITHER), _unset("must be false to be structural")
    ),
    "pattern": _pattern,
}


def _check_type(schema: Json, path: str, of: str = "object fields") -> Iterator[ErrorCause]:
    """Check the type of a schema of the root, or of object fields or array items."""
    is_root = not of
    kind = schema.get("type") or ""
    where = f"{path}.type"
    if not kind and is_root:
        yield causes.required(where, "must not be empty at the root")
    elif not (kind or schema.get(_EITHER) or schema.get(OPEN) or "$ref" in schema):
        yield causes.required(where, f"must not be empty for specified {of}")
    elif is_root and kind and kind != "object":
        yield causes.invalid(where, kind, "must be object at the root")
    elif schema.get(EMBEDDED) and kind != "object":
        yield causes.invalid(where, kind, f"must be object if {EMBEDDED} is true")
    for name, wanted in ((_LIST_TYPE, "array"), (_MAP_TYPE, "object")):
        if kind and kind != wanted and schema.get(name):
            yield causes.invalid(where, kind, f"must be {wanted} if {name} is specified")
    if is_root and schema.get("nullable"):
        yield causes.forbidden(f"{path}.nullable", "nullable cannot be true at the root")
    if schema.get(_LIST_KEYS) and schema.get(_LIST_TYPE) != "map":
        text = f"must be map if {_LIST_KEYS} is non-empty"
        yield causes.required(f"{path}.{_LIST_TYPE}", text)
    if schema.get(EMBEDDED) and not schema.get("properties") and not schema.get(OPEN):
        text = f"must not be empty if {EMBEDDED} is true without {OPEN}"
        yield causes.required(f"{path}.properties", text)


def _check_items(schema: Json, path: str) -> Iterator[ErrorCause]:
    items = schema.get("items")
    kind = schema.get("x-kubernetes-list-type")
    if schema.get("type") == "array" and items is None:
        yield causes.required(f"{path}.items", "must be specified")
    if isinstance(items, list):
        text = "items must be a schema object and not an array"
        yield causes.forbidden(f"{path}.items", text)
    if not isinstance(items, dict):
        items = {}
    map_type = items.get("x-kubernetes-map-type")
    if kind == "set" and items.get("type") == "object" and map_type != "atomic":
        text = "must be atomic as item of a list with x-kubernetes-list-type=set"
        yield causes.invalid(f"{path}.items.x-kubernetes-map-type", map_type, text)
    if kind in ("map", "set") and items.get("nullable"):
        text = f"cannot be nullable when x-kubernetes-list-type is {kind}"
        yield causes.forbidden(f"{path}.items.nullable", text)
    if kind == "map" and (found := items.get("type")) != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        yield causes.invalid(f"{path}.items.type", found, text)
    elif kind == "map":
        yield from _check_keys(schema.get("x-kubernetes-list-map-keys") or [], items, path)


def _check_keys(keys: list[str], items: Json, path: str) -> Iterator[ErrorCause]:
    where = f"{path}.x-kubernetes-list-map-keys"
    yield from needed("must not be empty if x-kubernetes-list-type is map")(keys, where)
    if len(set(keys)) < len(keys):
        yield causes.invalid(where, keys, "must not contain duplicate entries")
    for key in dict.fromkeys(keys):
        field = (items.get("properties") or {}).get(key)
        if field is None:
            yield causes.invalid(where, key, "entries must all be names of item properties")
        elif "default" not in field and key not in (items.get("required") or ()):
            text = (
                "this property is in x-kubernetes-list-map-keys, "
                "so it must have a default or be a required property"
            )
            yield causes.required(f"{path}.items.properties[{key}].default", text)
        elif field.get("type") in ("array", "object"):
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield causes.invalid(f"{path}.items.properties[{key}].type", field["type"], text)


def _check_default(schema: Json, path: str, *, is_unchecked: bool) -> Iterator[ErrorCause]:
    if "default" not in schema:
        return
    where = f"{path}.default"
    given = schema["default"]
    # A null that is not allowed is dropped where the default is written.
    if given is not None:
        # That it is an integer or a string is left to the part of the schema that lists these.
        listed = {**schema, _EITHER: False}
        # A pattern or rule that cannot be compiled is told where it stands.
        with suppress(PatternError, RuleError):
            for error in check_value(given, listed):
                inner = error.field.removeprefix("<nil>")
                yield error._replace(field=f"{where}.{inner}" if inner else where)
            if not is_unchecked:
                yield from RuleSet(schema).check(given, path=where)
    around = {"properties": {"value": schema}}
    if prune(copy.deepcopy({"value": given}), around):
        yield causes.invalid(where, schema["default"], "must not have unknown fields")


def _check_branches(schema: Json, path: str) -> Iterator[ErrorCause]:
    for name in ("allOf", "anyOf", "oneOf"):
        branches = schema.get(name) or []
        if schema.get(_EITHER) and name == "anyOf" and branches == INT_OR_STRING:
            continue
        for position, branch in enumerate(branches):
            is_form = position == 0 and name == "allOf" and branch == {"anyOf": INT_OR_STRING}
            if not (schema.get(_EITHER) and is_form):
                yield from _check_branch(branch or {}, f"{path}.{name}[{position}]")
    yield from _check_branch(schema.get("not") or {}, f"{path}.not")


def _check_branch(branch: Json, path: str) -> Iterator[ErrorCause]:
    yield from broken(branch, path, _BRANCH)
    if branch:
        yield from _check_branches(branch, path)
    if isinstance(branch.get("items"), dict):
        yield from _check_branch(branch["items"], f"{path}.items")
    for name, field in (branch.get("properties") or {}).items():
        if name == "metadata":
            text = "must not be specified in a nested context"
            yield causes.forbidden(f"{path}.properties[metadata]", text)
        yield from _check_branch(field or {}, f"{path}.properties[{name}]")


def _check_metadata(field: Json, where: str) -> Iterator[ErrorCause]:
    if field.get("type") not in (None, "object"):
        yield causes.invalid(f"{where}.type", field["type"], "must be object")
    if "default" in field:
        yield causes.forbidden(f"{where}.default", "must not be set in top-level metadata")
    if field.get(_RULES) or set(field.get("properties") or ()) - {"name", "generateName"}:
        text = "must not specify anything other than name and generateName"
        yield causes.forbidden(where, f"{text}, but metadata is implicitly specified")


# How Go shows a rule: our names, its names, and what is there if nothing is said.
_SHOWN_RULE: Final = (
    ("rule", "Rule", ""),
    ("message", "Message", ""),
    ("messageExpression", "MessageExpression", ""),
    ("reason", "Reason", None),
    ("fieldPath", "FieldPath", ""),
    ("optionalOldSelf", "OptionalOldSelf", None),
)


def _check_rule(rule: Json, schema: Json, where: str, *, is_root: bool) -> Iterator[ErrorCause]:
    text = rule.get("rule") or ""
    expression = rule.get("messageExpression") or ""
    if not text.strip():
        yield causes.required(f"{where}.rule", "rule is not specified")
        return
    message = rule.get("message") or ""
    if "\n" in message:
        yield causes.invalid(f"{where}.message", message, "must not contain line breaks")
    elif message and not message.strip():
        yield causes.invalid(f"{where}.message", message, "must be non-empty if specified")
    if (optional := rule.get("optionalOldSelf")) is not None and "oldSelf" not in text:
        problem = "may not be set if oldSelf is not used in rule"
        yield causes.invalid(f"{where}.optionalOldSelf", optional, problem)
    if expression and not expression.strip():
        problem = "messageExpression must be non-empty if specified"
        yield causes.required(f"{where}.messageExpression", problem)
        expression = ""
    yield from _reason(rule.get("reason"), f"{where}.reason")
    if (field := rule.get("fieldPath")) and not _has_field(schema, field):
        yield causes.invalid(f"{where}.fieldPath", field, "must be a valid path")
    for name, source in (("rule", text), ("messageExpression", expression)):
        try:
            check_rule(source or "true", schema, is_root=is_root)
        except RuleError as error:
            what = "" if name == "rule" else f"{name} "
            shown = {shown: rule.get(key) or empty for key, shown, empty in _SHOWN_RULE}
            yield causes.invalid(f"{where}.{name}", shown, f"{what}compilation failed: {error}")


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


def check_schema(schema: Json, path: str, of: str = "") -> Iterator[ErrorCause]:
    """Give what keeps a schema from being structural, and its rules from being compiled.

    It is that of the root, or ``of`` object fields or array items.
    """
    is_root = not of
    yield from broken(schema, path, _KEYWORDS)
    yield from _check_type(schema, path, of)
    yield from _check_items(schema, path)
    rules = [
        error
        for position, rule in enumerate(schema.get(_RULES) or ())
        for error in _check_rule(
            rule or {}, schema, f"{path}.{_RULES}[{position}]", is_root=is_root
        )
    ]
    yield from rules
    yield from _check_default(schema, path, is_unchecked=bool(rules))
    yield from _check_branches(schema, path)
    properties: Json = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    items = schema.get("items")
    if is_root and others is not None:
        yield causes.forbidden(f"{path}.additionalProperties", "must not be used at the root")
    elif properties and others not in (None, True):
        text = "additionalProperties and properties are mutual exclusive"
        yield causes.forbidden(f"{path}.additionalProperties", text)
    for name, field in properties.items():
        where = f"{path}.properties[{name}]"
        if name == "metadata" and is_root:
            yield from _check_metadata(field or {}, where)
            continue
        kind = (field or {}).get("type")
        if name in ("apiVersion", "kind") and is_root and kind not in (None, "string"):
            yield causes.invalid(f"{where}.type", kind, "must be string")
        yield from check_schema(field or {}, where, "object fields")
    if isinstance(others, dict):
        yield from check_schema(others, f"{path}.additionalProperties", "object fields")
    if isinstance(items, dict):
        yield from check_schema(items, f"{path}.items", "array items")
