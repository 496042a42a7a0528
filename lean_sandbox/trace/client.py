"""Asks a running controller what it remembers of an object: `lean-sandbox trace`."""

from __future__ import annotations

import http.client
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

from lean_sandbox.errors import ConfigError
from lean_sandbox.trace.life import NOTHING, PATH
from lean_sandbox.watch.kind import Key

if TYPE_CHECKING:
    import ssl

_TIMEOUT_S: Final = 10.0
_SWITCH_ON: Final = "run it with --trace-entries=10000; it remembers from its start on"


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
            told = answer.read().decode("utf-8", "replace")
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise ConfigError(
            f"{url} cannot be reached: {getattr(error, 'strerror', '') or error}",
            way_out="give the address of its /metrics with --url; of a controller in a cluster,"
            " kubectl port-forward brings the port here",
        ) from error
    if told.startswith(NOTHING):
        raise ConfigError(f"{url}: {told.rstrip()}")
    if answer.status == 404:
        raise ConfigError(f"{url}: tracing is off there", way_out=_SWITCH_ON)
    if answer.status != 200:
        raise ConfigError(f"{url} answered {answer.status} {answer.reason}")
    return told


def _context(ca_file: Path | None) -> ssl.SSLContext:
    from lean_sandbox.kube.connection import trusting  # noqa: PLC0415 -- for https only

    try:
        return trusting(file=ca_file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--ca-file: {ca_file} is not a readable certificate: {error}") from error
