"""lightkube's ``AsyncClient`` on our transport: its API, our connections, limits and counters.

Give it to lightkube as ``transport=``. What one request then costs is in the table of
:mod:`.transport`; it shares the pool, the lanes and the counters.

Importing this module imports lightkube's HTTP library; nothing else here does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import anyio
import httpx2

from lean_sandbox.kube.errors import (
    ConnectFailed,
    ControlPlaneError,
    ProtocolFault,
    RequestTimeout,
)
from lean_sandbox.kube.transport import Lane, StreamResponse, Transport

#: Set by the HTTP library or by our transport, so not to be sent twice.
_OURS = frozenset(
    ("host", "user-agent", "content-length", "connection", "accept-encoding", "authorization")
)
_STREAMING = ("watch", "follow")


class LightkubeTransport(httpx2.AsyncBaseTransport):
    """Sends the requests of an ``httpx2.AsyncClient`` over a :class:`Transport`.

    The Authorization header is ours: whatever the client sets is dropped, the credential of the
    transport's connection is used. Requests with ``watch`` or ``follow`` in their query are
    streams. Errors are raised as the HTTP library's own. Closing it leaves the transport open.
    """

    def __init__(
        self, transport: Transport, *, lane: Lane = Lane.BACKGROUND, timeout_s: float = 10.0
    ) -> None:
        """``timeout_s`` holds where the client names no read timeout."""
        self._transport = transport
        self._lane = lane
        self._timeout_s = timeout_s

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request."""
        target = request.url.raw_path.decode("ascii")
        headers = {name: value for name, value in request.headers.items() if name not in _OURS}
        timeouts = request.extensions.get("timeout") or {}
        try:
            if any(request.url.params.get(key) in ("true", "1") for key in _STREAMING):
                return await self._stream(target, headers, timeouts.get("connect"))
            response = await self._transport.request(
                request.method,
                target,
                body=await request.aread(),
                headers=headers,
                timeout_s=timeouts.get("read") or self._timeout_s,
                lane=self._lane,
            )
        except ControlPlaneError as problem:
            raise _translate(problem, request) from problem
        return httpx2.Response(response.status, headers=response.headers, content=response.body)

    async def _stream(
        self, target: str, headers: dict[str, str], connect_timeout_s: float | None
    ) -> httpx2.Response:
        async with AsyncExitStack() as stack:
            response = await stack.enter_async_context(
                self._transport.stream(
                    target,
                    headers=headers,
                    connect_timeout_s=connect_timeout_s or self._timeout_s,
                )
            )
            body = _Body(response, stack.pop_all())
        return httpx2.Response(response.status, headers=response.headers, stream=body)


class _Body(httpx2.AsyncByteStream):
    def __init__(self, response: StreamResponse, stack: AsyncExitStack) -> None:
        self._response = response
        self._stack = stack

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            try:
                piece = await self._response.receive()
            except anyio.EndOfStream:
                return
            except ProtocolFault as problem:
                raise httpx2.RemoteProtocolError(str(problem)) from problem
            yield piece

    async def aclose(self) -> None:
        await self._stack.aclose()


def _translate(problem: ControlPlaneError, request: httpx2.Request) -> httpx2.HTTPError:
    kind: type[httpx2.RequestError] = httpx2.TransportError
    if isinstance(problem, ConnectFailed):
        kind = httpx2.ConnectError
    elif isinstance(problem, RequestTimeout):
        kind = httpx2.ReadTimeout
    elif isinstance(problem, ProtocolFault):
        kind = httpx2.RemoteProtocolError
    return kind(str(problem), request=request)
