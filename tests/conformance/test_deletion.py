"""Laws of deletion: preconditions, finalizers, grace, owners, namespaces."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import RBAC, Api, Room, answers, is_deleting, until
from tests.conformance.objects import config, owner, pod, widget

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


async def bound(room: Room, name: str) -> None:
    """Create a Pod and bind it to a node."""
    await room.pod(name)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": "nowhere"},
    }
    (await room.api.post(f"{room.pods}/{name}/binding", binding)).ok()


async def test_a_deletion_answers_with_details(room: Room) -> None:
    """A Status Success names the object and its uid; some kinds answer with the object."""
    made = await room.widget("a")
    status = (await room.api.delete(f"{room.widgets}/a")).ok()
    assert status["status"] == "Success"
    assert status["details"] == {
        "name": "a",
        "group": "laws.lean-sandbox.dev",
        "kind": "widgets",
        "uid": made["metadata"]["uid"],
    }
    await room.pod("p")
    assert (await room.api.delete(f"{room.pods}/p")).ok()["kind"] == "Pod"


async def test_preconditions_guard_a_deletion(room: Room) -> None:
    """Another uid or version gets 409 and nothing happens; the right ones delete."""
    made = await room.widget("a")
    path = f"{room.widgets}/a"
    for wrong in ({"uid": "other"}, {"resourceVersion": "1"}):
        status = (await room.api.delete(path, {"preconditions": wrong})).refused(409, "Conflict")
        assert "in the precondition" in status["message"]
    right = {
        "uid": made["metadata"]["uid"],
        "resourceVersion": made["metadata"]["resourceVersion"],
    }
    (await room.api.delete(path, {"preconditions": right})).ok()
    (await room.api.get(path)).refused(404, "NotFound")


async def test_finalizers_hold_an_object(room: Room) -> None:
    """It shows a deletionTimestamp, takes no new finalizer, and goes with the last one."""
    path = f"{room.widgets}/a"
    await room.widget("a", metadata={"finalizers": ["laws.dev/one", "laws.dev/two"]})
    first = (await room.api.delete(path)).ok()
    assert first["metadata"]["deletionTimestamp"]
    assert first["metadata"]["deletionGracePeriodSeconds"] == 0
    assert first["metadata"]["generation"] == 2
    again = (await room.api.delete(path)).ok()
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    more = {"metadata": {"finalizers": ["laws.dev/one", "laws.dev/three"]}}
    (await room.api.patch(path, more)).refused(422, "Invalid")
    (await room.api.patch(path, {"metadata": {"finalizers": ["laws.dev/one"]}})).ok()
    assert (await room.api.get(path)).status == 200
    (await room.api.patch(path, {"metadata": {"finalizers": None}})).ok()
    assert (await room.api.get(path)).status == 404


async def test_a_pod_without_a_node_goes_at_once(room: Room) -> None:
    """There is no process to wait for."""
    await room.pod("p")
    (await room.api.delete(f"{room.pods}/p", {"gracePeriodSeconds": 30})).ok()
    assert (await room.api.get(f"{room.pods}/p")).status == 404


async def test_a_pod_that_is_gone_is_shown_in_the_version_of_its_deletion(room: Room) -> None:
    """Whether it goes at once, or after the deletion of before was cut short."""
    await room.pod("free")
    await bound(room, "bound")
    (await room.api.delete(f"{room.pods}/bound")).ok()
    for name in ("free", "bound"):
        before = (await room.api.get(f"{room.pods}/{name}")).ok()["metadata"]
        gone = (await room.api.delete(f"{room.pods}/{name}", {"gracePeriodSeconds": 0})).ok()
        assert int(gone["metadata"]["resourceVersion"]) > int(before["resourceVersion"])
        assert (await room.api.get(f"{room.pods}/{name}")).status == 404


async def test_a_bound_pod_gets_its_grace(room: Room) -> None:
    """It stays with a deadline; a shorter grace moves it, a longer does not, zero ends it."""
    path = f"{room.pods}/p"
    await bound(room, "p")
    first = (await room.api.delete(path)).ok()["metadata"]
    assert first["deletionGracePeriodSeconds"] == 30
    assert first["deletionTimestamp"] > first["creationTimestamp"]
    longer = (await room.api.delete(path, {"gracePeriodSeconds": 60})).ok()["metadata"]
    assert longer["resourceVersion"] == first["resourceVersion"]
    shorter = (await room.api.delete(path, {"gracePeriodSeconds": 5})).ok()["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 5
    assert shorter["deletionTimestamp"] < first["deletionTimestamp"]
    (await room.api.delete(path, gracePeriodSeconds=0)).ok()
    assert (await room.api.get(path)).status == 404


async def test_a_finished_pod_goes_at_once(room: Room) -> None:
    """Grace is for running processes."""
    await bound(room, "p")
    done = {"status": {"phase": "Succeeded"}}
    (await room.api.patch(f"{room.pods}/p/status", done)).ok()
    (await room.api.delete(f"{room.pods}/p")).ok()
    assert (await room.api.get(f"{room.pods}/p")).status == 404


async def test_a_collection_is_deleted_by_selector(room: Room) -> None:
    """Deletecollection takes what its selectors choose and answers with the list."""
    for name in ("a", "b", "c"):
        await room.config(name, k=name)
        labels = {"metadata": {"labels": {"keep": str(name == "c")}}}
        (await room.api.patch(f"{room.maps}/{name}", labels)).ok()
    removed = (await room.api.delete(room.maps, labelSelector="keep=False")).ok()
    assert [item["metadata"]["name"] for item in removed["items"]] == ["a", "b"]
    left = (await room.api.get(room.maps, labelSelector="keep")).ok()
    assert [item["metadata"]["name"] for item in left["items"]] == ["c"]


async def test_dependents_go_after_their_owner(room: Room) -> None:
    """Background: the owner goes at once, then everything below it."""
    parent = await room.widget("parent")
    child = await room.widget("child", metadata={"ownerReferences": [owner(parent)]})
    await room.config("leaf")
    leaf = {"metadata": {"ownerReferences": [owner(child)]}}
    (await room.api.patch(f"{room.maps}/leaf", leaf)).ok()
    (await room.api.delete(f"{room.widgets}/parent", propagationPolicy="Background")).ok()
    assert (await room.api.get(f"{room.widgets}/parent")).status == 404
    await answers(room.api, f"{room.widgets}/child", 404)
    await answers(room.api, f"{room.maps}/leaf", 404)


async def test_a_dependent_lives_while_any_owner_does(room: Room) -> None:
    """With a second owner left it stays, without the reference to the first."""
    first = await room.widget("first")
    second = await room.widget("second")
    references = [owner(first), owner(second)]
    await room.widget("child", metadata={"ownerReferences": references})
    path = f"{room.widgets}/child"
    (await room.api.delete(f"{room.widgets}/first")).ok()

    async def has_one_owner() -> bool:
        metadata = (await room.api.get(path)).ok()["metadata"]
        return bool(metadata["ownerReferences"] == [owner(second)])

    await until(has_one_owner)
    (await room.api.delete(f"{room.widgets}/second")).ok()
    await answers(room.api, path, 404)


async def test_a_foreground_deletion_waits_for_blocking_dependents(room: Room) -> None:
    """The owner stays, deleting, until dependents that block it are gone."""
    parent = await room.widget("parent")
    reference = owner(parent, blockOwnerDeletion=True)
    held = {"ownerReferences": [reference], "finalizers": ["laws.dev/hold"]}
    await room.widget("child", metadata=held)
    path = f"{room.widgets}/parent"
    waiting = (await room.api.delete(path, {"propagationPolicy": "Foreground"})).ok()
    assert waiting["metadata"]["finalizers"] == ["foregroundDeletion"]
    child = f"{room.widgets}/child"
    await until(lambda: is_deleting(room.api, child))
    assert (await room.api.get(path)).status == 200
    (await room.api.patch(child, {"metadata": {"finalizers": None}})).ok()
    await answers(room.api, path, 404)


async def test_orphans_stay(room: Room) -> None:
    """Orphan: dependents lose the reference and live on."""
    parent = await room.widget("parent")
    await room.widget("child", metadata={"ownerReferences": [owner(parent)]})
    (await room.api.delete(f"{room.widgets}/parent", propagationPolicy="Orphan")).ok()
    await answers(room.api, f"{room.widgets}/parent", 404)
    child = (await room.api.get(f"{room.widgets}/child")).ok()
    assert "ownerReferences" not in child["metadata"]


async def test_an_object_of_an_absent_owner_is_collected(room: Room) -> None:
    """A reference to a uid that never lived, or no more, does not keep an object."""
    parent = await room.widget("parent")
    (await room.api.delete(f"{room.widgets}/parent")).ok()
    late = widget("late", metadata={"ownerReferences": [owner(parent)]})
    (await room.api.post(room.widgets, late)).ok()
    await answers(room.api, f"{room.widgets}/late", 404)


async def test_an_owner_of_a_version_that_is_not_served_keeps_an_object(room: Room) -> None:
    """The collector cannot look such an owner up, so it deletes nothing; siblings go."""
    parent = await room.widget("parent")
    group = parent["apiVersion"].partition("/")[0]
    older = {**owner(parent), "apiVersion": f"{group}/v1alpha9"}
    for name, reference in (("kept", older), ("collected", owner(parent))):
        await room.widget(name, metadata={"ownerReferences": [reference]})
    (await room.api.delete(f"{room.widgets}/parent")).ok()
    await answers(room.api, f"{room.widgets}/collected", 404)
    kept = (await room.api.get(f"{room.widgets}/kept")).ok()
    assert kept["metadata"]["ownerReferences"] == [older]
    (await room.api.patch(f"{room.widgets}/kept", {"metadata": {"ownerReferences": None}})).ok()


async def test_an_owner_is_what_a_reference_names(room: Room) -> None:
    """A reference with the uid of one object and the kind or name of another keeps nothing."""
    living = await room.config("living")
    for name, wrong in (("kind", {"kind": "Secret"}), ("name", {"name": "other"})):
        await room.widget(name, metadata={"ownerReferences": [{**owner(living), **wrong}]})
    await room.widget("right", metadata={"ownerReferences": [owner(living)]})
    await answers(room.api, f"{room.widgets}/kind", 404)
    await answers(room.api, f"{room.widgets}/name", 404)
    assert (await room.api.get(f"{room.widgets}/right")).status == 200


async def test_what_is_in_no_namespace_is_not_collected_for_an_owner_in_one(room: Room) -> None:
    """Such an owner cannot be looked up, so nothing is deleted."""
    living = await room.config("living")
    role = {"metadata": {"name": room.name, "ownerReferences": [owner(living)]}}
    (await room.api.post(f"{RBAC}/clusterroles", role)).ok()
    await room.widget("sibling", metadata={"ownerReferences": [owner(living)]})
    (await room.api.delete(f"{room.maps}/living")).ok()
    await answers(room.api, f"{room.widgets}/sibling", 404)
    (await room.api.delete(f"{RBAC}/clusterroles/{room.name}")).ok()


async def test_objects_that_own_each_other_go_together(room: Room) -> None:
    """Foreground: they would wait for each other, so the references stop to block."""
    first = await room.config("first")
    await room.config("second")
    second = f"{room.maps}/second"
    held = {"metadata": {"ownerReferences": [owner(first, blockOwnerDeletion=True)]}}
    other = (await room.api.patch(second, held)).ok()
    held = {"metadata": {"ownerReferences": [owner(other, blockOwnerDeletion=True)]}}
    (await room.api.patch(f"{room.maps}/first", held)).ok()
    (await room.api.delete(f"{room.maps}/first", propagationPolicy="Foreground")).ok()
    await answers(room.api, f"{room.maps}/first", 404)
    await answers(room.api, second, 404)


async def test_a_dependent_that_blocks_nobody_waits_for_its_own(room: Room) -> None:
    """While an owner waits, each dependent is deleted as it is, whether that one blocks or not."""
    held = {"finalizers": ["laws.dev/hold"]}
    parent = await room.config("parent")
    blocking = owner(parent, blockOwnerDeletion=True)
    await room.widget("blocker", metadata={"ownerReferences": [blocking], **held})
    child = await room.widget("child", metadata={"ownerReferences": [owner(parent)], **held})
    below = owner(child, blockOwnerDeletion=True)
    await room.widget("leaf", metadata={"ownerReferences": [below], **held})
    (await room.api.delete(f"{room.maps}/parent", propagationPolicy="Foreground")).ok()
    path = f"{room.widgets}/child"
    await until(lambda: is_deleting(room.api, path))
    finalizers = (await room.api.get(path)).ok()["metadata"]["finalizers"]
    assert "foregroundDeletion" in finalizers
    for name in ("blocker", "child", "leaf"):
        await room.api.patch(f"{room.widgets}/{name}", {"metadata": {"finalizers": None}})


async def test_what_every_namespace_has_comes_back(room: Room) -> None:
    """The default account and the authority of the server, while the namespace lives."""
    for path in (f"{room.core}/serviceaccounts/default", f"{room.maps}/kube-root-ca.crt"):
        before = (await room.api.get(path)).ok()["metadata"]["uid"]
        (await room.api.delete(path)).ok()
        await answers(room.api, path)
        assert (await room.api.get(path)).ok()["metadata"]["uid"] != before


async def test_the_same_name_is_another_object(room: Room) -> None:
    """A successor with the owner's name does not keep its dependents."""
    parent = await room.widget("parent")
    await room.widget("child", metadata={"ownerReferences": [owner(parent)]})
    (await room.api.delete(f"{room.widgets}/parent")).ok()
    await room.widget("parent")
    await answers(room.api, f"{room.widgets}/child", 404)


