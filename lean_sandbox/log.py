"""Logging: colours for a person at a terminal, one JSON object a line for everything else.

Event names are constant lower-case words; what varies goes into keys, so that lines can be searched
and counted. A line that cannot be written, as where nobody reads any more, is counted and dropped.
"""

from __future__ import annotations

import io
import json
import logging
import os
import select
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TextIO

import msgspec
import structlog

# A closed stream raises ValueError, a process without standard error AttributeError.
_UNWRITABLE = (OSError, ValueError, AttributeError)
_LONGEST_VALUE = 4096
# How long a reader of the log that does not keep up may hold up everything else.
_PATIENCE_MS = 200


class _LineWriter:
    """Writes lines to the current standard error, which may be replaced.

    A reader that has stopped reading is waited for once, and then not until it has gone on.
    """

    dropped = 0
    _is_stuck = False
    # Whether the end of the last line that was begun is missing.
    _is_amid_line = False

    def msg(self, line: str) -> None:
        try:
            _LineWriter._write(sys.stderr, f"{line}\n")
        except _UNWRITABLE:
            _LineWriter.dropped += 1

    debug = info = warning = error = critical = exception = msg

    @classmethod
    def _write(cls, stream: TextIO, line: str) -> None:
        # Past the stream's buffer: the process would fail at its end with what is left in that.
        try:
            descriptor = stream.fileno()
        except _UNWRITABLE:
            # A stream of a test, or none; what cannot be written to says so now.
            stream.write(line)
            stream.flush()
            return
        rest = line.encode(stream.encoding, "backslashreplace")
        rest = b"\n" + rest if cls._is_amid_line else rest
        ready = select.poll()
        ready.register(descriptor, select.POLLOUT)
        while rest:
            cls._is_stuck = not ready.poll(0 if cls._is_stuck else _PATIENCE_MS)
            if cls._is_stuck:
                raise BlockingIOError
            # As much as a pipe takes at once when it takes anything.
            sent = os.write(descriptor, rest[: select.PIPE_BUF])
            rest = rest[sent:]
            cls._is_amid_line = bool(rest)


class _OfLibraries(logging.Handler):
    """Passes on what libraries log, from whatever thread: each message is one line like ours."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 -- values that do not fit the text are no reason to fail
            message = str(record.msg)
        logger = structlog.get_logger()
        write = logger.error if record.levelno >= logging.ERROR else logger.warning
        write("library_message", library=record.name, message=message, exc_info=record.exc_info)


_of_libraries = _OfLibraries()


def let_go_of(stream: TextIO) -> None:
    """Point an unwritable stream at /dev/null: a flush that fails at exit ends with code 120."""
    try:
        stream.flush()
    except _UNWRITABLE:
        with suppress(*_UNWRITABLE):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def dropped_lines() -> int:
    """Return how many lines could not be written since the process started."""
    return _LineWriter.dropped


def configure(level: str = "info", form: str = "auto") -> None:
    """Set up structlog for the process; logs go to standard error."""
    is_terminal = _is_terminal()
    console = form == "console" or (form == "auto" and is_terminal)
    processors: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", key="ts"),
        structlog.processors.format_exc_info,
        _shortened,
    ]
    if console:
        plain = structlog.dev.plain_traceback
        # As https://no-color.org has it, for whatever value.
        plainly = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        shown = structlog.dev.ConsoleRenderer(
            colors=is_terminal and not plainly, timestamp_key="ts", exception_formatter=plain
        )
        processors += [_printable, shown]
    else:
        processors.append(_as_json)
        if isinstance(sys.stderr, io.TextIOWrapper):
            # JSON is UTF-8, whatever the locale: escapes of another encoding are none of JSON.
            sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=lambda *_: _LineWriter(),
        # A cached logger would keep the settings of its first line; nothing logs on a hot path.
        cache_logger_on_first_use=False,
    )
    logging.getLogger().addHandler(_of_libraries)
    logging.captureWarnings(capture=True)


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (ValueError, AttributeError):
        return False


def _as_json(_logger: object, _method: str, event: dict[str, Any]) -> str:
    # What a person looks for first comes first.
    head = {"ts": event.pop("ts"), "level": event.pop("level"), "msg": event.pop("event")}
    try:
        return as_json(head | event)
    except UnicodeEncodeError:
        # A name of a file may have bytes that are no text.
        return as_json({key: printable(str(value)) for key, value in (head | event).items()})


def as_json(value: object) -> str:
    """Return JSON of characters that can be printed alone.

    Others than those that JSON has to escape move the cursor of a terminal, or end a line, as well.
    """
    text = msgspec.json.encode(value, enc_hook=repr).decode()
    return text if text.isprintable() else json.dumps(json.loads(text))


def _shortened(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Cut long values: an error may quote what somebody wrote into an object. Tracebacks stay."""
    for key, value in event.items():
        if isinstance(value, str) and len(value) > _LONGEST_VALUE and key != "exception":
            event[key] = f"{value[:_LONGEST_VALUE]}... ({len(value)} characters)"
    return event


def _printable(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Escape control characters: names and messages of objects may be written by anybody."""
    return {
        key: printable(value, kept="\n\t" if key == "exception" else "")
        if isinstance(value, str)
        else value
        for key, value in event.items()
    }


def printable(text: str, kept: str = "") -> str:
    """Return a text with all characters escaped that cannot be printed, except ``kept``."""
    return "".join(
        char if char.isprintable() or char in kept else char.encode("unicode_escape").decode()
        for char in text
    )


def aligned(*rows: Sequence[str]) -> str:
    """Return a line for each row, its cells in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    # The last column is not filled up.
    widths[-1] = 0
    lines = ("  ".join(map(str.ljust, row, widths)) for row in rows)
    return "\n".join((*map(printable, lines), ""))
