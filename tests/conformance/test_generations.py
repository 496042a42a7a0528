"""Laws of all built-in kinds: what their generations count, and what a DELETE answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import MERGE, STRATEGIC, Api, Room
from tests.conformance.kinds import Sample, samples

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.kind.qualified_plural)
async def test_a_kind_counts_generations_and_returns_what_it_deletes_as_it_is_known(
    api: Api, room: Room, sample: Sample
) -> None:
    """`generation` is there for the kinds that have one; others answer a DELETE with a Status."""
    body = sample.body(f"{room.name}-kind", room.name)
    path, name = sample.path(room.name), body["metadata"]["name"]
    made = (await api.post(path, body)).ok()
    gone = (await api.delete(f"{path}/{name}", gracePeriodSeconds="0")).ok()
    assert ("generation" in made["metadata"]) is sample.kind.has_generation
    # What a finalizer holds is shown, whatever its kind.
    if "deletionTimestamp" not in gone["metadata"]:
        assert (gone["kind"] != "Status") is sample.kind.returns_deleted


_LABELS, _ANNOTATIONS = ({"metadata": {name: {"a": "b"}}} for name in ("labels", "annotations"))
_COUNTED: dict[str, tuple[dict[str, Any], list[int]]] = {
    "pods": ({"spec": {"containers": [{"name": "main", "image": "other"}]}}, [1, 1, 2]),
    "daemonsets.apps": ({"spec": {"minReadySeconds": 3}}, [1, 1, 2]),
    "deployments.apps": ({"spec": {"minReadySeconds": 3}}, [1, 2, 3]),
    "replicasets.apps": ({"spec": {"minReadySeconds": 3}}, [1, 1, 2]),
    "statefulsets.apps": ({"spec": {"minReadySeconds": 3}}, [1, 1, 2]),
    "cronjobs.batch": ({"spec": {"schedule": "1 1 1 1 *"}}, [1, 1, 2]),
    "jobs.batch": ({"spec": {"backoffLimit": 9}}, [1, 1, 2]),
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
