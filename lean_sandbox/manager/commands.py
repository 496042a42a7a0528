"""The commands that take the controller's flags, `run` and `config`; the exit codes of all."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from lean_sandbox.config.forms import BOOLEAN, choice
from lean_sandbox.config.options import Settings, flag_of
from lean_sandbox.config.sources import (
    ConfigMap,
    HelpWanted,
    Origin,
    Remark,
    Scanned,
    UsageError,
    effective,
    scan,
)
from lean_sandbox.kube.errors import NotLeaderError
from lean_sandbox.version import about

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
# As the reference has it, what cannot work is a failure, and what cannot be understood is not.
EXIT_CONFIG: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

_RUN = """\
Runs the controller against a cluster. Uses the kubeconfig, or the Pod's service account inside a
cluster. Stops on SIGINT or SIGTERM after running passes have ended; a second signal stops at once,
with 1, and so does the loss of the Lease."""
_CONFIG = """\
Prints the settings that `lean-sandbox run` would have with the same flags, environment and config
file, with their units and where each came from: a flag, the environment, a file or the default.
Asks no server, so what the ConfigMap agent-sandbox-config adds is left out."""

_OUTPUT = choice("table", "json", "yaml", metavar="FORMAT")
_EXTRA = {"version": BOOLEAN}


def run(arguments: Sequence[str]) -> int:
    """Run the controller until it is stopped; return the exit code. Raises ConfigError."""
    try:
        scanned = scan(arguments, _EXTRA)
        if _wants_version(scanned):
            return _print_version()
        return _run(scanned)
    except (HelpWanted, UsageError) as wanted:
        return _explain("run", _RUN, wanted)


def _run(scanned: Scanned) -> int:
    found = effective(scanned, os.environ)
    # structlog imports rich for coloured tracebacks where it is installed: 6 MiB that a controller
    # never uses. None in its place reads as not installed.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    import anyio  # noqa: PLC0415
    import structlog  # noqa: PLC0415

    from lean_sandbox import log  # noqa: PLC0415
    from lean_sandbox.manager.server import run_until_signalled  # noqa: PLC0415

    settings = found.settings
    log.configure(settings.log_level, settings.log_format)
    logger = structlog.get_logger("config")
    for remark in found.remarks:
        logger.warning("flag_doubtful", **_fields(remark))

    def tune(config_map: ConfigMap) -> Settings:
        tuned = effective(scanned, os.environ, config_map=config_map)
        log.configure(tuned.settings.log_level, tuned.settings.log_format)
        for remark in tuned.remarks:
            if remark not in found.remarks:
                logger.warning("flag_doubtful", **_fields(remark))
        used = sorted(
            flag_of(name)
            for name, place in tuned.places.items()
            if place.origin is Origin.CONFIG_MAP
        )
        logger.info("config_map_read", source=config_map.name, flags=used)
        return tuned.settings

    try:
        return EXIT_OK if anyio.run(run_until_signalled, settings, tune) else EXIT_FAILED
    except NotLeaderError:
        # The log has said why; what starts the process anew lets it contend again.
        return EXIT_FAILED


def config(arguments: Sequence[str]) -> int:
    """Print the effective settings; return the exit code. Raises ConfigError."""
    own = {"output": _OUTPUT, "o": _OUTPUT}
    flags = {"-o, --output FORMAT": "table, json, or yaml: a config file (default: table)"}
    try:
        scanned = scan(arguments, {**_EXTRA, **own})
        if _wants_version(scanned):
            return _print_version()
        asked = scanned.last(*own)
        form = "table" if asked is None else asked.parsed(_OUTPUT)
        found = effective(scanned, os.environ)
    except (HelpWanted, UsageError) as wanted:
        return _explain("config", _CONFIG, wanted, flags)
    from lean_sandbox.config.render import WRITERS  # noqa: PLC0415

    sys.stdout.write(WRITERS[form](found))
    for remark in found.remarks:
        told = ": ".join(filter(None, (remark.flag, remark.place, remark.why)))
        print(f"lean-sandbox: warning: {told}", file=sys.stderr)  # noqa: T201
    return EXIT_OK


def _fields(remark: Remark) -> dict[str, str]:
    place = {"source": remark.place} if remark.place else {}
    return {"flag": remark.flag, **place, "why": remark.why}


def _wants_version(scanned: Scanned) -> bool:
    flag = scanned.last("version")
    return flag is not None and bool(flag.parsed(BOOLEAN))


def _print_version() -> int:
    print(about())  # noqa: T201
    return EXIT_OK


def _explain(
    command: str, summary: str, wanted: HelpWanted | UsageError, own: dict[str, str] | None = None
) -> int:
    """Print the help that was asked for, or what is wrong and the way to the help."""
    if isinstance(wanted, UsageError):
        print(f"usage: lean-sandbox {command} [flags]", file=sys.stderr)  # noqa: T201
        print(f"lean-sandbox {command}: {wanted}", file=sys.stderr)  # noqa: T201
        return EXIT_USAGE
    from lean_sandbox.config.render import help_text  # noqa: PLC0415

    version = {"--version": "print the version and exit"}
    sys.stdout.write(help_text(command, summary, {**(own or {}), **version}))
    return EXIT_OK
