# ruff: noqa: D102 -- the methods on_... of a connection are the callbacks of its parser.
"""HTTP/1.1 as a client speaks it: requests as bytes, responses by llhttp, one connection.

llhttp (``httptools``) refuses what is ambiguous by RFC 9112: a length beside chunks, repeated
lengths, folded headers, bare line feeds. What it leaves open is refused here: other transfer
codings than chunks, other protocols, and heads without an end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from lean_sandbox.kube.errors import AnswerTooLarge, ProtocolFault
from lean_sandbox.kube.sockets import SocketStream
from lean_sandbox.kube.telemetry import RequestCounters

#: The most that is read of heads, and of chunk sizes and trailers without any of the body.
_HEAD_LIMIT_BYTES: Final = 65536
_HEADER_LINES: Final = re.compile(r"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t -~]*\r\n)*")


class Disconnected(ProtocolFault):
    """The connection ended before the first byte of a response; ``at_write``: during the send."""

    def __init__(self, why: object, *, at_write: bool) -> None:
        self.why = why
        self.at_write = at_write
        super().__init__(f"the connection ended without an answer: {why}")


@lru_cache(maxsize=64)
def header_lines(headers: tuple[tuple[str, str], ...]) -> str:
    """Return header lines; ValueError for a header that would not stay in its line."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if lines.count("\n") != len(headers) or not _HEADER_LINES.fullmatch(lines):
        raise ValueError("a header has a line break, or another character that it cannot have")
    return lines


def encode_request(method: str, target: str, lines: str, body: bytes) -> bytes:
    """Encode a request as one piece; ValueError for a target that would not stay in its line."""
    if not (target.isascii() and target.isprintable()) or " " in target or target[:1] != "/":
        raise ValueError(f"not a request target: {target!r}")
    if body or method in ("POST", "PUT", "PATCH"):
        lines = f"{lines}Content-Length: {len(body)}\r\n"
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode("ascii") + body


