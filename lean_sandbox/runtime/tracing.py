"""Spans of reconciles, sent over OTLP/gRPC as the reference controller does.

The standard variables (``OTEL_EXPORTER_OTLP_ENDPOINT`` and so on) say where to. The libraries come
with the extra ``tracing`` and are imported only when tracing is enabled.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import msgspec
import structlog

from lean_sandbox.errors import ConfigError, missing_extra
from lean_sandbox.threads import Call

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

T = TypeVar("T")

log = structlog.get_logger("tracing")

_SERVICE = "agent-sandbox-controller"
# How long the end waits for a collector; the library would wait for 30 s and then for the exporter.
_LAST_SPANS_S: Final = 3.0


class Tracing:
    """Hands spans to an exporter, in batches from a thread of its own.

    Only the W3C trace context is passed on, no baggage. :meth:`aclose` sends what is left.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        from opentelemetry.trace import get_current_span  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        # The name given here wins over that of OTEL_RESOURCE_ATTRIBUTES.
        resource = Resource.create({"service.name": _SERVICE})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(_SERVICE)
        self._propagator = TraceContextTextMapPropagator()
        self._current_span = get_current_span

    def span(
        self, name: str, attributes: Mapping[str, str] | None = None, parent: str | None = None
    ) -> AbstractContextManager[object]:
        """Return a span that is the current one within its ``with`` block.

        ``parent`` is a JSON object of W3C headers, as clients put it into an annotation; without
        it, or if it cannot be read, the current span is the parent.
        """
        headers: dict[str, str] = {}
        if parent:
            try:
                headers = msgspec.json.decode(parent, type=dict[str, str])
            except msgspec.MsgspecError as error:
                log.warning("trace_context_unreadable", problem=str(error))
        context = self._propagator.extract(headers) if headers else None
        return self._tracer.start_as_current_span(name, context=context, attributes=attributes)

    def event(self, name: str, attributes: Mapping[str, str]) -> None:
        """Add an event to the current span."""
        self._current_span().add_event(name, attributes)

    def carrier(self) -> str | None:
        """Return the current span's W3C headers as a JSON object, ``None`` without a span."""
        headers: dict[str, str] = {}
        self._propagator.inject(headers)
        return msgspec.json.encode(headers).decode() if headers else None

    async def aclose(self) -> None:
        """Send what is left and stop, within a few seconds; spans that take longer are lost."""
        with anyio.move_on_after(_LAST_SPANS_S) as scope:
            await Call(self._provider.shutdown).result()
        if scope.cancelled_caught:
            log.warning("spans_lost", within_s=_LAST_SPANS_S)


#: The tracing of the process, ``None`` while it is off; set before the reconciles begin.
TRACING: ContextVar[Tracing | None] = ContextVar("TRACING", default=None)


@contextmanager
def in_span(
    name: str, attributes: Mapping[str, str] | None = None, parent: str = ""
) -> Iterator[str]:
    """Run a ``with`` block in a span, if tracing is on; ``parent`` is as in :meth:`Tracing.span`.

    The target is the context by which others can continue the trace, empty if there is a parent
    that they have already.
    """
    tracing = TRACING.get()
    if tracing is None:
        yield ""
        return
    with tracing.span(name, attributes, parent or None):
        yield "" if parent else tracing.carrier() or ""


async def traced(name: str, step: Awaitable[T]) -> T:
    """Await a step in a span of its own, if tracing is on."""
    with in_span(name):
        return await step


def add_event(name: str, attributes: Mapping[str, str]) -> None:
    """Add an event to the current span, if tracing is on."""
    tracing = TRACING.get()
    if tracing is not None:
        tracing.event(name, attributes)


def _without_values(record: logging.LogRecord) -> bool:
    record.args = ("(not shown)",) * len(record.args or ())
    return True


def open_tracing() -> Tracing:
    """Return a tracing set up by the environment.

    Raises ConfigError without the libraries, and for an environment that they refuse.
    """
    # It quotes headers that it does not understand.
    logging.getLogger("opentelemetry.util.re").addFilter(_without_values)
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        return Tracing(OTLPSpanExporter())
    except ImportError as error:
        raise missing_extra("--enable-tracing", "tracing", error) from error
    except Exception as error:
        # Their errors are of many classes, and some do not name the variable.
        given = ", ".join(sorted(name for name in os.environ if name.startswith("OTEL_")))
        raise ConfigError(
            f"--enable-tracing: a variable has a value that is refused: {str(error).rstrip('.')}",
            source="environment",
            way_out=f"correct or unset it; it is one of {given or 'OTEL_...'}",
        ) from error
