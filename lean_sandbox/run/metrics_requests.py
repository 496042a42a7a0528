"""How long requests to the API server take, observed as they end; only when it is asked for."""

from __future__ import annotations

from lean_sandbox.api.telemetry import RequestRecord
from lean_sandbox.run import metrics_families as families
from lean_sandbox.run.metrics import Exposition, Histograms

__all__ = ["RequestTimes"]


class RequestTimes:
    """An observer of requests. ``host`` is the server as the Host header names it."""

    def __init__(self, host: str = "") -> None:
        self.host = host
        self._times = Histograms(families.REST_DURATION)

    def observe(self, record: RequestRecord) -> None:
        """Take one request; the life of a watch says nothing about the server."""
        if record.verb != "watch":
            self._times.observe(record.latency_s, record.method, self.host)

    def collect(self, into: Exposition) -> None:
        """Add the times as they are now."""
        self._times.collect(into)
