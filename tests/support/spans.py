"""A tracing for tests, which keeps its spans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lean_sandbox.runtime.tracing import Tracing

CONTEXT = '{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'


class Spans(Tracing):
    """A tracing that keeps its spans, and whose current one always has the same context."""

    def __init__(self, context: str | None = CONTEXT) -> None:
        """Hand out ``context`` for the current span; ``None`` when no span records."""
        self.context = context
        self.begun: list[tuple[str, Mapping[str, str] | None, str | None]] = []
        self.ended: list[str] = []
        self.events: list[tuple[str, Mapping[str, str]]] = []

    @contextmanager
    def span(
        self, name: str, attributes: Mapping[str, str] | None = None, parent: str | None = None
    ) -> Iterator[None]:
        """Note a span."""
        self.begun.append((name, attributes, parent))
        try:
            yield
        finally:
            self.ended.append(name)

    def event(self, name: str, attributes: Mapping[str, str]) -> None:
        """Note an event of the current span."""
        self.events.append((name, attributes))

    def carrier(self) -> str | None:
        """Return the current span's headers."""
        return self.context
