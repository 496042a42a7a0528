"""Laws of creating, reading, replacing and deleting single objects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import Api, Room, answers, until
from tests.conformance.objects import config, pod, widget

Json = dict[str, Any]

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_created_object_has_identity_and_reads_back_the_same(room: Room) -> None:
    """uid, resourceVersion, creationTimestamp and generation 1 are the server's to give."""
    made = await room.widget("a", mode="Slow")
    assert made["metadata"]["uid"]
    assert made["metadata"]["generation"] == 1
    assert made["metadata"]["namespace"] == room.name
    assert made["metadata"]["creationTimestamp"].endswith("Z")
    assert (await room.api.get(f"{room.widgets}/a")).ok() == made


async def test_identity_sent_by_a_creator_is_not_taken(room: Room) -> None:
    """A creator cannot choose uid, creation time or generation."""
    wish = {
        "uid": "11111111-1111-4111-8111-111111111111",
        "generation": 7,
        "creationTimestamp": "2001-01-01T00:00:00Z",
    }
    made = (await room.api.post(room.widgets, widget("a", metadata=wish))).ok()
    for key, value in wish.items():
        assert made["metadata"][key] != value


async def test_a_resource_version_cannot_be_sent_with_a_create(room: Room) -> None:
    """ResourceVersion belongs to stored objects only, and a dry run stores nothing."""
    body = config("a", metadata={"resourceVersion": "1"})
    reply = await room.api.post(room.maps, body)
    assert reply.status == 500
    assert "resourceVersion" in reply.message
    (await room.api.post(room.maps, body, dryRun="All")).ok()
    nowhere = room.maps.replace(room.name, "nowhere")
    (await room.api.post(nowhere, body)).refused(404, "NotFound")


async def test_generate_name_makes_distinct_names(room: Room) -> None:
    """Each create with generateName gets a suffix of five letters."""
    body = {"metadata": {"generateName": "x-"}}
    names = [(await room.api.post(room.maps, body)).ok()["metadata"]["name"] for _ in range(3)]
    assert len(set(names)) == 3
    assert all(name.startswith("x-") and len(name) == 7 for name in names)


async def test_a_prefix_for_names_is_as_long_as_a_name_and_a_hyphen(room: Room) -> None:
    """So any object can give its name to others; of a longer one nothing is made."""
    body = {"metadata": {"generateName": "x" * 253 + "-"}}
    assert len((await room.api.post(room.maps, body)).ok()["metadata"]["name"]) == 63
    body = {"metadata": {"generateName": "x" * 254 + "-"}}
    (await room.api.post(room.maps, body)).refused(422, "Invalid")


async def test_a_name_is_taken_once(room: Room) -> None:
    """A second create of the same name gets 409 AlreadyExists with details."""
    await room.widget("a")
    status = (await room.api.post(room.widgets, widget("a"))).refused(409, "AlreadyExists")
    assert status["message"] == 'widgets.laws.lean-sandbox.dev "a" already exists'
    assert status["details"] == {"name": "a", "group": "laws.lean-sandbox.dev", "kind": "widgets"}


async def test_what_does_not_exist_is_not_found(room: Room) -> None:
    """Reading, replacing, patching and deleting an absent object get the same 404."""
    for reply in (
        await room.api.get(f"{room.maps}/no"),
        await room.api.put(f"{room.maps}/no", config("no")),
        await room.api.patch(f"{room.maps}/no", {"data": {}}),
        await room.api.delete(f"{room.maps}/no"),
    ):
        status = reply.refused(404, "NotFound")
        assert status["message"] == 'configmaps "no" not found'
        assert status["details"] == {"name": "no", "kind": "configmaps"}


async def test_an_unknown_resource_is_not_found(api: Api) -> None:
    """A path of a known version without such a resource gets a Status, others plain text."""
    assert (await api.get("/api/v1/nothings")).refused(404, "NotFound")["details"] == {}
    assert (await api.get("/apis/no.such.group/v1/things")).body == b"404 page not found\n"


