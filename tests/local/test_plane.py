"""Laws of the embedded control plane beyond HTTP: faults, audit, options, tokens, protobuf."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import UTC, datetime

import httpx
import pytest

from lean_sandbox.clock import SystemClock
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.direct import StoredChange
from lean_sandbox.local.write.encodings import PROTOBUF
from tests.conformance.api import APPLY, PARTIAL, PARTIAL_LIST, TABLE, Api, Room
from tests.conformance.encoding import encode
from tests.conformance.objects import config, pod, widget
from tests.local.servers import LIVE, MAPS, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("what", ["exec", "attach", "log", "portforward", "ephemeralcontainers"])
async def test_what_needs_a_container_is_refused_with_the_reason(room: Room, what: str) -> None:
    """The message is what kubectl exec, logs, port-forward and debug show."""
    await room.pod("p")
    reply = await room.api.get(f"{room.pods}/p/{what}")
    reply.refused(501, "NotImplemented")


async def test_a_token_is_bound_to_no_object(room: Room) -> None:
    """A TokenRequest that wants a token to end with a Pod is refused, and names the field."""
    path = f"{room.core}/serviceaccounts"
    (await room.api.post(path, {"metadata": {"name": "a"}})).ok()
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    reply = await room.api.post(f"{path}/a/token", {"spec": {"boundObjectRef": reference}})
    assert "spec.boundObjectRef" in reply.refused(501, "NotImplemented")["message"]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
async def test_what_no_controller_serves_is_taken_with_a_warning(room: Room, kind: str) -> None:
    """A workload is stored and never runs, which kubectl tells its user."""
    labels = {"a": "b"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    body = {
        "metadata": {"name": "w"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    path = f"/apis/apps/v1/namespaces/{room.name}/{kind.lower()}s"
    applied = {"apiVersion": "apps/v1", "kind": kind, **body, "metadata": {"name": "v"}}
    made = await room.api.post(path, body)
    for reply in (made, await room.api.patch(f"{path}/v", applied, APPLY, fieldManager="x")):
        reply.ok()
        assert f"nothing on this server acts on kind {kind}" in reply.headers["Warning"]


async def test_failures_come_when_they_are_ordered(plane: ControlPlane, room: Room) -> None:
    """fail_next hits the next matching requests only, by verb, resource and a test of one's own."""
    plane.fail_next("create", "configmaps", 503, times=2, retry_after=7)
    for _ in range(2):
        reply = await room.api.post(room.maps, config("a"))
        assert reply.refused(503, "ServiceUnavailable")["details"]["retryAfterSeconds"] == 7
        assert reply.headers["Retry-After"] == "7"
    await room.config("a")
    plane.fail_next("patch", "configmaps", 409, match=lambda target: target.name == "b")
    assert (await room.api.patch(f"{room.maps}/a", {"data": {"x": "y"}})).status == 200
    (await room.api.patch(f"{room.maps}/b", {})).refused(409, "Conflict")
    plane.fail_next("*", "widgets/status", 500, body={"odd": True})
    assert (await room.api.patch(f"{room.widgets}/w/status", {})).json == {"odd": True}
    plane.fail_next("watch", "widgets", 410)
    assert (await room.api.get(room.widgets, watch="1")).status == 410


async def test_delays_hold_matching_requests_back(plane: ControlPlane, room: Room) -> None:
    """A delayed verb waits, others do not, and zero ends it."""
    plane.delay("list", "configmaps", 0.1)
    start = asyncio.get_running_loop().time()
    await room.api.get(f"{room.maps}/a")
    await room.api.get(room.maps)
    plane.delay("list", "configmaps", 0)
    assert asyncio.get_running_loop().time() - start >= 0.1
    assert plane.faults.is_idle


async def test_the_audit_has_every_request(plane: ControlPlane, room: Room) -> None:
    """Verb, resource, name, code, user, user agent and bytes; reset forgets."""
    plane.audit.reset()
    await room.config("a")
    patch = {"data": {"k": "v"}}
    (await room.api.patch(f"{room.maps}/a", patch, agent="someone/1")).ok()
    await room.api.get(f"{room.maps}/none")
    await room.api.patch(f"{room.pods}/none/status", {})
    assert await room.api.events(room.maps, 1, resourceVersion="0")
    entries = plane.audit.entries
    assert [(entry.what, entry.code) for entry in entries] == [
        ("create configmaps", 201),
        ("patch configmaps", 200),
        ("get configmaps", 404),
        ("patch pods/status", 404),
        ("watch configmaps", 200),
    ]
    assert all(entry.user == "admin" for entry in entries)
    assert (entries[1].name, entries[1].namespace) == ("a", room.name)
    assert entries[1].user_agent == "someone/1"
    assert entries[1].content_type == "application/merge-patch+json"
    assert entries[1].request_bytes == len(json.dumps(patch))
    assert all(entry.response_bytes > 0 for entry in entries)
    assert plane.audit.counts("admin")["create configmaps"] == 1
    assert "watch configmaps" not in plane.audit.counts()
    assert plane.audit.counts(user_agent="someone") == {"patch configmaps": 1}
    assert plane.audit.codes() == {"404 get configmaps": 1, "404 patch pods/status": 1}
    plane.audit.reset()
    assert plane.audit.entries == []


