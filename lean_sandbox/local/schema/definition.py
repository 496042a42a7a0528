"""CustomResourceDefinitions: what they may say, and whether their schemas are structural.

Rules are compiled, so an unknown function or a syntax error shows here and not at the first object.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.causes import Check, broken, named, needed, never, one_of
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

# ------------------------------------------------------------------ schemas

_reason: Final = one_of(
    *(f"FieldValue{word}" for word in ("Duplicate", "Forbidden", "Invalid", "Required"))
)


def _unset(text: str, *, is_absent: bool = False) -> Check:
    """Return a check that nothing is said, ``false`` included if ``is_absent``."""

    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        if value or (is_absent and value is not None):
            yield causes.forbidden(where, text)

    return check


def _pattern(pattern: Any, where: str) -> Iterator[ErrorCause]:
    try:
        compile_pattern(pattern or "")
    except PatternError as error:
        text = f"must be a valid regular expression, but isn't: {error}"
        yield causes.invalid(where, pattern, text)


_UNKNOWN: Final = (
    *("$ref", "definitions", "id", "patternProperties", "dependencies", "additionalItems"),
)
_KEYWORDS: Final[Json] = {
    **{name: _unset(f"{name} is not supported", is_absent=True) for name in _UNKNOWN},
    "uniqueItems": _unset(
        "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
    ),
    "pattern": _pattern,
    "type": one_of("array", "boolean", "integer", "number", "object", "string"),
    "x-kubernetes-list-type": one_of("atomic", "set", "map"),
    "x-kubernetes-map-type": one_of("atomic", "granular"),
    OPEN: never(lambda value: value is False, "must be true or undefined"),
}
# Within anyOf, oneOf, allOf and not these say nothing that a value could be pruned by.
_BRANCH: Final[Json] = {
    "type": _unset("must be empty to be structural"),
    "default": _unset("must be undefined to be structural"),
    "additionalProperties": _unset("must be undefined to be structural"),
    "nullable": _unset("must be false to be structural"),
    "pattern": _pattern,
}


def _check_type(schema: Json, path: str, *, is_root: bool) -> Iterator[ErrorCause]:
    kind = schema.get("type") or ""
    where = f"{path}.type"
    if not kind and is_root:
        yield causes.required(where, "must not be empty at the root")
    elif not kind and not (schema.get("x-kubernetes-int-or-string") or schema.get(OPEN)):
        yield causes.required(where, "must not be empty for specified object fields")
    elif is_root and kind and kind != "object":
        yield causes.invalid(where, kind, "must be object at the root")
    elif schema.get(EMBEDDED) and kind != "object":
        yield causes.invalid(where, kind, f"must be object if {EMBEDDED} is true")
    elif kind != "array" and schema.get("x-kubernetes-list-type"):
        text = "must be array if x-kubernetes-list-type is specified"
        yield causes.invalid(where, kind, text)
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
    if kind == "map":
        yield from _check_keys(schema.get("x-kubernetes-list-map-keys") or [], items, path)


def _check_keys(keys: list[str], items: Json, path: str) -> Iterator[ErrorCause]:
    where = f"{path}.x-kubernetes-list-map-keys"
    yield from needed("must not be empty if x-kubernetes-list-type is map")(keys, where)
    for key in keys:
        field = (items.get("properties") or {}).get(key)
        if field is None:
            yield causes.invalid(where, key, "entries must all be names of item properties")
        elif "default" not in field and key not in (items.get("required") or ()):
            text = (
                "this property is in x-kubernetes-list-map-keys, "
                "so it must have a default or be a required property"
            )
            yield causes.required(f"{path}.items.properties[{key}].default", text)


def _check_default(schema: Json, path: str) -> Iterator[ErrorCause]:
    if "default" not in schema:
        return
    where = f"{path}.default"
    given = {"value": schema["default"]}
    around = {"properties": {"value": schema}}
    for error in validate(given, around):
        yield ErrorCause(error.reason, error.message.replace("value in body", " in body"), where)
    if prune(copy.deepcopy(given), around):
        yield causes.invalid(where, schema["default"], "must not have unknown fields")


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
        yield causes.invalid(f"{where}.type", field["type"], "must be object")
    if set(field.get("properties") or ()) - {"name", "generateName"}:
        text = "must not specify anything other than name and generateName"
        yield causes.forbidden(where, f"{text}, but metadata is implicitly specified")


def _check_rule(rule: Json, schema: Json, where: str, *, is_root: bool) -> Iterator[ErrorCause]:
    text = rule.get("rule") or ""
    expression = rule.get("messageExpression") or ""
    if not text.strip():
        yield causes.required(f"{where}.rule", "rule is not specified")
        return
    if "\n" in (message := rule.get("message") or ""):
        yield causes.invalid(f"{where}.message", message, "must not contain line breaks")
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
            yield causes.invalid(f"{where}.{name}", source, f"{what}compilation failed: {error}")


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
        yield causes.forbidden(f"{path}.additionalProperties", text)
    for name, field in properties.items():
        where = f"{path}.properties[{name}]"
        if name == "metadata" and (is_root or schema.get(EMBEDDED)):
            yield from _check_metadata(field or {}, where)
        else:
            yield from check_schema(field or {}, where)
    for name, inner in (("additionalProperties", others), ("items", items)):
        if isinstance(inner, dict):
            yield from check_schema(inner, f"{path}.{name}")


# ------------------------------------------------------------------ names

_APPROVAL: Final = "api-approved.kubernetes.io"


def _mixed_case(text: str) -> list[str]:
    prefix = "may have mixed case, but should otherwise match: "
    return [prefix + problem for problem in causes.rfc1035_label_problems(text.lower())]


def _group(group: Any, where: str) -> Iterator[ErrorCause]:
    yield from needed()(group, where)
    problems = causes.subdomain_problems(group) if group else []
    yield from (causes.invalid(where, group, text) for text in problems)
    if group and not problems and "." not in group:
        yield causes.invalid(where, group, "should be a domain with at least one dot")


def _check_name(crd: Json) -> Iterator[ErrorCause]:
    spec: Json = crd["spec"]
    group = spec.get("group") or ""
    name = crd["metadata"].get("name") or ""
    if name != f"{spec['names'].get('plural', '')}.{group}":
        yield causes.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _check_approval(crd: Json) -> Iterator[ErrorCause]:
    is_protected = re.search(r"(^|\.)(k8s|kubernetes)\.io$", crd["spec"].get("group") or "")
    if is_protected and _APPROVAL not in (crd["metadata"].get("annotations") or {}):
        text = (
            f'protected groups must have approval annotation "{_APPROVAL}", '
            "see https://github.com/kubernetes/enhancements/pull/1111"
        )
        yield causes.required(f"metadata.annotations[{_APPROVAL}]", text)


_LABEL: Final = (needed(), named(causes.rfc1035_label_problems))
_MIXED: Final = (needed(), named(_mixed_case))
_SPEC: Final[Json] = {
    "group": _group,
    "preserveUnknownFields": never(
        bool, f"cannot set to true, set {OPEN} to true in spec.versions[*].schema instead"
    ),
    "conversion": {"strategy": (needed(), one_of("None", "Webhook"))},
    "scope": (needed(), one_of("Cluster", "Namespaced")),
    "names": {
        "plural": _LABEL,
        "singular": _LABEL,
        "kind": _MIXED,
        "listKind": _MIXED,
        "shortNames[*]": _LABEL,
        "categories[*]": _LABEL,
    },
}


# ------------------------------------------------------------------ versions


def _below(*parents: str) -> causes.NameRule:
    """Return a rule for paths of fields below some parents."""
    shown = " or ".join(f".{parent}" for parent in parents)
    pattern = rf"\.(?:{'|'.join(parents)})\.[^\[]+$"
    return lambda text: [] if re.match(pattern, text) else [f"should be a json path under {shown}"]


def _word(*allowed: str, is_needed: bool = False) -> Check:
    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        if (value or is_needed) and value not in allowed:
            yield causes.invalid(where, value or "", f"must be one of {','.join(allowed)}")

    return check


def _column_path(column: Json, where: str) -> Iterator[ErrorCause]:
    path = column.get("jsonPath") or ""
    if not path.startswith("."):
        text = "must be a simple json path starting with ."
        yield causes.invalid(f"{where}.JSONPath", path, text)


_VERSION: Final[Json] = {
    "additionalPrinterColumns[*]": (
        _column_path,
        {
            "name": needed(),
            "type": _word("boolean", "date", "integer", "number", "string", is_needed=True),
            "format": _word(
                *("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
            ),
        },
    ),
    "subresources": {
        "scale": {
            "specReplicasPath": (needed(), named(_below("spec"))),
            "statusReplicasPath": (needed(), named(_below("status"))),
            "labelSelectorPath": named(_below("spec", "status")),
        }
    },
}


def _check_selectable(version: Json, path: str) -> Iterator[ErrorCause]:
    root = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    for position, item in enumerate(version.get("selectableFields") or ()):
        where = f"{path}[{position}].jsonPath"
        text = item.get("jsonPath") or ""
        field = _field_at(root, text)
        if field is None:
            problem = "is an invalid path: does not refer to a valid field"
            yield causes.invalid(where, text, problem)
        elif field.get("type") not in ("string", "boolean", "integer"):
            problem = (
                "must point to a field of type string, boolean or integer. Enum string fields and"
                " strings with formats are allowed."
            )
            yield causes.invalid(where, text, problem)


def _field_at(schema: Json, path: str) -> Json | None:
    """Return the schema of a declared field; what every object has is none."""
    found: Json | None = schema
    for name in path.split(".")[1:]:
        found = ((found or {}).get("properties") or {}).get(name)
    return None if path.startswith(".metadata") else found


def _check_versions(versions: list[Json]) -> Iterator[ErrorCause]:
    given = [version.get("name") or "" for version in versions]
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield causes.invalid("spec.versions", given, text)
    for position, version in enumerate(versions):
        path = f"spec.versions[{position}]"
        for text in causes.rfc1035_label_problems(given[position]):
            yield causes.invalid(f"{path}.name", given[position], text)
        if given[position] in given[:position]:
            yield causes.invalid(path, given[position], "must contain unique version names")
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            yield causes.required(f"{path}.schema.openAPIV3Schema")
            continue
        # A server with one version reports as if all of it stood at the top of the spec.
        is_only = len(versions) == 1
        top = "spec" if is_only else path
        where = f"{top}.{'validation' if is_only else 'schema'}.openAPIV3Schema"
        yield from check_schema(schema, where, is_root=True)
        yield from broken(version, top, _VERSION)
        yield from _check_selectable(version, f"{top}.selectableFields")


# ------------------------------------------------------------------ the whole


def check_definition(crd: Json, _where: str = "") -> Iterator[ErrorCause]:
    """Give what is wrong with a CustomResourceDefinition (defaults must be in place)."""
    spec: Json = crd["spec"]
    yield from broken(spec, "spec", _SPEC)
    yield from _check_name(crd)
    yield from _check_approval(crd)
    yield from _check_versions(spec.get("versions") or [])
    yield from _check_stored(crd)


def _check_stored(crd: Json) -> Iterator[ErrorCause]:
    stored = (crd.get("status") or {}).get("storedVersions") or []
    if not stored:
        text = "must have at least one stored version"
        yield causes.invalid("status.storedVersions", None, text)
    known = {version.get("name") for version in crd["spec"].get("versions") or ()}
    for position, name in enumerate(stored):
        if name not in known:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions"
            )
            yield causes.invalid(f"status.storedVersions[{position}]", name, text)


def check_definition_change(crd: Json, before: Json) -> Iterator[ErrorCause]:
    """Give what is wrong with a change: group, scope, kind and plural must stay."""
    spec = crd["spec"]
    old = before["spec"]
    for name in ("group", "scope"):
        if spec.get(name) != old.get(name):
            yield causes.immutable(f"spec.{name}", spec.get(name) or "")
    for name in ("kind", "plural"):
        if spec["names"].get(name) != old["names"].get(name):
            yield causes.immutable(f"spec.names.{name}", spec["names"].get(name) or "")
