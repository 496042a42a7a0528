"""CustomResourceDefinitions: defaults, names, versions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import checks, errors
from lean_sandbox.local.schema.checks import Check, broken, named, needed, one_of
from lean_sandbox.local.schema.definedschema import check_schema
from lean_sandbox.local.schema.structural import OPEN

Json = dict[str, Any]

_APPROVAL: Final = "api-approved.kubernetes.io"
_COLUMN_FORMATS: Final = (
    *("byte", "date", "date-time", "double", "float", "int32", "int64", "password"),
)


# ------------------------------------------------------------------ names


def _mixed_case(text: str) -> list[str]:
    prefix = "may have mixed case, but should otherwise match: "
    return [prefix + problem for problem in checks.rfc1035_label_problems(text.lower())]


def _group(group: Any, where: str) -> Iterator[ErrorCause]:
    yield from needed()(group, where)
    problems = checks.subdomain_problems(group) if group else []
    yield from (errors.invalid(where, group, text) for text in problems)
    if group and not problems and "." not in group:
        yield errors.invalid(where, group, "should be a domain with at least one dot")


def _check_name(crd: Json) -> Iterator[ErrorCause]:
    spec: Json = crd["spec"]
    group = spec.get("group") or ""
    name = crd["metadata"].get("name") or ""
    if name != f"{spec['names'].get('plural', '')}.{group}":
        yield errors.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _check_approval(crd: Json) -> Iterator[ErrorCause]:
    group = crd["spec"].get("group") or ""
    is_protected = re.search(r"(^|\.)(k8s|kubernetes)\.io$", group)
    if is_protected and _APPROVAL not in (crd["metadata"].get("annotations") or {}):
        text = (
            f'protected groups must have approval annotation "{_APPROVAL}", '
            "see https://github.com/kubernetes/enhancements/pull/1111"
        )
        yield errors.required(f"metadata.annotations[{_APPROVAL}]", text)


def _conversion(conversion: Any, where: str) -> Iterator[ErrorCause]:
    webhook: Json = conversion.get("webhook") or {}
    versions = webhook.get("conversionReviewVersions") or []
    given = {"webhookClientConfig": webhook.get("clientConfig") is not None}
    given["conversionReviewVersions"] = bool(versions)
    for name, is_given in given.items():
        if conversion.get("strategy") != "Webhook":
            if is_given:
                text = "should not be set when strategy is not set to Webhook"
                yield errors.forbidden(f"{where}.{name}", text)
        elif not is_given:
            text = "required when strategy is set to Webhook"
            yield errors.required(f"{where}.{name}", text)
    if versions and not {"v1", "v1beta1"} & set(versions):
        text = "must include at least one of v1, v1beta1"
        yield errors.invalid(f"{where}.conversionReviewVersions", versions, text)


def _not_preserved(value: Any, where: str) -> Iterator[ErrorCause]:
    if value:
        text = f"cannot set to true, set {OPEN} to true in spec.versions[*].schema instead"
        yield errors.invalid(where, value, text)


_LABEL: Final = (needed(), named(checks.rfc1035_label_problems))
_MIXED: Final = (needed(), named(_mixed_case))
_SPEC: Final[Json] = {
    "group": _group,
    "preserveUnknownFields": _not_preserved,
    "conversion": (_conversion, {"strategy": (needed(), one_of("None", "Webhook"))}),
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


def _below(*parents: str) -> checks.NameRule:
    """Return a rule for paths of fields below some parents."""
    shown = " or ".join(f".{parent}" for parent in parents)
    pattern = rf"\.(?:{'|'.join(parents)})\.[^\[]+$"
    return lambda text: [] if re.match(pattern, text) else [f"should be a json path under {shown}"]


def _word(*allowed: str, is_needed: bool = False) -> Check:
    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        if (value or is_needed) and value not in allowed:
            yield errors.invalid(where, value or "", f"must be one of {','.join(allowed)}")

    return check


def _column_path(column: Json, where: str) -> Iterator[ErrorCause]:
    path = column.get("jsonPath") or ""
    if not path.startswith("."):
        text = "must be a simple json path starting with ."
        yield errors.invalid(f"{where}.JSONPath", path, text)


_VERSION: Final[Json] = {
    "additionalPrinterColumns[*]": (
        _column_path,
        {
            "name": needed(),
            "type": _word("boolean", "date", "integer", "number", "string", is_needed=True),
            "format": _word(*_COLUMN_FORMATS),
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
    seen: set[str] = set()
    for position, item in enumerate(version.get("selectableFields") or ()):
        where = f"{path}[{position}].jsonPath"
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
            problem = (
                "must point to a field of type string, boolean or integer. Enum string fields and"
                " strings with formats are allowed."
            )
            yield errors.invalid(where, text, problem)
        elif text in seen:
            yield errors.duplicate(where, text)
        seen.add(text)


def _field_at(schema: Json, path: str) -> Json | None:
    """Return the schema of a declared field; what every object has is none."""
    found: Json | None = schema
    for name in path.split(".")[1:]:
        found = ((found or {}).get("properties") or {}).get(name)
    return None if path.startswith(".metadata") else found


def _check_deprecation(version: Json, path: str) -> Iterator[ErrorCause]:
    warning = version.get("deprecationWarning")
    if warning is not None and not version.get("deprecated"):
        yield errors.invalid(path, warning, "can only be set for deprecated versions")
    elif warning is not None and not warning:
        yield errors.invalid(path, warning, "must not be an empty string")


def _check_versions(versions: list[Json]) -> Iterator[ErrorCause]:
    given = [version.get("name") or "" for version in versions]
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield errors.invalid("spec.versions", given, text)
    for position, version in enumerate(versions):
        path = f"spec.versions[{position}]"
        for text in checks.rfc1035_label_problems(given[position]):
            yield errors.invalid(f"{path}.name", given[position], text)
        if given[position] in given[:position]:
            yield errors.invalid(path, given[position], "must contain unique version names")
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            yield errors.required(f"{path}.schema.openAPIV3Schema")
            continue
        # A server with one version reports as if all of it stood at the top of the spec.
        top = path
        where = f"{path}.schema.openAPIV3Schema"
        if len(versions) == 1:
            top = "spec"
            where = "spec.validation.openAPIV3Schema"
        yield from check_schema(schema, where, is_root=True)
        yield from broken(version, top, _VERSION)
        yield from _check_selectable(version, f"{top}.selectableFields")
        yield from _check_deprecation(version, f"{path}.deprecationWarning")


# ------------------------------------------------------------------ the whole


def check_definition(crd: Json, _where: str = "") -> Iterator[ErrorCause]:
    """Give what is wrong with a CustomResourceDefinition (defaults must be in place).

    Rules are compiled, so an unknown function or a syntax error shows here and not at the first
    object.
    """
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
        yield errors.invalid("status.storedVersions", None, text)
    known = {version.get("name") for version in crd["spec"].get("versions") or ()}
    for position, name in enumerate(stored):
        if name not in known:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions"
            )
            yield errors.invalid(f"status.storedVersions[{position}]", name, text)


def check_definition_change(crd: Json, before: Json) -> Iterator[ErrorCause]:
    """Give what is wrong with a change: group, scope, kind and plural must stay."""
    spec = crd["spec"]
    old = before["spec"]
    for name in ("group", "scope"):
        if spec.get(name) != old.get(name):
            yield errors.immutable(f"spec.{name}", spec.get(name) or "")
    for name in ("kind", "plural"):
        if spec["names"].get(name) != old["names"].get(name):
            yield errors.immutable(f"spec.names.{name}", spec["names"].get(name) or "")