class HttpConnection:
    """One keep-alive connection, used by one request at a time.

    ``status``, ``headers`` (lower-case names, repeated ones joined by a comma) and ``keeps_alive``
    are those of the last response; trailers are dropped. Methods ``on_...`` are for llhttp.
    """

    def __init__(
        self, stream: SocketStream, counted: RequestCounters, *, identity: int = 0
    ) -> None:
        #: Which client certificate it was opened with, see :attr:`.auth.Auth.identity`.
        self.identity = identity
        self.idle_since = 0.0
        self.stream = stream
        self._counted = counted
        self._parser = HttpResponseParser(self)
        self._begin()

    def _begin(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.keeps_alive = False
        self._problem = ""
        self._pieces: list[bytes] = []
        # Bytes of the body that the head announces (0 if it does not), and that have arrived.
        self._length = self._body_bytes = 0
        # Bytes since the last of the body: of the head, of chunk sizes, of trailers.
        self._overhead_bytes = 0
        # Whether the first byte of the response has come, and whether the last has.
        self._has_begun = self._is_complete = False

    async def send(self, data: bytes, fence: Callable[[], None] | None = None) -> None:
        """Send a request, wait for the head of its final response.

        Raises :class:`Disconnected`, and what ``fence`` does, see :meth:`.SocketStream.send`.
        """
        self._begin()
        try:
            await self.stream.send(data, fence)
        except OSError as problem:
            raise Disconnected(problem, at_write=True) from problem
        self._counted.sent_bytes += len(data)
        await self._read(lambda: not self.status)

    async def body(self, limit_bytes: int) -> bytes:
        """Return the whole body. Raises ProtocolFault if it is cut, AnswerTooLarge at the limit."""

        def goes_on() -> bool:
            if max(self._length, self._body_bytes) > limit_bytes:
                raise AnswerTooLarge(f"an answer above the limit of {limit_bytes} bytes")
            return not self._is_complete

        await self._read(goes_on)
        return self._taken()

    async def feed(self, take: Callable[[bytes], None]) -> None:
        """Hand each piece of the body to ``take`` as it comes, to the last.

        Raises ProtocolFault when the connection ends before the last, and what ``take`` does.
        """

        def goes_on() -> bool:
            if piece := self._taken():
                take(piece)
            return not self._is_complete

        await self._read(goes_on)

    def _taken(self) -> bytes:
        whole = b"".join(self._pieces)
        self._pieces.clear()
        return whole

    async def _read(self, goes_on: Callable[[], bool]) -> None:
        def take(data: bytes | OSError) -> bool:
            self._digest(data)
            return goes_on()

        if goes_on():
            await self.stream.follow(take)

    def _digest(self, data: bytes | OSError) -> None:
        if isinstance(data, OSError):
            if not self._has_begun:
                raise Disconnected(data, at_write=False) from data
            raise ProtocolFault(f"the connection broke amid an answer: {data}") from data
        if not data:
            if not self._has_begun:
                raise Disconnected("the server closed it", at_write=False)
            has_end = b"content-length" in self.headers or b"transfer-encoding" in self.headers
            if has_end or not self.status:
                raise ProtocolFault("the answer is truncated")
            self._is_complete = True
            return
        self._has_begun = True
        self._counted.received_bytes += len(data)
        self._overhead_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as problem:
            # After a whole response it only means that no other can follow.
            self.keeps_alive = False
            if not self._is_complete:
                self._problem = f"not an HTTP/1.1 answer: {problem}"
        if self._overhead_bytes > _HEAD_LIMIT_BYTES:
            what = "chunk size or trailer" if self.status else "head"
            self._problem = f"a {what} above the limit of {_HEAD_LIMIT_BYTES} bytes"
        if self._problem:
            raise ProtocolFault(self._problem)

    def on_message_begin(self) -> None:
        if self._is_complete:
            self.keeps_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status:
            return
        name = name.lower()
        value = value.rstrip(b" \t")
        before = self.headers.get(name)
        self.headers[name] = value if before is None else before + b", " + value

    def on_headers_complete(self) -> None:
        if self.status:
            return
        status = self._parser.get_status_code()
        headers = self.headers
        if 100 <= status < 200 and status != 101:
            self.headers = {}
            return
        coding = headers.get(b"transfer-encoding")
        if status < 200 or not self._parser.get_http_version().startswith("1."):
            self._problem = f"not an HTTP/1.1 answer, or one with the impossible status {status}"
        elif coding is not None and coding.lower() != b"chunked":
            self._problem = f"unknown transfer encoding {coding[:64]!r}"
        elif (content := headers.get(b"content-encoding", b"identity")).lower() != b"identity":
            self._problem = (
                f"an answer with the content encoding {content[:64]!r}, which was not asked for: "
                "a proxy on the way compresses, and has to leave this server's answers alone"
            )
        self.status = status
        self._length = int(headers.get(b"content-length", 0))
        self.keeps_alive = self._parser.should_keep_alive()

    def on_chunk_header(self) -> None:
        self._overhead_bytes = 0

    def on_body(self, data: bytes) -> None:
        if self._is_complete:
            return
        self._overhead_bytes = 0
        self._body_bytes += len(data)
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        # The head of an interim response is skipped: a message without a status was only that.
        self._is_complete = self.status > 0


class LineSplitter:
    r"""Collects the chunks of a watch and returns the complete lines among them.

    Only the byte ``\n`` ends a line. Text splitting would also cut at U+0085 or U+2028, with which
    anybody who can annotate a watched object could break the watch. ``limit_bytes`` bounds a line,
    finished or not; an object of the API server is at most about 3 MiB.
    """

    __slots__ = ("_limit_bytes", "pending")

    def __init__(self, limit_bytes: int = 16 * 1024 * 1024) -> None:
        #: The beginning of a line whose end has not arrived.
        self.pending = bytearray()
        self._limit_bytes = limit_bytes

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that a chunk completes, without empty ones. Raises ProtocolFault."""
        *lines, tail = chunk.split(b"\n")
        if lines and self.pending:
            lines[0] = b"".join((self.pending, lines[0]))
            self.pending.clear()
        self.pending += tail
        if max(len(self.pending), max(map(len, lines), default=0)) > self._limit_bytes:
            raise ProtocolFault(f"a line of the watch exceeds {self._limit_bytes} bytes")
        return [line for line in lines if line and not line.isspace()]
