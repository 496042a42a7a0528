"""The page on the API, made of the definitions: ``python -m tests.docs.api`` writes it anew.

Its first part, up to the mark, is written by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.docs.pages import ROOT
from tests.model.crds.definitions import definitions

__all__ = ["PAGE", "written"]

Json = dict[str, Any]

PAGE = ROOT / "docs" / "api.md"
_MARK = "<!-- From here on made of the definitions by `python -m tests.docs.api`. -->\n"
# Types of Kubernetes, which have pages of their own: their fields are not listed.
_OF_KUBERNETES = {
    "podTemplate.spec": "PodSpec",
    "volumeClaimTemplates[].spec": "PersistentVolumeClaimSpec",
    "networkPolicy.ingress": "list of NetworkPolicyIngressRule",
    "networkPolicy.egress": "list of NetworkPolicyEgressRule",
    "status.conditions": "list of Condition",
}


def _type(schema: Json) -> str:
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if "additionalProperties" in schema:
        return "map of text"
    if schema.get("format") == "date-time":
        return "time"
    if schema["type"] == "array":
        inner = _type(schema["items"])
        return "list" if inner == "object" else f"list of {inner}"
    type_: str = schema["type"]
    least = f", at least {schema['minimum']}" if "minimum" in schema else ""
    return {"string": "text", "integer": "number"}.get(type_, type_) + least


def _default(schema: Json, *, is_required: bool) -> str:
    if is_required:
        return "required"
    return f"`{schema['default']}`" if "default" in schema else ""


def _rows(schema: Json, path: str) -> Iterator[str]:
    required = schema.get("required", [])
    for name, field in sorted(schema["properties"].items()):
        here = f"{path}.{name}"
        known = [of for end, of in _OF_KUBERNETES.items() if here.endswith(end)]
        type_ = known[0] if known else _type(field)
        default = _default(field, is_required=name in required)
        meaning = field.get("description", "").replace("<", "&lt;")
        yield f"| `{here}` | {type_} | {default} | {meaning} |\n"
        inner, end = (field.get("items", {}), "[]") if field["type"] == "array" else (field, "")
        if not known and "properties" in inner:
            yield from _rows(inner, here + end)


def _kind(definition: Json) -> Iterator[str]:
    spec = definition["spec"]
    version = spec["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    names = spec["names"]
    yield f"\n## {names['kind']}\n\n{schema['description']} "
    yield f"`apiVersion: {spec['group']}/{version['name']}`; kubectl also knows it as "
    yield " and ".join(f"`{one}`" for one in dict.fromkeys([names["plural"], *names["shortNames"]]))
    yield ".\n\n| field | type | default | meaning |\n|---|---|---|---|\n"
    for part in ("spec", "status"):
        if part in schema["properties"]:
            yield from _rows(schema["properties"][part], part)
    for at in (schema, schema["properties"]["spec"]):
        for rule in at.get("x-kubernetes-validations", []):
            yield f"\nThe server refuses what breaks this rule: {rule['message']}.\n"


def written() -> str:
    """Return the text that the page has to have: its first part, and the kinds."""
    by_hand = PAGE.read_text(encoding="utf-8").partition(_MARK)[0]
    kinds = sorted(definitions().values(), key=lambda one: str(one["spec"]["names"]["kind"]))
    return by_hand + _MARK + "".join(line for one in kinds for line in _kind(one))


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
