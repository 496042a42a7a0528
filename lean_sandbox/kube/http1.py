"""HTTP/1.1 as a client reads it: heads, framing, chunks, and one connection.

Written by hand: encoding a GET and reading its answer (seven headers, 2.2 kB) takes 6 us of CPU
here and 45 us with h11, where the whole request takes about 75 us (the table is in
:mod:`.transport`). What is accepted is deliberately narrow, after RFC 9112: anything ambiguous is a
:class:`~lean_sandbox.kube.errors.ProtocolFault` and ends the connection.
"""

from __future__ import annotations

import re
import select
from collections.abc import Mapping

import anyio
from anyio.abc import ByteStream, SocketAttribute

from lean_sandbox.kube.errors import AnswerTooLarge, ProtocolFault

_RECEIVE_BYTES = 65536
_HEX = b"0123456789abcdefABCDEF"
#: 16 hex digits of size plus an extension nobody uses.
_CHUNK_LINE_LIMIT_BYTES = 256
_DIGITS_LIMIT = 15


class Disconnected(ProtocolFault):
    """The peer closed before the first byte of an answer; ``at_write``: sending failed already."""

    def __init__(self, *, at_write: bool) -> None:
        self.at_write = at_write
        super().__init__("the server closed the connection without an answer")


class Head:
    """Status line and headers. ``length`` is the body's size: None for chunked or until close."""

    __slots__ = ("chunked", "headers", "keep_alive", "length", "status")

    def __init__(self, status: int, headers: dict[str, str], *, keep_alive: bool) -> None:
        self.status = status
        self.headers = headers
        self.keep_alive = keep_alive
        self.chunked = False
        self.length: int | None = None


