"""`--enable-tracing` needs a library that is not always there."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from threading import Event
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.util.re import parse_env_headers
from structlog.testing import capture_logs

from lean_sandbox import log
from lean_sandbox.cli import main
from lean_sandbox.config.sources import EXIT_CONFIG
from lean_sandbox.runtime import tracing as tracing_module
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


@pytest.fixture
def exporter_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stand in for the module of the exporter over gRPC, with one that keeps the names."""
    module: Any = ModuleType(EXPORTER)
    module.OTLPSpanExporter = Kept
    for name in ("opentelemetry.exporter", "opentelemetry.exporter.otlp", EXPORTER):
        monkeypatch.setitem(sys.modules, name, module)
    return module


@pytest.mark.usefixtures("exporter_module")
async def test_what_is_left_at_the_end_is_sent() -> None:
    """Closing sends the spans that were waiting for a batch, and ends the connection."""
    tracing = open_tracing()
    with tracing.span("one"), tracing.span("two"):
        pass
    await tracing.aclose()
    assert Kept.names == ["two", "one"]
    assert Kept.is_shut_down


class Stuck(Kept):
    """An exporter whose collector never answers."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Note that it has begun, and wait for what never comes."""
        super().export(spans)
        Event().wait()
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Wait for the answer, as an exporter may."""
        Event().wait()


async def test_a_collector_that_never_answers_does_not_hold_up_the_end(
    exporter_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given a moment, which the log tells; what waits for it ends with the process."""
    monkeypatch.setattr(tracing_module, "_LAST_SPANS_S", 0.05)
    exporter_module.OTLPSpanExporter = Stuck
    before = set(threading.enumerate())
    tracing = open_tracing()
    with tracing.span("one"):
        pass
    with capture_logs() as lines:
        await tracing.aclose()
    assert [line["event"] for line in lines] == ["spans_lost"]
    assert all(one.daemon for one in set(threading.enumerate()) - before)


@pytest.mark.usefixtures("exporter_module")
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5000"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many"),
    ],
)
def test_a_variable_that_the_library_refuses_is_told_with_the_flag(
    variable: str,
    value: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In one line that names the variable, also where the error of the library does not."""
    monkeypatch.setenv(variable, value)
    assert main(["run", "--enable-tracing", "--kubeconfig=/nowhere/config"]) == EXIT_CONFIG
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "--enable-tracing" in told
    assert variable in told


def test_an_error_of_the_exporter_is_told_with_the_flag(
    exporter_module: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever its class; it is the exporter that reads most of the variables."""

    def refuse() -> None:
        raise RuntimeError('Invalid value "zip"')

    exporter_module.OTLPSpanExporter = refuse
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "zip")
    assert main(["run", "--enable-tracing", "--kubeconfig=/nowhere/config"]) == EXIT_CONFIG
    told = capsys.readouterr().err
    assert 'Invalid value "zip"' in told
    assert "OTEL_EXPORTER_OTLP_COMPRESSION" in told


@pytest.mark.usefixtures("exporter_module")
async def test_a_header_that_is_not_understood_is_told_without_its_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Headers are credentials; a colon in place of = is soon written."""
    await open_tracing().aclose()
    log.configure("info", "json")
    assert not parse_env_headers("api-key: TOP-SECRET")
    told = capsys.readouterr().err
    assert "Header format invalid" in json.loads(told)["message"]
    assert "TOP-SECRET" not in told
