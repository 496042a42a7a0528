"""Laws of what a definition may say: each refusal names the field and what is wrong with it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import pytest_asyncio

from tests.conformance.api import Api, Reply, Room, answers
from tests.conformance.objects import GROUP, WIDGET_DEFINITION, WIDGETS

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ROOT = "spec.validation.openAPIV3Schema"
_SCHEMA = f"{_ROOT}.properties[spec].properties[a]"
_TEXT: Json = {"type": "string"}
_RULED: Json = {"type": "object", "properties": {"b": _TEXT}}


def definition(**spec: Any) -> Json:
    """Return the definition of one more kind, with some of its spec replaced."""
    made = copy.deepcopy(WIDGET_DEFINITION)
    made["metadata"]["name"] = f"trials.{GROUP}"
    names = {"plural": "trials", "singular": "trial", "kind": "Trial"}
    made["spec"] = {**made["spec"], "names": names, **spec}
    return made


def version(**change: Any) -> list[Json]:
    """Return the versions of that definition, with some of the only one replaced."""
    return [{**copy.deepcopy(WIDGET_DEFINITION["spec"]["versions"][0]), **change}]


def field(schema: Any) -> list[Json]:
    """Return versions whose spec has one field, ``a``, of a schema."""
    spec = {"type": "object", "properties": {"a": schema}}
    root = {"type": "object", "properties": {"spec": spec}}
    return version(schema={"openAPIV3Schema": root}, selectableFields=[])


def rooted(**root: Any) -> list[Json]:
    """Return versions whose schema says something at its root."""
    schema = {"openAPIV3Schema": {"type": "object", **root}}
    return version(schema=schema, selectableFields=[])


def nine(**change: Any) -> list[Json]:
    """Return versions whose spec has nine texts."""
    spec = {"type": "object", "properties": {f"a{number}": _TEXT for number in range(9)}}
    root = {"type": "object", "properties": {"spec": spec}}
    return version(schema={"openAPIV3Schema": root}, **change)


def ruled(**rule: Any) -> list[Json]:
    """Return versions with a field that has one rule."""
    return field({**_RULED, "x-kubernetes-validations": [{"rule": "true", **rule}]})


def assert_refused(reply: Reply, name: str, text: str) -> None:
    """Fail unless a refusal says this of a field."""
    causes = reply.refused(422, "Invalid")["details"]["causes"]
    assert any(one["field"] == name and text in one["message"] for one in causes), causes


_SCHEMAS: list[tuple[Any, str, str]] = [
    (None, ".type", "must not be empty for specified object fields"),
    ({"type": "null"}, ".type", 'Unsupported value: "null"'),
    ({"type": "string", "default": 5}, ".default", "must be of type string"),
    ({"type": "object", "default": {"x": 1}}, ".default", "must not have unknown fields"),
    ({"type": "array"}, ".items", "must be specified"),
    ({"type": "array", "items": [_TEXT]}, ".items", "must be a schema object and not an array"),
    ({**_TEXT, "x-kubernetes-list-type": "set"}, ".type", "must be array"),
    ({"type": "array", "items": _TEXT, "x-kubernetes-list-type": "x"},
     ".x-kubernetes-list-type", '"atomic", "set", "map"'),
    ({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"},
     ".items.x-kubernetes-map-type", "must be atomic as item of a list"),
    ({"type": "object", "x-kubernetes-map-type": "x"},
     ".x-kubernetes-map-type", '"atomic", "granular"'),
    ({"type": "object", "additionalProperties": False, "properties": {"b": _TEXT}},
     ".additionalProperties", "mutual exclusive"),
    ({"type": "object", "x-kubernetes-embedded-resource": True}, ".properties", "Required value"),
    ({**_TEXT, "$ref": "#/a"}, ".$ref", "$ref is not supported"),
    ({**_TEXT, "definitions": {"a": _TEXT}}, ".definitions", "is not supported"),
    ({"type": "object", "patternProperties": {"a": _TEXT}}, ".patternProperties", "not supported"),
    ({"type": "object", "dependencies": {"a": ["b"]}}, ".dependencies", "is not supported"),
    ({"type": "array", "items": _TEXT, "additionalItems": True},
     ".additionalItems", "is not supported"),
    ({"type": "array", "items": _TEXT, "uniqueItems": True}, ".uniqueItems", "quadratic"),
    ({**_TEXT, "anyOf": [_TEXT]}, ".anyOf[0].type", "must be empty to be structural"),
    ({**_TEXT, "allOf": [{"default": "x"}]}, ".allOf[0].default", "must be undefined"),
    ({**_TEXT, "not": {"pattern": "("}}, ".not.pattern", "error parsing regexp"),
    ({**_TEXT, "pattern": "(", "default": "x"}, ".pattern", "error parsing regexp"),
]  # fmt: skip
_REFUSED: list[tuple[Json, str, str]] = [
    *(({"versions": field(schema)}, _SCHEMA + name, text) for schema, name, text in _SCHEMAS),
    ({"versions": ruled(rule=" ")}, f"{_SCHEMA}.x-kubernetes-validations[0].rule", "Required"),
    ({"versions": ruled(message="a\nb")},
     f"{_SCHEMA}.x-kubernetes-validations[0].message", "must not contain line breaks"),
    ({"versions": ruled(messageExpression=" ")},
     f"{_SCHEMA}.x-kubernetes-validations[0].messageExpression", "must be non-empty"),
    ({"versions": ruled(reason="Nope")},
     f"{_SCHEMA}.x-kubernetes-validations[0].reason", "Unsupported value"),
    ({"versions": ruled(fieldPath=".nope")},
     f"{_SCHEMA}.x-kubernetes-validations[0].fieldPath", "must be a valid path"),
    ({"names": None}, "spec.names.plural", "Required value"),
    ({"names": {"plural": "others", "kind": "Trial"}}, "metadata.name", "must be spec.names"),
    ({"scope": None}, "spec.scope", "Required value"),
    ({"versions": None}, "spec.versions", "exactly one version marked as storage version"),
    ({"preserveUnknownFields": True}, "spec.preserveUnknownFields", "cannot set to true"),
    ({"conversion": {"strategy": "Nope"}}, "spec.conversion.strategy", '"None", "Webhook"'),
    ({"versions": version(name="V1")}, "spec.versions[0].name", "DNS-1035 label"),
    ({"versions": version(schema=None)},
     "spec.versions[0].schema.openAPIV3Schema", "Required value"),
    ({"versions": version(additionalPrinterColumns=[
        {"name": "a", "type": "string", "format": "nope", "jsonPath": ".a"}])},
     "spec.additionalPrinterColumns[0].format", "must be one of byte,date"),
    ({"versions": version(selectableFields=[{"jsonPath": ".spec.nope"}])},
     "spec.selectableFields[0].jsonPath", "does not refer to a valid field"),
    ({"versions": version(selectableFields=[{"jsonPath": ".spec"}])},
     "spec.selectableFields[0].jsonPath", "must point to a field of type string"),
    ({"versions": version(selectableFields=[{"jsonPath": ".metadata.name"}])},
     "spec.selectableFields[0].jsonPath", "does not refer to a valid field"),
    ({"versions": version(subresources={"scale": {}})},
     "spec.subresources.scale.specReplicasPath", "Required value"),
    ({"versions": version(subresources={"scale": {
        "specReplicasPath": ".spec[0]", "statusReplicasPath": ".spec.a"}})},
     "spec.subresources.scale.statusReplicasPath", "should be a json path under .status"),
    ({"names": {"plural": "trials", "kind": "Trial", "listKind": "Trial"}},
     "spec.names.listKind", "kind and listKind may not be the same"),
    ({"group": "a.k8s.io"}, "metadata.annotations[api-approved.kubernetes.io]",
     "protected groups must have approval annotation"),
    ({"group": "nodots"}, "spec.group", "should be a domain with at least one dot"),
    ({"group": "A.b"}, "spec.group", "a lowercase RFC 1123 subdomain"),
    ({"conversion": {"strategy": "Webhook"}}, "spec.conversion.webhookClientConfig",
     "required when strategy is set to Webhook"),
    ({"conversion": {"strategy": "Webhook"}}, "spec.conversion.conversionReviewVersions",
     "Required value"),
    ({"conversion": {"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}},
     "spec.conversion.conversionReviewVersions",
     "should not be set when strategy is not set to Webhook"),
    ({"versions": nine(selectableFields=[{"jsonPath": f".spec.a{n}"} for n in range(9)])},
     "spec.selectableFields", "must have at most 8 items"),
    ({"versions": version(selectableFields=[{"jsonPath": ""}])},
     "spec.selectableFields[0].jsonPath", "Required value"),
    ({"versions": version(selectableFields=[{"jsonPath": "spec.size"}])},
     "spec.selectableFields[0].jsonPath", "expected [ or . but got: spec"),
    ({"versions": version(selectableFields=[{"jsonPath": ".spec.tags[0]"}])},
     "spec.selectableFields[0].jsonPath", "array notation is not allowed"),
    ({"versions": version(selectableFields=[{"jsonPath": ".spec.a[0]"}])},
     "spec.selectableFields[0].jsonPath", "does not refer to a valid field"),
    ({"versions": version(selectableFields=[{"jsonPath": "[0]"}])},
     "spec.selectableFields[0].jsonPath", "array notation is not allowed"),
    ({"versions": version(selectableFields=[{"jsonPath": ".spec."}])},
     "spec.selectableFields[0].jsonPath", "unexpected end of JSON path"),
    ({"versions": version(selectableFields=[{"jsonPath": ".spec.size"}] * 2)},
     "spec.selectableFields[1].jsonPath", "Duplicate value"),
    ({"versions": version(deprecationWarning="old")}, "spec.versions[0].deprecationWarning",
     "can only be set for deprecated versions"),
    ({"versions": version(deprecated=True, deprecationWarning="a" * 257)},
     "spec.versions[0].deprecationWarning", "must be <= 256 characters long"),
    ({"versions": version(deprecated=True, deprecationWarning="a\nb")},
     "spec.versions[0].deprecationWarning", "non-printable character found at index 1"),
    ({"versions": version() + version(storage=False)}, "spec.versions",
     "must contain unique version names"),
    ({"versions": rooted(nullable=True)}, f"{_ROOT}.nullable", "cannot be true at the root"),
    ({"versions": rooted(additionalProperties=True)}, f"{_ROOT}.additionalProperties",
     "must not be used at the root"),
    ({"versions": rooted(properties={"kind": {"type": "integer"}})},
     f"{_ROOT}.properties[kind].type", "must be string"),
    ({"versions": rooted(properties={"metadata": {"type": "string"}})},
     f"{_ROOT}.properties[metadata].type", "must be object"),
    ({"versions": rooted(properties={"metadata": {"type": "object", "default": {}}})},
     f"{_ROOT}.properties[metadata].default", "must not be set in top-level metadata"),
    ({"versions": rooted(
        properties={"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}})},
     f"{_ROOT}.properties[metadata]", "must not specify anything other than name and generateName"),
    ({"versions": field({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": _TEXT}}})},
     f"{_SCHEMA}.items.properties[k].default", "must have a default or be a required property"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "name", "text"), _REFUSED)
async def test_a_definition_is_refused_by_name(api: Api, spec: Json, name: str, text: str) -> None:
    """Whatever a real server does not take is not taken here, for the same reason."""
    assert_refused(await api.post(_CRDS, definition(**spec), dryRun="All"), name, text)


async def test_a_default_of_a_field_whose_rule_does_not_compile_is_refused(api: Api) -> None:
    """The rule is to blame."""
    ruled_text = {**_TEXT, "maxLength": 9, "x-kubernetes-validations": [{"rule": "nope("}]}
    schema = {"type": "object", "default": {"b": "x"}, "properties": {"b": ruled_text}}
    reply = await api.post(_CRDS, definition(versions=field(schema)), dryRun="All")
    assert "compilation failed" in reply.refused(422, "Invalid")["message"]


async def test_a_definition_without_a_spec_is_refused(api: Api) -> None:
    """Everything that is required is named."""
    body = {"metadata": {"name": f"trials.{GROUP}"}}
    reply = await api.post(_CRDS, body, dryRun="All")
    assert_refused(reply, "spec.group", "Required value")
    assert_refused(reply, "spec.names.plural", "Required value")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def trials(api: Api) -> Any:
    """Define a kind for all tests of this module, and give its path."""
    versions = field({**_TEXT, "maxLength": 3})
    versions[0]["schema"]["openAPIV3Schema"]["properties"]["status"] = {
        "type": "object",
        "properties": {"n": {"type": "integer", "maximum": 5}, "at": {**_TEXT, "maxLength": 3}},
    }
    (await api.post(_CRDS, definition(versions=versions))).ok()
    await answers(api, f"{WIDGETS}/trials")
    yield f"{_CRDS}/trials.{GROUP}"
    await api.delete(f"{_CRDS}/trials.{GROUP}")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"scope": "Cluster"}, "spec.scope"),
        ({"names": {"kind": "Zoo", "listKind": "ZooList"}}, "spec.names.kind"),
        ({"names": {"plural": "zoos"}}, "spec.names.plural"),
        ({"group": "other.dev"}, "spec.group"),
    ],
)
async def test_what_tells_a_kind_stays(api: Api, trials: str, change: Json, name: str) -> None:
    """Scope, kind, plural and group of a definition never change: its objects would be lost."""
    assert_refused(await api.patch(trials, {"spec": change}), name, "field is immutable")
    assert (await api.get(f"{WIDGETS}/trials")).status == 200


async def test_other_names_may_change(api: Api, trials: str) -> None:
    """Singular and short names are only what people type."""
    change = {"spec": {"names": {"singular": "attempt", "shortNames": ["tr"]}}}
    (await api.patch(trials, change, dryRun="All")).ok()


@pytest.mark.parametrize(
    ("status", "name", "text"),
    [
        ({"n": "x"}, "status.n", 'n in body must be of type integer: "string"'),
        ({"n": 6}, "status.n", "n in body should be less than or equal to 5"),
        ({"at": "long"}, "status.at", "Too long: may not be more than 3 bytes"),
        ("x", "status", ' in body must be of type object: "string"'),
    ],
)
async def test_a_refused_status_is_named_below_status(
    room: Room, trials: str, status: Any, name: str, text: str
) -> None:
    """Paths begin with status, and the words of a refusal with what is below it."""
    del trials
    path = f"{WIDGETS}/namespaces/{room.name}/trials"
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Trial", "metadata": {"name": "x"}}
    (await room.api.post(path, body)).ok()
    reply = await room.api.patch(f"{path}/x/status", {"status": status})
    assert_refused(reply, name, f": {text}" if "Too" not in text else text)
