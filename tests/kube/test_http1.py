# ruff: noqa: D102 -- the methods of the fake are those of SocketStream.
"""The HTTP/1.1 reader: framing, limits, and independence from how the bytes are cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.kube.errors import ProtocolFault
from lean_sandbox.kube.http1 import Disconnected, HttpConnection, encode_request, header_lines
from lean_sandbox.kube.sockets import SocketStream
from lean_sandbox.kube.telemetry import RequestCounters

LIMIT = 1_000_000


class Pieces(SocketStream):
    """A peer that sends given pieces and then closes, or resets the connection."""

    def __init__(self, pieces: list[bytes], *, resets: bool = False) -> None:
        self.pieces = [piece for piece in pieces if piece]
        self.resets = resets

    async def follow(self, take: Callable[[bytes | OSError], bool]) -> None:
        goes_on = True
        while goes_on:
            await anyio.lowlevel.checkpoint()
            end = ConnectionResetError("reset by peer") if self.resets else b""
            goes_on = take(self.pieces.pop(0) if self.pieces else end)

    async def send(self, data: bytes, fence: Callable[[], None] | None = None) -> None:
        pass

    def is_quiet(self) -> bool:
        return not self.pieces

    def close(self) -> None:
        self.pieces.clear()


class Answered(NamedTuple):
    """What was read of a response."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes
    keeps_alive: bool


async def exchange(pieces: list[bytes], *, limit: int = LIMIT) -> Answered:
    """Send a request to a scripted peer and read the whole answer."""
    connection = HttpConnection(Pieces(pieces), RequestCounters())
    await connection.send(b"GET / HTTP/1.1\r\n\r\n")
    body = await connection.body(limit)
    return Answered(connection.status, connection.headers, body, connection.keeps_alive)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """Cut ``data`` at the given places."""
    places = sorted({min(place, len(data)) for place in at})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


ANSWERS = {
    "sized": b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\nX: y\r\n\r\nhello\r\n0\r\n\r",
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\nA;ext=1\r\n\r\n0\r\n\r\nabc\r\n1\r\n!\r\n0\r\n\r\n",
    "trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"003\r\nabc\r\n0\r\nA: b\r\nC: d\r\n\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n"
    b"HTTP/1.1 201 Created\r\ncontent-length:2\r\n\r\n{}",
    "empty": b"HTTP/1.1 204 No Content\r\nDate: now\r\n\r\n",
    "closing": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end",
}


@pytest.mark.parametrize("name", sorted(ANSWERS))
@given(st.lists(st.integers(0, 120), max_size=12))
async def test_any_split_of_the_bytes_gives_the_same_answer(name: str, at: list[int]) -> None:
    """However TCP cuts the stream, status, headers and body are the same."""
    assert await exchange(cut(ANSWERS[name], at)) == await exchange([ANSWERS[name]])


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    st.lists(st.integers(0, 300), max_size=10),
)
async def test_a_chunked_body_is_the_sum_of_its_chunks(chunks: list[bytes], at: list[int]) -> None:
    """Encoding chunks and decoding them in any pieces gives their concatenation."""
    coded = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert (await exchange(cut(head + coded, at))).body == b"".join(chunks)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=4))
async def test_garbage_never_escapes_as_anything_but_a_protocol_fault(
    noise: bytes, at: list[int]
) -> None:
    """Whatever bytes a peer sends, reading ends in an answer or a ProtocolFault."""
    for start in (
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ):
        try:
            answered = await exchange(cut(start + noise, at))
        except ProtocolFault:
            continue
        assert 200 <= answered.status <= 999


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nName : value\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n1234567890",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\nabc",
        b"HTTP/1.1 200\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello, too long\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nContent-",
    ],
)
async def test_what_is_no_plain_http_answer_is_a_protocol_fault(raw: bytes) -> None:
    """Garbage, smuggling tricks and truncated answers are refused, never guessed at."""
    with pytest.raises(ProtocolFault):
        await exchange([raw])