async def test_a_namespace_has_to_exist(api: Api) -> None:
    """A create in an absent namespace names that namespace."""
    reply = await api.post("/api/v1/namespaces/absent/configmaps", config("a"))
    assert reply.refused(404, "NotFound")["message"] == 'namespaces "absent" not found'


async def test_a_body_must_agree_with_its_path(room: Room) -> None:
    """Namespace, name, kind and version of the body are checked against the path."""
    api = room.api
    foreign = config("a", metadata={"namespace": "other"})
    (await api.post(room.maps, foreign)).refused(400, "BadRequest")
    await room.config("a")
    (await api.put(f"{room.maps}/a", config("b"))).refused(400, "BadRequest")
    (await api.post(room.pods, config("a"))).refused(400, "BadRequest")
    other = widget("x") | {"apiVersion": "laws.lean-sandbox.dev/v9"}
    (await api.post(room.widgets, other)).refused(400, "BadRequest")
    wrong = (await api.post(room.widgets, widget("x") | {"kind": "Gadget"})).refused(422, "Invalid")
    assert wrong["details"]["causes"][0]["field"] == "kind"


async def test_a_body_that_is_no_json_is_a_bad_request(room: Room) -> None:
    """Garbage gets 400, not 500."""
    for body in (b"{bad", b"", b"[]"):
        (await room.api.post(room.widgets, body)).refused(400, "BadRequest")
        (await room.api.post(room.maps, body)).refused(400, "BadRequest")


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "a..b", "x" * 254])
async def test_a_name_must_be_a_dns_subdomain(room: Room, name: str) -> None:
    """Bad names get 422 with metadata.name as the field."""
    status = (await room.api.post(room.widgets, widget(name))).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.name"


async def test_labels_must_be_well_formed(room: Room) -> None:
    """A bad key and a bad value are both named."""
    body = config("a", metadata={"labels": {"a b": "x y"}})
    status = (await room.api.post(room.maps, body)).refused(422, "Invalid")
    assert {cause["field"] for cause in status["details"]["causes"]} == {"metadata.labels"}
    assert len(status["details"]["causes"]) == 2


async def test_schema_violations_are_named(room: Room) -> None:
    """A wrong type and a missing field get 422 with the path of the field."""
    api = room.api
    wrong = (await api.post(room.widgets, widget("a", size="big"))).refused(422, "Invalid")
    assert wrong["details"]["causes"][0]["field"] == "spec.size"
    missing = {**widget("a"), "spec": {}}
    status = (await api.post(room.widgets, missing)).refused(422, "Invalid")
    assert status["details"]["causes"][0]["reason"] == "FieldValueRequired"
    (await api.post(room.pods, {"metadata": {"name": "p"}, "spec": {"containers": "x"}})).refused(
        400, "BadRequest"
    )


async def test_a_pod_whose_service_account_is_missing_is_refused(room: Room) -> None:
    """It is named in the message."""
    spec = {"serviceAccountName": "nobody", "containers": [{"name": "c", "image": "i"}]}
    reply = await room.api.post(room.pods, {"metadata": {"name": "p"}, "spec": spec})
    reply.refused(403, "Forbidden")
    account = f'{room.name}/nobody: serviceaccount "nobody" not found'
    assert reply.message == f'pods "p" is forbidden: error looking up service account {account}'


async def test_unknown_fields_are_dropped_with_a_warning_or_refused(room: Room) -> None:
    """fieldValidation: Warn drops and warns, Ignore drops silently, Strict refuses."""
    api = room.api
    odd = widget("a", junk=1)
    warned = await api.post(room.widgets, odd, dryRun="All")
    assert "junk" not in warned.ok()["spec"]
    assert 'unknown field \\"spec.junk\\"' in warned.headers["Warning"]
    ignored = await api.post(room.widgets, odd, dryRun="All", fieldValidation="Ignore")
    assert "Warning" not in ignored.headers
    strict = await api.post(room.widgets, odd, fieldValidation="Strict")
    assert 'unknown field "spec.junk"' in strict.refused(400, "BadRequest")["message"]


