"""Laws of names: custom kinds called like built-in ones, members called like system fields."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import JSON_PATCH, Api, Room, answers, until
from tests.conformance.objects import GROUP, config

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ANYTHING = {
    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}


def definition(group: str, plural: str, kind: str, *versions: str) -> Json:
    """Return a definition of a namespaced kind that takes anything; the first version is stored."""
    listed = [
        {"name": name, "served": True, "storage": not at, "schema": _ANYTHING}
        for at, name in enumerate(versions or ("v1",))
    ]
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": listed,
        },
    }


async def define(api: Api, made: Json) -> str:
    """Create a definition and return the path of its name, once its kind is served."""
    (await api.post(DEFINITIONS, made)).ok()
    spec = made["spec"]
    await answers(
        api, f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    )
    return f"{DEFINITIONS}/{made['metadata']['name']}"


@pytest.mark.parametrize(
    ("plural", "kind"),
    [
        ("services", "Service"),
        ("persistentvolumeclaims", "PersistentVolumeClaim"),
        ("pods", "Pod"),
        ("namespaces", "Namespace"),
        ("secrets", "Secret"),
        ("leases", "Lease"),
        ("events", "Event"),
        ("bindings", "Binding"),
        ("tokenreviews", "TokenReview"),
        ("customresourcedefinitions", "CustomResourceDefinition"),
        ("resourcequotas", "ResourceQuota"),
        ("poddisruptionbudgets", "PodDisruptionBudget"),
        ("nodes", "Node"),
    ],
)
async def test_a_custom_kind_may_be_called_like_a_built_in_one(
    room: Room, plural: str, kind: str
) -> None:
    """It is stored as it was sent, has every verb of its own, and goes when it is deleted."""
    group = f"names.{GROUP}"
    name = await define(room.api, definition(group, plural, kind))
    path = f"/apis/{group}/v1/namespaces/{room.name}/{plural}"
    sent = {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": "x"},
        "spec": {"a": 1, "containers": [{"name": "c"}]},
        "data": {"k": "v"},
        "stringData": {"s": "t"},
        "status": {"phase": "Running"},
        "type": "t",
    }
    try:
        reply = await room.api.post(path, sent)
        made = reply.ok()
        assert "Warning" not in reply.headers
        assert {key: made[key] for key in sent if key != "metadata"} == {
            key: sent[key] for key in sent if key != "metadata"
        }
        assert made["metadata"]["generation"] == 1
        assert "finalizers" not in made["metadata"]
        assert "labels" not in made["metadata"]
        for subresource in ("binding", "eviction", "token", "log", "exec"):
            for method in ("GET", "POST"):
                reply = await room.api.ask(method, f"{path}/x/{subresource}", sent)
                reply.refused(404, "NotFound")
        deleted = (await room.api.delete(f"{path}/x")).ok()
        assert (deleted["kind"], deleted["status"]) == ("Status", "Success")
        assert (await room.api.get(f"{path}/x")).status == 404
        assert (await room.api.delete(path)).ok()["kind"] == f"{kind}List"
    finally:
        (await room.api.delete(name)).ok()
        await answers(room.api, name, 404)


async def test_a_definition_does_not_take_the_path_of_a_built_in_kind(room: Room) -> None:
    """Stored or refused: the built-in kind is served before, meanwhile and afterwards."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{room.name}/leases"
    (await room.api.post(path, {"metadata": {"name": "mine"}, "spec": {}})).ok()
    made = definition("coordination.k8s.io", "leases", "Lease")
    made["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for a test"}
    name = f"{DEFINITIONS}/leases.coordination.k8s.io"
    assert (await room.api.post(DEFINITIONS, made)).status in (201, 422)
    try:
        wrong = {"metadata": {"name": "x"}, "spec": {"leaseDurationSeconds": "no number"}}
        assert (await room.api.post(path, wrong)).status == 400
        assert (await room.api.get(f"{path}/mine")).status == 200
    finally:
        await room.api.delete(name)
        await answers(room.api, name, 404)
    assert (await room.api.get(f"{path}/mine")).status == 200


_MEMBERS = ("deletionTimestamp", "ownerReferences", "finalizers", "foregroundDeletion")


async def test_a_member_is_no_field_of_metadata(api: Api) -> None:
    """Data, labels and annotations may be called like fields of metadata: a namespace ends."""
    path = "/api/v1/namespaces/laws-members"
    (await api.post("/api/v1/namespaces", {"metadata": {"name": "laws-members"}})).ok()
    room = Room(api, "laws-members")
    named = dict.fromkeys(_MEMBERS, "x")
    marked = config("marked", named, metadata={"labels": named, "annotations": named})
    (await api.post(room.maps, marked)).ok()
    await room.widget("w", metadata={"labels": named, "annotations": named})
    (await api.delete(path)).ok()
    await answers(api, path, 404)
    assert (await api.get(f"{room.maps}/marked")).status == 404
    assert (await api.get(f"{room.widgets}/w")).status == 404


