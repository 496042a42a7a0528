"""`--enable-tracing` needs a library that is not always there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from lean_sandbox.cli import main
from lean_sandbox.config.sources import EXIT_CONFIG
from lean_sandbox.runtime.tracing import open_tracing

EXPORTER = "opentelemetry.exporter.otlp.proto.grpc.trace_exporter"


def test_without_the_library_the_start_ends_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is started or asked: the flag and the way out are named."""
    monkeypatch.setitem(sys.modules, EXPORTER, None)
    assert main(["run", "--enable-tracing", "--kubeconfig=/nowhere/config"]) == EXIT_CONFIG
    told = capsys.readouterr().err
    assert "--enable-tracing needs opentelemetry" in told
    assert "pip install '.[tracing]'" in told


class Kept(SpanExporter):
    """An exporter that keeps the names of spans, in place of the one over gRPC."""

    names: list[str]
    is_shut_down: bool

    def __init__(self) -> None:
        """Begin with none; the endpoint is the environment's part."""
        type(self).names = []
        type(self).is_shut_down = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep the names."""
        self.names.extend(span.name for span in spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Note that it has ended."""
        type(self).is_shut_down = True


def test_what_is_left_at_the_end_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing sends the spans that were waiting for a batch, and ends the connection."""
    module: Any = ModuleType(EXPORTER)
    module.OTLPSpanExporter = Kept
    for name in ("opentelemetry.exporter", "opentelemetry.exporter.otlp", EXPORTER):
        monkeypatch.setitem(sys.modules, name, module)
    tracing = open_tracing()
    with tracing.span("one"), tracing.span("two"):
        pass
    tracing.close()
    assert Kept.names == ["two", "one"]
    assert Kept.is_shut_down