async def test_defaults_are_written_into_stored_objects(room: Room) -> None:
    """Schema defaults and those of built-in kinds appear."""
    assert (await room.widget("a"))["spec"]["mode"] == "Fast"
    made = await room.pod("p")
    assert made["spec"]["restartPolicy"] == "Always"
    assert made["spec"]["containers"][0]["terminationMessagePolicy"] == "File"
    assert made["status"]["phase"] == "Pending"


async def test_a_dry_run_stores_nothing(room: Room) -> None:
    """dryRun=All answers as usual, without a version, and leaves nothing behind."""
    made = (await room.api.post(room.widgets, widget("a"), dryRun="All")).ok()
    assert "resourceVersion" not in made["metadata"]
    assert (await room.api.get(f"{room.widgets}/a")).status == 404
    await room.widget("b")
    before = await room.api.get(f"{room.widgets}/b")
    (await room.api.patch(f"{room.widgets}/b", {"spec": {"size": 5}}, dryRun="All")).ok()
    (await room.api.delete(f"{room.widgets}/b", dryRun="All")).ok()
    assert (await room.api.get(f"{room.widgets}/b")).ok() == before.ok()


async def test_a_stale_replacement_conflicts(room: Room) -> None:
    """PUT with an older resourceVersion gets 409 and changes nothing."""
    made = await room.config("a", k="1")
    (await room.api.patch(f"{room.maps}/a", {"data": {"k": "2"}})).ok()
    status = (await room.api.put(f"{room.maps}/a", made)).refused(409, "Conflict")
    assert "the object has been modified" in status["message"]
    assert (await room.api.get(f"{room.maps}/a")).ok()["data"] == {"k": "2"}


async def test_an_unconditional_replacement_is_for_built_in_kinds(room: Room) -> None:
    """Without a resourceVersion a ConfigMap may be replaced, a custom object or a Lease not."""
    await room.config("a", k="1")
    assert (await room.api.put(f"{room.maps}/a", config("a", {"k": "2"}))).ok()["data"] == {
        "k": "2"
    }
    await room.widget("w")
    status = (await room.api.put(f"{room.widgets}/w", widget("w", size=2))).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.resourceVersion"
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{room.name}/leases"
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    (await room.api.post(leases, lease)).ok()
    (await room.api.put(f"{leases}/l", lease)).refused(422, "Invalid")


async def test_a_replacement_that_changes_nothing_writes_nothing(room: Room) -> None:
    """A no-op PUT keeps the version."""
    made = await room.widget("a")
    assert (await room.api.put(f"{room.widgets}/a", made)).version == made["metadata"][
        "resourceVersion"
    ]


async def test_generation_follows_the_spec_alone(room: Room) -> None:
    """Labels and status leave it, a change of spec raises it by one."""
    path = f"{room.widgets}/a"
    await room.widget("a")
    labelled = (await room.api.patch(path, {"metadata": {"labels": {"x": "y"}}})).ok()
    assert labelled["metadata"]["generation"] == 1
    status = (await room.api.patch(f"{path}/status", {"status": {"replicas": 1}})).ok()
    assert status["metadata"]["generation"] == 1
    grown = (await room.api.patch(path, {"spec": {"size": 2}})).ok()
    assert grown["metadata"]["generation"] == 2


async def test_a_foreign_uid_is_refused(room: Room) -> None:
    """A write meant for another incarnation of the name does not happen."""
    made = await room.config("a")
    made["metadata"]["uid"] = "11111111-1111-4111-8111-111111111111"
    del made["metadata"]["resourceVersion"]
    (await room.api.put(f"{room.maps}/a", made)).refused(409, "Conflict")
    await room.widget("w")
    foreign = {"metadata": {"uid": "x"}}
    (await room.api.patch(f"{room.widgets}/w", foreign)).refused(422, "Invalid")


