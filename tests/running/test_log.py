"""Logging: where lines go, and that they go on going there."""

from __future__ import annotations

import io
import json

import pytest
import structlog
import structlog.testing

from lean_sandbox import log


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
    assert list(line) == ["ts", "level", "msg", "kind"]


def test_a_given_stream_is_kept_to() -> None:
    """Lines go to the stream that the set-up names, and those below the level nowhere."""
    stream = io.StringIO()
    log.configure("warning", stream=stream)
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")
    assert [json.loads(line)["msg"] for line in stream.getvalue().splitlines()] == ["loud"]


def test_a_logger_that_has_written_follows_a_later_setup() -> None:
    """A second set-up holds for loggers that were used under the first one."""
    first, second = io.StringIO(), io.StringIO()
    logger = structlog.get_logger()
    log.configure("info", stream=first)
    logger.info("before")
    log.configure("info", stream=second)
    logger.info("after")
    with structlog.testing.capture_logs() as seen:
        logger.info("captured")
    assert (json.loads(first.getvalue())["msg"], json.loads(second.getvalue())["msg"]) == (
        "before",
        "after",
    )
    assert [line["event"] for line in seen] == ["captured"]


def test_no_value_makes_a_line_of_its_own() -> None:
    """As JSON, each event is one line of ASCII controls escaped, whatever a tenant has written."""
    odd = '\n{"level":"error","msg":"forged"}\r\x1b[2J\0\x85\u2028'
    stream = io.StringIO()
    log.configure("info", "json", stream)
    structlog.get_logger().info("seen", name=odd, nested={odd: [odd]})
    line, end = stream.getvalue().split("\n")
    assert end == ""
    assert not set(line) & set("\r\x1b\0")
    assert json.loads(line)["name"] == odd


def test_a_terminal_is_told_nothing_by_what_is_logged() -> None:
    """Escape sequences, line breaks and their like in values and exceptions are shown escaped."""
    odd = "\x1b]0;title\x07\x1b[2J\r\n\x9b1m\u202etxt"
    stream = io.StringIO()
    log.configure("info", "console", stream)
    logger = structlog.get_logger()
    logger.info("seen", name=odd, error=odd.replace("\n", ""))
    try:
        int(odd)
    except ValueError as error:
        logger.exception("failed", exc_info=ValueError(odd).with_traceback(error.__traceback__))
    shown = stream.getvalue()
    assert not set(shown) & set(odd) - set("\n]0;title[2J1mx")
    assert shown.count("\\x1b]0;title") == 3
    assert "Traceback" in shown
    assert "\n" in shown
