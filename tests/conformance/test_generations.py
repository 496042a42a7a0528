"""Laws of all built-in kinds: what their generations count, and what a DELETE answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.api import JSON_PATCH, MERGE, STRATEGIC, Api, Room, until
from tests.conformance.kinds import Sample, samples
from tests.conformance.objects import GROUP, WIDGETS, widget

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.kind.qualified_plural)
async def test_a_kind_counts_generations_and_returns_what_it_deletes_as_it_is_known(
    api: Api, room: Room, sample: Sample
) -> None:
    """`generation` is there for the kinds that have one; others answer a DELETE with a Status."""
    body = sample.body(f"{room.name}-kind", room.name)
    path = sample.path(room.name)
    name = body["metadata"]["name"]
    made = (await api.post(path, body)).ok()
    gone = (await api.delete(f"{path}/{name}", gracePeriodSeconds="0")).ok()
    assert ("generation" in made["metadata"]) is sample.kind.has_generation
    # What a finalizer holds is shown, whatever its kind.
    if "deletionTimestamp" not in gone["metadata"]:
        assert (gone["kind"] != "Status") is sample.kind.returns_deleted


_LABELS, _ANNOTATIONS = ({"metadata": {name: {"a": "b"}}} for name in ("labels", "annotations"))
_COUNTED: dict[str, tuple[dict[str, Any], list[int]]] = {
    "pods": ({"spec": {"containers": [{"name": "main", "image": "other"}]}}, [1, 1, 2]),
    "deployments.apps": ({"spec": {"minReadySeconds": 3}}, [1, 2, 3]),
    "replicasets.apps": ({"spec": {"minReadySeconds": 3}}, [1, 1, 2]),
    "statefulsets.apps": ({"spec": {"minReadySeconds": 3}}, [1, 1, 2]),
    "networkpolicies.networking.k8s.io": (
        {"spec": {"policyTypes": ["Ingress", "Egress"]}},
        [1, 1, 2],
    ),
    "poddisruptionbudgets.policy": ({"spec": {"minAvailable": 1}}, [1, 1, 2]),
    "customresourcedefinitions.apiextensions.k8s.io": (
        {"spec": {"names": {"shortNames": ["xyz"]}}},
        [1, 1, 2],
    ),
    "priorityclasses.scheduling.k8s.io": ({"description": "other"}, [1, 1, 1]),
}


@pytest.mark.parametrize(
    "sample",
    [sample for sample in samples() if sample.kind.has_generation],
    ids=lambda sample: sample.kind.qualified_plural,
)
async def test_a_generation_counts_what_its_kind_counts(
    api: Api, room: Room, sample: Sample
) -> None:
    """The spec, and the annotations of Deployments; of classes nothing."""
    body = sample.body(f"{room.name}-gen", room.name)
    path = f"{sample.path(room.name)}/{body['metadata']['name']}"
    (await api.post(sample.path(room.name), body)).ok()
    change, expected = _COUNTED[sample.kind.qualified_plural]
    media = MERGE if sample.kind.plural == "customresourcedefinitions" else STRATEGIC
    counted = []
    for patch in (_LABELS, _ANNOTATIONS, change):
        changed = (await api.patch(path, patch, media)).ok()
        counted.append(changed["metadata"]["generation"])
    (await api.delete(path, gracePeriodSeconds="0")).ok()
    assert counted == expected


_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


_PICK: Json = {"x-kubernetes-preserve-unknown-fields": True, "enum": [1, "a"]}
_GIVEN: Json = {"x-kubernetes-preserve-unknown-fields": True, "default": 0}
_BAG: Json = {"apiVersion": f"{GROUP}/v1", "kind": "Bag", "metadata": {"name": "a"}}


async def _bags(room: Room) -> str:
    """Define Bags, which may hold anything; return their path once they can be created."""
    schema = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {"pick": _PICK, "given": _GIVEN},
    }
    version = {"name": "v1", "served": True, "storage": True}
    made = {
        "metadata": {"name": f"bags.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "bags", "singular": "bag", "kind": "Bag"},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    await room.api.post(_CRDS, made)
    path = f"{WIDGETS}/namespaces/{room.name}/bags"

    async def is_served() -> bool:
        return (await room.api.post(path, _BAG, dryRun="All")).status == 201

    await until(is_served)
    return path


@pytest.mark.parametrize(
    ("value", "other"),
    [(1, True), (True, 1), (1, 1.0), ({"a": 0}, {"a": False}), ([0], [False])],
)
async def test_a_value_of_another_type_is_a_change(room: Room, value: Any, other: Any) -> None:
    """It is stored, and counted as a new generation."""
    path = await _bags(room)
    made = (await room.api.post(path, {**_BAG, "spec": value})).ok()
    changed = (await room.api.patch(f"{path}/a", {"spec": other})).ok()
    assert changed["metadata"]["generation"] == 2
    assert changed["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    found = (await room.api.get(f"{path}/a")).ok()["spec"]
    # 1.0 may be shown as 1.
    assert json.dumps(found).replace("1.0", "1") == json.dumps(other).replace("1.0", "1")


@pytest.mark.parametrize("spec", [{"size": True}, {"size": 1, "replicas": False}])
async def test_a_value_of_another_type_is_checked(room: Room, spec: Any) -> None:
    """What an update leaves as it was is not checked again; this is not as it was."""
    await room.widget("a", size=1, replicas=0)
    reply = await room.api.patch(f"{room.widgets}/a", {"spec": spec})
    reply.refused(422, "Invalid")
    reply = await room.api.put(f"{room.widgets}/a", widget("a", **{"replicas": 0, **spec}))
    reply.refused(422, "Invalid")


@pytest.mark.parametrize(("pick", "status"), [(1, 201), (1.0, 201), ("a", 201), (True, 422)])
async def test_an_enum_tells_types_apart(room: Room, pick: Any, status: int) -> None:
    """1 is also 1.0, and is not true."""
    path = await _bags(room)
    assert (await room.api.post(path, {**_BAG, "pick": pick})).status == status


async def test_a_definition_whose_default_changes_its_type_is_a_new_one(room: Room) -> None:
    """The next object gets the new default."""
    path = await _bags(room)
    field = "/spec/versions/0/schema/openAPIV3Schema/properties/given/default"
    step = [{"op": "replace", "path": field, "value": False}]
    (await room.api.patch(f"{_CRDS}/bags.{GROUP}", step, JSON_PATCH)).ok()

    async def is_false() -> bool:
        made = (await room.api.post(path, _BAG, dryRun="All")).ok()
        return made["given"] is False

    await until(is_false)
    (await room.api.delete(f"{_CRDS}/bags.{GROUP}")).ok()