async def test_a_claim_is_not_held_by_a_label(room: Room) -> None:
    """Only volumes of Pods use a claim, not what is called like one."""
    claims = f"{room.core}/persistentvolumeclaims"
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "none",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    (await room.api.post(claims, {"metadata": {"name": "c"}, "spec": spec})).ok()
    await room.pod("p", labels={"claimName": "c"}, annotations={"claimName": "c"})
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "nowhere"}}
    (await room.api.post(f"{room.pods}/p/binding", binding)).ok()
    (await room.api.delete(f"{claims}/c")).ok()
    await answers(room.api, f"{claims}/c", 404)
    (await room.api.delete(f"{room.pods}/p", gracePeriodSeconds=0)).ok()


async def _serve(api: Api, name: str, path: str, *, served: bool) -> None:
    step = {"op": "replace", "path": "/spec/versions/0/served", "value": served}
    (await api.patch(name, [step], JSON_PATCH)).ok()

    async def is_so() -> bool:
        # Once it is served again, a real server has to read it first: 429.
        return ((await api.get(path)).status == 404) is not served

    await until(is_so)


async def test_objects_go_with_their_definition_whatever_is_served(room: Room) -> None:
    """Objects of versions that are served no more are deleted with their definition."""
    group = f"served.{GROUP}"
    made = definition(group, "zoos", "Zoo")
    name = await define(room.api, made)
    path = f"/apis/{group}/v1/namespaces/{room.name}/zoos"
    zoo = {"apiVersion": f"{group}/v1", "kind": "Zoo", "metadata": {"name": "z"}}
    (await room.api.post(path, zoo)).ok()
    await _serve(room.api, name, path, served=False)
    (await room.api.delete(name)).ok()
    await answers(room.api, name, 404)
    await define(room.api, made)
    assert (await room.api.get(path)).ok()["items"] == []
    (await room.api.delete(name)).ok()
    await answers(room.api, name, 404)


async def test_a_definition_that_ends_has_no_grace(api: Api) -> None:
    """It is being deleted since a moment, and no seconds are counted."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.laws.lean-sandbox.dev"
    ending = (await api.delete(path, dryRun="All")).ok()["metadata"]
    assert "deletionTimestamp" in ending
    assert "deletionGracePeriodSeconds" not in ending


async def test_a_definition_ends_after_its_objects(room: Room) -> None:
    """While one is held the definition says that it ends, and nothing new is created."""
    group = f"ending.{GROUP}"
    name = await define(room.api, definition(group, "zoos", "Zoo"))
    path = f"/apis/{group}/v1/namespaces/{room.name}/zoos"
    held = {"name": "z", "finalizers": ["laws.dev/hold"]}
    zoo = {"apiVersion": f"{group}/v1", "kind": "Zoo", "metadata": held}
    (await room.api.post(path, zoo)).ok()
    (await room.api.delete(name)).ok()

    async def is_ending() -> bool:
        conditions = (await room.api.get(name)).ok()["status"]["conditions"]
        return any((each["type"], each["status"]) == ("Terminating", "True") for each in conditions)

    await until(is_ending)
    late = await room.api.post(path, {**zoo, "metadata": {"name": "late"}})
    status = late.refused(403, "Forbidden")
    assert status["message"] == (
        f'zoos.{group} "late" is forbidden: create not allowed while custom resource definition is'
        " terminating"
    )
    (await room.api.patch(f"{path}/z", {"metadata": {"finalizers": None}})).ok()
    await answers(room.api, name, 404)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("spec.scope", {"scope": "Cluster"}),
        ("spec.names.kind", {"names": {"kind": "Yak"}}),
        ("spec.names.plural", {"names": {"plural": "yaks"}}),
        ("spec.group", {"group": f"other.{GROUP}"}),
    ],
)
async def test_what_a_definition_defines_stays(room: Room, field: str, change: Json) -> None:
    """Group, scope, kind and plural cannot change: objects would be lost."""
    group = f"fixed.{GROUP}"
    name = await define(room.api, definition(group, "zoos", "Zoo"))
    path = f"/apis/{group}/v1/namespaces/{room.name}/zoos"
    zoo = {"apiVersion": f"{group}/v1", "kind": "Zoo", "metadata": {"name": "z"}}
    (await room.api.post(path, zoo)).ok()
    try:
        status = (await room.api.patch(name, {"spec": change})).refused(422, "Invalid")
        causes = {cause["field"]: cause["message"] for cause in status["details"]["causes"]}
        assert causes[field].endswith("field is immutable")
        renamed = {"spec": {"names": {"shortNames": ["zz"], "listKind": "ManyZoos"}}}
        (await room.api.patch(name, renamed)).ok()
        assert (await room.api.get(f"{path}/z")).status == 200
    finally:
        (await room.api.delete(name)).ok()
        await answers(room.api, name, 404)
