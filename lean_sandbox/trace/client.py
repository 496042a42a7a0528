"""Asks a running controller what it remembers of an object: `lean-sandbox trace`."""

from __future__ import annotations

import http.client
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

from lean_sandbox.errors import ConfigError
from lean_sandbox.trace.life import NOTHING, PATH
from lean_sandbox.watch.kind import Key

if TYPE_CHECKING:
    import ssl
    from argparse import ArgumentParser, Namespace

_TIMEOUT_S: Final = 10.0
_SHOWN: Final = " (default: %(default)s)"
_SWITCH_ON: Final = "run it with --trace-entries=10000; it remembers from its start on"


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags of the command, and what it does as ``action``."""
    parser.set_defaults(action=_run)
    add = parser.add_argument
    add("kind", type=_noun, choices=("claim", "sandbox", "pod", "pool"))
    add("name", metavar="NAME")
    add("-n", "--namespace", default="default", metavar="NS", help="of the object" + _SHOWN)
    meaning = "where the controller serves /metrics" + _SHOWN
    add("--url", default="http://127.0.0.1:8080", help=meaning)
    add("--ca-file", type=Path, metavar="FILE", help="authority of an https URL")
    add("-o", "--output", choices=("table", "json"), default="table", help=_SHOWN.strip())


def _noun(word: str) -> str:
    """Return the name `trace` has for a kind, given in the plural or as kubectl names it."""
    one = word.removesuffix("es").removesuffix("s")
    return {"sandboxclaim": "claim", "sandboxwarmpool": "pool"}.get(one, one)


def _run(given: Namespace) -> int:
    key = Key(given.namespace, given.name)
    sys.stdout.write(ask(given.url, given.kind, key, given.output, ca_file=given.ca_file))
    return 0


def ask(url: str, kind: str, key: Key, output: str, *, ca_file: Path | None = None) -> str:
    """Return the answer of the controller whose metrics are at ``url``. Raises ConfigError."""
    query = {"kind": kind, "namespace": key.namespace, "name": key.name, "output": output}
    try:
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError(f"--url: {url!r} is not an http or https address")
        connection = (
            http.client.HTTPConnection(address.netloc, timeout=_TIMEOUT_S)
            if address.scheme == "http"
            else http.client.HTTPSConnection(
                address.netloc, timeout=_TIMEOUT_S, context=_context(ca_file)
            )
        )
        with closing(connection):
            connection.request("GET", f"{PATH}?{urlencode(query)}")
            answer = connection.getresponse()
            page = answer.read().decode("utf-8", "replace")
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise ConfigError(
            f"{url} cannot be reached: {getattr(error, 'strerror', '') or error}",
            way_out="give the address of its /metrics with --url; of a controller in a cluster,"
            " kubectl port-forward brings the port here",
        ) from error
    if page.startswith(NOTHING):
        raise ConfigError(f"{url}: {page.rstrip()}")
    if answer.status == 404:
        raise ConfigError(f"{url}: tracing is off there", way_out=_SWITCH_ON)
    if answer.status != 200:
        raise ConfigError(f"{url} answered {answer.status} {answer.reason}")
    return page


def _context(ca_file: Path | None) -> ssl.SSLContext:
    from lean_sandbox.kube.connection import tls_context  # noqa: PLC0415 -- for https only

    try:
        return tls_context(file=ca_file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--ca-file: {ca_file} is not a readable certificate: {error}") from error
