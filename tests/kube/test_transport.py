"""The transport over the wire: reuse, repetition, deadlines, credentials, telemetry."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStream, SocketAttribute

from lean_sandbox.kube import sockets
from lean_sandbox.kube import transport as transport_module
from lean_sandbox.kube.auth import Auth
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.errors import Asked, ConnectFailed, ProtocolFault, RequestTimeout
from lean_sandbox.kube.limits import Limits
from lean_sandbox.kube.sockets import SocketStream
from lean_sandbox.kube.telemetry import RequestRecord
from lean_sandbox.kube.transport import Transport
from lean_sandbox.turns import RANK, Rank
from lean_sandbox.version import __version__
from tests.kube.peers import Breakable, Gated, Turning, running
from tests.kube.server import Answer, Request, chunked, first_piece, in_turn, reply, serve
from tests.support.clock import FakeClock, on_clock, settle
from tests.support.patience import PATIENCE_S


async def test_a_request_is_sent_as_asked_and_its_answer_returned() -> None:
    """Method, target with base path, headers, body and user agent arrive; the answer comes back."""
    script = in_turn(reply(201, b'{"a":1}', {"X-Y": "z"}))
    async with running(script, base="/prefix/", auth=Auth("Bearer secret")) as (
        server,
        transport,
        _,
    ):
        response = await transport.request(
            "POST", "/api/v1/pods?x=1", body=b"{}", headers={"Accept": "a/b"}
        )
    assert (response.status, response.body, response.headers[b"x-y"]) == (201, b'{"a":1}', b"z")
    (request,) = server.requests
    assert (request.method, request.target, request.body) == (
        "POST",
        "/prefix/api/v1/pods?x=1",
        b"{}",
    )
    assert request.headers == {
        "host": server.url.removeprefix("http://"),
        "user-agent": f"lean-sandbox/{__version__}",
        "accept": "a/b",
        "authorization": "Bearer secret",
        "content-length": "2",
    }


async def test_one_connection_serves_many_requests() -> None:
    """Requests one after the other share a connection, whatever their framing."""
    answers = [reply(), chunked([b"a", b"b"]), reply(204, b"", {"Content-Length": "0"}), reply(404)]
    async with running(in_turn(*answers)) as (server, transport, _):
        bodies = [(await transport.request("GET", f"/{n}")).body for n in range(4)]
        assert len(transport._idle) == 1
    assert bodies == [b"{}", b"ab", b"", b"{}"]
    assert (server.opened, transport.counted.connections_opened) == (1, 1)


async def test_a_connection_the_server_closed_while_idle_is_not_used() -> None:
    """A close that has arrived is seen before the request is sent, so even a POST is safe."""
    script = in_turn(reply(close=True), reply())
    async with running(script) as (server, transport, _):
        await transport.request("GET", "/1")
        await server.closed(1)
        await transport.request("POST", "/2")
        assert transport.counted.retries == {}
    assert [request.connection for request in server.requests] == [1, 2]


async def test_a_connection_that_the_server_will_close_is_not_used() -> None:
    """It has said so: what is sent before it does may be lost."""
    script = in_turn(reply(headers={"Connection": "close"}), reply())
    async with running(script) as (server, transport, _):
        await transport.request("GET", "/1")
        await transport.request("POST", "/2")
    assert [request.connection for request in server.requests] == [1, 2]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_an_idempotent_request_on_a_dying_connection_is_repeated_once(method: str) -> None:
    """The server took the request on a reused connection and closed without a byte: once more."""
    script = in_turn(reply(), Answer(close=True), reply())
    async with running(script) as (server, transport, records):
        await transport.request("GET", "/1")
        assert (await transport.request(method, "/2")).status == 200
        assert transport.counted.retries == {(method, 0): 1}
    assert [request.connection for request in server.requests] == [1, 1, 2]
    assert [record.code for record in records] == [200, 200]


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_a_request_that_may_have_been_carried_out_is_not_repeated(method: str) -> None:
    """For a POST or PATCH the caller decides, because the server may have done it."""
    async with running(in_turn(reply(), Answer(close=True))) as (server, transport, records):
        await transport.request("GET", "/1")
        with pytest.raises(ProtocolFault, match="without an answer"):
            await transport.request(method, "/2")
    assert len(server.requests) == 2
    assert (records[-1].code, records[-1].error) == (0, "Disconnected")


async def test_a_fresh_connection_that_dies_is_an_error_at_once() -> None:
    """Repeating is for reused connections: a server that closes a new one would do it again."""
    async with running(in_turn(Answer(close=True))) as (server, transport, _):
        with pytest.raises(ProtocolFault):
            await transport.request("GET", "/1")
    assert len(server.requests) == 1


async def test_an_answer_that_began_is_never_repeated() -> None:
    """Once a byte of the answer came, a broken connection is an error also for a GET."""
    broken = Answer([b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab"], close=True)
    async with running(in_turn(reply(), broken)) as (server, transport, records):
        await transport.request("GET", "/1")
        with pytest.raises(ProtocolFault, match="truncated"):
            await transport.request("GET", "/2")
        assert not transport._idle
    assert len(server.requests) == 2
    assert (records[-1].code, records[-1].error) == (200, "ProtocolFault")


async def test_a_request_that_could_not_be_written_is_repeated_whatever_its_method(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sending failed, so the server cannot have carried it out: a POST goes out once more."""
    streams: list[Breakable] = []

    async def connect(connection: Connection) -> SocketStream:
        streams.append(Breakable())
        return streams[-1]

    monkeypatch.setattr(transport_module, "open_stream", connect)
    transport = Transport(Connection("http://test"))
    await transport.request("GET", "/1")
    streams[0].broken = True
    assert (await transport.request("POST", "/2")).status == 200
    assert [stream.sent for stream in streams] == [1, 1]
    await transport.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        Answer(hang=True),
        Answer([b"HTTP/1.1 200 OK\r\nContent-"], hang=True),
        Answer([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"], hang=True),
        Answer([b"HTTP/1.1 100 Continue\r\n\r\n"], hang=True),
        chunked([b"ab"], end=False),
    ],
)
async def test_a_half_dead_server_ends_in_a_timeout(answer: Answer) -> None:
    """Wherever a server falls silent, the deadline holds, and the connection is not used again."""
    async with running(in_turn(answer, reply())) as (server, transport, records):
        with pytest.raises(RequestTimeout, match=r"get nonresource: no answer within 0\.05 s"):
            await transport.request("GET", "/api/v1/namespaces/a/pods/b", timeout_s=0.05)
        assert (await transport.request("GET", "/2")).status == 200
    assert [request.connection for request in server.requests] == [1, 2]
    assert records[0].error == "RequestTimeout"


