"""Flags of the reference that have no setting here: translated, without effect, or removed.

Source: its command line of v1.0.8, to which no release up to v1.0.12 is known to add. What v1.0.0
removed, it refuses as unknown, and so does this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from lean_sandbox.config.values import BOOLEAN, INTEGER, Form, choice


class Idle(msgspec.Struct, frozen=True):
    """A flag without effect here: its form, its least value, and why it has none."""

    form: Form
    why: str
    least: int | None = None


class Translated(msgspec.Struct, frozen=True):
    """A flag that says in other words what settings say.

    ``settings`` gives their values for its own. Where ``is_default``, it only changes what holds
    when no source names the settings.
    """

    form: Form
    help: str
    settings: Callable[[Any], Mapping[str, Any]]
    is_default: bool = False


_LEVELS = {"debug": "debug", "info": "info", "error": "error", "panic": "error"}


def _level(text: str) -> str:
    known = _LEVELS.get(text.lower())
    if known is not None:
        return known
    try:
        verbosity = INTEGER.parse(text)
    except ValueError:
        verbosity = 0
    if verbosity <= 0:
        raise ValueError("it is none of debug, info, error, panic, nor a verbosity above 0")
    return "debug"


TRANSLATED = {
    "zap-log-level": Translated(
        Form("LEVEL", _level),
        "--log-level in the reference's words; a verbosity above 0 is debug, panic is error",
        lambda level: {"log_level": level},
    ),
    "zap-encoder": Translated(
        choice("json", "console", metavar="FORMAT", is_case_ignored=True),
        "--log-format in the reference's words",
        lambda form: {"log_format": form},
    ),
    "zap-devel": Translated(
        BOOLEAN,
        "console and debug where neither is chosen otherwise",
        lambda on: {"log_format": "console", "log_level": "debug"} if on else {},
        is_default=True,
    ),
}

IDLE = {
    "api-connections": Idle(
        INTEGER,
        "every request in flight has a connection of its own: --max-requests-in-flight",
        least=1,
    ),
    "separate-watch-connection": Idle(BOOLEAN, "every watch has a connection of its own"),
    "pprof-block-profile-rate": Idle(INTEGER, "there is no block profile: nothing blocks a thread"),
    "pprof-mutex-profile-fraction": Idle(
        INTEGER, "there is no mutex profile: one thread holds no lock"
    ),
    "zap-stacktrace-level": Idle(
        choice("info", "error", "panic", metavar="LEVEL", is_case_ignored=True),
        "only failures of the program itself are logged with a trace, and always",
    ),
    "zap-time-encoding": Idle(
        choice(
            *("epoch", "millis", "nano", "nanos", "iso8601", "rfc3339", "rfc3339nano"),
            metavar="FORM",
            is_case_ignored=True,
        ),
        "times in the log are always RFC 3339",
    ),
}

_NO_WEBHOOK = "v1.0.0 removed it with the conversion webhook; leave it out"
REMOVED = dict.fromkeys(
    (
        "enable-webhook",
        "manage-webhook-certs",
        "webhook-cert-dir",
        "webhook-cert-name",
        "webhook-key-name",
        "webhook-namespace",
        "webhook-port",
        "webhook-service-name",
    ),
    _NO_WEBHOOK,
)