async def test_an_unknown_policy_is_refused(room: Room) -> None:
    """PropagationPolicy has three values."""
    await room.widget("a")
    reply = await room.api.delete(f"{room.widgets}/a", {"propagationPolicy": "Perhaps"})
    reply.refused(422, "Invalid")


async def test_a_namespace_ends_with_everything_in_it(api: Api) -> None:
    """It is Terminating, refuses new content with a cause, and goes when it is empty."""
    name = "laws-ending"
    path = f"/api/v1/namespaces/{name}"
    (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).ok()
    room = Room(api, name)
    held = config("held", metadata={"finalizers": ["laws.dev/hold"]})
    (await api.post(room.maps, held)).ok()
    await room.widget("w")
    ending = (await api.delete(path)).ok()
    assert ending["status"]["phase"] == "Terminating"
    assert ending["spec"]["finalizers"] == ["kubernetes"]
    status = (await api.post(room.maps, config("late"))).refused(403, "Forbidden")
    assert status["message"] == (
        'configmaps "late" is forbidden: unable to create new content in namespace laws-ending'
        " because it is being terminated"
    )
    assert status["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    await until(lambda: is_deleting(api, f"{room.maps}/held"))
    assert (await api.get(path)).status == 200
    (await api.patch(f"{room.maps}/held", {"metadata": {"finalizers": None}})).ok()
    await answers(api, f"{room.widgets}/w", 404)
    await answers(api, path, 404)


async def test_namespaces_of_the_system_stay(api: Api) -> None:
    """Nobody may delete them, whatever his rights."""
    for name in ("default", "kube-public", "kube-system"):
        status = (await api.delete(f"/api/v1/namespaces/{name}")).refused(403, "Forbidden")
        assert status["message"] == (
            f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        )


@pytest.mark.parametrize("name", ["system-cluster-critical", "system-node-critical"])
async def test_priorities_of_the_system_stay(api: Api, name: str) -> None:
    """Every cluster has these classes, and nobody deletes them, nor another of their values."""
    base = "/apis/scheduling.k8s.io/v1/priorityclasses"
    kept = (await api.get(f"{base}/{name}")).ok()
    assert kept["value"] in (2_000_000_000, 2_000_001_000)
    (await api.delete(f"{base}/{name}")).refused(403, "Forbidden")
    (await api.delete(f"{base}/{name}", dryRun="All")).refused(403, "Forbidden")
    made = await api.post(base, {"metadata": {"name": name}, "value": 5})
    made.refused(422, "Invalid")
    again = await api.post(base, {"metadata": {"name": name}, "value": kept["value"]})
    again.refused(409, "AlreadyExists")


async def test_a_new_namespace_is_furnished(room: Room) -> None:
    """It has the default service account and the cluster's certificate."""
    (await room.api.get(f"{room.core}/serviceaccounts/default")).ok()
    await answers(room.api, f"{room.maps}/kube-root-ca.crt")
    made = (await room.api.get(room.core)).ok()
    assert made["metadata"]["labels"]["kubernetes.io/metadata.name"] == room.name
    assert made["status"]["phase"] == "Active"


async def test_an_eviction_is_a_deletion(room: Room) -> None:
    """POST to /eviction deletes the Pod."""
    await room.pod("p")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    (await room.api.post(f"{room.pods}/p/eviction", body)).ok()
    await answers(room.api, f"{room.pods}/p", 404)


async def test_a_pod_dies_with_its_owner(room: Room) -> None:
    """A bound Pod of a collected owner gets its grace like any other."""
    parent = await room.widget("parent")
    (await room.api.post(room.pods, pod("p", ownerReferences=[owner(parent)]))).ok()
    (await room.api.delete(f"{room.widgets}/parent")).ok()
    await answers(room.api, f"{room.pods}/p", 404)


async def test_a_claim_in_use_outlives_its_deletion(room: Room) -> None:
    """It waits until the last Pod on a node that mounts it is gone; an unused one goes at once."""
    claims = f"{room.core}/persistentvolumeclaims"
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "none",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    for name in ("used", "unused"):
        made = (await room.api.post(claims, {"metadata": {"name": name}, "spec": spec})).ok()
        assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    user = pod("p")
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "used"}}
    user["spec"]["volumes"] = [volume]
    (await room.api.post(room.pods, user)).ok()
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "nowhere"}}
    (await room.api.post(f"{room.pods}/p/binding", binding)).ok()
    for name in ("used", "unused"):
        (await room.api.delete(f"{claims}/{name}")).ok()
    await answers(room.api, f"{claims}/unused", 404)
    assert await is_deleting(room.api, f"{claims}/used")
    # A finished Pod still has its volumes.
    (await room.api.patch(f"{room.pods}/p/status", {"status": {"phase": "Succeeded"}})).ok()
    assert await is_deleting(room.api, f"{claims}/used")
    (await room.api.delete(f"{room.pods}/p", gracePeriodSeconds=0)).ok()
    await answers(room.api, f"{claims}/used", 404)