@on_clock
async def test_each_request_of_a_connection_has_its_own_deadline(clock: FakeClock) -> None:
    """A long deadline before it does not put a short one off, nor does a short one end a long."""
    slow = Answer([b"HTTP/1.1 200 OK\r\n"], hang=True)
    script = in_turn(reply(), reply(), reply(), slow)
    async with running(script) as (server, transport, _):
        await transport.request("GET", "/1", timeout_s=60.0)
        await transport.request("GET", "/2", timeout_s=2.0)
        await clock.advance(2.5)
        await transport.request("GET", "/3", timeout_s=60.0)
        asking = asyncio.ensure_future(transport.request("GET", "/4", timeout_s=2.0))
        await clock.advance(1.5)
        assert not asking.done()
        await clock.advance(1.0)
        with pytest.raises(RequestTimeout):
            await asking
    assert [request.connection for request in server.requests] == [1, 1, 1, 1]


async def test_a_peer_that_reads_nothing_ends_in_a_timeout() -> None:
    """The deadline holds while a request cannot be sent: nothing waits for a full buffer."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        transport = Transport(Connection(f"http://127.0.0.1:{deaf.getsockname()[1]}"))
        with pytest.raises(RequestTimeout), anyio.fail_after(PATIENCE_S):
            await transport.request("POST", "/", body=b"x" * 32_000_000, timeout_s=0.05)
        await transport.aclose()


async def test_an_answer_that_comes_before_the_request_is_sent_is_taken() -> None:
    """A server may refuse a large body by its head alone, and then read the rest of it."""
    listener: Any = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610 -- no SQL here

    async def refuse(stream: ByteStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nlong")
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    await stream.receive()

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, refuse)
        transport = Transport(Connection(f"http://127.0.0.1:{port}"))
        answer = await transport.request("POST", "/", body=b"x" * (32 << 20))
        assert (answer.status, answer.body) == (413, b"long")
        await transport.aclose()
        group.cancel_scope.cancel()


async def test_a_cancelled_request_frees_its_slot_and_its_connection() -> None:
    """Cancelling from outside leaves nothing in flight, and says so to the observer."""
    async with (
        running(in_turn(Answer(hang=True)), limits=Limits(2, 1)) as (server, transport, records),
        anyio.create_task_group() as group,
    ):
        group.start_soon(transport.request, "GET", "/1")
        await server.received(1)
        assert transport._limiter.slots.in_use == 1
        group.cancel_scope.cancel()
    assert (transport._limiter.slots.in_use, len(transport._idle)) == (0, 0)
    assert [record.error for record in records] == ["Cancelled"]


async def test_what_is_asked_as_the_transport_ends_is_answered_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its connection is closed behind the answer: nobody would use it again."""
    gate = anyio.Event()
    monkeypatch.setattr(transport_module, "open_stream", Gated(gate).connect)
    transport = Transport(Connection("http://test"))
    async with anyio.create_task_group() as group:
        group.start_soon(transport.request, "GET", "/")
        await settle()
        await transport.aclose()
        gate.set()
    assert transport.counted.requests == {("GET", "get", "nonresource", 200): 1}
    assert len(transport._idle) == 0


