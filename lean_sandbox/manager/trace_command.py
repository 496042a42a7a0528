"""`lean-sandbox trace`: asks a running controller about the life of one object, and shows it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from lean_sandbox.kube.errors import ConfigError
from lean_sandbox.manager.exits import EXIT_FAILED, EXIT_OK
from lean_sandbox.manager.flight import Asked, Entry, Ran, Saw
from lean_sandbox.manager.trace_chrome import NOUNS, chrome
from lean_sandbox.manager.trace_endpoint import PATH, Life
from lean_sandbox.model.times import format_micro_time, parse_rfc3339
from lean_sandbox.watch.store import Key

if TYPE_CHECKING:
    import ssl

_TIMEOUT_S: Final = 10.0
_HEAD: Final = ("AT MS", "OBJECT", "WHAT", "TOOK MS", "DETAIL")
_SWITCH_ON: Final = (
    "run it with --trace-entries=10000 (or trace-entries in its config file); it remembers from its"
    " start on"
)


def show(life: Life, output: str, chrome_file: Path | None) -> int:
    """Print a life, write the Chrome trace if asked to, and return the exit code.

    Raises ConfigError for a file that cannot be written.
    """
    if not life.entries:
        print(f"lean-sandbox: {_never_seen(life)}", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    if chrome_file is not None:
        try:
            chrome_file.write_bytes(msgspec.json.encode(chrome(life)))
        except OSError as error:
            raise ConfigError(f"--chrome: {chrome_file} cannot be written: {error}") from error
    match output:
        case "chrome":
            sys.stdout.write(msgspec.json.encode(chrome(life)).decode() + "\n")
        case "json":
            text = msgspec.json.format(msgspec.json.encode(life), indent=2).decode()
            sys.stdout.write(text + "\n")
        case _:
            sys.stdout.write(table(life))
    return EXIT_OK


def _never_seen(life: Life) -> str:
    told = f"the controller remembers nothing of {life.kind} {life.key}"
    if life.oldest_s is None:
        return f"{told}: nothing has happened since it started"
    if life.recorded > life.most:
        reach_s = life.now_s - life.oldest_s
        return (
            f"{told}: its last {life.most} entries reach back {reach_s:.0f} s;"
            " --trace-entries keeps more"
        )
    return f"{told}, and it has forgotten nothing since its start: look at name and namespace"


# -- asking ----------------------------------------------------------------------------------------


def ask(url: str, kind: str, key: Key, *, ca_file: Path | None = None) -> Life:
    """Ask the controller whose metrics are at ``url``. One GET, without a proxy.

    Raises ConfigError when it cannot be reached, is no such controller, or keeps no traces.
    """
    # Big, and for this command only.
    import http.client  # noqa: PLC0415
    import urllib.error  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ConfigError(f"--url: {url!r} is no http or https address")
    query = urlencode({"kind": kind, "namespace": key.namespace, "name": key.name})
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if address.scheme == "https":
        handlers.append(urllib.request.HTTPSHandler(context=_context(ca_file)))
    target = f"{address.scheme}://{address.netloc}{PATH}?{query}"
    try:
        with urllib.request.build_opener(*handlers).open(target, timeout=_TIMEOUT_S) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 404:
            raise ConfigError(f"{url}: tracing is off there", way_out=_SWITCH_ON) from None
        raise ConfigError(f"{url} answered {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise ConfigError(
            f"{url} cannot be reached: {getattr(error, 'reason', error)}",
            way_out="--url says where the controller serves /metrics; of one in a cluster,"
            " kubectl port-forward brings the port here",
        ) from error
    try:
        return msgspec.json.decode(body, type=Life)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{url} is no controller of this version: {error}") from error


def _context(ca_file: Path | None) -> ssl.SSLContext:
    from lean_sandbox.kube.tls import trusting  # noqa: PLC0415 -- for https only

    try:
        return trusting(file=ca_file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--ca-file: {ca_file} is no certificate: {error}") from error


# -- the table -------------------------------------------------------------------------------------


def table(life: Life) -> str:
    """Return one line for each entry; times count from the first one of the object itself."""
    own = (one.at for one in life.entries if NOUNS[one.plural] == life.kind and one.key == life.key)
    start_s = min(own, default=life.entries[0].at)
    began = parse_rfc3339(life.now) - timedelta(seconds=life.now_s - start_s)
    rows = [_HEAD, *(_row(one, start_s) for one in life.entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [
        f"{life.kind} {life.key}: {len(life.entries)} entries, 0 is {format_micro_time(began)}"
    ]
    for at, name, what, took, detail in rows:
        cells = (at.rjust(widths[0]), name.ljust(widths[1]), what.ljust(widths[2]))
        lines.append("  ".join((*cells, took.rjust(widths[3]), detail)))
    return "\n".join((*map(_printable, lines), ""))


def _row(entry: Entry, start_s: float) -> tuple[str, str, str, str, str]:
    name = f"{NOUNS[entry.plural]} {entry.key.name}"
    at = _ms(entry.at - start_s)
    match entry:
        case Saw():
            told = f"passed: {entry.reason}" if entry.passed else entry.reason
            return at, name, "event", "", f"{entry.type} at {entry.version or '?'}, {told}"
        case Ran():
            return at, name, "pass", _ms(entry.took_s), "; ".join(_of_pass(entry))
        case Asked():
            result = entry.error if entry.code == 0 else str(entry.code)
            told = f"{entry.verb} {entry.resource} {result}"
            return at, name, "request", _ms(entry.took_s), told


def _of_pass(entry: Ran) -> Iterator[str]:
    yield f"{entry.controller} {entry.outcome}"
    if entry.reasons:
        yield f"for {', '.join(entry.reasons)}"
    yield f"waited {_ms(entry.waited_s)} ms"
    if entry.attempts:
        yield f"failed {entry.attempts} times before"
    if entry.next_s is not None:
        yield f"again in {entry.next_s:.3f} s"
    if entry.error:
        yield entry.error


def _printable(line: str) -> str:
    """Return a line without what would end it or move the cursor: some texts are users'."""
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in line)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000.0:.3f}"
