"""CustomResourceDefinitions: what they may say beside the schemas of their versions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.causes import Check, broken, named, needed, never, one_of
from lean_sandbox.local.schema.schemas import check_schema
from lean_sandbox.local.schema.structural import OPEN

Json = dict[str, Any]

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
    names = crd["spec"]["names"]
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        text = "kind and listKind may not be the same"
        yield causes.invalid("spec.names.listKind", names["listKind"], text)
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


def _check_conversion(conversion: Json, where: str) -> Iterator[ErrorCause]:
    webhook = conversion.get("webhook") or {}
    versions = webhook.get("conversionReviewVersions")
    client = webhook.get("clientConfig")
    if conversion.get("strategy") == "Webhook":
        text = "required when strategy is set to Webhook"
        yield from needed(text)(client, f"{where}.webhookClientConfig")
        yield from needed()(versions, f"{where}.conversionReviewVersions")
        return
    for name, value in (("webhookClientConfig", client), ("conversionReviewVersions", versions)):
        text = "should not be set when strategy is not set to Webhook"
        yield from causes.prohibited(text)(value, f"{where}.{name}")


_LABEL: Final = (needed(), named(causes.rfc1035_label_problems))
_MIXED: Final = (needed(), named(_mixed_case))
_SPEC: Final[Json] = {
    "group": _group,
    "preserveUnknownFields": never(
        bool, f"cannot set to true, set {OPEN} to true in spec.versions[*].schema instead"
    ),
    "conversion": (_check_conversion, {"strategy": (needed(), one_of("None", "Webhook"))}),
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
    shown = f"either {shown}" if parents[1:] else shown

    def problems(text: str) -> list[str]:
        if not re.match(r"\.\w+(\.\w+)*$", text):
            return ["must be a simple json path starting with ."]
        is_below = re.match(rf"\.(?:{'|'.join(parents)})\.", text)
        return [] if is_below else [f"should be a json path under {shown}"]

    return problems


def _word(*allowed: str, is_needed: bool = False) -> Check:
    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        text = f"must be one of {','.join(allowed)}"
        if is_needed and not value:
            yield causes.required(where, text)
        elif value and value not in allowed:
            yield causes.invalid(where, value, text)

    return check


def _column_path(column: Json, where: str) -> Iterator[ErrorCause]:
    path = column.get("jsonPath") or ""
    if not path:
        yield causes.required(f"{where}.JSONPath")
    elif not path.startswith("."):
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
    given = [item.get("jsonPath") or "" for item in version.get("selectableFields") or ()]
    if len(given) > 8:
        yield causes.too_many(path, len(given), 8)
    for position, text in enumerate(given):
        where = f"{path}[{position}].jsonPath"
        field = _field_at(root, text)
        before, bracket, _ = text.partition("[")
        problem = "" if field else "does not refer to a valid field"
        if not text.startswith((".", "[")):
            problem = f"expected [ or . but got: {text.partition('.')[0]}"
        elif text.endswith("."):
            problem = "unexpected end of JSON path"
        elif bracket and (not before or _field_at(root, before)):
            problem = "array notation is not allowed"
        if not text:
            yield causes.required(where)
        elif text in given[:position]:
            yield causes.duplicate(where, text)
        elif problem or field is None:
            yield causes.invalid(where, text, f"is an invalid path: {problem}")
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


def _check_deprecation(version: Json, where: str) -> Iterator[ErrorCause]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return
    odd = next((at for at, char in enumerate(warning) if not char.isprintable()), None)
    text = ""
    if not version.get("deprecated"):
        text = "can only be set for deprecated versions"
    elif len(warning.encode()) > 256:
        text = "must be <= 256 characters long"
    elif odd is not None:
        text = (
            "must only contain printable UTF-8 characters; non-printable character found at"
            f" index {odd}"
        )
    if text:
        yield causes.invalid(where, warning, text)


def _check_versions(versions: list[Json]) -> Iterator[ErrorCause]:
    given = [version.get("name") or "" for version in versions]
    for position, version in enumerate(versions):
        yield from _check_deprecation(version, f"spec.versions[{position}].deprecationWarning")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield causes.invalid("spec.versions", given, text)
    if len(set(given)) < len(given):
        yield causes.invalid("spec.versions", given, "must contain unique version names")
    for position, version in enumerate(versions):
        path = f"spec.versions[{position}]"
        for text in causes.rfc1035_label_problems(given[position]):
            yield causes.invalid(f"{path}.name", given[position], text)
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            yield causes.required(f"{path}.schema.openAPIV3Schema")
            continue
        # A server with one version reports as if all of it stood at the top of the spec.
        is_only = len(versions) == 1
        top = "spec" if is_only else path
        where = f"{top}.{'validation' if is_only else 'schema'}.openAPIV3Schema"
        yield from check_schema(schema, where)
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