async def test_a_pod_spec_cannot_change(room: Room) -> None:
    """All but a few fields of a Pod's spec are immutable."""
    await room.pod("p")
    change = {"spec": {"restartPolicy": "Never"}}
    status = (await room.api.patch(f"{room.pods}/p", change)).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "spec"


async def test_services_get_and_keep_a_cluster_ip(room: Room) -> None:
    """An address is handed out once, survives a replacement that omits it; None stays None."""
    services = f"{room.core}/services"
    body = {"metadata": {"name": "s"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}}
    made = (await room.api.post(services, body)).ok()
    address = made["spec"]["clusterIP"]
    assert address.count(".") == 3
    assert made["spec"]["clusterIPs"] == [address]
    assert made["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    replaced = (await room.api.put(f"{services}/s", body)).ok()
    assert replaced["spec"]["clusterIP"] == address
    headless = {"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}}
    assert (await room.api.post(services, headless)).ok()["spec"]["clusterIP"] == "None"


async def test_an_event_has_two_faces(room: Room) -> None:
    """What is posted as events.k8s.io/v1 reads as core/v1 under its names there, and back."""
    newer = f"/apis/events.k8s.io/v1/namespaces/{room.name}/events"
    event = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "a/b",
        "reportingInstance": "i",
        "action": "Act",
        "reason": "Because",
        "type": "Normal",
        "note": "hello",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": room.name},
    }
    made = (await room.api.post(newer, event)).ok()
    assert made["note"] == "hello"
    core = (await room.api.get(f"{room.core}/events/e")).ok()
    assert core["message"] == "hello"
    assert core["involvedObject"]["name"] == "p"
    assert core["reportingComponent"] == "a/b"
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:10.000000Z"}}
    assert (await room.api.patch(f"{newer}/e", series)).ok()["series"]["count"] == 2
    chosen = (await room.api.get(f"{room.core}/events", fieldSelector="involvedObject.name=p")).ok()
    assert [item["metadata"]["name"] for item in chosen["items"]] == ["e"]


async def test_secrets_take_plain_strings(room: Room) -> None:
    """StringData is written into data and not shown again."""
    body = {"metadata": {"name": "s"}, "stringData": {"k": "v"}}
    made = (await room.api.post(f"{room.core}/secrets", body)).ok()
    assert made["data"] == {"k": "dg=="}
    assert "stringData" not in made


async def test_a_pod_of_a_missing_body_is_not_made(room: Room) -> None:
    """Required fields of built-in kinds are checked."""
    body = pod("p")
    del body["spec"]["containers"][0]["image"]
    status = (await room.api.post(room.pods, body)).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "spec.containers[0].image"


async def test_a_method_without_meaning_is_refused(room: Room) -> None:
    """A verb the resource does not have gets 405."""
    (await room.api.ask("OPTIONS", room.pods)).refused(405, "MethodNotAllowed")


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("{name: a}\n---\nmetadata: {name: b}\n", None),
        ("{name: a}\ndata: {day: 2020-01-01, time: 2020-01-01T00:00:00Z}", "both"),
        ("{name: a}\ndata: {1: x, true: z}", {"1": "x", "true": "z"}),
        ("{name: a}\ndata: {k: !own x, l: 12:30}", {"k": "x", "l": "12:30"}),
        ("{name: a}\nstrange: !own {k: [v]}", None),
    ],
)
async def test_yaml_is_read_as_json_could_say_it(room: Room, text: str, data: Any) -> None:
    """Dates, tags and keys that are no text become text; the first document counts."""
    body = f"metadata: {text}".encode()
    made = (await room.api.post(room.maps, body, content="application/yaml")).ok()
    if data == "both":
        data = {"day": "2020-01-01", "time": "2020-01-01T00:00:00Z"}
    assert (made["metadata"]["name"], made.get("data")) == ("a", data)


