"""Logging: colours for a person at a terminal, one JSON object a line for everything else.

Event names are constant lower-case words; what varies goes into keys from a fixed list (kind,
namespace, name, uid, reason, took_ms, ...), so that lines can be searched and counted.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO, cast

import msgspec
import structlog

__all__ = ["configure"]


def _encode(event: dict[str, Any], **_: Any) -> str:
    # The renderer passes options of the json module, which this encoder does not know.
    return msgspec.json.encode(event, enc_hook=repr).decode()


class _StandardError:
    """Standard error as it is when a line is written, for it may be replaced after the set-up."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure(level: str = "info", form: str = "auto", stream: TextIO | None = None) -> None:
    """Set up structlog for the process; logs go to ``stream`` (standard error by default)."""
    colours = (stream or sys.stderr).isatty()
    console = form == "console" or (form == "auto" and colours)
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    ]
    if console:
        processors.append(structlog.dev.ConsoleRenderer(colors=colours, timestamp_key="ts"))
    else:
        processors += [
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("msg"),
            structlog.processors.JSONRenderer(serializer=_encode),
        ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(stream or cast("TextIO", _StandardError())),
        # A cached logger would keep the settings of its first line; nothing logs on a hot path.
        cache_logger_on_first_use=False,
    )
