"""``lean-sandbox demo`` on the command line."""

from __future__ import annotations

import argparse
from typing import Final

from lean_sandbox.config.options import OPTIONS
from lean_sandbox.local.command import whole

_SHOWN: Final = " (default: %(default)s)"
_COUNTS: Final = (
    ("--sandboxes", 1, 50, "Sandboxes of the launch whose cost is counted"),
    ("--pool", 1, 20, "members of the warm pool"),
    ("--claims", 0, 10, "claims bound at once; 0 leaves pool and claims out"),
)


_STARTING: Final = "Starting an API server, simulated nodes and the controller in this process ..."


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the demo, and what it does as ``action``."""
    parser.set_defaults(action=run)
    add = parser.add_argument
    for flag, least, default, meaning in _COUNTS:
        add(flag, type=whole(least), default=default, metavar="N", help=meaning + _SHOWN)
    meaning = "tables for people, or one JSON object" + _SHOWN
    forms = ("table", "json")
    add("-o", "--output", choices=forms, default="table", help=meaning)
    meaning = "how much of the controller's log is shown" + _SHOWN
    levels = OPTIONS["log-level"].form.words
    add("--log-level", choices=levels, default="error", help=meaning)


def run(given: argparse.Namespace) -> int:
    """Run the demo; return the exit code."""
    if given.output == "table":
        # What follows takes a second or more to import.
        print(_STARTING, flush=True)  # noqa: T201
    from lean_sandbox import log  # noqa: PLC0415
    from lean_sandbox.demo.story import run_demo  # noqa: PLC0415

    log.configure(given.log_level, "auto")
    return 0 if run_demo(given.sandboxes, given.pool, given.claims, given.output) else 1