@pytest.mark.parametrize("text", ["{k: y}", "{k: No}", "{k: 012}", "{k: 1.5}", "{k: [x]}"])
async def test_yaml_that_is_no_text_is_no_data(room: Room, text: str) -> None:
    """Words for yes and no are booleans, of one letter too."""
    body = f"metadata: {{name: a}}\ndata: {text}".encode()
    reply = await room.api.post(room.maps, body, content="application/yaml")
    reply.refused(400, "BadRequest")


@pytest.mark.parametrize("content", ["application/json", "application/yaml"])
async def test_a_body_of_nothing_is_an_empty_object(room: Room, content: str) -> None:
    """A create lacks its name; a deletion has no options, and deletes."""
    reply = await room.api.post(room.maps, b"null", content=content)
    assert "name or generateName is required" in reply.refused(422, "Invalid")["message"]
    await room.config("a")
    (await room.api.delete(f"{room.maps}/a", b"null", content=content)).ok()
    assert (await room.api.get(f"{room.maps}/a")).status == 404


async def test_version_zero_is_no_version(room: Room) -> None:
    """It may be sent with a create."""
    made = await room.api.post(room.maps, config("a", metadata={"resourceVersion": "0"}))
    assert made.status == 201


async def test_a_namespace_is_labelled_with_its_name(api: Api, room: Room) -> None:
    """Selectors of namespaces can rely on it: a change or removal has no effect."""
    path = f"/api/v1/namespaces/{room.name}"
    label = "kubernetes.io/metadata.name"
    for labels in ({label: "other"}, {label: None}, None):
        changed = (await api.patch(path, {"metadata": {"labels": labels}})).ok()
        assert changed["metadata"]["labels"] == {label: room.name}


async def test_a_namespace_keeps_the_finalizers_of_its_spec(api: Api, room: Room) -> None:
    """That of the server is added to those it is created with."""
    name = f"{room.name}-held"
    spec = {"finalizers": ["laws.dev/hold"]}
    made = await api.post("/api/v1/namespaces", {"metadata": {"name": name}, "spec": spec})
    assert made.ok()["spec"]["finalizers"] == ["laws.dev/hold", "kubernetes"]
    path = f"/api/v1/namespaces/{name}"
    (await api.delete(path)).ok()

    async def is_empty() -> bool:
        found = (await api.get(path)).ok()["spec"]["finalizers"]
        return bool(found == ["laws.dev/hold"])

    await until(is_empty)
    await api.put(f"{path}/finalize", {"metadata": {"name": name}, "spec": {}})
    await answers(api, path, 404)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (
            {"finalizers": ["foregroundDeletion", "orphan"]},
            "finalizer orphan and foregroundDeletion cannot be both set",
        ),
        (
            {"ownerReferences": [{"apiVersion": "a/b/c", "kind": "K", "name": "n", "uid": "u"}]},
            'metadata.ownerReferences.apiVersion: Invalid value: "a/b/c": version must not be',
        ),
    ],
)
async def test_metadata_that_means_nothing_is_refused(
    room: Room, metadata: Json, said: str
) -> None:
    """Of built-in and custom kinds alike."""
    for reply in (
        await room.api.post(room.maps, config("a", metadata=metadata)),
        await room.api.post(room.widgets, widget("a", metadata=metadata)),
    ):
        assert said in reply.refused(422, "Invalid")["message"]


async def test_a_generation_is_not_negative(room: Room) -> None:
    """A kind that does not count keeps what its creator says."""
    body = config("a", metadata={"generation": -1})
    (await room.api.post(room.maps, body)).refused(422, "Invalid")
    body["metadata"]["generation"] = 7
    assert (await room.api.post(room.maps, body)).ok()["metadata"]["generation"] == 7
