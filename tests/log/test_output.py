"""Logging: where lines go, and that they go on going there."""

from __future__ import annotations

import io
import json
import logging
import os
import warnings

import pytest
import structlog
import structlog.testing

from lean_sandbox import log


def test_lines_go_to_standard_error_as_it_is_when_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stream that was closed and replaced after the set-up neither gets a line nor raises."""
    first = io.StringIO()
    second = io.StringIO()
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


def test_lines_below_the_level_go_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    """Only those of the level and above are written."""
    log.configure("warning")
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")
    assert [json.loads(line)["msg"] for line in capsys.readouterr().err.splitlines()] == ["loud"]


def test_a_logger_that_has_written_follows_a_later_setup(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A second set-up holds for loggers that were used under the first one."""
    logger = structlog.get_logger()
    log.configure("info", "json")
    logger.info("before")
    log.configure("info", "console")
    logger.info("after")
    with structlog.testing.capture_logs() as seen:
        logger.info("captured")
    first, second = capsys.readouterr().err.splitlines()
    assert json.loads(first)["msg"] == "before"
    assert "after" in second
    assert not second.startswith("{")
    assert [line["event"] for line in seen] == ["captured"]


def test_no_value_makes_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON, each event is one line for every reader, whatever a tenant has written."""
    odd = '\n{"level":"error","msg":"forged"}\r\x1b[2J\0\x7f\x85\x9b2J\u2028\u202e\U000e0001\xe9'
    log.configure("info", "json")
    structlog.get_logger().info("seen", name=odd, nested={odd: [odd]}, error=OSError("x"))
    line, end = capsys.readouterr().err.split("\n")
    assert end == ""
    assert line.isprintable()
    assert json.loads(line)["name"] == odd
    assert json.loads(line)["nested"] == {odd: [odd]}
    assert json.loads(line)["error"] == "OSError('x')"


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_name_of_a_file_that_is_no_text_is_logged(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes are shown escaped; the stream takes what else is written as well."""
    stream = io.TextIOWrapper(io.BytesIO(), "ascii", "backslashreplace", write_through=True)
    monkeypatch.setattr("sys.stderr", stream)
    log.configure("info", form)
    name = os.fsdecode(b"/tmp/\xff")
    structlog.get_logger().info("connecting", source=name, attempt=1)
    stream.write(name)
    stream.flush()
    line, rest = stream.buffer.getvalue().decode().split("\n")
    assert "/tmp/\\udcff" in (json.loads(line)["source"] if form == "json" else line)
    assert rest == "/tmp/\\udcff"


def test_a_terminal_is_told_nothing_by_what_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    """Escape sequences, line breaks and their like in values and exceptions are shown escaped."""
    odd = "\x1b]0;title\x07\x1b[2J\r\n\x9b1m\u202etxt"
    log.configure("info", "console")
    logger = structlog.get_logger()
    logger.info("seen", name=odd, error=odd.replace("\n", ""))
    try:
        int(odd)
    except ValueError as error:
        logger.exception("failed", exc_info=ValueError(odd).with_traceback(error.__traceback__))
    shown = capsys.readouterr().err
    assert not set(shown) & set(odd) - set("\n]0;title[2J1mx")
    assert shown.count("\\x1b]0;title") == 3
    assert "Traceback (most recent call last):\n" in shown


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_value_fills_the_log(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What somebody has written into an object is cut, and how long it was is told."""
    log.configure("info", form)
    for length, more in ((4096, ""), (4097, "... (4097 characters)")):
        structlog.get_logger().warning("refused", error="x" * length, key="ns/sb-1")
        line = capsys.readouterr().err
        assert f"{'x' * 4096}{more}" in line
        assert "x" * 4097 not in line
        assert "ns/sb-1" in line


@pytest.mark.parametrize("form", ["json", "console"])
def test_what_libraries_log_is_written_like_lines_of_ours(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line for each warning or error, whatever it says, and for each warning of Python."""
    # pytest puts its own way back after each test.
    logging.captureWarnings(capture=False)
    log.configure("warning", form)
    log.configure("warning", form)
    library = logging.getLogger("somebody.else")
    library.info("not told")
    library.warning("failed to export to %s", "there\nnow")
    library.log(35, "odd level")
    # pytest has a handler of its own, which such a message fails.
    error = ValueError("does not fit %d")
    odd = logging.LogRecord("somebody.else", logging.ERROR, "", 0, error, ("x",), None)
    log._of_libraries.handle(odd)
    warnings.showwarning("old", UserWarning, "file.py", 7)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 4
    if form == "json":
        lines = [json.loads(line) for line in told]
        assert {line["msg"] for line in lines} == {"library_message"}
        assert [line["level"] for line in lines] == ["warning", "warning", "error", "warning"]
        assert [line["library"] for line in lines] == ["somebody.else"] * 3 + ["py.warnings"]
        messages = [line["message"] for line in lines]
        assert messages[:3] == ["failed to export to there\nnow", "odd level", "does not fit %d"]
        assert "file.py:7: UserWarning: old" in messages[3]


def test_the_error_of_a_library_has_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """In the same line."""
    log.configure("info", "json")
    try:
        int("x")
    except ValueError:
        logging.getLogger("somebody.else").exception("failed")
    line = json.loads(capsys.readouterr().err)
    assert "ValueError: invalid literal" in line["exception"]


class _Terminal(io.StringIO):
    """A terminal that keeps what it is told."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


@pytest.mark.parametrize(
    ("environment", "is_coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_a_person_may_do_without_colours(
    environment: dict[str, str], *, is_coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As other programs: by NO_COLOR, or on a terminal that shows none. It is for people still."""
    for name, value in {"NO_COLOR": "", "TERM": "xterm", **environment}.items():
        monkeypatch.setenv(name, value)
    stream = _Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    log.configure("info", "auto")
    structlog.get_logger().info("seen", kind="Sandbox")
    told = stream.getvalue()
    assert ("\x1b" in told) is is_coloured
    assert "seen" in told
    assert not told.startswith("{")


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("form", ["auto", "console", "json"])
def test_the_form_of_the_log_is_as_configured(
    form: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_terminal: bool,
) -> None:
    """By itself for people on a terminal, in colours, and for programs elsewhere."""
    monkeypatch.setattr(log, "_is_terminal", lambda: is_terminal)
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("TERM", "xterm")
    log.configure("info", form)
    structlog.get_logger("x").info("said", a="b")
    line = capsys.readouterr().err
    is_json = form == "json" or (form == "auto" and not is_terminal)
    assert line.startswith("{") is is_json
    assert ("\x1b" in line) is (is_terminal and not is_json)
