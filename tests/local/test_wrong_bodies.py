"""A body that is wrong in one place is refused or taken, and never an error of the server."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane
from tests.conformance.api import Api
from tests.conformance.kinds import CASES
from tests.conformance.objects import WIDGET_DEFINITION
from tests.model.crds.definitions import definitions

Json = dict[str, Any]
_VALUES: Any = (None, 3, -1, 1.5, "x", "", [], {}, True, [None], {"a": None}, [[]], [{}], 2**70)
_POD: Json = {
    "volumes": [{"name": "v", "configMap": {"name": "c", "items": [{"key": "a", "path": "b"}]}}],
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "securityContext": {"runAsUser": 1},
    "initContainers": [{"name": "i", "image": "i"}],
    "containers": [
        {
            "name": "m",
            "image": "i:1",
            "env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "ports": [{"containerPort": 80, "hostPort": 80, "name": "web"}],
            "volumeMounts": [{"name": "v", "mountPath": "/a"}],
            "livenessProbe": {"httpGet": {"port": 80}},
            "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
        }
    ],
}
_METADATA: Json = {
    "name": "x",
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
    "finalizers": ["a.b/c"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"}],
}


def _definition() -> Json:
    made = copy.deepcopy(WIDGET_DEFINITION)
    made["metadata"]["name"] = "things.laws.lean-sandbox.dev"
    made["spec"]["names"] = {"plural": "things", "singular": "thing", "kind": "Thing"}
    spec = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["x-kubernetes-validations"] = [{"rule": "self.size > 1", "fieldPath": ".size"}]
    spec["properties"]["q"] = {"type": "string", "pattern": "a", "anyOf": [{"pattern": "x"}]}
    spec["properties"]["map"] = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["n"],
        "items": {
            "type": "object",
            "required": ["n"],
            "properties": {"n": {"type": "string", "default": "x"}},
        },
    }
    return made


def _bodies() -> Iterator[tuple[str, Json]]:
    """Give a good object of every kind: the largest that is recorded, or one of ours."""
    found: dict[str, Json] = {}
    for path, body, answer in CASES:
        if answer["code"] == 201 and len(str(body)) > len(str(found.get(path, ""))):
            found[path] = dict(body)
    found["/api/v1/namespaces/default/pods"] |= {"metadata": _METADATA, "spec": _POD}
    sandboxes = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": _POD}
    found[sandboxes] |= {"metadata": _METADATA, "spec": {"podTemplate": template}}
    found["/apis/apiextensions.k8s.io/v1/customresourcedefinitions"] = _definition()
    yield from found.items()


def _places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if here and here[0] not in ("apiVersion", "kind"):
        yield here
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _places(value[key], (*here, key))


def _with(body: Json, place: tuple[Any, ...], value: Any) -> Json:
    made = copy.deepcopy(body)
    inner: Any = made
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    return made


def _patch(place: tuple[Any, ...], value: Any) -> Any:
    for step in reversed(place):
        value = {step: value} if isinstance(step, str) else [value]
    return value


@pytest.mark.parametrize(("path", "body"), list(_bodies()), ids=lambda each: str(each)[-40:])
async def test_any_value_in_any_place_has_an_answer(path: str, body: Json) -> None:
    """Whatever stands where something else belongs: 201, 400, 403 or 422, as POST and as PATCH."""
    async with (
        ControlPlane(crds=[*definitions().values()]) as plane,
        Api(plane.url, plane.create_token()) as api,
    ):
        (await api.post(path, body)).ok()
        name = body["metadata"]["name"]
        for place, value in itertools.product(_places(body), _VALUES):
            reply = await api.post(path, _with(body, place, value), dryRun="All")
            assert reply.status in (201, 400, 403, 409, 422), (place, value, reply.body)
            patched = await api.patch(f"{path}/{name}", _patch(place, value), dryRun="All")
            is_version = place[-1] == "resourceVersion"
            assert patched.status < 500 or is_version, (place, value, patched.body)
