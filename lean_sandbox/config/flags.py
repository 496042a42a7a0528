"""Every flag: the options, and the flags of the reference that have no setting of their own here.

Source: its command line of v1.0.8, to which no release up to v1.0.12 is known to add. What v1.0.0
removed, it refuses as unknown, and so does this.
"""

from __future__ import annotations

from typing import Final

from lean_sandbox.config.declare import Flag
from lean_sandbox.config.forms import BOOLEAN, INTEGER, NAMESPACES, TEXT, Form, choice
from lean_sandbox.config.options import OPTIONS

_LEVELS = {"debug": "debug", "info": "info", "error": "error", "panic": "error"}


def _zap_level(text: str) -> str:
    known = _LEVELS.get(text.lower())
    if known is not None:
        return known
    try:
        verbosity = INTEGER.parse(text)
    except ValueError:
        verbosity = 0
    if verbosity <= 0:
        raise ValueError("it is not one of debug, info, error, panic, nor a verbosity above 0")
    return "debug"


DEVELOPMENT: Final = "zap_devel"
DEVELOPMENT_DEFAULTS: Final = {"log_format": "console", "log_level": "debug"}
"""The defaults of these settings with ``--zap-devel``."""

TRANSLATED = {
    "zap-log-level": Flag(
        Form("LEVEL", _zap_level),
        "--log-level in the reference's words; a verbosity above 0 is debug, panic is error",
        "log_level",
    ),
    "zap-encoder": Flag(
        choice("json", "console", metavar="FORMAT", is_case_ignored=True),
        "--log-format in the reference's words",
        "log_format",
    ),
    "zap-devel": Flag(BOOLEAN, "console and debug where neither is chosen otherwise", DEVELOPMENT),
    "watch-namespaces": Flag(NAMESPACES, "another name of --namespaces", "namespaces"),
}

IDLE = {
    "api-connections": Flag(
        INTEGER, "every request in flight has a connection of its own: --max-requests-in-flight"
    ),
    "separate-watch-connection": Flag(BOOLEAN, "every watch has a connection of its own"),
    "pprof-block-profile-rate": Flag(INTEGER, "there is no block profile: nothing blocks a thread"),
    "pprof-mutex-profile-fraction": Flag(
        INTEGER, "there is no mutex profile: one thread holds no lock"
    ),
    "zap-stacktrace-level": Flag(
        TEXT, "only failures of the program itself are logged with a stack, and always"
    ),
    "zap-time-encoding": Flag(TEXT, "times in the log are always RFC 3339"),
}

_WEBHOOK = ("cert-dir", "cert-name", "key-name", "namespace", "port", "service-name")
REMOVED = dict.fromkeys(
    ("enable-webhook", "manage-webhook-certs", *(f"webhook-{name}" for name in _WEBHOOK)),
    "v1.0.0 removed it with the conversion webhook; leave it out",
)

FLAGS: Final[dict[str, Flag]] = {**OPTIONS, **TRANSLATED, **IDLE}
_OWN: Final = {option.name for option in OPTIONS.values() if option.is_own}
TUNABLE: Final = {name for name, flag in FLAGS.items() if flag.name not in _OWN}
"""What the ConfigMap of all controllers may set."""
