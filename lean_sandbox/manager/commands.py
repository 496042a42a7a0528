"""The commands that take the controller's flags, `run` and `config`; the exit codes of all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lean_sandbox.config.forms import BOOLEAN, Form, choice
from lean_sandbox.config.options import Settings, flag_of
from lean_sandbox.config.sources import (
    ConfigMap,
    Effective,
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


def run(arguments: Sequence[str]) -> int:
    """Run the controller until it is stopped; return the exit code. Raises ConfigError."""
    return _perform("run", _RUN, arguments, _run)


def config(arguments: Sequence[str]) -> int:
    """Print the effective settings; return the exit code. Raises ConfigError."""
    own = {"-o, --output FORMAT": "table, json, or yaml: a config file (default: table)"}
    return _perform("config", _CONFIG, arguments, _config, own, {"output": _OUTPUT, "o": _OUTPUT})


def _perform(
    command: str,
    summary: str,
    arguments: Sequence[str],
    act: Callable[[Scanned], int],
    own: Mapping[str, str] | None = None,
    forms: Mapping[str, Form] | None = None,
) -> int:
    """Do what a command does, or tell its version or help, or the way to the help.

    ``own`` and ``forms`` are the flags that the command has besides those of the controller.
    """
    try:
        scanned = scan(arguments, {"version": BOOLEAN, **(forms or {})})
        version = scanned.last("version")
        if version is None or not version.parsed(BOOLEAN):
            return act(scanned)
        print(about())  # noqa: T201
    except HelpWanted:
        from lean_sandbox.config.render import help_text  # noqa: PLC0415

        flags = {**(own or {}), "--version": "print the version and exit"}
        sys.stdout.write(help_text(command, summary, flags))
    except UsageError as error:
        print(f"usage: lean-sandbox {command} [flags]", file=sys.stderr)  # noqa: T201
        print(f"lean-sandbox {command}: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_USAGE
    return EXIT_OK


def _run(scanned: Scanned) -> int:
    found = effective(scanned, os.environ)
    # structlog imports rich for coloured tracebacks where it is installed: 6 MiB that a controller
    # never uses. None in its place reads as not installed.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    import anyio  # noqa: PLC0415
    import structlog  # noqa: PLC0415

    from lean_sandbox import log  # noqa: PLC0415
    from lean_sandbox.manager.server import run_until_signalled  # noqa: PLC0415

    logger = structlog.get_logger("config")

    def begin(this: Effective, known: Sequence[Remark] = ()) -> Settings:
        settings = this.settings
        log.configure(settings.log_level, settings.log_format)
        for remark in this.remarks:
            if remark not in known:
                place = {"source": remark.place} if remark.place else {}
                logger.warning("flag_doubtful", flag=remark.flag, **place, why=remark.why)
        return settings

    def tune(config_map: ConfigMap) -> Settings:
        tuned = effective(scanned, os.environ, config_map=config_map)
        settings = begin(tuned, found.remarks)
        given = tuned.given.items()
        used = sorted(flag_of(name) for name, by in given if by.origin is Origin.CONFIG_MAP)
        logger.info("config_map_read", source=config_map.name, flags=used)
        return settings

    try:
        return EXIT_OK if anyio.run(run_until_signalled, begin(found), tune) else EXIT_FAILED
    except NotLeaderError:
        # The log has said why; what starts the process anew lets it contend again.
        return EXIT_FAILED


def _config(scanned: Scanned) -> int:
    from lean_sandbox.config.render import WRITERS  # noqa: PLC0415

    asked = scanned.last("output", "o")
    write = WRITERS["table" if asked is None else asked.parsed(_OUTPUT)]
    found = effective(scanned, os.environ)
    sys.stdout.write(write(found))
    for remark in found.remarks:
        told = ": ".join(filter(None, (remark.flag, remark.place, remark.why)))
        print(f"lean-sandbox: warning: {told}", file=sys.stderr)  # noqa: T201
    return EXIT_OK
