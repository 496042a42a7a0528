"""The client over the wire: what each verb sends, and what its answer becomes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from lean_sandbox.kube import errors
from lean_sandbox.kube.client import CascadeType, Client, PatchType
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.resources import (
    METADATA_ACCEPT,
    NAMESPACES,
    PODS,
    SANDBOXES,
    Page,
    PartialObject,
)
from lean_sandbox.kube.telemetry import RequestRecord
from lean_sandbox.kube.transport import Transport
from tests.kube.server import Script, Server, in_turn, reply, serve

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "uid": "u", "managedFields": [{"manager": "x"}]},
    "spec": {"nodeName": "n"},
}


class Spec(msgspec.Struct, frozen=True):
    """Enough of a Pod for these tests."""

    nodeName: str = ""


class Pod(msgspec.Struct, frozen=True):
    """Enough of a Pod for these tests."""

    spec: Spec


@asynccontextmanager
async def running(
    script: Script, **options: Any
) -> AsyncIterator[tuple[Server, Client, list[RequestRecord]]]:
    """Run a server and a client of it."""
    records: list[RequestRecord] = []
    async with serve(script) as server:
        transport = Transport(Connection(server.url))
        transport.observer = records.append
        yield server, Client(transport, **options), records
        await transport.aclose()


async def test_get_decodes_as_the_asked_type() -> None:
    """A Struct, a dict, metadata alone, or the bytes, whatever they are: the caller decides."""
    script = in_turn(*[reply(200, POD)] * 3, reply(200, b"\xff not json"))
    async with running(script, field_manager="lean") as (server, client, _):
        pod = await client.get(PODS, "p", Pod, namespace="a")
        assert pod is not None
        assert pod.spec.nodeName == "n"
        assert await client.get(PODS, "p", dict, namespace="a") == POD
        partial = await client.get(PODS, "p", PartialObject, namespace="a", accept=METADATA_ACCEPT)
        assert partial is not None
        assert partial.metadata.uid == "u"
        assert await client.get(PODS, "p", bytes, namespace="a") == b"\xff not json"
    assert {request.target for request in server.requests} == {"/api/v1/namespaces/a/pods/p"}
    accepts = [request.headers["accept"] for request in server.requests]
    assert accepts == ["application/json"] * 2 + [METADATA_ACCEPT, "application/json"]


async def test_list_sends_only_what_was_asked_and_gives_the_next_token() -> None:
    """Limits, selectors and versions are query keys, quoted; a page tells where the next begins."""
    page = {"metadata": {"resourceVersion": "7", "continue": "t"}, "items": [POD]}
    empty = {"metadata": {"resourceVersion": "8"}, "items": None}
    script = in_turn(reply(200, page), reply(200, empty))
    async with running(script, field_manager="lean") as (server, client, records):
        first = await client.list(
            PODS,
            Page[PartialObject],
            chunk_size=2,
            labels="a in (b,c)",
            fields="status.phase!=Failed",
        )
        assert (first.metadata.continue_, first.metadata.resourceVersion) == ("t", "7")
        assert [item.metadata.name for item in first.items] == ["p"]
        last = await client.list(
            SANDBOXES, Page[Pod], namespace="a", chunk_size=None, continue_="t"
        )
        assert last.items == ()
    first_target, last_target = (request.target for request in server.requests)
    assert first_target == (
        "/api/v1/pods?limit=2&labelSelector=a+in+%28b%2Cc%29&fieldSelector=status.phase%21%3DFailed"
    )
    assert last_target == "/apis/agents.x-k8s.io/v1beta1/namespaces/a/sandboxes?continue=t"
    assert [(record.verb, record.resource) for record in records] == [
        ("list", "pods"),
        ("list", "sandboxes.agents.x-k8s.io"),
    ]


async def test_writes_send_bodies_types_and_the_field_manager() -> None:
    """Each write has its method, content type, body and query; the label says verb and part."""
    async with running(in_turn(*[reply(200, POD)] * 6), field_manager="lean") as (
        server,
        client,
        records,
    ):
        await client.create(PODS, POD, Pod, namespace="a")
        await client.create(PODS, b"{}", bytes, namespace="a", name="p", subresource="binding")
        await client.replace(
            PODS, Pod(Spec("n")), bytes, namespace="a", name="p", field_manager=None
        )
        await client.patch(PODS, "p", {"status": None}, bytes, namespace="a", subresource="status")
        await client.patch(
            PODS,
            "p",
            [{"op": "test"}],
            Pod,
            namespace="a",
            patch_type=PatchType.JSON,
            field_manager="other",
        )
        await client.create(PODS, POD, bytes, namespace="a")
    base = "/api/v1/namespaces/a/pods"
    assert [(r.method, r.target, r.headers["content-type"]) for r in server.requests] == [
        ("POST", f"{base}?fieldManager=lean", "application/json"),
        ("POST", f"{base}/p/binding?fieldManager=lean", "application/json"),
        ("PUT", f"{base}/p", "application/json"),
        ("PATCH", f"{base}/p/status?fieldManager=lean", "application/merge-patch+json"),
        ("PATCH", f"{base}/p?fieldManager=other", "application/json-patch+json"),
        ("POST", f"{base}?fieldManager=lean", "application/json"),
    ]
    bodies = [request.json for request in server.requests]
    assert bodies == [POD, {}, {"spec": {"nodeName": "n"}}, {"status": None}, [{"op": "test"}], POD]
    assert [(record.verb, record.resource) for record in records] == [
        ("create", "pods"),
        ("create", "pods/binding"),
        ("update", "pods"),
        ("patch", "pods/status"),
        ("patch", "pods"),
        ("create", "pods"),
    ]


async def test_delete_sends_options_only_when_given() -> None:
    """A bare delete has no body; uid, policy and grace go into DeleteOptions."""
    script = in_turn(reply(), reply(202), reply())
    async with running(script, field_manager="lean") as (server, client, _):
        await client.delete(PODS, "p", namespace="a")
        await client.delete(
            PODS, "p", namespace="a", uid="u", cascade=CascadeType.FOREGROUND, grace_period=0
        )
        await client.delete(PODS, "p", namespace="a", uid="u", resource_version="7")
    bare, full, exact = server.requests
    assert exact.json["preconditions"] == {"uid": "u", "resourceVersion": "7"}
    assert (bare.target, bare.body) == ("/api/v1/namespaces/a/pods/p", b"")
    assert "content-type" not in bare.headers
    assert full.json == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
    }


async def test_a_refusal_is_an_error_that_says_what_was_asked() -> None:
    """Verb, resource with its part, namespace and name are on the error."""
    script = in_turn(reply(409, {"kind": "Status", "reason": "Conflict", "message": "changed"}))
    async with running(script) as (_, client, _):
        with pytest.raises(errors.Conflict) as caught:
            await client.patch(SANDBOXES, "s", {}, bytes, namespace="a", subresource="status")
    error = caught.value
    assert (error.asked.verb, error.asked.resource) == ("patch", "sandboxes.agents.x-k8s.io/status")
    assert (error.asked.namespace, error.asked.name, error.message) == ("a", "s", "changed")
    assert "patch sandboxes.agents.x-k8s.io/status 's' in namespace 'a'" in str(error)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_server_is_an_error_at_once(status: int) -> None:
    """Retry-After is handed on; nothing sleeps and nothing is repeated in here."""
    script = in_turn(reply(status, b"{}", {"Retry-After": "5"}))
    async with running(script) as (server, client, _):
        with pytest.raises(errors.ApiError) as caught:
            await client.get(PODS, "p", Pod, namespace="a")
    assert (caught.value.retryable, caught.value.retry_after_s) == (True, 5.0)
    assert len(server.requests) == 1


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"spec":{"nodeName":3}}', b"\xff\xfe", b""])
async def test_an_answer_of_another_shape_is_a_decode_fault(body: bytes) -> None:
    """A whole answer that does not fit its type is terminal, and the connection lives on."""
    async with running(in_turn(reply(200, body), reply(200, POD))) as (server, client, _):
        with pytest.raises(errors.DecodeFault, match="get pods"):
            await client.get(PODS, "p", Pod, namespace="a")
        await client.get(PODS, "p", Pod, namespace="a")
    assert server.opened == 1


async def test_what_is_not_there_is_found_to_be_nothing() -> None:
    """A 404 is an answer for ``get``; any other refusal is raised."""
    gone, refused = (
        reply(code, {"kind": "Status", "status": "Failure", "reason": reason, "code": code})
        for code, reason in ((404, "NotFound"), (403, "Forbidden"))
    )
    async with running(in_turn(reply(200, POD), gone, refused)) as (server, client, _):
        found = await client.get(PODS, "p", Pod, namespace="a")
        assert found is not None
        assert found.spec.nodeName == "n"
        assert await client.get(PODS, "p", Pod, namespace="a") is None
        with pytest.raises(errors.Forbidden):
            await client.get(PODS, "p", Pod, namespace="a")
    assert {request.method for request in server.requests} == {"GET"}


@pytest.mark.parametrize(("status", "is_refused"), [(200, False), (299, False), (300, True)])
async def test_an_answer_from_300_on_is_a_refusal(status: int, *, is_refused: bool) -> None:
    """Nothing is followed or believed that is not what was asked for."""
    async with running(in_turn(reply(status, POD))) as (_, client, _):
        if is_refused:
            with pytest.raises(errors.ApiError):
                await client.get(PODS, "p", dict, namespace="a")
        else:
            assert await client.get(PODS, "p", dict, namespace="a") == POD


async def test_an_error_names_a_namespace_only_of_what_is_in_one() -> None:
    """What is of the whole cluster is asked for without."""
    for resource, where in ((PODS, "a"), (NAMESPACES, "")):
        async with running(in_turn(reply(500, b""))) as (_, client, _):
            with pytest.raises(errors.ServerFault) as raised:
                await client.get(resource, "x", bytes, namespace="a")
        assert raised.value.asked.namespace == where
