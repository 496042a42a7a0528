"""CustomResourceDefinitions at creation: defaults, names, structural schema, compilable rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from lean_sandbox.local.schema import errors, names, paths, rules
from lean_sandbox.local.schema.errors import FieldError
from lean_sandbox.local.schema.metadata import validate_metadata
from lean_sandbox.local.schema.patterns import PatternError, compile_pattern
from lean_sandbox.local.schema.validation import validate

Json = dict[str, Any]

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_SCOPES = ("Cluster", "Namespaced")
_SCHEMA_PATH = "spec.validation.openAPIV3Schema"
_APPROVAL = "api-approved.kubernetes.io"
_OPEN = "x-kubernetes-preserve-unknown-fields"


def definition_defaults(crd: Json) -> None:
    """Write the defaults of a definition: singular and list names, conversion, storedVersions."""
    spec = crd.setdefault("spec", {})
    given = spec.setdefault("names", {})
    kind = given.get("kind") or ""
    if not given.get("singular"):
        given["singular"] = kind.lower()
    if not given.get("listKind") and kind:
        given["listKind"] = f"{kind}List"
    spec.setdefault("conversion", {"strategy": "None"})
    stored = [v["name"] for v in spec.get("versions") or () if v.get("storage") and v.get("name")]
    status = crd.setdefault("status", {})
    for name in stored:
        if name not in (status.get("storedVersions") or ()):
            status["storedVersions"] = [*(status.get("storedVersions") or ()), name]


def _label(value: str, path: str, *, is_mixed: bool = False) -> Iterator[FieldError]:
    if not value:
        yield errors.required(path)
        return
    prefix = "may have mixed case, but should otherwise match: " if is_mixed else ""
    for text in names.rfc1035_label_problems(value.lower() if is_mixed else value):
        yield errors.invalid(path, value, prefix + text)


def _check_names(spec: Json) -> Iterator[FieldError]:
    given: Json = spec.get("names") or {}
    path = "spec.names"
    yield from _label(given.get("plural") or "", paths.child(path, "plural"))
    yield from _label(given.get("singular") or "", paths.child(path, "singular"))
    yield from _label(given.get("kind") or "", paths.child(path, "kind"), is_mixed=True)
    yield from _label(given.get("listKind") or "", paths.child(path, "listKind"), is_mixed=True)
    for name in ("shortNames", "categories"):
        for position, value in enumerate(given.get(name) or ()):
            yield from _label(value, paths.index(paths.child(path, name), position))


def _check_group(crd: Json, spec: Json) -> Iterator[FieldError]:
    group = spec.get("group") or ""
    if not group:
        yield errors.required("spec.group")
    elif problems := names.subdomain_problems(group):
        yield from (errors.invalid("spec.group", group, text) for text in problems)
    elif "." not in group:
        yield errors.invalid("spec.group", group, "should be a domain with at least one dot")
    annotations = (crd.get("metadata") or {}).get("annotations") or {}
    if re.search(r"(^|\.)(k8s|kubernetes)\.io$", group) and _APPROVAL not in annotations:
        text = (
            f'protected groups must have approval annotation "{_APPROVAL}", '
            "see https://github.com/kubernetes/enhancements/pull/1111"
        )
        yield errors.required(f"metadata.annotations[{_APPROVAL}]", text)
    wanted = f"{(spec.get('names') or {}).get('plural', '')}.{group}"
    name = (crd.get("metadata") or {}).get("name") or ""
    if name != wanted:
        text = 'must be spec.names.plural+"."+spec.group'
        yield errors.invalid("metadata.name", name, text)


def _check_columns(version: Json, path: str) -> Iterator[FieldError]:
    for position, column in enumerate(version.get("additionalPrinterColumns") or ()):
        where = paths.index(path, position)
        if not column.get("name"):
            yield errors.required(paths.child(where, "name"))
        if (kind := column.get("type") or "") not in _COLUMN_TYPES:
            text = f"must be one of {','.join(_COLUMN_TYPES)}"
            yield errors.invalid(paths.child(where, "type"), kind, text)
        if not (path_text := column.get("jsonPath") or "").startswith("."):
            text = "must be a simple json path starting with ."
            yield errors.invalid(paths.child(where, "JSONPath"), path_text, text)


def _check_type(schema: Json, path: str, *, is_root: bool) -> Iterator[FieldError]:
    kind = schema.get("type") or ""
    where = paths.child(path, "type")
    if not kind:
        if is_root:
            yield errors.required(where, "must not be empty at the root")
        elif not (schema.get("x-kubernetes-int-or-string") or schema.get(_OPEN)):
            yield errors.required(where, "must not be empty for specified object fields")
    elif kind not in _TYPES:
        yield errors.not_supported(where, kind, _TYPES)
    elif is_root and kind != "object":
        yield errors.invalid(where, kind, "must be object at the root")


def _check_list_type(schema: Json, path: str) -> Iterator[FieldError]:
    kind = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if kind not in {None, "atomic", "set", "map"}:
        where = paths.child(path, "x-kubernetes-list-type")
        yield errors.not_supported(where, kind, ["atomic", "map", "set"])
    if kind != "map":
        return
    if not keys:
        text = "must not be empty if x-kubernetes-list-type is map"
        yield errors.required(paths.child(path, "x-kubernetes-list-map-keys"), text)
    items: Json = schema.get("items") or {}
    for key in keys:
        field = (items.get("properties") or {}).get(key)
        if field is None:
            where = paths.child(path, "x-kubernetes-list-map-keys")
            text = "entries must all be names of item properties"
            yield errors.invalid(where, key, text)
        elif "default" not in field and key not in (items.get("required") or ()):
            where = paths.child(path, f"items.properties[{key}].default")
            text = (
                "this property is in x-kubernetes-list-map-keys, "
                "so it must have a default or be a required property"
            )
            yield errors.required(where, text)


def _check_rules(schema: Json, path: str, *, is_root: bool) -> Iterator[FieldError]:
    for position, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        where = paths.index(paths.child(path, "x-kubernetes-validations"), position)
        text = rule.get("rule") or ""
        if not text.strip():
            yield errors.required(paths.child(where, "rule"), "rule is not specified")
            continue
        for name in ("rule", "messageExpression"):
            if not rule.get(name):
                continue
            try:
                rules.compile_rule(rule[name])
                rules.check_fields(rule[name], schema, is_root=is_root)
            except rules.RuleError as error:
                yield errors.invalid(paths.child(where, name), _shown_rule(rule), str(error))


def _shown_rule(rule: Json) -> Json:
    return {
        "Rule": rule.get("rule", ""),
        "Message": rule.get("message", ""),
        "MessageExpression": rule.get("messageExpression", ""),
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath", ""),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }


def _check_values(schema: Json, path: str) -> Iterator[FieldError]:
    if "default" in schema:
        for error in validate({"value": schema["default"]}, {"properties": {"value": schema}}):
            where = paths.child(path, "default")
            message = error.message.replace("value in body", " in body")
            yield FieldError(where, error.reason, message, error.bad_value)
    if pattern := schema.get("pattern"):
        try:
            compile_pattern(pattern)
        except PatternError as error:
            text = f"must be a valid regular expression, but isn't: {error}"
            yield errors.invalid(paths.child(path, "pattern"), pattern, text)
    if schema.get(_OPEN) is False:
        given = schema[_OPEN]
        yield errors.invalid(paths.child(path, _OPEN), given, "must be true or undefined")


def _check_schema(schema: Json, path: str, *, is_root: bool = False) -> Iterator[FieldError]:
    yield from _check_type(schema, path, is_root=is_root)
    yield from _check_list_type(schema, path)
    yield from _check_values(schema, path)
    yield from _check_rules(schema, path, is_root=is_root)
    properties: Json = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    if properties and (isinstance(others, dict) or others is True):
        text = "additionalProperties and properties are mutual exclusive"
        yield errors.forbidden(paths.child(path, "additionalProperties"), text)
    for name, field in properties.items():
        yield from _check_schema(field, f"{path}.properties[{name}]")
    if isinstance(others, dict):
        yield from _check_schema(others, paths.child(path, "additionalProperties"))
    items = schema.get("items")
    if schema.get("type") == "array" and items is None:
        yield errors.required(paths.child(path, "items"), "must be specified")
    if isinstance(items, dict):
        yield from _check_schema(items, paths.child(path, "items"))


def _shown_versions(versions: list[Json]) -> list[Json]:
    return [
        {
            "Name": version.get("name", ""),
            "Served": bool(version.get("served")),
            "Storage": bool(version.get("storage")),
        }
        for version in versions
    ]


@lru_cache(maxsize=32)
def _errors_of_versions(encoded: bytes) -> tuple[FieldError, ...]:
    """Return what is wrong with the versions of a spec; remembered, because schemas are large."""
    return tuple(_check_versions(msgspec.json.decode(encoded)))


def _check_versions(versions: list[Json]) -> Iterator[FieldError]:
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield errors.invalid("spec.versions", _shown_versions(versions), text)
    seen: set[str] = set()
    for position, version in enumerate(versions):
        path = paths.index("spec.versions", position)
        name = version.get("name") or ""
        yield from _label(name, paths.child(path, "name"))
        if name in seen:
            yield errors.invalid(path, name, "must contain unique version names")
        seen.add(name)
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            yield errors.required(paths.child(path, "schema.openAPIV3Schema"))
            continue
        # A server with one version reports as if the schema stood at the top of the spec.
        is_only = len(versions) == 1
        where = _SCHEMA_PATH if is_only else paths.child(path, "schema.openAPIV3Schema")
        yield from _check_schema(schema, where, is_root=True)
        columns = "spec" if is_only else path
        yield from _check_columns(version, paths.child(columns, "additionalPrinterColumns"))


def validate_definition(crd: Json, old: Json | None = None) -> list[FieldError]:
    """Return what is wrong with a CustomResourceDefinition (defaults must be in place).

    Rules are compiled, so an unknown function or a syntax error shows here and not at the first
    object. `old` is the stored definition of an update: group, scope, kind and plural must stay.
    """
    spec: Json = crd.get("spec") or {}
    found = validate_metadata(crd, old, namespaced=False)
    found += _check_group(crd, spec)
    if (scope := spec.get("scope") or "") not in _SCOPES:
        found.append(
            errors.not_supported("spec.scope", scope, _SCOPES)
            if scope
            else errors.required("spec.scope")
        )
    found += _check_names(spec)
    found += _errors_of_versions(msgspec.json.encode(spec.get("versions") or []))
    stored = (crd.get("status") or {}).get("storedVersions") or []
    if not stored:
        text = "must have at least one stored version"
        found.append(errors.invalid("status.storedVersions", None, text))
    known = {version.get("name") for version in spec.get("versions") or ()}
    for position, name in enumerate(stored):
        if name not in known:
            where = paths.index("status.storedVersions", position)
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions"
            )
            found.append(errors.invalid(where, name, text))
    if old is not None:
        found += _check_change(spec, old.get("spec") or {})
    return found


def _check_change(spec: Json, old: Json) -> Iterator[FieldError]:
    for name in ("group", "scope"):
        if spec.get(name) != old.get(name):
            yield errors.immutable(f"spec.{name}", spec.get(name))
    given, before = spec.get("names") or {}, old.get("names") or {}
    for name in ("kind", "plural"):
        if given.get(name) != before.get(name):
            yield errors.immutable(f"spec.names.{name}", given.get(name))
