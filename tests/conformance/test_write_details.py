"""Laws of writes in their details: what a server mends, warns of, and refuses in which words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import APPLY, JSON_PATCH, Room, cause, warnings
from tests.conformance.objects import config, owner, pod, widget

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


# -- metadata --------------------------------------------------------------------------------------


@pytest.mark.parametrize("metadata", [3, True, "x", [], {"name": 3}, {"labels": 3}])
@pytest.mark.parametrize("made", [config("a"), widget("a")], ids=lambda made: made["kind"])
async def test_metadata_of_a_wrong_type_is_refused_before_anything_else(
    room: Room, metadata: Any, made: Json
) -> None:
    """400 for an object, be it there or not, 422 for a patch, and nothing is written."""
    base = room.maps if made["kind"] == "ConfigMap" else room.widgets
    before = (await room.api.post(base, made)).version
    body = {**made, "metadata": metadata}
    whole = [await room.api.post(base, body)]
    whole += [await room.api.put(f"{base}/{name}", body) for name in ("a", "absent")]
    for reply in whole:
        reply.refused(400, "BadRequest")
        assert "cannot unmarshal" in reply.message
    step = {"op": "replace", "path": "/metadata", "value": metadata}
    patches = [await room.api.patch(f"{base}/a", {"metadata": metadata})]
    patches.append(await room.api.patch(f"{base}/a", [step], JSON_PATCH))
    for reply in patches:
        reply.refused(422, "Invalid")
    applied = await room.api.patch(f"{base}/a", body, APPLY, fieldManager="m")
    assert applied.status == 500
    assert applied.message.startswith("failed to create typed patch object")
    assert (await room.api.get(f"{base}/a")).version == before


async def test_an_object_without_metadata_has_no_name(room: Room) -> None:
    """Null is nothing: the name is asked for, and only an apply takes it from the path."""
    await room.config("a")
    nameless: list[Json] = [{"metadata": None}, {"metadata": {}}, {}]
    for body in nameless:
        (await room.api.post(room.maps, body)).refused(422, "Invalid")
        put = await room.api.put(f"{room.maps}/a", body)
        assert "name must be provided" in put.refused(400, "BadRequest")["message"]
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": None}
    (await room.api.patch(f"{room.maps}/a", applied, APPLY, fieldManager="m")).ok()


async def test_a_name_for_another_path_is_refused_be_it_there_or_not(room: Room) -> None:
    """A PUT is read before anybody looks for its object."""
    reply = await room.api.put(f"{room.maps}/absent", config("other"))
    assert "does not match the name on the URL" in reply.refused(400, "BadRequest")["message"]


async def test_a_generated_name_is_forgotten_by_whoever_leaves_it_out(room: Room) -> None:
    """Its beginning is a member like others: a PUT without it drops it, and nobody owns it."""
    made = (await room.api.post(room.maps, {"metadata": {"generateName": "g-"}})).ok()
    name = made["metadata"]["name"]
    kept = (await room.api.patch(f"{room.maps}/{name}", {"data": {"a": "b"}})).ok()["metadata"]
    assert kept["generateName"] == "g-"
    put = (await room.api.put(f"{room.maps}/{name}", config(name, {"a": "b"}))).ok()["metadata"]
    assert "generateName" not in put
    assert "f:generateName" not in str(put["managedFields"])


# -- bytes -----------------------------------------------------------------------------------------


async def test_bytes_that_are_no_text_are_replaced_in_json_and_refused_in_yaml(room: Room) -> None:
    """In objects, patches and options alike: each becomes U+FFFD."""
    posted = await room.api.post(room.maps, b'{"metadata":{"name":"a"},"data":{"k":"\xff"}}')
    merged = await room.api.patch(f"{room.maps}/a", b'{"data":{"m":"\xff"}}')
    step = b'[{"op":"add","path":"/data/j","value":"\xff"}]'
    patched = await room.api.patch(f"{room.maps}/a", step, JSON_PATCH)
    assert posted.ok()["data"] == {"k": "\ufffd"}
    assert merged.ok()["data"]["m"] == patched.ok()["data"]["j"] == "\ufffd"
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"y":"\xff"}}'
    applied = await room.api.patch(f"{room.maps}/a", body, APPLY, fieldManager="m")
    applied.refused(400, "BadRequest")
    in_yaml = await room.api.post(room.maps, body, content="application/yaml")
    in_yaml.refused(400, "BadRequest")
    options = await room.api.delete(f"{room.maps}/a", b'{"propagationPolicy":"\xff"}')
    options.refused(422, "Invalid")


# -- PUT -------------------------------------------------------------------------------------------

_RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def test_most_kinds_are_not_created_by_put(room: Room) -> None:
    """A ConfigMap, a Pod, a Widget: 404."""
    for base, body in (
        (room.maps, config("x")),
        (room.pods, pod("x")),
        (room.widgets, widget("x")),
    ):
        (await room.api.put(f"{base}/x", body)).refused(404, "NotFound")


async def test_times_of_conditions_are_always_written(room: Room) -> None:
    """A condition of a Pod without times shows them as null; a binding sets its own."""
    await room.pod("p")
    body = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    made = (await room.api.patch(f"{room.pods}/p/status", body)).ok()
    assert made["status"]["conditions"] == [
        {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
    ]
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    (await room.api.post(f"{room.pods}/p/binding", binding)).ok()
    *_, bound = (await room.api.get(f"{room.pods}/p")).ok()["status"]["conditions"]
    assert set(bound) == {"type", "status", "lastProbeTime", "lastTransitionTime"}
    assert bound["lastTransitionTime"]


# -- metadata --------------------------------------------------------------------------------------


async def test_a_version_cannot_be_taken_out_of_a_custom_object(room: Room) -> None:
    """Null and 0 say no version, which custom kinds demand; one is a number of 64 bits."""
    await room.widget("w")
    path = f"{room.widgets}/w"
    for version in (None, "0"):
        reply = await room.api.patch(path, {"metadata": {"resourceVersion": version}})
        reply.refused(422, "Invalid")
        assert cause(reply)[0] == "metadata.resourceVersion"
    for version, why in (
        ("abc", "invalid syntax"),
        ("\u0663", "invalid syntax"),
        (str(1 << 64), "value out of range"),
        ("9" * 5000, "value out of range"),
    ):
        reply = await room.api.patch(path, {"metadata": {"resourceVersion": version}})
        assert (reply.status, reply.message.rpartition(": ")[2]) == (500, why)
    await room.config("c")
    body = {"metadata": {"resourceVersion": None}, "data": {"k": "v"}}
    assert (await room.api.patch(f"{room.maps}/c", body)).ok()["data"] == {"k": "v"}


async def test_emptied_managed_fields_end_the_record(room: Room) -> None:
    """One empty entry clears it, of built-in kinds an empty list as well; no update begins it."""
    await room.widget("w")
    await room.config("m")
    path = f"{room.widgets}/w"
    none: Json = {"metadata": {"managedFields": []}}
    assert "managedFields" in (await room.api.patch(path, none)).ok()["metadata"]
    assert "managedFields" not in (await room.api.patch(f"{room.maps}/m", none)).ok()["metadata"]
    cleared = await room.api.patch(path, {"metadata": {"managedFields": [{}]}})
    assert "managedFields" not in cleared.ok()["metadata"]
    changed = (await room.api.patch(path, {"spec": {"size": 2}})).ok()
    assert "managedFields" not in changed["metadata"]


async def test_an_owner_is_listed_once(room: Room) -> None:
    """Equal references are merged into one, with a warning."""
    parent = await room.config("parent")
    uid = parent["metadata"]["uid"]
    body = widget("w", metadata={"ownerReferences": [owner(parent), owner(parent)]})
    reply = await room.api.post(room.widgets, body)
    assert reply.ok()["metadata"]["ownerReferences"] == [owner(parent)]
    assert f"duplicate UID(s) observed: {uid}" in warnings(reply)


async def test_two_controllers_are_refused(room: Room) -> None:
    """One reference at most has controller set."""
    parents = [await room.config(name) for name in ("a", "b")]
    references = [owner(parent, controller=True) for parent in parents]
    reply = await room.api.post(room.widgets, widget("w", metadata={"ownerReferences": references}))
    reply.refused(422, "Invalid")
    assert cause(reply)[0] == "metadata.ownerReferences"
    assert "Only one reference can have Controller set to true" in cause(reply)[1]


async def test_a_plain_finalizer_is_taken_with_a_warning(room: Room) -> None:
    """Finalizers of custom objects should have a domain."""
    reply = await room.api.post(room.widgets, widget("w", metadata={"finalizers": ["plain"]}))
    assert reply.ok()["metadata"]["finalizers"] == ["plain"]
    assert "prefer a domain-qualified finalizer name" in warnings(reply)
    qualified = {"metadata": {"finalizers": ["laws.dev/a"]}}
    assert not warnings(await room.api.patch(f"{room.widgets}/w", qualified))
    (await room.api.patch(f"{room.widgets}/w", {"metadata": {"finalizers": None}})).ok()


async def test_a_name_is_taken_until_its_holder_is_gone(room: Room) -> None:
    """A create beside an object on its way out says so, still as AlreadyExists."""
    await room.widget("w", metadata={"finalizers": ["laws.dev/hold"]})
    (await room.api.delete(f"{room.widgets}/w")).ok()
    status = (await room.api.post(room.widgets, widget("w"))).refused(409, "AlreadyExists")
    assert status["message"] == (
        'object is being deleted: widgets.laws.lean-sandbox.dev "w" already exists'
    )
    (await room.api.patch(f"{room.widgets}/w", {"metadata": {"finalizers": None}})).ok()


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ({"fieldManager": "x" * 129}, "fieldManager", "Too long: may not be more than 128 bytes"),
        ({"force": "true"}, "force", "Forbidden: may not be specified for non-apply patch"),
        ({"dryRun": "x"}, "dryRun", 'Unsupported value: ["x"]: supported values: "All"'),
    ],
)
async def test_options_that_mean_nothing_are_refused(
    room: Room, query: Json, field: str, message: str
) -> None:
    """422 for PatchOptions, with the option as the field."""
    await room.widget("w")
    reply = await room.api.patch(f"{room.widgets}/w", {"spec": {"size": 2}}, **query)
    status = reply.refused(422, "Invalid")
    assert status["details"]["kind"] == "PatchOptions"
    assert cause(reply) == (field, message)


async def test_a_manager_that_cannot_be_printed_is_refused(room: Room) -> None:
    """422 names the option."""
    reply = await room.api.post(room.maps, config("x"), fieldManager="a\x01b")
    reply.refused(422, "Invalid")
    assert cause(reply)[0] == "fieldManager"


async def test_delete_options_have_to_agree(room: Room) -> None:
    """Not both forms of propagation, and no body of another kind."""
    await room.widget("w")
    path = f"{room.widgets}/w"
    both = await room.api.delete(path, {"orphanDependents": True, "propagationPolicy": "Orphan"})
    both.refused(422, "Invalid")
    assert cause(both)[0] == "propagationPolicy"
    (await room.api.delete(path, {"kind": "Pod", "apiVersion": "v1"})).refused(400, "BadRequest")
    assert (await room.api.get(path)).status == 200


# -- what admission adds to Pods -------------------------------------------------------------------


async def test_a_pod_gets_the_token_of_its_account(room: Room) -> None:
    """A projected volume, mounted in each container; not where Pod or container decline."""
    made = (await room.api.post(room.pods, pod("p"))).ok()["spec"]
    (volume,) = made["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    (mount,) = made["containers"][0]["volumeMounts"]
    assert mount == {
        "name": volume["name"],
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }
    token, root, namespace = volume["projected"]["sources"]
    assert token["serviceAccountToken"] == {"expirationSeconds": 3607, "path": "token"}
    assert root["configMap"]["name"] == "kube-root-ca.crt"
    assert namespace["downwardAPI"]["items"][0]["path"] == "namespace"
    without = pod("q")
    without["spec"]["automountServiceAccountToken"] = False
    assert "volumes" not in (await room.api.post(room.pods, without)).ok()["spec"]
    metadata = (await room.api.get(f"{room.pods}/p")).ok()["metadata"]
    (entry,) = metadata["managedFields"]
    assert "f:volumes" not in entry["fieldsV1"]["f:spec"]


async def test_a_pod_tolerates_the_loss_of_its_node_for_a_while(room: Room) -> None:
    """Five minutes, unless it says itself what to do about the taint."""
    made = (await room.api.post(room.pods, pod("p"))).ok()["spec"]
    taints = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    assert [one["key"] for one in made["tolerations"]] == taints
    assert {one["tolerationSeconds"] for one in made["tolerations"]} == {300}
    own = pod("q")
    own["spec"]["tolerations"] = [{"key": taints[0], "operator": "Exists"}]
    tolerated = (await room.api.post(room.pods, own)).ok()["spec"]["tolerations"]
    assert [one["key"] for one in tolerated] == taints
    assert "tolerationSeconds" not in tolerated[0]


# -- paths -----------------------------------------------------------------------------------------


async def test_collections_and_objects_have_their_own_verbs(room: Room) -> None:
    """No PATCH of a collection, no create without a namespace, nothing below unknown parts."""
    api = room.api
    await room.widget("w")
    assert (await api.patch(room.widgets, {})).refused(400, "BadRequest")
    (await api.post("/api/v1/pods", pod("p"))).refused(405, "MethodNotAllowed")
    (await api.delete("/api/v1/pods")).refused(405, "MethodNotAllowed")
    everywhere = room.widgets.replace(f"/namespaces/{room.name}", "")
    assert (await api.post(everywhere, widget("x"))).body == b"404 page not found\n"
    nothing = room.widgets.replace("widgets", "nothings")
    assert (await api.get(nothing)).body == b"404 page not found\n"
    status = (await api.get(f"{room.widgets}/w/nothing")).refused(404, "NotFound")
    assert status["details"]["name"] == "w"
    await room.config("c")
    assert (await api.get(f"{room.maps}/c/nothing")).refused(404, "NotFound")["details"] == {}


async def test_a_scale_of_none_says_no_replicas(room: Room) -> None:
    """Zero is left out of the spec; a negative number is refused by the path of the kind."""
    await room.widget("w", replicas=0)
    path = f"{room.widgets}/w/scale"
    scale = (await room.api.get(path)).ok()
    assert scale["spec"] == {}
    assert scale["status"] == {"replicas": 0}
    refused = await room.api.patch(path, {"spec": {"replicas": -1}})
    refused.refused(422, "Invalid")
    assert cause(refused) == (
        ".spec.replicas",
        "Invalid value: -1: should be a non-negative integer",
    )


async def test_a_claim_for_a_volume_is_pending(room: Room) -> None:
    """PersistentVolumeClaims are defaulted; what they ask for is owned by who asked."""
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "none"}
    body: Json = {"metadata": {"name": "c"}, "spec": spec}
    body["spec"]["resources"] = {"requests": {"storage": "1Gi"}}
    made = (await room.api.post(f"{room.core}/persistentvolumeclaims", body)).ok()
    assert made["status"] == {"phase": "Pending"}
    assert made["spec"]["volumeMode"] == "Filesystem"
    owned = made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
    assert owned["f:resources"] == {"f:requests": {".": {}, "f:storage": {}}}


async def test_an_immutable_config_map_stays_as_it_is(room: Room) -> None:
    """Its data cannot change, nor can it become mutable again."""
    body = {**config("c", {"k": "v"}), "immutable": True}
    (await room.api.post(room.maps, body)).ok()
    path = f"{room.maps}/c"
    changed = await room.api.patch(path, {"data": {"k": "w"}})
    changed.refused(422, "Invalid")
    assert cause(changed)[0] == "data"
    (await room.api.patch(path, {"immutable": False})).refused(422, "Invalid")
    labelled = (await room.api.patch(path, {"metadata": {"labels": {"a": "b"}}})).ok()
    assert labelled["metadata"]["labels"] == {"a": "b"}
