"""Objects of one custom kind, good and bad, are answered as by kube-apiserver 1.36.

``values.json`` holds the schema of the kind, and a line for each object: its body, and what was
answered. Nothing is stored.
"""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.conformance.api import Api, answers
from tests.conformance.objects import GROUP, WIDGET_DEFINITION, WIDGETS

Json = dict[str, Any]

pytestmark = pytest.mark.asyncio(loop_scope="module")

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RECORDED = json.loads((Path(__file__).parent / "values.json").read_text(encoding="utf-8"))
_SCHEMA: Json = _RECORDED["schema"]
_VALUES: list[tuple[Json, Json]] = _RECORDED["values"]
_SCHEMAS: list[tuple[Json, Json]] = _RECORDED["schemas"]


def definition(name: str, schema: Json, **version: Any) -> Json:
    """Return the definition of a kind, with a schema and some more of its only version."""
    made: Json = copy.deepcopy(WIDGET_DEFINITION)
    made["metadata"]["name"] = f"{name}s.{GROUP}"
    made["spec"]["names"] = {"plural": f"{name}s", "singular": name, "kind": name.title()}
    own = {"name": "v1", "served": True, "storage": True, **version}
    made["spec"]["versions"] = [{**own, "schema": {"openAPIV3Schema": schema}}]
    return made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def samples(api: Api) -> AsyncIterator[str]:
    """Define the kind for all tests of this module, and give its path."""
    path = f"{WIDGETS}/namespaces/default/samples"
    (await api.post(_CRDS, definition("sample", _SCHEMA, subresources={"status": {}}))).ok()
    await answers(api, path)
    yield path
    await api.delete(f"{_CRDS}/samples.{GROUP}")


def told(answer: Json) -> list[tuple[str, str, str]]:
    """Return the causes of a refusal in order."""
    causes = answer["details"]["causes"]
    return sorted((one["field"], one["reason"], one["message"]) for one in causes)


@pytest.mark.parametrize("number", range(len(_VALUES)))
async def test_an_object_of_a_custom_kind(api: Api, samples: str, number: int) -> None:
    """Code, causes and their texts; of an accepted object its spec."""
    spec, answer = _VALUES[number]
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Sample", "metadata": {"name": "x"}, "spec": spec}
    reply = await api.post(samples, body, dryRun="All")
    assert reply.status == answer["code"], reply.body
    if reply.status == 201:
        assert reply.json["spec"] == answer["spec"]
    elif reply.status == 422:
        assert told(reply.json) == [tuple(one) for one in answer["causes"]]


@pytest.mark.parametrize("number", range(len(_SCHEMAS)))
async def test_a_schema_of_a_field(api: Api, number: int) -> None:
    """A definition is refused for the same causes, in the same words."""
    field, answer = _SCHEMAS[number]
    spec = {"type": "object", "properties": {"a": field}}
    root = {"type": "object", "properties": {"spec": spec}}
    reply = await api.post(_CRDS, definition("draft", root), dryRun="All")
    assert reply.status == answer["code"], reply.body
    if reply.status == 422:
        assert told(reply.json) == [tuple(one) for one in answer["causes"]]
