"""Byte streams to the API server: non-blocking sockets, with TLS where the URL says so.

``ssl.SSLSocket`` reads and writes the file descriptor itself, in C. A TLS stream over the event
loop's own transport would take each byte through two further buffers.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import select
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio

from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.errors import ConnectFailed
from lean_sandbox.threads import Call

_RECEIVE_BYTES: Final = 65536
#: How long an address of a server is tried where the server has others.
_ADDRESS_S: Final = 1.0
#: What OpenSSL calls an answer that does not begin as one of TLS does.
_NOT_TLS: Final = "WRONG_VERSION_NUMBER"
_CONNECTING: Final = (0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR)
#: A watch may be silent for minutes: the kernel's probes find a peer that is gone in one minute.
_KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class DeadlinePassed(Exception):  # noqa: N818 -- the transport makes an error of it
    """The deadline of a wait has passed."""


class SocketStream:
    """A byte stream over a connected, non-blocking socket; used by one task at a time.

    The event loop watches the socket from beginning to end and reads what comes at once, one piece
    ahead of the task: ``anyio.wait_readable`` would register and unregister the socket for each.
    The task is woken when it has all that it waits for.
    Cancelling a wait loses no received byte, but leaves a partly sent message: the connection has
    to be closed then. A peer that renegotiates TLS has broken the connection.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)
        self._loop = asyncio.get_running_loop()
        self._piece: bytes | OSError | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._take: Callable[[bytes | OSError], bool] | None = None
        self._deadline = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._loop.add_reader(connected, self._on_readable)

    def limit(self, seconds: float) -> None:
        """Set the deadline of all waits, in seconds from now: then they end with DeadlinePassed.

        ``math.inf`` is none. One timer serves successive deadlines: if it fires early, it is reset.
        """
        self._deadline = self._loop.time() + seconds
        if self._timer is not None and self._deadline < self._timer.when():
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._set_timer()

    def _set_timer(self) -> None:
        self._timer = None
        if self._deadline <= self._loop.time():
            self._end(DeadlinePassed())
        elif self._deadline < math.inf:
            self._timer = self._loop.call_at(self._deadline, self._set_timer)

    def _check_deadline(self) -> None:
        if self._deadline <= self._loop.time():
            raise DeadlinePassed

    async def send(self, data: bytes, fence: Callable[[], None] | None = None) -> None:
        """Send all of ``data``; ``fence`` is called before each piece and may raise.

        Raises OSError and DeadlinePassed.
        """
        while True:
            if fence is not None:
                fence()
            try:
                sent = self._socket.send(data)
            except (BlockingIOError, ssl.SSLWantWriteError):
                with anyio.move_on_after(self._deadline - self._loop.time()):
                    await anyio.wait_writable(self._socket)
                self._check_deadline()
            else:
                if sent == len(data):
                    return
                data = data[sent:]

    async def follow(self, take: Callable[[bytes | OSError], bool]) -> None:
        """Let the event loop hand each piece to ``take``, until that returns false or raises.

        ``b""`` is handed over when the peer has closed, an OSError when the connection is broken.
        Raises what ``take`` does, and DeadlinePassed.
        """
        self._take = take
        self._arrival = self._loop.create_future()
        try:
            if self._piece is None:
                self._check_deadline()
            else:
                piece = self._piece
                self._piece = None
                self._loop.add_reader(self._socket, self._on_readable)
                self._hand_over(piece)
            await self._arrival
        finally:
            self._take = None

    def is_quiet(self) -> bool:
        """Whether the peer neither closed nor sent anything unasked while nobody was reading."""
        return self._piece is None and not self._poll.poll(0)

    def close(self) -> None:
        """Close at once, without TLS's close_notify: HTTP itself shows where a message ends."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _on_readable(self) -> None:
        piece: bytes | OSError
        try:
            piece = self._socket.recv(_RECEIVE_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError as problem:
            piece = problem
        if self._take is not None:
            self._hand_over(piece)
            return
        # No task waits: one piece is read ahead, the rest stays in the kernel, and the peer waits.
        self._piece = piece
        self._loop.remove_reader(self._socket)

    def _hand_over(self, piece: bytes | OSError) -> None:
        assert self._take is not None
        try:
            if not self._take(piece):
                self._end()
        except Exception as problem:  # noqa: BLE001 -- raised to the task that follows
            self._end(problem)

    def _end(self, problem: Exception | None = None) -> None:
        self._take = None
        if self._arrival is None or self._arrival.done():
            return
        if problem is None:
            self._arrival.set_result(None)
        else:
            self._arrival.set_exception(problem)


def _set_options(connected: socket.socket) -> None:
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        if hasattr(socket, option):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


async def open_stream(connection: Connection) -> SocketStream:
    """Connect to the server over TCP, and TLS where the URL says so. Raises ConnectFailed."""
    address = connection.address
    context = connection.ssl_context if address.tls else None
    # A trailing dot is meant for the resolver, like a zone index: no certificate has it.
    name = (connection.tls_server_name or address.host.partition("%")[0]).removesuffix(".")

    def make_socket(family: int) -> socket.socket:
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setblocking(False)  # noqa: FBT003 -- the name says what is set
        if context is None:
            return made
        # Not once it is connected: Python 3.11 leaks a socket that its peer resets meanwhile.
        return context.wrap_socket(made, server_hostname=name, do_handshake_on_connect=False)

    try:
        connected = await _connect(await _addresses(address.host, address.port), make_socket)
    except (OSError, ValueError) as problem:
        # ValueError: a name that no server can have.
        raise ConnectFailed(f"cannot connect to {address.authority}: {problem}") from problem
    try:
        _set_options(connected)
        if isinstance(connected, ssl.SSLSocket):
            await _shake_hands(connected)
    except ssl.SSLCertVerificationError as problem:
        connected.close()
        if context is not None and connection.authority is not None:
            # The authority may have been rotated: the next connection trusts the new one as well.
            with suppress(OSError):
                context.load_verify_locations(connection.authority)
        raise ConnectFailed(
            f"the certificate of {address.authority} was refused: {problem.verify_message} "
            f"(expected name {name!r}); check certificate-authority(-data) and tls-server-name"
        ) from problem
    except OSError as problem:
        connected.close()
        raise _tls_failed(address.authority, problem) from problem
    except BaseException:
        connected.close()
        raise
    return SocketStream(connected)


def _tls_failed(authority: str, problem: Exception) -> ConnectFailed:
    text = f"TLS with {authority} failed: {problem}"
    if isinstance(problem, ssl.SSLError) and problem.reason == _NOT_TLS:
        text += "; the server does not speak TLS there: try http://"
    return ConnectFailed(text)


async def _shake_hands(secured: ssl.SSLSocket) -> None:
    while True:
        try:
            secured.do_handshake()
        except ssl.SSLWantReadError:
            await anyio.wait_readable(secured)
        except ssl.SSLWantWriteError:
            await anyio.wait_writable(secured)
        else:
            return


async def _connect(
    addresses: list[Any], make_socket: Callable[[int], socket.socket]
) -> socket.socket:
    problems: list[str] = []
    for family, *_, address in addresses:
        is_last = len(problems) + 1 == len(addresses)
        try:
            with anyio.fail_after(None if is_last else _ADDRESS_S):
                return await _connect_to(make_socket(family), address)
        except OSError as problem:
            problems.append(f"{address[0]}: {problem.strerror or str(problem) or 'no answer'}")
    raise OSError(", ".join(problems))


async def _addresses(host: str, port: int) -> list[Any]:
    kind = socket.SOCK_STREAM
    try:
        # Numbers need neither a resolver nor the thread in which to ask it, nor, as bytes, a codec.
        return socket.getaddrinfo(host.encode(), port, type=kind, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await Call(partial(socket.getaddrinfo, host, port, type=kind)).result()


async def _connect_to(connecting: socket.socket, address: Any) -> socket.socket:
    try:
        code = connecting.connect_ex(address)
        if code in _CONNECTING:
            await anyio.wait_writable(connecting)
            code = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    except BaseException:
        connecting.close()
        raise
    if code:
        connecting.close()
        raise OSError(code, os.strerror(code))
    return connecting
