"""The listeners: what they answer, what they refuse, and where they listen."""

from __future__ import annotations

import socket

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.errors import ConfigError
from lean_sandbox.http.server import Answer, Request, bind
from tests.http.listeners import FLAG, GET, SILENT, echo, rest_of, serve, settle
from tests.support.patience import PATIENCE_S

# -- requests --------------------------------------------------------------------------------------


async def test_a_connection_serves_one_request() -> None:
    """A head may arrive in pieces; what was sent ahead of the answer is not answered."""
    async with serve() as served, await served.connect() as stream:
        for byte in b"GET /b?x=1&y HTTP/1.1\r\nhost: x\r\nAccept: a\r\nACCEPT: b\r\n\r\n":
            await stream.send(bytes([byte]))
        assert (await rest_of(stream)).endswith(b"\r\n\r\n/b {'x': '1', 'y': ''}")
        answer = await served.say(GET * 1000)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.count(b"HTTP/1.1") == 1
    assert b"\r\nConnection: close\r\n" in answer
    assert not served.counted()


async def test_a_head_of_a_byte_too_many_is_refused_however_it_arrives() -> None:
    """It may have 8 KiB, line, headers and the empty line, whatever the sizes of its pieces."""
    for number, code in ((8192, b"200"), (8193, b"431")):
        start, end = b"GET /a HTTP/1.1\r\nHost: x\r\nA: ", b"\r\n\r\n"
        head = start + b"a" * (number - len(start) - len(end)) + end
        async with serve() as served, await served.connect() as stream:
            await stream.send(head[:1])
            await anyio.wait_all_tasks_blocked()
            await stream.send(head[1:])
            assert (await rest_of(stream)).startswith(b"HTTP/1.1 " + code)


async def test_a_head_request_gets_the_head_only() -> None:
    """HEAD tells the length and type."""
    async with serve() as served:
        answer = await served.say(GET.replace(b"GET", b"HEAD"))
    assert b"Content-Length: 5\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT"])
async def test_other_methods_are_refused(method: str) -> None:
    """405 with what is allowed; a body is not read."""
    async with serve() as served:
        plain = f"{method} /a HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        answer = await served.say(plain)
        body = f"{method} /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello".encode()
        with_body = await served.say(body + GET)
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nAllow: GET, HEAD\r\n" in answer
    assert with_body.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET /a\r\n\r\n", 400),
        (b"GET /a /b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\nHost: x\n\n", 400),
        (b"FETCH /a HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET http://x/a HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /a HTTP/2.0\r\nHost: x\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nHost: x\r\nA: \x00\r\n\r\n", 400),
        (b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 20_000, 431),
        (b"\x16\x03\x01" + b"\x00" * 20_000, 400),
        (b"GET /a?" + b"&".join(b"x=1" for _ in range(40)) + b" HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ],
)
async def test_what_is_no_request_is_refused_in_words(data: bytes, code: int) -> None:
    """The answer has the code, says what is wrong, and the next connection is served."""
    async with serve() as served, await served.connect() as stream:
        await stream.send(data)
        await stream.send_eof()
        answer = await rest_of(stream)
        assert answer.startswith(f"HTTP/1.1 {code} ".encode())
        assert len(answer.partition(b"\r\n\r\n")[2].split()) >= 4
        assert (await served.say(GET)).startswith(b"HTTP/1.1 200 ")


@given(st.binary(max_size=200), st.sampled_from([b"", b"\r\n\r\n", GET]))
async def test_no_bytes_end_the_server(data: bytes, after: bytes) -> None:
    """Whatever arrives, the answers are of HTTP and the next connection is served."""
    async with serve() as served, await served.connect() as stream:
        await stream.send(data + after)
        await stream.send_eof()
        answer = await rest_of(stream)
        assert not answer or answer.startswith(b"HTTP/1.1 ")
        again = await served.say(GET)
        assert again.startswith(b"HTTP/1.1 200 ")


async def test_a_handler_that_fails_is_an_answer_too() -> None:
    """500 in words, and the next one is answered."""

    async def fail(request: Request) -> Answer:
        if request.path == "/a":
            raise RuntimeError("broken")
        return await echo(request)

    async with serve(fail) as served:
        assert b"see the controller's log" in await served.say(GET)
        assert (await served.say(GET.replace(b"/a", b"/b"))).endswith(b"/b {}")
    assert not served.counted()


# -- peers that behave badly -----------------------------------------------------------------------


async def test_a_peer_that_breaks_off_disturbs_nobody() -> None:
    """Connections cut in the middle of a request or of an answer end alone, and are counted."""
    large = b"x" * 8_000_000

    async def much(request: Request) -> Answer:
        return Answer(200, large) if request.path == "/a" else await echo(request)

    async with serve(much) as served:
        for data in (b"GET /", GET, b""):
            stream = await served.connect()
            raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)  # noqa: S610 -- no SQL here
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00" + b"\x00" * 4)
            if data:
                await stream.send(data)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            await anyio.aclose_forcefully(stream)
        await served.until(lambda: not served.endpoint.open)
        answer = await served.say(b"GET /b HTTP/1.0\r\n\r\n")
    assert answer.endswith(b"/b {}")
    assert served.counted()["metrics", "reset"] >= 1


