"""What is known about each request once it is over, and the counters made of it."""

from __future__ import annotations

from collections import Counter
from contextvars import ContextVar

import msgspec

from lean_sandbox.kube.limits import Limiter
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition, Histograms
from lean_sandbox.turns import Rank

_NO_ANSWER = "<error>"

WRITES: ContextVar[list[str] | None] = ContextVar("writes", default=None)
"""The writes of a task that the server has carried out, as ``verb resource``."""


class RequestRecord(msgspec.Struct, frozen=True, gc=False):
    """One finished request.

    ``code`` is the HTTP status, 0 when no answer arrived, and then ``error`` names the class of the
    error. ``latency_s`` runs from the first byte sent (or the connect before it) to the last
    received; for a watch that is the time it stayed open.
    """

    method: str
    verb: str
    resource: str
    code: int
    latency_s: float
    error: str = ""


class RequestCounters:
    """What the transports to one server have counted; several of them may share it.

    ``requests`` are finished ones by (method, verb, resource, code). Bytes are those of the HTTP
    messages, before TLS. ``retries`` are requests sent again, by (method, code): code 401 with a
    fresh credential, code 0 because a reused connection was dead.
    """

    def __init__(self, *, with_times: bool = False) -> None:
        """``with_times`` counts as well how long requests take, and exposes the retries."""
        #: The server as the Host header names it.
        self.host = ""
        self.requests: Counter[tuple[str, str, str, int]] = Counter()
        self.retries: Counter[tuple[str, int]] = Counter()
        self.sent_bytes = self.received_bytes = 0
        self.connections_opened = self.streams = 0
        self.limiters: list[Limiter] = []
        self._times = Histograms(families.REST_DURATION) if with_times else None

    def count(self, record: RequestRecord) -> None:
        """Count a finished request."""
        self.requests[record.method, record.verb, record.resource, record.code] += 1
        # The life of a watch says nothing about the server.
        if self._times is not None and record.verb != "watch":
            self._times.observe(record.latency_s, record.method, self.host)

    def collect(self, into: Exposition) -> None:
        """Add the counters as they are now."""
        by_method: Counter[tuple[str, str, str]] = Counter()
        for (method, verb, resource, code), number in self.requests.items():
            by_method[str(code or _NO_ANSWER), method, self.host] += number
            into.one(families.REQUESTS, number, verb, resource, str(code))
        into.add(families.REST_REQUESTS, by_method.items())
        into.one(families.CLIENT_BYTES, self.sent_bytes, "sent")
        into.one(families.CLIENT_BYTES, self.received_bytes, "received")
        into.one(families.CONNECTIONS, self.connections_opened)
        into.one(families.STREAMS, self.streams)
        for rank in Rank:
            name = rank.name.lower()
            running = sum(limiter.slots.held[rank] for limiter in self.limiters)
            waiting = sum(limiter.slots.waiting(rank) for limiter in self.limiters)
            into.one(families.IN_FLIGHT, running, name, "running")
            into.one(families.IN_FLIGHT, waiting, name, "waiting")
        if self._times is not None:
            self._times.collect(into)
            for (method, code), number in self.retries.items():
                answered = str(code or _NO_ANSWER)
                into.one(families.REST_RETRIES, number, answered, method, self.host)
