"""A network that misbehaves: what stands, byte by byte, between a controller and its API server.

It tells requests, answers and the pieces of watches apart, and spoils them as it is told. Codes,
refused watches and what is held back are faults of the embedded control plane itself, see
:mod:`lean_sandbox.local.http.faults`. Timers are those of the event loop: on a ``ClockLoop`` they
go by the clock of the test.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from httptools import HttpRequestParser, HttpResponseParser

from lean_sandbox.local.request import Target, read_target
from tests.faults.breaks import LAST_WORDS, Break, Fault, Grain

__all__ = ["Break", "Grain", "Proxy", "open_proxy"]

# Writes in which torn bytes go out, and turns of the loop for which joined ones are gathered.
_PIECES = 5
_GATHERED = 8
# The socket is closed by a reset, and not by a farewell.
_LINGER = struct.pack("ii", 1, 0)


class Proxy:
    """The connections there are, and what is to happen to them."""

    def __init__(self, upstream: int) -> None:
        """Lead to a port of this machine."""
        self.url = ""
        self.upstream = upstream
        self.grain = Grain.WHOLE
        self.is_away = False
        """Connections are reset as they come."""
        #: What was done how often, by its name.
        self.done: Counter[str] = Counter()
        #: In the order in which they were opened.
        self.links: dict[_Link, None] = {}
        self._faults: list[Fault] = []

    # -- what is to happen -----------------------------------------------------------------------

    def break_answer(self, verb: str, resource: str, how: Break, share: float) -> None:
        """Break the connection after a share of the next such answer; what was asked is done."""
        self._faults.append(Fault(verb, resource, 1, how=how, share=share))

    def delay(self, verb: str, resource: str, seconds: float, times: int) -> None:
        """Let the next such answers come late."""
        self._faults.append(Fault(verb, resource, times, late_s=seconds))

    def break_watches(self, plural: str, how: Break, share: float | None = None) -> None:
        """Break the watches of a kind, at once or after a share of the next piece that comes."""
        for link in self.watches(plural):
            if share is None:
                link.end(how)
            else:
                link.doom = (how, share)

    def stall(self, plural: str) -> None:
        """Read nothing more of the watches of a kind."""
        for link in self.watches(plural):
            link.stall()

    def flow(self) -> None:
        """Read on wherever it was stalled."""
        for link in self.links:
            link.flow()

    def drop_idle(self, how: Break) -> None:
        """End the connections on which nothing is asked at present."""
        for link in list(self.links):
            if link.target is None:
                link.end(how)

    def go_away(self) -> None:
        """Reset all connections, and those that come, until ``is_away`` is taken back."""
        self.is_away = True
        for link in list(self.links):
            link.end(Break.RESET)

    def clear(self) -> None:
        """Do nothing more to what passes. What is mute stays mute: nobody knows it any more."""
        self._faults.clear()
        self.is_away = False
        self.grain = Grain.WHOLE
        self.flow()
        for link in self.links:
            link.doom = None

    # -- what there is ---------------------------------------------------------------------------

    def watches(self, plural: str) -> list[_Link]:
        """Return the connections of the watches of a kind that are not mute."""
        return [one for one in self.links if one.plural == plural and not one.is_mute]

    @property
    def mute_watches(self) -> int:
        """How many watches there are of which nothing will be heard."""
        return sum(link.is_mute and bool(link.plural) for link in self.links)

    def fault_of(self, target: Target) -> Fault | None:
        """Return, and count down, what befalls an answer."""
        return next((fault for fault in self._faults if fault.takes(target)), None)


class _Link(asyncio.Protocol):
    """One connection of the client; ``_Upstream`` is the one to the server that belongs to it."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.target: Target | None = None
        """What was asked and is not answered in full."""
        self.is_mute = self.is_stalled = self.is_over = False
        #: How it breaks in the midst of the next piece of a watch, and after which share of it.
        self.doom: tuple[Break, float] | None = None
        self.client: asyncio.Transport
        self.server: asyncio.Transport
        self._is_connected = False
        self._asking = HttpRequestParser(self)
        self._url = b""
        self._asked = bytearray()
        self._connecting: asyncio.Task[None] | None = None
        # What goes out torn or joined, and what sends it.
        self._gathered: list[bytes] = []
        self._turns: asyncio.Handle | None = None

    @property
    def plural(self) -> str:
        """The kind that is watched, "" for other requests."""
        is_watch = self.target is not None and self.target.verb == "watch"
        return self.target.resource if self.target is not None and is_watch else ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection to the server."""
        assert isinstance(transport, asyncio.Transport)
        self.client = transport
        self.proxy.links[self] = None
        if self.proxy.is_away:
            self.end(Break.RESET)
        else:
            self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: _Upstream(self), "127.0.0.1", self.proxy.upstream)
        except OSError:
            self.end(Break.RESET)

    def connected(self, server: asyncio.Transport) -> None:
        """Take the connection to the server."""
        self.server = server
        self._is_connected = True
        if self.is_over:
            server.abort()
        self._ask()

    def connection_lost(self, _problem: Exception | None) -> None:
        """End the other connection: the client has left."""
        self.is_over = True
        self.proxy.links.pop(self, None)
        if self._is_connected:
            self.server.abort()

    # -- requests --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Collect a request; a client sends the next one only after the answer."""
        if not self.is_mute:
            self._asked += data
            self._asking.feed_data(data)

    def on_url(self, url: bytes) -> None:
        """Collect the target of a request."""
        self._url += url

    def on_message_complete(self) -> None:
        """Pass a request on."""
        split = urlsplit(self._url.decode())
        self._url = b""
        method = self._asking.get_method().decode()
        self.target = read_target(Target, method, split.path, split.query)
        self._ask()

    def _ask(self) -> None:
        if self.target is not None and self._is_connected and self._asked:
            self.server.write(bytes(self._asked))
            self._asked.clear()

    # -- answers ---------------------------------------------------------------------------------

    def answer(self, head: bytes, body: bytes) -> None:
        """Pass an answer on, unless something befalls it."""
        assert self.target is not None
        target = self.target
        proxy = self.proxy
        data = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        fault = proxy.fault_of(target)
        if fault is None:
            self._pass(data)
        elif fault.how is None:
            proxy.done["late answer"] += 1
            asyncio.get_running_loop().call_later(fault.late_s, self._pass, data)
        else:
            self.client.write(data[: int(fault.share * len(data))])
            self.end(fault.how)

    def _pass(self, data: bytes) -> None:
        if not self.is_mute:
            self.target = None
        self._say(data)

    def begin(self, head: bytes) -> None:
        """Pass the head of a watch on."""
        self._say(head + b"Transfer-Encoding: chunked\r\n\r\n")

    def piece(self, data: bytes) -> None:
        """Pass a piece of a watch on, unless it breaks there."""
        grain = self.proxy.grain
        if self.is_mute or self.is_over:
            return
        if self.doom is not None:
            how, share = self.doom
            if part := data[: int(share * len(data))]:
                self._say(_chunk(part))
            self.end(how)
        elif grain is Grain.WHOLE:
            self._say(_chunk(data))
        else:
            self.proxy.done[grain.value] += 1
            size = len(data) // _PIECES + 1 if grain is Grain.TORN else len(data)
            self._gathered += [
                _chunk(data[start : start + size]) for start in range(0, len(data), size)
            ]
            if self._turns is None:
                self._wait(_GATHERED if grain is Grain.JOINED else 0)

    def _wait(self, turns: int) -> None:
        self._turns = asyncio.get_running_loop().call_soon(self._turn, turns)

    def _turn(self, turns: int) -> None:
        self._turns = None
        if turns:
            self._wait(turns - 1)
        elif self._gathered and not self.is_mute and not self.is_over:
            is_torn = self.proxy.grain is Grain.TORN
            self.client.write(self._gathered.pop(0) if is_torn else b"".join(self._gathered))
            if is_torn:
                self._wait(0)
            else:
                self._gathered.clear()

    def _say(self, data: bytes) -> None:
        if not self.is_over and not self.is_mute:
            self.client.write(b"".join(self._gathered) + data)
        self._gathered.clear()

    def finish(self) -> None:
        """End a watch as the server ends it; of what is mute nobody hears even that."""
        if not self.is_mute:
            self._say(_chunk(b""))
            self.target = None

    def server_left(self) -> None:
        """End as the server did; of what is mute nobody hears even that."""
        if not self.is_mute:
            self._say(b"")
            self.client.close()

    def stall(self) -> None:
        """Read nothing more from the server."""
        if self._is_connected and not self.is_stalled:
            self.proxy.done["slow reader"] += 1
            self.is_stalled = True
            self.server.pause_reading()

    def flow(self) -> None:
        """Read on."""
        if self.is_stalled:
            self.is_stalled = False
            self.server.resume_reading()

    # -- ends ------------------------------------------------------------------------------------

    def end(self, how: Break) -> None:
        """Break the connection."""
        if self.is_over or self.is_mute:
            return
        self.proxy.done[how.value] += 1
        if how in LAST_WORDS and self.plural:
            words = LAST_WORDS[how]
            self._say((_chunk(words) if words else b"") + _chunk(b""))
        self.is_mute = True
        if how is Break.MUTE:
            return
        if how is Break.RESET:
            connected = self.client.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
            self.client.abort()
        elif not self.client.is_closing():
            # One that has reset the connection a moment ago needs no end.
            with suppress(OSError):
                self.client.write_eof()
        if self._is_connected:
            self.server.abort()