def parse_head(raw: bytes, method: str) -> Head:
    """Parse a head (without the empty line at its end) and decide how the body is framed.

    Header names become lower case, repeated ones are joined by a comma. Raises ProtocolFault.
    """
    first, *lines = raw.decode("latin-1").split("\r\n")
    code = first[9:12]
    if (
        not first.startswith(("HTTP/1.1 ", "HTTP/1.0 "))
        or not (len(code) == 3 and code.isascii() and code.isdigit() and code >= "100")
        or first[12:13] not in ("", " ")
    ):
        raise ProtocolFault(f"not an HTTP/1.1 answer: {first[:64]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        # A space before the colon, or a line beginning with one, is how smuggled headers look.
        if not colon or not name or name[-1] in " \t" or name[0] in " \t" or "\n" in line:
            raise ProtocolFault(f"malformed header line: {line[:64]!r}")
        name = name.lower()
        value = value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    closing = first[7] == "0" or "close" in headers.get("connection", "").lower()
    head = Head(int(code), headers, keep_alive=not closing)
    _frame(head, method)
    return head


def _frame(head: Head, method: str) -> None:
    """Decide the body's length by RFC 9112 section 6.3."""
    headers = head.headers
    if method == "HEAD" or head.status in (204, 304) or head.status < 200:
        head.length = 0
        return
    encoding = headers.get("transfer-encoding")
    size = headers.get("content-length")
    if encoding is not None:
        if encoding.lower() != "chunked":
            raise ProtocolFault(f"unknown transfer encoding {encoding[:64]!r}")
        head.chunked = True
        # Both at once is how responses are smuggled; the length is ignored and the connection ends.
        head.keep_alive = head.keep_alive and size is None
    elif size is not None:
        if not (size.isascii() and size.isdigit() and len(size) <= _DIGITS_LIMIT):
            raise ProtocolFault(f"impossible content length {size[:64]!r}")
        head.length = int(size)
    else:
        head.keep_alive = False


class ChunkedDecoder:
    """Undo the chunked coding of a byte stream that arrives in arbitrary pieces."""

    __slots__ = ("_left", "_pending", "_trailer", "done", "rest")

    def __init__(self) -> None:
        self._pending = b""
        #: Bytes of the current chunk still to come, with the 2 of its line end; 0 between chunks.
        self._left = 0
        self._trailer = 0
        self.done = False
        #: What followed the end of the body.
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Take the next piece and return the payload it completes ("" when none)."""
        if self._pending:
            data = self._pending + data
            self._pending = b""
        out: list[bytes] = []
        at = 0
        while at < len(data) and not self.done:
            if self._left:
                at = self._payload(data, at, out)
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                self._keep(data[at:])
                break
            self._line(data[at:end])
            at = end + 2
        if self.done:
            self.rest = data[at:]
        return out[0] if len(out) == 1 else b"".join(out)

    def _payload(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Take what there is of the current chunk and its line end; return the new position."""
        size = self._left - 2
        if size > 0:
            piece = data[at : at + size]
            out.append(piece)
            self._left -= len(piece)
            return at + len(piece)
        end = data[at : at + self._left]
        if not b"\r\n"[2 - self._left :].startswith(end):
            raise ProtocolFault("a chunk is longer than it said")
        self._left -= len(end)
        return at + len(end)

    def _keep(self, piece: bytes) -> None:
        if len(piece) > _CHUNK_LINE_LIMIT_BYTES:
            raise ProtocolFault("no chunk size where one must be")
        self._pending = piece

    def _line(self, line: bytes) -> None:
        """Take the line between two chunks: a size, or a trailer after the last chunk."""
        if self._trailer:
            self._trailer += len(line)
            if self._trailer > _RECEIVE_BYTES:
                raise ProtocolFault("the trailer after the last chunk does not end")
            self.done = not line
            return
        size = line.partition(b";")[0].rstrip(b" \t")
        if not size or len(size) > _DIGITS_LIMIT or size.strip(_HEX):
            raise ProtocolFault(f"impossible chunk size {line[:32]!r}")
        count = int(size, 16)
        if count:
            self._left = count + 2
        else:
            self._trailer = 1


_METHOD = re.compile(r"[A-Z]+")
_HEADER_LINES = re.compile(r"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t -~]*\r\n)*")


def encode_request(
    method: str, target: str, constant: str, headers: Mapping[str, str], body: bytes
) -> bytes:
    """Encode a request as one piece, so that it leaves in one segment where it fits.

    ``constant`` are header lines that never change. Raises ValueError for a target or header that
    would not stay in its line.
    """
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\n") != len(headers) or not _HEADER_LINES.fullmatch(lines):
        raise ValueError("a header has a line break, or another character that it cannot have")
    if not _METHOD.fullmatch(method):
        raise ValueError(f"not a request method: {method!r}")
    if not (target.isascii() and target.isprintable()) or " " in target or target[:1] != "/":
        raise ValueError(f"not a request target: {target!r}")
    if body or method in ("POST", "PUT", "PATCH"):
        lines = f"{lines}Content-Length: {len(body)}\r\n"
    return f"{method} {target} HTTP/1.1\r\n{constant}{lines}\r\n".encode("ascii") + body


class Traffic:
    """Bytes sent and received, HTTP heads included, before TLS."""

    __slots__ = ("received_bytes", "sent_bytes")

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.received_bytes = 0


class HttpConnection:
    """One keep-alive connection, used by one request at a time.

    ``own`` counts its bytes, ``shared`` (given by the owner of several) the same ones as they move.
    """

    def __init__(self, stream: ByteStream, shared: Traffic, *, max_head_bytes: int) -> None:
        self._stream = stream
        self._max_head_bytes = max_head_bytes
        self._buffer = b""
        self.own = Traffic()
        self._shared = shared
        self.idle_since = 0.0
        self.identity = 0
        raw_socket = stream.extra(SocketAttribute.raw_socket, None)  # noqa: S610 -- no SQL here
        self._poll = None
        if raw_socket is not None:
            self._poll = select.poll()
            self._poll.register(raw_socket.fileno(), select.POLLIN)

    @property
    def has_leftover(self) -> bool:
        """Whether more arrived than the last answer: the next one could not be told from it."""
        return bool(self._buffer)

    @property
    def is_stale(self) -> bool:
        """Whether the peer closed, or sent something unasked, while the connection was idle.

        anyio does not read while nobody receives, so anything to read shows up in the socket.
        """
        return self._poll is not None and bool(self._poll.poll(0))

    async def send(self, data: bytes, method: str) -> Head:
        """Send a request and return the head of the final answer (1xx are skipped).

        Raises :class:`Disconnected` when the peer closed before the first byte of an answer.
        """
        try:
            await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as problem:
            raise Disconnected(at_write=True) from problem
        self.own.sent_bytes += len(data)
        self._shared.sent_bytes += len(data)
        head = await self._head(method)
        while head.status < 200:
            if head.status == 101:
                raise ProtocolFault("the server switched to a protocol nobody asked for")
            head = await self._head(method)
        return head

    async def body(self, head: Head, limit_bytes: int) -> bytes:
        """Return the whole body.

        Raises ProtocolFault when it is truncated, AnswerTooLarge as soon as it is above the limit.
        """
        length = head.length
        if length is not None:
            if length > limit_bytes:
                raise AnswerTooLarge(f"an answer of {length} bytes, above the limit {limit_bytes}")
            if len(self._buffer) >= length:
                whole = self._buffer[:length]
                self._buffer = self._buffer[length:]
                return whole
        reader = BodyReader(self, head)
        parts: list[bytes] = []
        size = 0
        while True:
            try:
                part = await reader.receive()
            except anyio.EndOfStream:
                return b"".join(parts)
            parts.append(part)
            size += len(part)
            if size > limit_bytes:
                raise AnswerTooLarge(f"an answer above the limit of {limit_bytes} bytes")

    def take(self) -> bytes:
        """Return what was received beyond the head, and forget it."""
        data, self._buffer = self._buffer, b""
        return data

    def give_back(self, rest: bytes) -> None:
        """Keep what followed a body, so that the connection counts as stale."""
        self._buffer = rest

    async def receive(self) -> bytes:
        """Return the next bytes. Raises EndOfStream; a reset is a ProtocolFault."""
        try:
            data = await self._stream.receive(_RECEIVE_BYTES)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as problem:
            raise ProtocolFault("the connection was reset in the middle of an answer") from problem
        self.own.received_bytes += len(data)
        self._shared.received_bytes += len(data)
        return data

    async def aclose(self) -> None:
        """Close at once, without a farewell the peer might never answer."""
        await anyio.aclose_forcefully(self._stream)

    async def _head(self, method: str) -> Head:
        data = self._buffer
        searched = 0
        while (end := data.find(b"\r\n\r\n", searched)) < 0:
            if len(data) > self._max_head_bytes:
                raise ProtocolFault(f"a head above the limit of {self._max_head_bytes} bytes")
            if data[:7] != b"HTTP/1."[: len(data)]:
                raise ProtocolFault(f"not an HTTP/1.1 answer: {data[:64]!r}")
            searched = max(0, len(data) - 3)
            try:
                data += await self.receive()
            except anyio.EndOfStream:
                if data:
                    raise ProtocolFault("the answer ends inside its head") from None
                raise Disconnected(at_write=False) from None
            except ProtocolFault as problem:
                if data:
                    raise
                raise Disconnected(at_write=False) from problem
        self._buffer = data[end + 4 :]
        return parse_head(data[:end], method)


class BodyReader:
    """The body of one answer, piece by piece as it arrives."""

    __slots__ = ("_chunks", "_connection", "_left", "done")

    def __init__(self, connection: HttpConnection, head: Head) -> None:
        self._connection = connection
        self._chunks = ChunkedDecoder() if head.chunked else None
        self._left = head.length
        self.done = False

    async def receive(self) -> bytes:
        """Return the next piece, never empty.

        Raises EndOfStream after the last one, ProtocolFault when the connection ends before it.
        """
        while not self.done:
            if self._left == 0:
                self.done = True
                break
            data = self._connection.take() or await self._more()
            piece = data if self._chunks is None else self._decode(self._chunks, data)
            if self._left is not None:
                piece = self._cut(piece, self._left)
            if piece:
                return piece
        raise anyio.EndOfStream

    async def _more(self) -> bytes:
        try:
            return await self._connection.receive()
        except anyio.EndOfStream:
            if self._chunks is None and self._left is None:
                self.done = True
                return b""
            raise ProtocolFault("the answer is truncated") from None

    def _decode(self, chunks: ChunkedDecoder, data: bytes) -> bytes:
        piece = chunks.feed(data)
        if chunks.done:
            self.done = True
            self._connection.give_back(chunks.rest)
        return piece

    def _cut(self, piece: bytes, left: int) -> bytes:
        if len(piece) > left:
            self._connection.give_back(piece[left:])
            piece = piece[:left]
        self._left = left - len(piece)
        self.done = self._left == 0
        return piece