async def test_what_the_server_does_itself_is_not_audited(plane: ControlPlane, room: Room) -> None:
    """Garbage collection and direct access leave no request behind."""
    made = plane.store.create(widget("o"), room.name)
    reference = {
        "apiVersion": made["apiVersion"],
        "kind": "Widget",
        "name": "o",
        "uid": made["metadata"]["uid"],
    }
    plane.store.create(config("d", metadata={"ownerReferences": [reference]}), room.name)
    plane.audit.reset()
    assert plane.store.delete("widgets.laws.lean-sandbox.dev", room.name, "o")
    await plane.settled()
    assert plane.store.find("configmaps", room.name, "d") is None
    assert plane.audit.entries == []


async def test_direct_access_reads_and_writes_as_the_api_would(
    plane: ControlPlane, room: Room
) -> None:
    """Create keeps a given status, patch and list and count work, watches see it all."""
    plane.store.create(pod("p") | {"status": {"phase": "Running"}}, room.name)
    assert plane.store.get("pods", room.name, "p")["status"]["phase"] == "Running"
    plane.store.patch("pods", room.name, "p", {"metadata": {"labels": {"a": "b"}}})
    status = {"status": {"phase": "Failed"}}
    plane.store.patch("pods", room.name, "p", status, subresource="status")
    assert len(plane.store.list("pods", room.name)) == 1
    (found,) = plane.store.list("pods", room.name)
    assert (await room.api.get(f"{room.pods}/p")).ok() == found
    assert found["metadata"]["labels"] == {"a": "b"}


async def test_changes_are_followed_in_order_with_whoever_made_them(
    plane: ControlPlane, room: Room
) -> None:
    """Also a change that the server makes while it carries out another."""
    seen: list[StoredChange] = []
    plane.store.follow(seen.append, ("persistentvolumeclaims",))
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": room.name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    plane.store.create(claim)
    claims = f"/api/v1/namespaces/{room.name}/persistentvolumeclaims"
    (await room.api.delete(f"{claims}/data")).ok()
    assert [change.by for change in seen] == ["", "admin", "admin"]
    created, deleted, removed = seen
    assert created.before is None
    assert created.after == deleted.before
    assert deleted.after is not None
    assert "deletionTimestamp" in deleted.after["metadata"]
    assert removed.after is None
    assert created.version < deleted.version < removed.version


async def test_representations_can_be_withheld() -> None:
    """Without tables or partial metadata such an Accept alone gets 406, with a fallback JSON."""
    async with running(tables=False, partial_metadata=False) as (_, api):
        for accept in (TABLE, PARTIAL_LIST):
            assert (await api.get(LIVE, accept=accept)).status == 406
            fallback = await api.get(LIVE, accept=f"{accept},application/json")
            assert fallback.ok()["kind"] == "WidgetList"
        assert (await api.get(LIVE, accept=PARTIAL, watch="1")).status == 406


async def test_tokens_are_for_users_groups_and_accounts(plane: ControlPlane, api: Api) -> None:
    """A named user has its groups' rights; a service account is made if it is missing."""
    stranger = api.as_user(plane.create_token("somebody"))
    assert (await stranger.get(MAPS)).status == 403
    master = api.as_user(plane.create_token("root", groups=["system:masters"]))
    assert (await master.get(MAPS)).status == 200
    account = api.as_user(plane.create_token("system:serviceaccount:fresh:robot"))
    denied = await account.get(MAPS)
    assert "system:serviceaccount:fresh:robot" in denied.message
    assert (await api.get("/api/v1/namespaces/fresh/serviceaccounts/robot")).status == 200


async def test_without_tls_nobody_is_an_administrator_unless_told_otherwise() -> None:
    """Kubectl sends no token over plain HTTP, so it is let in there."""
    async with running() as (_, api):
        assert (await api.as_user(None).get(MAPS)).status == 200