class _Upstream(asyncio.Protocol):
    """The connection to the server."""

    def __init__(self, link: _Link) -> None:
        self._link = link
        self._parser = HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = bytearray()
        self._is_stream = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass on what has been asked meanwhile."""
        assert isinstance(transport, asyncio.Transport)
        self._link.connected(transport)

    def connection_lost(self, _problem: Exception | None) -> None:
        """End the other connection."""
        self._link.server_left()

    def data_received(self, data: bytes) -> None:
        """Take answers apart."""
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header; how the body is framed is said anew."""
        if name.lower() == b"transfer-encoding":
            self._is_stream = True
        elif name.lower() != b"content-length":
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin a watch at once."""
        if self._is_stream:
            self._link.begin(self._head())

    def _head(self) -> bytes:
        lines = b"".join(b"%s: %s\r\n" % header for header in self._headers)
        return b"HTTP/1.1 %d Said\r\n%s" % (self._parser.get_status_code(), lines)

    def on_body(self, data: bytes) -> None:
        """Pass a piece of a watch on; collect any other body."""
        if self._is_stream:
            self._link.piece(data)
        else:
            self._body += data

    def on_message_complete(self) -> None:
        """Pass a whole answer on."""
        if self._is_stream:
            self._link.finish()
        else:
            self._link.answer(self._head(), bytes(self._body))
        self._headers.clear()
        self._body.clear()
        self._is_stream = False


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@asynccontextmanager
async def open_proxy(upstream: str) -> AsyncIterator[Proxy]:
    """Run a proxy before a server of this machine for the body of the ``async with``."""
    loop = asyncio.get_running_loop()
    proxy = Proxy(int(upstream.rpartition(":")[2]))
    server = await loop.create_server(lambda: _Link(proxy), "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for link in list(proxy.links):
            link.client.abort()
