"""A Lease on a server in memory, a network under the test's hand, and clocks that differ.

What a request passes through: it waits to arrive, is carried out, and its answer waits to be
delivered. The caller may have given up long before; the request arrives all the same.
"""

from __future__ import annotations

from typing import Any, cast

import anyio
import anyio.lowlevel
import msgspec

from lean_sandbox.kube.client import Client, TerminatingNamespaces
from lean_sandbox.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    ControlPlaneError,
    NotFound,
    RequestTimeout,
)
from tests.support.clock import FakeClock

__all__ = ["Host", "LeaseServer"]

Json = dict[str, Any]


class LeaseServer:
    """Holds one Lease with optimistic concurrency."""

    def __init__(self) -> None:
        """Begin without a Lease."""
        self.lease: Json | None = None
        self._version = 0

    def carry_out(self, verb: str, body: Json | None) -> Json:
        """Do what a request asks. Raises ApiError."""
        if verb == "create":
            if self.lease is not None:
                raise AlreadyExists(409)
            assert body is not None
            return self._store(body)
        if self.lease is None:
            raise NotFound(404)
        if verb == "get":
            return _copy(self.lease)
        assert body is not None
        if body["metadata"]["resourceVersion"] != str(self._version):
            raise Conflict(409)
        if body["spec"] == self.lease["spec"]:
            return _copy(self.lease)
        return self._store(body)

    def _store(self, body: Json) -> Json:
        self._version += 1
        self.lease = _copy(body)
        self.lease["metadata"]["resourceVersion"] = str(self._version)
        return _copy(self.lease)


def _copy(value: Json) -> Json:
    copied: Json = msgspec.json.decode(msgspec.json.encode(value))
    return copied


class _Call:
    """One request on its way."""

    def __init__(self, verb: str, body: Json | None) -> None:
        self.verb = verb
        self.body = body
        self.has_arrived = False
        self.answer: Json | ControlPlaneError | None = None
        self.delivered = anyio.Event()


class Host:
    """A machine: its clock, its network, and whether it is running at all.

    ``rate`` is how fast its monotonic clock runs against the true time.
    """

    def __init__(self, server: LeaseServer, truth: FakeClock, *, rate: float) -> None:
        """Begin running, with an open network."""
        self.clock = _SkewedClock(self, truth, rate)
        self.requests_pass = True
        self.answers_pass = True
        self.runs = anyio.Event()
        self.runs.set()
        self._server = server
        self._calls: list[_Call] = []

    @property
    def client(self) -> Client:
        """What an elector needs of a client."""
        return cast("Client", _ModelClient(self))

    def stop(self) -> None:
        """Let nothing on this machine run, as when it is suspended or starved."""
        if self.runs.is_set():
            self.runs = anyio.Event()

    def go_on(self) -> None:
        """Let everything run again."""
        self.runs.set()

    def let_through(self, *, requests: bool, answers: bool) -> None:
        """Open or close the network; what was waiting passes when it opens."""
        self.requests_pass = requests
        self.answers_pass = answers
        for call in list(self._calls):
            self._move(call)

    def arrive(self, index: int) -> None:
        """Let one request that is waiting arrive, in whatever order."""
        waiting = [call for call in self._calls if not call.has_arrived]
        if waiting:
            self._carry_out(waiting[index % len(waiting)])

    def deliver(self, index: int) -> None:
        """Let one answer that is waiting be delivered."""
        waiting = [call for call in self._calls if call.has_arrived]
        if waiting:
            self._deliver(waiting[index % len(waiting)])

    def fail(self, index: int) -> None:
        """Break one request off, whether it was carried out or not."""
        if self._calls:
            call = self._calls[index % len(self._calls)]
            call.answer = RequestTimeout("broken off")
            self._deliver(call)

    async def ask(self, verb: str, body: Json | None) -> Json:
        """Make a request and wait for its answer."""
        call = _Call(verb, None if body is None else _copy(body))
        self._calls.append(call)
        self._move(call)
        await call.delivered.wait()
        await self.runs.wait()
        if isinstance(call.answer, ControlPlaneError):
            raise call.answer
        assert call.answer is not None
        return call.answer

    def _move(self, call: _Call) -> None:
        if not call.has_arrived and self.requests_pass:
            self._carry_out(call)
        if call.has_arrived and self.answers_pass:
            self._deliver(call)

    def _carry_out(self, call: _Call) -> None:
        call.has_arrived = True
        try:
            call.answer = self._server.carry_out(call.verb, call.body)
        except ApiError as problem:
            call.answer = problem

    def _deliver(self, call: _Call) -> None:
        self._calls.remove(call)
        call.delivered.set()


class _SkewedClock(FakeClock):
    """The clock of a machine, which wakes nobody while that does not run."""

    def __init__(self, host: Host, truth: FakeClock, rate: float) -> None:
        super().__init__()
        self._host = host
        self._truth = truth
        self._rate = rate

    def monotonic(self) -> float:
        return self._truth.monotonic() * self._rate

    def now(self) -> Any:
        # Of all clocks the one that stands still is the hardest to see a change by.
        return self._truth._start

    async def sleep(self, seconds: float) -> None:
        await self._truth.sleep(seconds / self._rate)
        await self._host.runs.wait()

    async def wait(self, event: anyio.Event, timeout_s: float | None) -> bool:
        raise NotImplementedError


class _ModelClient:
    """The three verbs of an election."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.ending = TerminatingNamespaces(host.clock)

    async def get(self, *_: Any, **__: Any) -> Json | None:
        try:
            return await self._host.ask("get", None)
        except NotFound:
            return None

    async def create(self, _res: Any, obj: Json, type_: type[Any], **_: Any) -> Any:
        return msgspec.convert(await self._host.ask("create", obj), type_)

    async def replace(self, _res: Any, obj: Json, type_: type[Any], **_: Any) -> Any:
        return msgspec.convert(await self._host.ask("update", obj), type_)
