"""Streams, as watches read them: how they begin, end and fail."""

from __future__ import annotations

import pytest

from lean_sandbox.kube.errors import Asked, Gone, ProtocolFault, RequestTimeout
from tests.kube.peers import Turning, running
from tests.kube.server import Answer, chunked, first_piece, in_turn, reply

THINGS = Asked("watch", "things.g")


async def test_a_stream_takes_over_a_connection_that_nobody_uses() -> None:
    """A watch that follows a list needs no new one."""
    script = in_turn(reply(200, b"x" * 5000), chunked([b"one\n"], end=False), reply())
    async with running(script) as (server, transport, _):
        await transport.request("GET", "/1")
        async with transport.stream("/2", asked=THINGS) as stream:
            assert await first_piece(stream) == b"one\n"
            await transport.request("GET", "/3")
        assert len(transport._idle) == 1
    assert [request.connection for request in server.requests] == [1, 1, 2]


async def test_a_stream_on_a_dying_connection_is_an_error() -> None:
    """The server took the request on a reused connection and closed without a byte: told once."""
    async with running(in_turn(reply(), Answer(close=True))) as (server, transport, records):
        await transport.request("GET", "/1")
        with pytest.raises(ProtocolFault, match="without an answer"):
            async with transport.stream("/2", asked=THINGS):
                raise AssertionError("the stream began")
    assert [request.connection for request in server.requests] == [1, 1]
    assert (records[-1].code, records[-1].error) == (0, "Disconnected")


async def test_a_stream_ends_cleanly_or_says_that_it_broke() -> None:
    """It ends behind the last chunk; a connection that ends before it is a ProtocolFault."""
    cut = chunked([b"three\n"], end=False, close=True)
    got: list[bytes] = []
    async with running(in_turn(chunked([b"one\n", b"two\n"]), cut)) as (_, transport, records):
        async with transport.stream("/api/v1/pods?watch=1", asked=Asked("watch", "pods")) as stream:
            await stream.feed(got.append)
        with pytest.raises(ProtocolFault, match="truncated"):
            async with transport.stream("/apis/g/v1/things?watch=1", asked=THINGS) as stream:
                await stream.feed(got.append)
    assert b"".join(got) == b"one\ntwo\nthree\n"
    assert [(r.verb, r.resource, r.code, r.error) for r in records] == [
        ("watch", "pods", 200, ""),
        ("watch", "things.g", 200, "ProtocolFault"),
    ]


async def test_what_the_reader_of_a_stream_raises_ends_the_stream() -> None:
    """It is called by the event loop, but the task that opened the stream gets its error."""

    def take(piece: bytes) -> None:
        if b"two" in piece:
            raise ValueError("not a line")

    script = in_turn(chunked([b"one\n", b"two\n"], end=False), reply())
    async with running(script) as (server, transport, _):
        with pytest.raises(ValueError, match="not a line"):
            async with transport.stream("/x", asked=THINGS) as stream:
                await stream.feed(take)
        await transport.request("GET", "/1")
        assert transport.counted.streams == 0
    assert server.opened == 2


async def test_a_stream_that_is_refused_is_an_error() -> None:
    """It has the words of the server, and the connection serves on."""
    script = in_turn(reply(410, b'{"kind":"Status","message":"too old"}'), reply())
    async with running(script) as (server, transport, records):
        with pytest.raises(Gone, match=r"watch things\.g: 410: too old"):
            async with transport.stream("/x", asked=THINGS):
                raise AssertionError("the stream began")
        await transport.request("GET", "/1")
        assert transport.counted.streams == 0
    assert server.opened == 1
    assert [record.code for record in records] == [410, 200]


async def test_a_stream_refreshes_its_credential_too() -> None:
    """A watch opened with an old token is opened again with the new one."""
    script = in_turn(reply(401), chunked([b"x"]))
    auth = Turning("a", "b")
    async with (
        running(script, auth=auth) as (server, way, _),
        way.stream("/x", asked=THINGS) as stream,
    ):
        assert await first_piece(stream) == b"x"
        assert way.counted.retries == {("GET", 401): 1}
    assert [request.headers["authorization"] for request in server.requests] == ["a", "b"]


REFUSAL_WITHOUT_END = b"HTTP/1.1 500 No\r\nContent-Length: 10\r\n\r\nab"


@pytest.mark.parametrize("begins", [[], [REFUSAL_WITHOUT_END]])
async def test_a_stream_that_never_begins_times_out(begins: list[bytes]) -> None:
    """The deadline of a stream covers all up to the head of the answer, and a whole refusal."""
    async with running(in_turn(Answer(begins, hang=True))) as (_, transport, records):
        with pytest.raises(RequestTimeout):
            async with transport.stream("/x", asked=THINGS, connect_timeout_s=0.05):
                raise AssertionError("the stream began")
        assert transport.counted.streams == 0
    assert records[0].error == "RequestTimeout"
