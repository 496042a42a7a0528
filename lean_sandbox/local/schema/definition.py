"""CustomResourceDefinitions at creation: defaults, names, structural schema, compilable rules."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from lean_sandbox.local.errors import Cause
from lean_sandbox.local.schema import errors, names, paths
from lean_sandbox.local.schema.formats import PatternError, compile_pattern
from lean_sandbox.local.schema.metadata import validate_metadata
from lean_sandbox.local.schema.rules import check_rule
from lean_sandbox.local.schema.structural import EMBEDDED, OPEN, prune
from lean_sandbox.local.schema.validation import validate
from lean_sandbox.local.schema.views import RuleError

Json = dict[str, Any]

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_REASONS = (
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
)
_UNKNOWN_KEYWORDS = (
    *("$ref", "definitions", "id", "patternProperties", "dependencies", "additionalItems"),
)
# Within anyOf, oneOf, allOf and not these say nothing that a value could be pruned by.
_STRUCTURAL = {
    "type": "must be empty to be structural",
    "default": "must be undefined to be structural",
    "additionalProperties": "must be undefined to be structural",
    "nullable": "must be false to be structural",
}
_SELECTABLE = (
    "must point to a field of type string, boolean or integer. Enum string fields and strings with "
    "formats are allowed."
)
_SCOPES = ("Cluster", "Namespaced")
_SCHEMA_PATH = "spec.validation.openAPIV3Schema"
_APPROVAL = "api-approved.kubernetes.io"


def definition_defaults(crd: Json) -> None:
    """Write the defaults of a definition: singular and list names, conversion, storedVersions."""
    spec = crd["spec"] = crd.get("spec") or {}
    given = spec["names"] = spec.get("names") or {}
    kind = given.get("kind") or ""
    if not given.get("singular"):
        given["singular"] = kind.lower()
    if not given.get("listKind") and kind:
        given["listKind"] = f"{kind}List"
    if not spec.get("conversion"):
        spec["conversion"] = {"strategy": "None"}
    stored = [v["name"] for v in spec.get("versions") or () if v.get("storage") and v.get("name")]
    status = crd.setdefault("status", {})
    for name in stored:
        if name not in (status.get("storedVersions") or ()):
            status["storedVersions"] = [*(status.get("storedVersions") or ()), name]


def _label(value: str, path: str, *, is_mixed: bool = False) -> Iterator[Cause]:
    if not value:
        yield errors.required(path)
        return
    prefix = "may have mixed case, but should otherwise match: " if is_mixed else ""
    for text in names.rfc1035_label_problems(value.lower() if is_mixed else value):
        yield errors.invalid(path, value, prefix + text)


def _check_names(spec: Json) -> Iterator[Cause]:
    given: Json = spec.get("names") or {}
    path = "spec.names"
    yield from _label(given.get("plural") or "", paths.child(path, "plural"))
    yield from _label(given.get("singular") or "", paths.child(path, "singular"))
    yield from _label(given.get("kind") or "", paths.child(path, "kind"), is_mixed=True)
    yield from _label(given.get("listKind") or "", paths.child(path, "listKind"), is_mixed=True)
    for name in ("shortNames", "categories"):
        for position, value in enumerate(given.get(name) or ()):
            yield from _label(value, paths.index(paths.child(path, name), position))


def _check_group(crd: Json, spec: Json) -> Iterator[Cause]:
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


def _check_name(crd: Json, spec: Json) -> Iterator[Cause]:
    wanted = f"{spec['names'].get('plural', '')}.{spec.get('group') or ''}"
    name = (crd.get("metadata") or {}).get("name") or ""
    if name != wanted:
        yield errors.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _check_conversion(conversion: Json) -> Iterator[Cause]:
    path = "spec.conversion"
    strategy = conversion.get("strategy") or ""
    webhook: Json = conversion.get("webhook") or {}
    config, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    where = paths.child(path, "conversionReviewVersions")
    if not strategy:
        yield errors.required(paths.child(path, "strategy"))
    elif strategy not in ("None", "Webhook"):
        yield errors.not_supported(paths.child(path, "strategy"), strategy, ["None", "Webhook"])
    if strategy != "Webhook":
        text = "should not be set when strategy is not set to Webhook"
        if config is not None:
            yield errors.forbidden(paths.child(path, "webhookClientConfig"), text)
        if versions:
            yield errors.forbidden(where, text)
        return
    if config is None:
        text = "required when strategy is set to Webhook"
        yield errors.required(paths.child(path, "webhookClientConfig"), text)
    elif bool(config.get("url")) == bool(config.get("service")):
        text = "exactly one of url or service is required"
        yield errors.required(paths.child(path, "webhookClientConfig"), text)
    if not versions:
        yield errors.required(where)
    elif not {"v1", "v1beta1"} & set(versions):
        yield errors.invalid(where, versions, "must include at least one of v1, v1beta1")


def _check_scale(scale: Json, path: str) -> Iterator[Cause]:
    for name, parts in (
        ("specReplicasPath", ("spec",)),
        ("statusReplicasPath", ("status",)),
        ("labelSelectorPath", ("spec", "status")),
    ):
        where, value = paths.child(path, name), scale.get(name) or ""
        if not value and name != "labelSelectorPath":
            yield errors.required(where)
        elif value and not re.match(rf"\.(?:{'|'.join(parts)})\.[^\[]+$", value):
            text = f"should be a json path under {' or '.join('.' + part for part in parts)}"
            yield errors.invalid(where, value, text)


def _check_selectable(version: Json, path: str) -> Iterator[Cause]:
    root = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    seen: set[str] = set()
    for position, item in enumerate(version.get("selectableFields") or ()):
        where = paths.child(paths.index(path, position), "jsonPath")
        text = item.get("jsonPath") or ""
        if not text:
            yield errors.required(where)
        elif not text.startswith("."):
            problem = f"is an invalid path: expected [ or . but got: {text.partition('.')[0]}"
            yield errors.invalid(where, text, problem)
        elif (field := _field_at(root, text)) is None:
            problem = "is an invalid path: does not refer to a valid field"
            yield errors.invalid(where, text, problem)
        elif field.get("type") not in ("string", "boolean", "integer"):
            yield errors.invalid(where, text, _SELECTABLE)
        elif text in seen:
            yield errors.duplicate(where, text)
        seen.add(text)


def _field_at(schema: Json, path: str) -> Json | None:
    """Return the schema of a declared field; what every object has is none."""
    found: Json | None = schema
    for name in path.split(".")[1:]:
        found = ((found or {}).get("properties") or {}).get(name)
    return None if path.startswith(".metadata") else found


def _check_columns(version: Json, path: str) -> Iterator[Cause]:
    for position, column in enumerate(version.get("additionalPrinterColumns") or ()):
        where = paths.index(path, position)
        if not column.get("name"):
            yield errors.required(paths.child(where, "name"))
        if (kind := column.get("type") or "") not in _COLUMN_TYPES:
            text = f"must be one of {','.join(_COLUMN_TYPES)}"
            yield errors.invalid(paths.child(where, "type"), kind, text)
        form = column.get("format") or ""
        if form and form not in _COLUMN_FORMATS:
            text = f"must be one of {','.join(_COLUMN_FORMATS)}"
            yield errors.invalid(paths.child(where, "format"), form, text)
        if not (path_text := column.get("jsonPath") or "").startswith("."):
            text = "must be a simple json path starting with ."
            yield errors.invalid(paths.child(where, "JSONPath"), path_text, text)


def _check_type(schema: Json, path: str, *, is_root: bool) -> Iterator[Cause]:
    kind = schema.get("type") or ""
    where = paths.child(path, "type")
    if not kind:
        if is_root:
            yield errors.required(where, "must not be empty at the root")
        elif not (schema.get("x-kubernetes-int-or-string") or schema.get(OPEN)):
            yield errors.required(where, "must not be empty for specified object fields")
    elif kind not in _TYPES:
        yield errors.not_supported(where, kind, _TYPES)
    elif is_root and kind != "object":
        yield errors.invalid(where, kind, "must be object at the root")


def _check_list_type(schema: Json, path: str) -> Iterator[Cause]:
    kind = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys") or []
    items: Json = schema.get("items") or {}
    if isinstance(items, list):
        items = {}
    if kind is None:
        return
    if kind not in ("atomic", "set", "map"):
        where = paths.child(path, "x-kubernetes-list-type")
        yield errors.not_supported(where, kind, ["atomic", "set", "map"])
    if schema.get("type") != "array":
        text = "must be array if x-kubernetes-list-type is specified"
        yield errors.invalid(paths.child(path, "type"), schema.get("type") or "", text)
    if kind == "set" and items.get("type") == "object" and not _is_atomic(items):
        where = paths.child(path, "items.x-kubernetes-map-type")
        text = "must be atomic as item of a list with x-kubernetes-list-type=set"
        yield errors.invalid(where, items.get("x-kubernetes-map-type"), text)
    if kind != "map":
        return
    if not keys:
        text = "must not be empty if x-kubernetes-list-type is map"
        yield errors.required(paths.child(path, "x-kubernetes-list-map-keys"), text)
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


def _is_atomic(schema: Json) -> bool:
    return schema.get("x-kubernetes-map-type") == "atomic"


def _check_keywords(schema: Json, path: str) -> Iterator[Cause]:
    for name in _UNKNOWN_KEYWORDS:
        if schema.get(name) is not None:
            yield errors.forbidden(paths.child(path, name), f"{name} is not supported")
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield errors.forbidden(paths.child(path, "uniqueItems"), text)
    kind = schema.get("x-kubernetes-map-type")
    if kind not in (None, "atomic", "granular"):
        where = paths.child(path, "x-kubernetes-map-type")
        yield errors.not_supported(where, kind, ["atomic", "granular"])
    if schema.get(EMBEDDED):
        if not schema.get("properties") and not schema.get(OPEN):
            text = f"must not be empty if {EMBEDDED} is true without {OPEN}"
            yield errors.required(paths.child(path, "properties"), text)
        if schema.get("type") != "object":
            text = f"must be object if {EMBEDDED} is true"
            yield errors.invalid(paths.child(path, "type"), schema.get("type") or "", text)


def _check_branches(schema: Json, path: str) -> Iterator[Cause]:
    is_either = schema.get("x-kubernetes-int-or-string")
    for name in ("allOf", "anyOf", "oneOf", "not"):
        given = schema.get(name)
        branches = [given] if isinstance(given, dict) else given or []
        for position, branch in enumerate(branches):
            where = paths.child(path, name)
            where = where if name == "not" else paths.index(where, position)
            if not is_either:
                yield from _check_branch(branch or {}, where)


def _check_branch(branch: Json, path: str) -> Iterator[Cause]:
    for name, text in _STRUCTURAL.items():
        if branch.get(name):
            yield errors.forbidden(paths.child(path, name), text)
    yield from _check_pattern(branch, path)
    yield from _check_branches(branch, path)
    for name, field in (branch.get("properties") or {}).items():
        yield from _check_branch(field or {}, f"{path}.properties[{name}]")


def _check_metadata(schema: Json, path: str) -> Iterator[Cause]:
    field = (schema.get("properties") or {}).get("metadata") or {}
    where = f"{path}.properties[metadata]"
    if field.get("type") not in (None, "object"):
        yield errors.invalid(paths.child(where, "type"), field["type"], "must be object")
    if set(field.get("properties") or ()) - {"name", "generateName"}:
        text = "must not specify anything other than name and generateName"
        yield errors.forbidden(where, f"{text}, but metadata is implicitly specified")


def _check_rules(schema: Json, path: str, *, is_root: bool) -> Iterator[Cause]:
    for position, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        where = paths.index(paths.child(path, "x-kubernetes-validations"), position)
        yield from _check_rule(rule or {}, schema, where, is_root=is_root)


def _check_rule(rule: Json, schema: Json, where: str, *, is_root: bool) -> Iterator[Cause]:
    text, expression = rule.get("rule") or "", rule.get("messageExpression") or ""
    if not text.strip():
        yield errors.required(paths.child(where, "rule"), "rule is not specified")
        return
    if "\n" in (message := rule.get("message") or ""):
        named = paths.child(where, "message")
        yield errors.invalid(named, message, "must not contain line breaks")
    if expression and not expression.strip():
        named = paths.child(where, "messageExpression")
        yield errors.required(named, "messageExpression must be non-empty if specified")
        expression = ""
    if (reason := rule.get("reason")) not in (None, *_REASONS):
        yield errors.not_supported(paths.child(where, "reason"), reason, _REASONS)
    if (field := rule.get("fieldPath")) and not _has_field(schema, field):
        yield errors.invalid(paths.child(where, "fieldPath"), field, "must be a valid path")
    for name, source, prefix in (
        ("rule", text, ""),
        ("messageExpression", expression, "messageExpression "),
    ):
        if not source:
            continue
        try:
            check_rule(source, schema, is_root=is_root)
        except RuleError as error:
            why = f"{prefix}compilation failed: {error}"
            yield errors.invalid(paths.child(where, name), _shown_rule(rule), why)


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


def _shown_rule(rule: Json) -> Json:
    return {
        "Rule": rule.get("rule", ""),
        "Message": rule.get("message", ""),
        "MessageExpression": rule.get("messageExpression", ""),
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath", ""),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }


def _check_values(schema: Json, path: str) -> Iterator[Cause]:
    if "default" in schema:
        for error in validate({"value": schema["default"]}, {"properties": {"value": schema}}):
            where = paths.child(path, "default")
            message = error.message.replace("value in body", " in body")
            yield Cause(error.reason, message, where)
        if prune({"value": copy.deepcopy(schema["default"])}, {"properties": {"value": schema}}):
            where = paths.child(path, "default")
            yield errors.invalid(where, schema["default"], "must not have unknown fields")
    yield from _check_pattern(schema, path)
    if schema.get(OPEN) is False:
        given = schema[OPEN]
        yield errors.invalid(paths.child(path, OPEN), given, "must be true or undefined")


def _check_pattern(schema: Json, path: str) -> Iterator[Cause]:
    if pattern := schema.get("pattern"):
        try:
            compile_pattern(pattern)
        except PatternError as error:
            text = f"must be a valid regular expression, but isn't: {error}"
            yield errors.invalid(paths.child(path, "pattern"), pattern, text)


def _check_schema(schema: Json, path: str, *, is_root: bool = False) -> Iterator[Cause]:
    yield from _check_type(schema, path, is_root=is_root)
    yield from _check_list_type(schema, path)
    yield from _check_values(schema, path)
    yield from _check_rules(schema, path, is_root=is_root)
    yield from _check_keywords(schema, path)
    yield from _check_branches(schema, path)
    if is_root or schema.get(EMBEDDED):
        yield from _check_metadata(schema, path)
    properties: Json = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    if properties and others is not None:
        text = "additionalProperties and properties are mutual exclusive"
        yield errors.forbidden(paths.child(path, "additionalProperties"), text)
    for name, field in properties.items():
        if not (name == "metadata" and (is_root or schema.get(EMBEDDED))):
            yield from _check_schema(field or {}, f"{path}.properties[{name}]")
    if isinstance(others, dict):
        yield from _check_schema(others, paths.child(path, "additionalProperties"))
    items = schema.get("items")
    if schema.get("type") == "array" and items is None:
        yield errors.required(paths.child(path, "items"), "must be specified")
    if isinstance(items, list):
        text = "items must be a schema object and not an array"
        yield errors.forbidden(paths.child(path, "items"), text)
    if isinstance(items, dict):
        yield from _check_schema(items, paths.child(path, "items"))


def _shown_versions(versions: list[Json]) -> list[Json] | None:
    unset = ("Schema", "Subresources", "AdditionalPrinterColumns", "SelectableFields")
    return [
        {
            "Name": version.get("name", ""),
            "Served": bool(version.get("served")),
            "Storage": bool(version.get("storage")),
            "Deprecated": bool(version.get("deprecated")),
            "DeprecationWarning": version.get("deprecationWarning"),
            **dict.fromkeys(unset),
        }
        for version in versions
    ] or None


@lru_cache(maxsize=32)
def _errors_of_versions(encoded: bytes) -> tuple[Cause, ...]:
    """Return what is wrong with the versions of a spec; remembered, because schemas are large."""
    return tuple(_check_versions(msgspec.json.decode(encoded)))


def _check_versions(versions: list[Json]) -> Iterator[Cause]:
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield errors.invalid("spec.versions", _shown_versions(versions), text)
    seen: set[str] = set()
    for position, version in enumerate(versions):
        path = paths.index("spec.versions", position)
        name = version.get("name") or ""
        for text in names.rfc1035_label_problems(name):
            yield errors.invalid(paths.child(path, "name"), name, text)
        if name in seen:
            yield errors.invalid(path, name, "must contain unique version names")
        seen.add(name)
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            yield errors.required(paths.child(path, "schema.openAPIV3Schema"))
            continue
        # A server with one version reports as if all of it stood at the top of the spec.
        is_only = len(versions) == 1
        where = _SCHEMA_PATH if is_only else paths.child(path, "schema.openAPIV3Schema")
        yield from _check_schema(schema, where, is_root=True)
        top = "spec" if is_only else path
        yield from _check_columns(version, paths.child(top, "additionalPrinterColumns"))
        yield from _check_selectable(version, paths.child(top, "selectableFields"))
        scale = (version.get("subresources") or {}).get("scale")
        if scale is not None:
            yield from _check_scale(scale, paths.child(top, "subresources.scale"))
        if (warning := version.get("deprecationWarning")) is not None:
            named = paths.child(path, "deprecationWarning")
            if not version.get("deprecated"):
                yield errors.invalid(named, warning, "can only be set for deprecated versions")
            elif not warning:
                yield errors.invalid(named, warning, "must not be an empty string")


def validate_definition(crd: Json, old: Json | None = None) -> list[Cause]:
    """Return what is wrong with a CustomResourceDefinition (defaults must be in place).

    Rules are compiled, so an unknown function or a syntax error shows here and not at the first
    object. `old` is the stored definition of an update: group, scope, kind and plural must stay.
    """
    spec: Json = crd.get("spec") or {}
    found = validate_metadata(crd, old, namespaced=False)
    found += _check_group(crd, spec)
    if old is None:
        found += _check_name(crd, spec)
    if spec.get("preserveUnknownFields"):
        text = f"cannot set to true, set {OPEN} to true in spec.versions[*].schema instead"
        found.append(errors.invalid("spec.preserveUnknownFields", True, text))  # noqa: FBT003
    found += _check_conversion(spec.get("conversion") or {})
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


def _check_change(spec: Json, old: Json) -> Iterator[Cause]:
    for name in ("group", "scope"):
        if spec.get(name) != old.get(name):
            yield errors.immutable(f"spec.{name}", spec.get(name) or "")
    given, before = spec.get("names") or {}, old.get("names") or {}
    for name in ("kind", "plural"):
        if given.get(name) != before.get(name):
            yield errors.immutable(f"spec.names.{name}", given.get(name) or "")
