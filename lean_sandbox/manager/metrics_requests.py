"""How long requests to the API server take and which were sent again; only where it is wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lean_sandbox.kube.telemetry import RequestRecord
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition, Histograms

_NO_ANSWER = "<error>"


class RequestTimes:
    """An observer of requests. ``host`` is the server as the Host header names it.

    ``retries`` returns how many requests were sent again by (method, code), code 0 without an
    answer.
    """

    def __init__(self, host: str = "") -> None:
        self.host = host
        self.retries: Callable[[], Mapping[tuple[str, int], int]] = dict
        self._times = Histograms(families.REST_DURATION)

    def observe(self, record: RequestRecord) -> None:
        """Take one request; the life of a watch says nothing about the server."""
        if record.verb != "watch":
            self._times.observe(record.latency_s, record.method, self.host)

    def collect(self, into: Exposition) -> None:
        """Add the times and retries as they are now."""
        self._times.collect(into)
        for (method, code), number in self.retries().items():
            into.one(families.REST_RETRIES, number, str(code or _NO_ANSWER), method, self.host)
