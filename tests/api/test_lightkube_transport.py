"""lightkube's own client works on our transport."""

from __future__ import annotations

from typing import Any

import httpx2
import lightkube
import pytest
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import PatchType

from lean_sandbox.kube.auth import bearer
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.lightkube_transport import LightkubeTransport
from lean_sandbox.kube.transport import Transport
from tests.api.server import Answer, Script, Server, chunked, in_turn, reply, serve

ONE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "resourceVersion": "3"}}
LIST = {"metadata": {"resourceVersion": "9"}, "items": [ONE]}


def clients(server: Server) -> tuple[Transport, lightkube.AsyncClient]:
    """Return our transport and lightkube's client on it."""
    transport = Transport(Connection(server.url, auth=bearer("ours")))
    config = KubeConfig.from_one(cluster=Cluster(server=server.url), user=User(token="theirs"))
    return transport, lightkube.AsyncClient(
        config=config.get(), namespace="a", transport=LightkubeTransport(transport)
    )


def _name(item: ConfigMap) -> str | None:
    return item.metadata.name if item.metadata else None


async def test_lightkube_reads_writes_and_lists_over_our_transport() -> None:
    """Get, create, patch, list and delete arrive as lightkube means them, with our credential."""
    answers = [reply(200, ONE), reply(201, ONE), reply(200, ONE), reply(200, LIST), reply()]
    async with serve(in_turn(*answers)) as server:
        transport, client = clients(server)
        assert _name(await client.get(ConfigMap, "c")) == "c"
        await client.create(ConfigMap(metadata=ObjectMeta(name="c")))
        await client.patch(ConfigMap, "c", {"data": {"k": "v"}}, patch_type=PatchType.MERGE)
        assert [_name(item) async for item in client.list(ConfigMap)] == ["c"]
        await client.delete(ConfigMap, "c")
        statistics = transport.statistics()
        await transport.aclose()
    base = "/api/v1/namespaces/a/configmaps"
    assert [(request.method, request.target) for request in server.requests] == [
        ("GET", f"{base}/c"),
        ("POST", base),
        ("PATCH", f"{base}/c"),
        ("GET", base),
        ("DELETE", f"{base}/c"),
    ]
    patch = server.requests[2]
    assert patch.headers["content-type"] == "application/merge-patch+json"
    assert patch.json == {"data": {"k": "v"}}
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer ours"}
    assert "accept-encoding" not in patch.headers
    assert statistics.connections_opened == 1
    assert statistics.requests["PATCH", "patch", "configmaps", 200] == 1


async def test_lightkube_watches_over_our_transport() -> None:
    """A watch is a stream: events arrive one by one, on a connection outside of the pool."""
    event = b'{"type":"ADDED","object":{"metadata":{"name":"c","resourceVersion":"4"}}}\n'
    async with serve(in_turn(chunked([event], end=False))) as server:
        transport, client = clients(server)
        watch: Any = client.watch(ConfigMap)
        kind, item = await anext(watch)
        assert (kind, _name(item)) == ("ADDED", "c")
        assert transport.statistics().streams == 1
        await watch.aclose()
        await transport.aclose()


async def test_a_stream_ends_or_breaks_as_the_http_library_says_it() -> None:
    """A clean end is the end of the body, a broken connection a RemoteProtocolError."""
    answers = [chunked([b"a", b"b"]), chunked([b"c"], end=False, close=True)]
    async with serve(in_turn(*answers)) as server:
        transport = Transport(Connection(server.url))
        client = httpx2.AsyncClient(transport=LightkubeTransport(transport))
        async with client.stream("GET", f"{server.url}/x?follow=true") as response:
            assert await response.aread() == b"ab"
        async with client.stream("GET", f"{server.url}/x?watch=1") as response:
            with pytest.raises(httpx2.RemoteProtocolError, match="truncated"):
                await response.aread()
        await transport.aclose()
    assert transport.statistics().streams == 0


async def test_refused_connections_and_timeouts_are_translated() -> None:
    """What lightkube's callers may catch has the HTTP library's class."""
    async with serve(in_turn(Answer(hang=True))) as server:
        transport = Transport(Connection(server.url))
        client = httpx2.AsyncClient(transport=LightkubeTransport(transport), timeout=0.05)
        with pytest.raises(httpx2.ReadTimeout):
            await client.get(f"{server.url}/x")
    with pytest.raises(httpx2.ConnectError):
        await client.get(f"{server.url}/x")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(close=True), httpx2.RemoteProtocolError),
        (Answer([b"SSH-2.0\r\n"]), httpx2.RemoteProtocolError),
        (reply(404, {"kind": "Status", "code": 404, "reason": "NotFound"}), ApiError),
    ],
)
async def test_errors_are_those_lightkube_knows(answer: Answer, expected: type[Exception]) -> None:
    """Our errors become the HTTP library's, so lightkube's handling of them works."""
    script: Script = in_turn(answer)
    async with serve(script) as server:
        transport, client = clients(server)
        with pytest.raises(expected):
            await client.get(ConfigMap, "c")
        await transport.aclose()
