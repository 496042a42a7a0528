"""``lean-sandbox top`` on the command line."""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path
from typing import Final

from filters import exclude_namespaces

_SHOWN: Final = " (default: %(default)s)"
_LEAST_INTERVAL_S: Final = 0.5
_MOST_INTERVAL_S: Final = 3600.0


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command, and what it does as ``action``."""
    parser.set_defaults(action=_run)
    add = parser.add_argument
    meaning = "look at one namespace (default: all)"
    add("-n", "--namespace", type=_namespace, default="", metavar="NS", help=meaning)
    meaning = "print once, and end; so it is if the output is no terminal"
    add("--once", action="store_true", help=meaning)
    meaning = "json prints one object, and ends" + _SHOWN
    add("-o", "--output", choices=("table", "json"), default="table", help=meaning)
    meaning = "seconds between two looks" + _SHOWN
    add("--interval", type=_seconds, default=2.0, metavar="S", help=meaning)
    add(
        "--url",
        default="",
        metavar="URL",
        help="where a controller serves /metrics (default: none)",
    )
    add("--ca-file", type=Path, metavar="FILE", help="certificate authority of an https URL")
    meaning = "kubeconfig file (default: as of `lean-sandbox run`)"
    add("--kubeconfig", default="", metavar="FILE", help=meaning)
    meaning = "context of the kubeconfig (default: its current one)"
    add("--context", default="", metavar="NAME", help=meaning)


def _namespace(text: str) -> str:
    try:
        exclude_namespaces(*filter(None, (text,)))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}") from None
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not _LEAST_INTERVAL_S <= value <= _MOST_INTERVAL_S:
        bounds = f"from {_LEAST_INTERVAL_S:g} to {_MOST_INTERVAL_S:g}"
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds {bounds}")
    return value


def _run(given: argparse.Namespace) -> int:
    import anyio  # noqa: PLC0415
    import msgspec  # noqa: PLC0415

    from lean_sandbox import log  # noqa: PLC0415
    from lean_sandbox.clock import SystemClock  # noqa: PLC0415
    from lean_sandbox.kube.kubeconfig import load  # noqa: PLC0415
    from lean_sandbox.top.look import Wanted, opened  # noqa: PLC0415

    # What its watches would log, the view tells.
    log.configure("critical")
    clock = SystemClock()
    connection = load(given.kubeconfig or None, given.context or None, clock=clock)
    wanted = Wanted(namespace=given.namespace, url=given.url, ca_file=given.ca_file)

    async def once() -> None:
        async with opened(connection, clock, wanted) as look:
            figures = look.figures()
        if given.output == "json":
            sys.stdout.write(f"{msgspec.json.format(log.as_json(figures))}\n")
        else:
            print_once(figures)

    if given.output == "json":
        anyio.run(once)
        return 0
    from lean_sandbox.top.show import live, print_once, shows_live  # noqa: PLC0415

    if given.once or not shows_live():
        anyio.run(once)
    else:
        anyio.run(functools.partial(live, connection, clock, wanted, given.interval))
    return 0
