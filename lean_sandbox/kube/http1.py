"""HTTP/1.1 as a client speaks it: requests as bytes, responses by llhttp, one connection.

llhttp (``httptools``) refuses what is ambiguous by RFC 9112: a length beside chunks, repeated
lengths, folded headers, bare line feeds. What it leaves open is refused here: other transfer
codings than chunks, other protocols, and whatever has no end.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import anyio
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from lean_sandbox.kube.errors import AnswerTooLarge, ProtocolFault
from lean_sandbox.kube.sockets import ByteStream
from lean_sandbox.kube.telemetry import RequestCounters

#: The most that is read of heads, and of chunk sizes and trailers without any of the body.
_HEAD_LIMIT_BYTES: Final = 65536
_HEADER_LINES: Final = re.compile(r"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t -~]*\r\n)*")

#: Header lines as they came, in their order.
Fields = list[tuple[bytes, bytes]]


class Disconnected(ProtocolFault):
    """The peer closed before the first byte of a response; ``at_write``: while it was sent to."""

    def __init__(self, *, at_write: bool) -> None:
        self.at_write = at_write
        super().__init__("the server closed the connection without an answer")


@lru_cache(maxsize=64)
def header_lines(headers: tuple[tuple[str, str], ...]) -> str:
    """Return header lines; a program sends few different ones, so that they are remembered.

    Raises ValueError for a header that would not stay in its line.
    """
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if lines.count("\n") != len(headers) or not _HEADER_LINES.fullmatch(lines):
        raise ValueError("a header has a line break, or another character that it cannot have")
    return lines


def encode_request(method: str, target: str, lines: str, body: bytes) -> bytes:
    """Encode a request as one piece, so that it leaves in one segment where it fits.

    ``lines`` are :func:`header_lines`. Raises ValueError for a target that would not stay in its
    line.
    """
    if not (method.isalpha() and method.isascii() and method.isupper()):
        raise ValueError(f"not a request method: {method!r}")
    if not (target.isascii() and target.isprintable()) or " " in target or target[:1] != "/":
        raise ValueError(f"not a request target: {target!r}")
    if body or method in ("POST", "PUT", "PATCH"):
        lines = f"{lines}Content-Length: {len(body)}\r\n"
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode("ascii") + body


def decode_headers(fields: Fields) -> dict[str, str]:
    """Return headers with lower-case names; repeated ones are joined by a comma."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in fields:
        name = raw_name.decode("latin-1").lower()
        value = raw_value.decode("latin-1").rstrip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


class HttpConnection:
    """One keep-alive connection, used by one request at a time.

    ``status``, ``fields`` and ``keeps_alive`` of :attr:`response` are those of the last request,
    and so are ``sent_bytes`` and ``received_bytes``; ``counted`` has those of all connections.
    """

    def __init__(self, stream: ByteStream, counted: RequestCounters, *, identity: int = 0) -> None:
        self.response = _ResponseParser()
        #: Which client certificate it was opened with, see :attr:`.auth.Auth.identity`.
        self.identity = identity
        self.idle_since = 0.0
        self.sent_bytes = 0
        self.received_bytes = 0
        self._stream = stream
        self._counted = counted

    async def send(self, data: bytes, method: str) -> None:
        """Send a request and wait for the head of its final response (1xx are skipped).

        Raises :class:`Disconnected` when the peer closed before the first byte of a response.
        """
        self.response.begin(method)
        self.sent_bytes = self.received_bytes = 0
        try:
            await self._stream.send(data)
        except OSError as problem:
            raise Disconnected(at_write=True) from problem
        self.sent_bytes = len(data)
        self._counted.sent_bytes += len(data)
        while not self.response.has_head:
            await self._read()

    async def body(self, limit_bytes: int) -> bytes:
        """Return the whole body.

        Raises ProtocolFault when it is truncated, AnswerTooLarge as soon as it is above the limit.
        """
        response = self.response
        announced = 0 if response.is_complete else response.length
        while max(announced, response.body_bytes) <= limit_bytes:
            if response.is_complete:
                return response.take_body()
            await self._read()
        raise AnswerTooLarge(f"an answer above the limit of {limit_bytes} bytes")

    async def receive(self) -> bytes:
        """Return the next piece of the body, never empty.

        Raises EndOfStream after the last one, ProtocolFault when the connection ends before it.
        """
        while not (piece := self.response.take_body()):
            if self.response.is_complete:
                raise anyio.EndOfStream
            await self._read()
        return piece

    def is_quiet(self) -> bool:
        """Whether the peer neither closed nor sent something unasked since the last response."""
        return self._stream.is_quiet()

    def close(self) -> None:
        """Close at once."""
        self._stream.close()

    async def _read(self) -> None:
        response = self.response
        try:
            data = await self._stream.receive()
        except OSError as problem:
            if not response.has_begun:
                raise Disconnected(at_write=False) from problem
            raise ProtocolFault("the connection was reset in the middle of an answer") from problem
        if data:
            self.received_bytes += len(data)
            self._counted.received_bytes += len(data)
            response.feed(data)
        elif response.has_begun:
            response.feed_end()
        else:
            raise Disconnected(at_write=False)