@pytest.mark.parametrize("sent", [b"", b"GET /a HTT"])
async def test_a_silent_peer_is_given_up(sent: bytes) -> None:
    """A connection without a whole request ends after 30 s, and counts as a timeout."""
    async with serve() as served, await served.connect() as stream:
        await served.until(lambda: served.endpoint.open)
        if sent:
            await stream.send(sent)
        await settle(served)
        await served.clock.advance(29.0)
        assert len(served.endpoint.open) == 1
        await served.clock.advance(1.0)
        assert await rest_of(stream) == b""
        await served.until(lambda: not served.endpoint.open)
    assert served.counted() == {("metrics", "timeout"): 1}


async def test_an_answer_that_nobody_takes_is_given_up() -> None:
    """A peer that does not read its answer loses the connection; others are served meanwhile."""
    large = b"x" * 20_000_000

    async def much(request: Request) -> Answer:
        return Answer(200, large) if request.path == "/a" else await echo(request)

    async with serve(much) as served, await served.connect() as stream:
        await stream.send(GET)
        await settle(served)
        assert (await served.say(b"GET /b HTTP/1.0\r\n\r\n")).endswith(b"/b {}")
        await served.clock.advance(90.0)
        await served.until(lambda: not served.endpoint.open)
    assert served.counted()["metrics", "timeout"] == 1


async def test_a_body_that_is_not_sent_is_waited_for_one_second() -> None:
    """A request with a body is answered at once; its connection ends a second later."""
    async with serve() as served, await served.connect() as stream:
        await stream.send(SILENT)
        with anyio.fail_after(PATIENCE_S):
            assert (await stream.receive()).startswith(b"HTTP/1.1 405 ")
        await settle(served)
        assert len(served.endpoint.open) == 1
        await served.clock.advance(1.0)
        await served.until(lambda: not served.endpoint.open)


async def test_a_large_answer_comes_whole_and_waits_in_pieces() -> None:
    """Whoever does not read it keeps 64 KiB of it in memory; whoever does gets all of it."""
    large = bytes(range(256)) * 80_000
    pieces: list[int] = []

    async def much(_request: Request) -> Answer:
        (answering,) = served.endpoint.open
        send = answering._stream.send

        async def counted(item: bytes) -> None:
            pieces.append(len(item))
            await send(item)

        answering._stream.send = counted  # type: ignore[method-assign]
        return Answer(200, large)

    async with serve(much) as served, await served.connect() as stream:
        await stream.send(GET)
        await settle(served)
        (waiting,) = served.endpoint.open
        assert waiting._raw._transport.get_write_buffer_size() <= 64 * 1024  # type: ignore[attr-defined]
        answer = bytearray()
        with anyio.fail_after(PATIENCE_S):
            async for piece in stream:
                answer += piece
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    assert b"Content-Length: 20480000" in head
    assert max(pieces[1:]) == 64 * 1024
    assert pieces[0] == len(head) + len(b"\r\n\r\n") + 64 * 1024
    assert body == large


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["8080", "localhost", ":port", ":65536", "127.0.0.1:-1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    """The message names the flag and what an address looks like."""
    with pytest.raises(ConfigError, match=r"--metrics-bind-address: .* is not an address"):
        bind(FLAG, address)


def test_an_address_that_is_taken_is_told_with_its_flag() -> None:
    """The message names flag, address, cause and way out."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError) as refused:
            bind("--health-probe-bind-address", address)
    problem, _, way_out = str(refused.value).partition(". To fix: ")
    flag = "--health-probe-bind-address"
    assert problem == f"{flag}: cannot listen on {address}: Address already in use"
    assert "port 0" in way_out
    assert "0 to switch it off" in way_out


@pytest.mark.parametrize("address", ["203.0.113.1:65535", "nowhere.invalid:0"])
def test_an_address_that_is_not_ours_is_told(address: str) -> None:
    """Neither somebody else's address nor an unknown name ends in a traceback."""
    with pytest.raises(ConfigError, match="cannot listen on"):
        bind(FLAG, address)


@pytest.mark.parametrize(
    ("address", "families"),
    [
        ("127.0.0.1:0", (socket.AF_INET,)),
        ("[::1]:0", (socket.AF_INET6,)),
        ("[::]:0", (socket.AF_INET6,)),
        ("0.0.0.0:0", (socket.AF_INET,)),
        ("localhost:0", (socket.AF_INET, socket.AF_INET6)),
        (":0", (socket.AF_INET, socket.AF_INET6)),
    ],
)
def test_every_form_of_address_is_served(
    address: str, families: tuple[socket.AddressFamily, ...]
) -> None:
    """Addresses of both families, names, and every address of the machine at once."""
    with bind(FLAG, address) as listening:
        assert listening.family in families
        assert listening.getsockname()[1] > 0
        if address == ":0" and listening.family == socket.AF_INET6:
            with socket.create_connection(("127.0.0.1", listening.getsockname()[1])):
                pass