async def test_a_refused_connection_says_where_to() -> None:
    """No listener: ConnectFailed with the address, and a record without a code."""
    async with serve(in_turn()) as server:
        url = server.url
    records: list[RequestRecord] = []
    transport = Transport(Connection(url))
    transport.observer = records.append
    with pytest.raises(ConnectFailed, match=url.removeprefix("http://")):
        await transport.request("GET", "/")
    assert [(record.code, record.error) for record in records] == [(0, "ConnectFailed")]


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 70 + ".test"])
async def test_a_name_without_an_address_is_a_connect_failure(host: str) -> None:
    """Unknown and impossible names fail alike, in the words of the resolver."""
    with pytest.raises(ConnectFailed, match=f"cannot connect to {host}"):
        await Transport(Connection(f"http://{host}")).request("GET", "/")


async def test_an_address_that_does_not_answer_gives_way_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All addresses of a name are tried, one that refuses at once and one that is silent too."""
    async with serve(in_turn(reply())) as server:
        port = int(server.url.rpartition(":")[2])

        async def found(host: str, port: int) -> list[tuple[int, int, int, str, tuple[str, int]]]:
            # The last of them answers; nothing listens on the first, the second leads nowhere.
            hosts = ("127.0.0.2", "192.0.2.1", "127.0.0.1")
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (each, port)) for each in hosts]

        monkeypatch.setattr(sockets, "_addresses", found)
        monkeypatch.setattr(sockets, "_ADDRESS_S", 0.05)
        transport = Transport(Connection(f"http://api.test:{port}"))
        assert (await transport.request("GET", "/")).status == 200
        await transport.aclose()


async def test_where_no_address_answers_each_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without IPv6 is told of the refusal by IPv4, not only of what could never work."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]

    async def found(host: str, port: int) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        # Nothing listens on the first, the others lead nowhere.
        hosts = ("127.0.0.1", "192.0.2.1", "255.255.255.255")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (each, port)) for each in hosts]

    monkeypatch.setattr(sockets, "_addresses", found)
    monkeypatch.setattr(sockets, "_ADDRESS_S", 0.05)
    said = r"api\.test:\d+: 127\.0\.0\.1: .*refused, 192\.0\.2\.1: .+, 255\.255\.255\.255: .+"
    with pytest.raises(ConnectFailed, match=said):
        await Transport(Connection(f"http://api.test:{port}")).request("GET", "/")


async def test_after_a_401_a_fresh_credential_is_tried_once() -> None:
    """The request is repeated with the new credential, POST included: a 401 did nothing."""
    script = in_turn(reply(401), reply(), reply(401), reply(401))
    async with running(script, auth=Turning("a", "b", "c", "d")) as (server, transport, records):
        assert (await transport.request("POST", "/1")).status == 200
        assert (await transport.request("GET", "/2")).status == 401
        assert transport.counted.retries == {("POST", 401): 1, ("GET", 401): 1}
    assert [request.headers["authorization"] for request in server.requests] == ["a", "b", "b", "c"]
    assert [record.code for record in records] == [401, 200, 401, 401]


async def test_a_401_without_a_newer_credential_is_final() -> None:
    """Nothing newer: the refusal is the answer, after one request."""
    async with running(in_turn(reply(401)), auth=Auth("Bearer old")) as (server, transport, _):
        assert (await transport.request("GET", "/1")).status == 401
    assert len(server.requests) == 1


async def test_connections_idle_for_long_are_closed() -> None:
    """What the server may give up any moment is not kept."""
    clock = FakeClock()
    script = in_turn(reply(), reply(), reply())
    async with running(script, clock=clock) as (server, transport, _):
        await transport.request("GET", "/1")
        await clock.advance(59)
        await transport.request("GET", "/2")
        await clock.advance(61)
        await transport.request("GET", "/3")
    assert [request.connection for request in server.requests] == [1, 1, 2]


async def test_the_pool_is_bounded_and_streams_are_outside_of_it() -> None:
    """A hundred calls over a pool of three use three connections, an open stream one more."""

    def script(request: Request) -> Answer:
        return chunked([b"x"], end=False) if "watch" in request.target else reply()

    async with (
        running(script, limits=Limits(max_in_flight=3, max_spare=2)) as (server, transport, _),
        transport.stream("/api/v1/pods?watch=1", asked=Asked("watch", "pods")) as stream,
    ):
        assert await first_piece(stream) == b"x"
        async with anyio.create_task_group() as group:
            for number in range(100):
                rank = Rank.CLIENT if number % 2 else Rank.SPARE
                group.start_soon(call, transport, f"/{number}", rank)
        assert transport.counted.streams == 1
    assert len(server.requests) == 101
    assert server.opened == 4


async def call(transport: Transport, target: str, rank: Rank) -> None:
    """Make one call; each task has a rank of its own."""
    RANK.set(rank)
    await transport.request("GET", target)


def size(request: Request) -> int:
    """Return how many bytes a request had on the wire."""
    lines = [f"{request.method} {request.target} HTTP/1.1", ""]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    return sum(len(line) + 2 for line in lines) + len(request.body)


async def test_every_byte_and_request_is_counted() -> None:
    """Records and statistics agree with what crossed the wire."""
    body = b"x" * 1000
    answers = [reply(200, body), reply(404)]
    async with running(in_turn(*answers)) as (server, transport, records):
        asked = Asked("patch", "sandboxes.agents.x-k8s.io/status", "n", "s")
        await transport.request("PATCH", "/a", body=body, asked=asked)
        await transport.request("GET", "/api/v1/namespaces/n/pods/p")
    statistics = transport.counted
    assert statistics.requests == {
        ("PATCH", "patch", "sandboxes.agents.x-k8s.io/status", 200): 1,
        ("GET", "get", "nonresource", 404): 1,
    }
    assert statistics.sent_bytes == sum(size(request) for request in server.requests) > 1000
    received = sum(len(piece) for answer in answers for piece in answer.pieces)
    assert statistics.received_bytes == received > 1000
    assert all(record.latency_s >= 0 for record in records)
    assert transport._limiter.slots.in_use == 0


async def test_ipv6_hosts_go_into_brackets() -> None:
    """The Host header of an IPv6 server has brackets, the socket has not."""
    async with serve(in_turn(reply()), host="::1") as server:
        transport = Transport(Connection(server.url))
        await transport.request("GET", "/")
        await transport.aclose()
    assert server.requests[0].headers["host"].startswith("[::1]:")


@on_clock
async def test_waiting_for_a_slot_does_not_use_up_the_deadline(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline begins with the slot, so a full pool does not fail the requests behind it."""
    gate = anyio.Event()
    monkeypatch.setattr(transport_module, "open_stream", Gated(gate).connect)
    transport = Transport(Connection("http://test"), limits=Limits(max_in_flight=1))
    done: list[int] = []

    async def one(timeout_s: float) -> None:
        done.append((await transport.request("GET", "/", timeout_s=timeout_s)).status)

    async with anyio.create_task_group() as group:
        group.start_soon(one, 10.0)
        await settle()
        group.start_soon(one, 0.5)
        await clock.advance(0.6)
        assert transport._limiter.slots.waiting(Rank.SPARE) == 1
        gate.set()
    assert done == [200, 200]
    await transport.aclose()
