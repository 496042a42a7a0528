"""Logging: colours for a person at a terminal, one JSON object a line for everything else.

Event names are constant lower-case words; what varies goes into keys from a fixed list (kind,
namespace, name, uid, reason, took_ms, ...), so that lines can be searched and counted.

A line that cannot be written, because whoever read the log has gone or the disk is full, is counted
and dropped: what logs has something more important to do.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from contextlib import suppress
from typing import Any, TextIO

import msgspec
import structlog


def _encode(event: dict[str, Any], **_: Any) -> str:
    # The renderer passes options of the json module, which this encoder does not know.
    return msgspec.json.encode(event, enc_hook=repr).decode()


def _printable(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Escape what a terminal would act upon: names and messages of objects are anybody's text."""
    return {
        key: printable(value, kept="\n\t" if key == "exception" else "")
        if isinstance(value, str)
        else value
        for key, value in event.items()
    }


def printable(text: str, kept: str = "") -> str:
    """Return a text without what would end its line or move a cursor, but for ``kept``."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in kept else char.encode("unicode_escape").decode()
        for char in text
    )


class _LineWriter:
    """Writes lines, one by one; one that cannot be written is counted.

    Without a stream they go to standard error as it is at that moment, for it may be replaced.
    """

    dropped = 0

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        try:
            stream = self._stream or sys.stderr
            stream.write(f"{line}\n")
            stream.flush()
        except (OSError, ValueError, AttributeError):
            # ValueError is a closed stream, AttributeError a process without standard error.
            if not _LineWriter.dropped:
                atexit.register(_let_go_of_standard_error)
            _LineWriter.dropped += 1

    debug = info = warning = error = critical = exception = msg


def _let_go_of_standard_error() -> None:
    """Give what is left in a stream that nobody reads to nobody, or the exit code would be 120."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        with suppress(OSError, ValueError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stderr.fileno())
            os.close(nowhere)


def dropped_lines() -> int:
    """Return how many lines could not be written since the process started."""
    return _LineWriter.dropped


def configure(level: str = "info", form: str = "auto", stream: TextIO | None = None) -> None:
    """Set up structlog for the process; logs go to ``stream`` (standard error by default)."""
    colours = _is_terminal(stream)
    console = form == "console" or (form == "auto" and colours)
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    ]
    if console:
        processors += [
            structlog.processors.format_exc_info,
            _printable,
            structlog.dev.ConsoleRenderer(
                colors=colours,
                timestamp_key="ts",
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ]
    else:
        processors += [
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("msg"),
            structlog.processors.JSONRenderer(serializer=_encode),
        ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=lambda *_: _LineWriter(stream),
        # A cached logger would keep the settings of its first line; nothing logs on a hot path.
        cache_logger_on_first_use=False,
    )


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return (stream or sys.stderr).isatty()
    except (ValueError, AttributeError):
        return False