async def test_bodies_and_objects_have_a_largest_size(api: Api) -> None:
    """More than 3 MiB is no request, more than 1.5 MiB no object, 256 KiB the annotations."""
    big = config("a", {"k": "x" * (3 * 1024 * 1024)})
    reply = await api.post(MAPS, big)
    assert reply.refused(413, "RequestEntityTooLarge")["message"].endswith("limit is 3145728")
    large = widget("a", tags=["x" * (1600 * 1024)])
    too_large = await api.post(LIVE, large)
    assert (too_large.status, too_large.message) == (500, "etcdserver: request is too large")
    loud = widget("a", metadata={"annotations": {"k": "x" * (257 * 1024)}})
    (await api.post(LIVE, loud)).refused(422, "Invalid")


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Host": "127.0.0.1:abc"}, 400),
        ({"Host": "127.0.0.1:80:80"}, 400),
        ({"Host": "127.0.0.1:999999"}, 400),
        ({"Host": "[::1"}, 400),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 200),
    ],
)
async def test_pages_of_others_are_not_served(headers: dict[str, str], code: int) -> None:
    """On plain HTTP, where nobody has to say who asks, a browser is not to ask for a page."""
    async with running() as (plane, _), httpx.AsyncClient() as client:
        assert (await client.get(f"{plane.url}{MAPS}", headers=headers)).status_code == code


@pytest.mark.parametrize("media", [None, "text/plain", "application/x-www-form-urlencoded"])
async def test_a_page_of_another_site_writes_nothing(media: str | None) -> None:
    """What a browser sends without asking first is refused, with whichever type or none."""
    headers = {"Origin": "http://evil.example"} | ({"Content-Type": media} if media else {})
    body = b'{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"made"}}'
    async with running() as (plane, _), httpx.AsyncClient() as client:
        where = f"{plane.url}/api/v1/namespaces"
        assert (await client.post(where, content=body, headers=headers)).status_code == 403
        assert (await client.get(f"{where}/made")).status_code == 404


async def test_of_the_audit_the_newest_requests_can_be_kept_alone() -> None:
    """What is kept ends with the newest; the total counts all."""
    async with running() as (plane, api):
        for _ in range(3):
            await api.get(MAPS)
        plane.audit.keep(2)
        for name in ("a", "b"):
            await api.get(f"{MAPS}/{name}")
        await api.get(f"{MAPS}/c")
        assert [entry.name for entry in plane.audit.entries] == ["b", "c"]
        assert plane.audit.total == 6


async def test_a_seeded_server_repeats_its_names() -> None:
    """Uids and generated names come from the generator that is handed in."""
    runs = []
    for _ in range(2):
        seeded = random.Random(7)  # noqa: S311 - names, not secrets
        async with ControlPlane(crds=[], rng=seeded) as plane:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}}
            metadata = plane.store.create(body)["metadata"]
            runs.append((metadata["name"], metadata["uid"]))
    assert runs[0] == runs[1]


async def test_timestamps_come_from_the_clock() -> None:
    """A server on a standing clock stamps that moment."""
    moment = datetime(2030, 1, 1, tzinfo=UTC)

    class Standing(SystemClock):
        def now(self) -> datetime:
            return moment

        def monotonic(self) -> float:
            return 0.0

    async with ControlPlane(crds=[], clock=Standing()) as plane:
        made = plane.store.create(config("a"))
        assert made["metadata"]["creationTimestamp"] == "2030-01-01T00:00:00Z"


async def test_what_is_no_stored_kind_comes_as_protobuf_too(room: Room) -> None:
    """`kubectl create token` asks with a typed client."""
    asked = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": ["aud"], "expirationSeconds": 7200},
    }
    path = f"{room.core}/serviceaccounts/default/token"
    token = (await room.api.post(path, encode(asked), content=PROTOBUF)).ok()
    assert token["spec"]["expirationSeconds"] == 7200
    assert token["spec"]["audiences"] == ["aud"]


async def test_custom_kinds_have_no_protobuf(room: Room) -> None:
    """Their bodies are JSON or YAML; kube-apiserver drops the connection."""
    body = encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    reply = await room.api.post(room.widgets, body, content=PROTOBUF)
    reply.refused(415, "UnsupportedMediaType")
    assert PROTOBUF not in reply.message


async def test_a_scale_is_patched_and_not_applied(room: Room) -> None:
    """Whose its number of replicas would be is not kept."""
    await room.widget("w", replicas=1)
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 2}}
    reply = await room.api.patch(f"{room.widgets}/w/scale", scale, APPLY, fieldManager="m")
    reply.refused(415, "UnsupportedMediaType")


async def test_protobuf_answers_are_refused_in_words(room: Room) -> None:
    """A client that takes JSON as well gets it; one that takes nothing else is told why."""
    both = await room.api.get(room.maps, accept=f"{PROTOBUF},application/json")
    assert both.ok()["kind"] == "ConfigMapList"
    reply = await room.api.get(room.maps, accept=PROTOBUF)
    reply.refused(406, "NotAcceptable")
    assert "does not write" in reply.message
