"""Logging: where lines go, and that they go on going there."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from lean_sandbox import log


@pytest.fixture(autouse=True)
def untouched_log() -> Iterator[None]:
    """Undo the set-up of the process's log."""
    yield
    structlog.reset_defaults()


def test_lines_go_to_standard_error_as_it_is_when_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stream that was closed and replaced after the set-up neither gets a line nor raises."""
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr("sys.stderr", first)
    log.configure("info")
    logger = structlog.get_logger()
    logger.info("before")
    before = first.getvalue()
    first.close()
    monkeypatch.setattr("sys.stderr", second)
    logger.info("after", kind="Sandbox")
    assert json.loads(before)["msg"] == "before"
    line = json.loads(second.getvalue())
    assert (line["msg"], line["kind"], line["level"]) == ("after", "Sandbox", "info")


def test_a_given_stream_is_kept_to() -> None:
    """Lines go to the stream that the set-up names, and those below the level nowhere."""
    stream = io.StringIO()
    log.configure("warning", stream=stream)
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")
    assert [json.loads(line)["msg"] for line in stream.getvalue().splitlines()] == ["loud"]