async def test_an_answer_above_a_size_limit_is_refused() -> None:
    """Heads and bodies have limits, whether the size is announced or not."""
    with pytest.raises(ProtocolFault, match="a head above the limit"):
        await exchange([b"HTTP/1.1 200 OK\r\n", *[b"A: %s\r\n" % (b"b" * 200)] * 400])
    with pytest.raises(ProtocolFault, match="a head above the limit"):
        await exchange([b"HTTP/1.1 103 Hints\r\n\r\n"] * 4000)
    with pytest.raises(ProtocolFault, match="above the limit"):
        await exchange([b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n"], limit=10)
    with pytest.raises(ProtocolFault, match="above the limit"):
        await exchange([ANSWERS["chunked"]], limit=10)
    assert (await exchange([ANSWERS["sized"]], limit=11)).body == b"hello\r\n0\r\n\r"
    assert len((await exchange([ANSWERS["chunked"]], limit=16)).body) == 16


@pytest.mark.parametrize(("more", "is_refused"), [(0, False), (1, True)])
async def test_a_head_has_64_kib(more: int, *, is_refused: bool) -> None:
    """An answer whose head has come and is complete is never too long."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
    line = b"A: %s\r\n\r\n"
    size = 65536 + more - len(head) - len(line % b"")
    pieces = [head, line % (b"b" * size), b"{}"]
    if is_refused:
        with pytest.raises(ProtocolFault, match="above the limit of 65536 bytes"):
            await exchange(pieces)
    else:
        assert (await exchange(pieces)).body == b"{}"
    assert (await exchange([b"".join(pieces)])).body == b"{}"


async def test_what_never_ends_between_chunks_is_refused() -> None:
    """A chunk size or trailer without an end does not fill the memory."""
    start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with pytest.raises(ProtocolFault, match="overflow"):
        await exchange([start, *[b"1" * 200] * 400])
    for endless in (b"0" * 200, b"1;" + b"x" * 200):
        with pytest.raises(ProtocolFault, match="chunk size"):
            await exchange([start, *[endless] * 400])
    with pytest.raises(ProtocolFault, match="trailer"):
        await exchange([start, b"0\r\n", *[b"A: %s\r\n" % (b"b" * 200)] * 400])


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([], Disconnected),
        ([b"HTTP/1.1 2"], ProtocolFault),
        ([ANSWERS["sized"][:-3]], ProtocolFault),
    ],
)
async def test_a_reset_is_told_apart_by_when_it_comes(
    before: list[bytes], expected: type[ProtocolFault]
) -> None:
    """Before the first byte a reset is a lost connection, then a broken answer; both say why."""
    connection = HttpConnection(Pieces(before, resets=True), RequestCounters())
    with pytest.raises(ProtocolFault) as caught:  # noqa: PT012 -- either may fail
        await connection.send(b"")
        await connection.body(LIMIT)
    assert type(caught.value) is expected
    assert str(caught.value).endswith(" answer: reset by peer")


@pytest.mark.parametrize(
    ("raw", "body", "keep"),
    [
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b"", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok", False),
        (b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nok", b"ok", False),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", b"", True),
    ],
)
async def test_the_end_of_a_body_follows_rfc_9112(raw: bytes, body: bytes, *, keep: bool) -> None:
    """Length, chunks and status decide where a body ends and if the connection lives."""
    answered = await exchange([raw])
    assert (answered.body, answered.keeps_alive) == (body, keep)


@pytest.mark.parametrize("name", ["sized", "chunked"])
async def test_bytes_behind_an_answer_are_noticed(name: str) -> None:
    """A connection on which more arrived than was asked for cannot be used again."""
    for more in (b"HTTP/1.1 200 OK", *ANSWERS.values(), b"garbage"):
        answered = await exchange([ANSWERS[name] + more])
        assert answered.body == (await exchange([ANSWERS[name]])).body
        assert not answered.keeps_alive


async def test_repeated_headers_are_joined() -> None:
    """Lower-case names; values of repeated headers are separated by a comma."""
    head = b"HTTP/1.1 204 OK\r\nWarning: a\r\nwarning:\t b \r\nEmpty:\r\n\r\n"
    assert (await exchange([head])).headers == {b"warning": b"a, b", b"empty": b""}


async def test_a_stream_hands_out_payload_as_soon_as_it_is_there() -> None:
    """Part of a chunk is not held back until the chunk is whole."""
    start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n01234"
    connection = HttpConnection(
        Pieces([start, b"567", b"89\r\n", b"0\r\n", b"\r\n"]), RequestCounters()
    )
    await connection.send(b"")
    got: list[bytes] = []
    await connection.feed(got.append)
    assert got == [b"01234", b"567", b"89"]


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("/a b", {}),
        ("/a\r\nX: y", {}),
        ("/\u00e4", {}),
        ("no-slash", {}),
        ("/", {"A": "b\r\nC: d"}),
        ("/", {"A": "b\nC: d"}),
        ("/", {"A": "\u20ac"}),
        ("/", {"A": "b\0"}),
        ("/", {"A:B": "c"}),
        ("/", {"": "c"}),
    ],
)
async def test_a_request_cannot_be_made_to_say_more_than_one_line(
    target: str, headers: dict[str, str]
) -> None:
    """Line breaks and other surprises in targets and headers are refused before sending."""
    with pytest.raises(ValueError, match=r"line break|target|ascii"):
        encode_request("GET", target, header_lines(tuple(headers.items())), b"")


@pytest.mark.parametrize("coding", [b"gzip", b"GZIP", b"br", b"identity, gzip"])
async def test_an_answer_that_was_compressed_on_the_way_is_an_error_that_says_so(
    coding: bytes,
) -> None:
    """Nothing is asked for compressed: a proxy that compresses is named, not its bytes decoded."""
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: " + coding + b"\r\nContent-Length: 2\r\n\r\n"
    with pytest.raises(ProtocolFault, match="a proxy on the way compresses"):
        await exchange([head + b"\x1f\x8b"])


@pytest.mark.parametrize("coding", [b"identity", b"Identity"])
async def test_an_answer_that_says_it_is_not_compressed_is_read(coding: bytes) -> None:
    """The word for no coding at all."""
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: " + coding + b"\r\nContent-Length: 2\r\n\r\n"
    assert (await exchange([head + b"{}"])).body == b"{}"
