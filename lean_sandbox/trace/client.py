"""Asks a running controller what it remembers of an object: `lean-sandbox trace`."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from lean_sandbox.errors import ConfigError
from lean_sandbox.log import printable
from lean_sandbox.trace.life import NOTHING, PATH
from lean_sandbox.watch.kind import Key

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_TIMEOUT_S: Final = 10.0
# What is shown of an answer that is no trace.
_LONGEST: Final = 200
_OTHER_NAMES: Final = {
    "sandboxclaim": "claim",
    "sandboxwarmpool": "pool",
    "swp": "pool",
    "po": "pod",
}
_SHOWN: Final = " (default: %(default)s)"
_SWITCH_ON: Final = (
    "run the controller with --trace-entries=10000, which remembers from its start on, or give the"
    " address of its metrics with --url"
)


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags of the command, and what it does as ``action``."""
    parser.set_defaults(action=_run)
    add = parser.add_argument
    nouns = ("claim", "sandbox", "pod", "pool")
    add("kind", type=_noun, choices=nouns, help="kind of the object, or as kubectl names it")
    add("name", metavar="NAME", help="name of the object, or NAMESPACE/NAME as `top` shows it")
    meaning = "namespace of the object" + _SHOWN
    add("-n", "--namespace", default="default", metavar="NS", help=meaning)
    meaning = "where the controller serves /metrics" + _SHOWN
    add("--url", default="http://127.0.0.1:8080", help=meaning)
    add("--ca-file", type=Path, metavar="FILE", help="certificate authority of an https URL")
    meaning = "lines for people, or JSON" + _SHOWN
    add("-o", "--output", choices=("table", "json"), default="table", help=meaning)


def _noun(word: str) -> str:
    """Return the name `trace` has for a kind, given in the plural or as kubectl names it."""
    word, slash, name = word.partition("/")
    if slash:
        raise ArgumentTypeError(f"a space stands between kind and name: {_noun(word)} {name}")
    word = word.partition(".")[0]
    one = word.removesuffix("es").removesuffix("s")
    return _OTHER_NAMES.get(one, one)


def _run(given: Namespace) -> int:
    import anyio  # noqa: PLC0415 -- only once it is asked

    namespace, _, name = given.name.rpartition("/")
    key = Key(namespace or given.namespace, name)
    answer = partial(ask, given.url, given.kind, key, given.output, ca_file=given.ca_file)
    sys.stdout.write(anyio.run(answer))
    return 0


async def ask(url: str, kind: str, key: Key, output: str, *, ca_file: Path | None = None) -> str:
    """Return the answer of the controller whose metrics are at ``url``; one GET. ConfigError."""
    from lean_sandbox.kube.connection import to_listener  # noqa: PLC0415 -- only once it is asked
    from lean_sandbox.kube.errors import ControlPlaneError  # noqa: PLC0415
    from lean_sandbox.kube.transport import Transport  # noqa: PLC0415

    query = {"kind": kind, "namespace": key.namespace, "name": key.name, "output": output}
    try:
        async with aclosing(Transport(to_listener(url, ca_file))) as transport:
            target = f"{PATH}?{urlencode(query)}"
            answer = await transport.request("GET", target, timeout_s=_TIMEOUT_S)
    except ControlPlaneError as error:
        raise ConfigError(
            f"{url} cannot be reached: {error}",
            way_out="give the address of its /metrics with --url; of a controller in a cluster,"
            " kubectl port-forward brings the port here",
        ) from error
    page = answer.body.decode("utf-8", "replace")
    if page.startswith(NOTHING):
        raise ConfigError(f"{url}: {page.rstrip()}")
    if answer.status == 404:
        raise ConfigError(f"{url}: no controller with a trace is there", way_out=_SWITCH_ON)
    if answer.status != 200:
        raise ConfigError(f"{url} answered {answer.status}: {printable(page.strip()[:_LONGEST])}")
    return page