class _ResponseParser:
    """The responses of one connection, one after the other, in pieces of any size.

    ``fields`` are the header lines; trailers are dropped. The methods ``on_...`` are llhttp's
    callbacks.
    """

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._is_bodyless = False
        self.begin("GET")

    def begin(self, method: str) -> None:
        """Expect the response to a request of this method."""
        if self._is_bodyless:
            # llhttp waits for the body that a HEAD's response only announces.
            self._parser = HttpResponseParser(self)
        self._is_bodyless = method == "HEAD"
        self._is_interim = False
        self._ends_with_connection = False
        self._overhead_bytes = 0
        self._problem = ""
        self._pieces: list[bytes] = []
        #: What the head announces of the body (0 where it does not), and what has come of it.
        self.length = self.body_bytes = 0
        self.status = 0
        self.fields: Fields = []
        #: Whether any byte of the response has come, all of its head, all of it.
        self.has_begun = self.has_head = self.is_complete = False
        #: Whether another request may follow on the connection.
        self.keeps_alive = False

    def feed(self, data: bytes) -> None:
        """Take what was received. Raises ProtocolFault."""
        self.has_begun = True
        self._overhead_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as problem:
            # Behind a whole response it only means that no other can follow.
            self.keeps_alive = False
            if not self.is_complete:
                self._problem = self._problem or f"not an HTTP/1.1 answer: {problem}"
        if self._overhead_bytes > _HEAD_LIMIT_BYTES and not self.is_complete:
            what = "chunk size or trailer" if self.has_head else "head"
            self._problem = f"a {what} above the limit of {_HEAD_LIMIT_BYTES} bytes"
        if self._problem:
            raise ProtocolFault(self._problem)

    def feed_end(self) -> None:
        """Take the end of the connection. Raises ProtocolFault when the response is cut short."""
        self.keeps_alive = False
        self.is_complete = self._ends_with_connection
        if not self.is_complete:
            raise ProtocolFault("the answer is truncated")

    def take_body(self) -> bytes:
        """Return what has come of the body since the last call."""
        if len(self._pieces) == 1:
            return self._pieces.pop()
        whole = b"".join(self._pieces)
        self._pieces.clear()
        return whole

    def on_message_begin(self) -> None:
        if self.is_complete:
            self.keeps_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.has_head:
            self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        if self.has_head:
            return
        status = self._parser.get_status_code()
        self._is_interim = 100 <= status < 200 and status != 101
        if self._is_interim:
            self.fields = []
            return
        framing = {name.lower(): value for name, value in self.fields}
        coding = framing.get(b"transfer-encoding")
        if status < 200 or not self._parser.get_http_version().startswith("1."):
            self._problem = f"not an HTTP/1.1 answer, or one with the impossible status {status}"
        elif coding is not None and coding.strip().lower() != b"chunked":
            self._problem = f"unknown transfer encoding {coding[:64]!r}"
        self.status = status
        self.has_head = True
        self.is_complete = self._is_bodyless
        self.length = int(framing.get(b"content-length", 0))
        self._ends_with_connection = coding is None and b"content-length" not in framing
        self.keeps_alive = self._parser.should_keep_alive()

    def on_chunk_header(self) -> None:
        self._overhead_bytes = 0

    def on_body(self, data: bytes) -> None:
        if self.is_complete:
            self.keeps_alive = False
            return
        self._overhead_bytes = 0
        self.body_bytes += len(data)
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        if self._is_interim:
            self._is_interim = False
        else:
            self.is_complete = True
