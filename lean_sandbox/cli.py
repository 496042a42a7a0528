"""The command line. Each command imports what it needs: the controller does not pay for others."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from lean_sandbox.config.forms import BOOLEAN, Form, choice
from lean_sandbox.config.options import Settings, flag_of
from lean_sandbox.config.sources import (
    EXIT_CONFIG,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
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
from lean_sandbox.kube.errors import ConfigError, NotLeaderError
from lean_sandbox.version import __version__, about

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction

    _Commands: TypeAlias = _SubParsersAction[ArgumentParser]

_EPILOG = """\
exit codes:
  0    done
  1    failed, or configuration refused: the last lines name the file or flag and the way out
  2    wrong usage: an unknown flag, or a value that cannot be read
  130  interrupted

Start with `lean-sandbox demo`: it needs no cluster.
"""
_SHOWN = " (default: %(default)s)"
_RUN = """\
Runs the controller against a cluster. Uses the kubeconfig, or the Pod's service account inside a
cluster. Stops on SIGINT or SIGTERM after running passes have ended; a second signal stops at once,
with 1, and so does the loss of the Lease."""
_CONFIG = """\
Prints the settings that `lean-sandbox run` would have with the same flags, environment and config
file, with their units and where each came from: a flag, the environment, a file or the default.
Asks no server, so what the ConfigMap agent-sandbox-config adds is left out."""

_OUTPUT = choice("table", "json", "yaml", metavar="FORMAT")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code of the process."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    flagged = {"run": _run, "config": _config, "bench": _run_bench}
    try:
        if words and words[0] in flagged:
            return flagged[words[0]](words[1:])
        parser = _parser()
        given = parser.parse_args(words)
        if not hasattr(given, "run"):
            parser.print_help()
            return EXIT_USAGE
        code: int = given.run(given)
    except ConfigError as error:
        print(f"lean-sandbox: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_CONFIG
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has seen enough.
        sys.stderr.close()
        return EXIT_OK
    return code


def _parser() -> ArgumentParser:
    import argparse  # noqa: PLC0415 -- not for the controller

    from lean_sandbox.local import command as local_command  # noqa: PLC0415

    parser = argparse.ArgumentParser(
        prog="lean-sandbox",
        description="A lean controller for agent sandboxes on Kubernetes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=about())
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_demo(commands)
    _add(commands, "run", "run the controller against a cluster")
    _add(commands, "config", "print the effective settings and where each came from")
    local = _add(commands, "local", "an embedded control plane to work against")
    actions = local.add_subparsers(title="actions", metavar="ACTION", required=True)
    local_command.add_actions(actions, _check_controller_flags)
    summary = "print the CustomResourceDefinitions of the four kinds"
    crds = _add(commands, "crds", summary, _run_crds)
    meaning = "write one file for each kind there instead of printing them"
    crds.add_argument("--output", type=Path, metavar="DIR", help=meaning)
    _add_explain(commands)
    _add_trace(commands)
    _add(
        commands,
        "metrics",
        "print every metric that `lean-sandbox run` exposes: name, type, labels, meaning",
        _run_metrics,
        "What begins with lean_sandbox is of this controller; the other names, labels and buckets\n"
        "are those of the reference controller and its framework.",
    )
    _add(commands, "bench", "measure the controller under load, and its memory")
    _add(commands, "version", "print the version", _run_version)
    return parser


def _add(
    commands: _Commands,
    name: str,
    summary: str,
    run: Callable[[Namespace], int] | None = None,
    text: str = "",
) -> ArgumentParser:
    """Add a command. Without ``run`` it has commands of its own, or reads its flags itself."""
    import argparse  # noqa: PLC0415 -- not for the controller

    made = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.\n\n{text}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if run is not None:
        made.set_defaults(run=run)
    return made


def _add_demo(commands: _Commands) -> None:
    demo = _add(
        commands,
        "demo",
        "show the main job on an embedded control plane, and what it costs",
        _run_demo,
        "Starts an API server and a simulated kubelet in this process, runs the controller\n"
        "against them over HTTP, takes Sandboxes from a manifest to Ready, through suspend,\n"
        "resume, loss of the Pod and expiry, binds a burst of claims from a warm pool, and\n"
        "prints the requests that took. Needs no cluster and leaves nothing behind.",
    )
    count = functools.partial(demo.add_argument, type=int, metavar="N")
    count("--sandboxes", default=50, help="Sandboxes of the launch whose cost is counted" + _SHOWN)
    count("--pool", default=20, help="members of the warm pool of the second act" + _SHOWN)
    count("--claims", default=10, help="claims bound at once; 0 leaves the second act out" + _SHOWN)
    _choose(demo, ("table", "json"), "tables for people, or one JSON object")
    meaning = "of the controller's own log"
    demo.add_argument("--log-level", default="warning", metavar="LEVEL", help=meaning)


def _choose(parser: ArgumentParser, forms: tuple[str, ...], meaning: str = "") -> None:
    shown = (meaning + _SHOWN).strip()
    parser.add_argument("--output", choices=forms, default=forms[0], help=shown)


def _add_explain(commands: _Commands) -> None:
    explain = _add(
        commands,
        "explain",
        "say for each event of a recorded watch why it passes or is dropped",
        _run_explain,
        "The log has one event a line, as `kubectl get sandboxes --watch --output-watch-events -o\n"
        "json` or a watch request prints them; full objects, partial metadata and Tables all do.\n"
        "Every event goes through the cache and the predicates of `lean-sandbox run`.",
    )
    add = explain.add_argument
    add("file", metavar="FILE", help="the recorded log; - reads standard input")
    add("--kind", metavar="KIND", default="Sandbox", help="a watched kind" + _SHOWN)
    _choose(explain, ("text", "json"))


def _add_trace(commands: _Commands) -> None:
    trace = _add(
        commands,
        "trace",
        "show what a running controller remembers of one object",
        _run_trace,
        "Events with the verdict of the predicates, passes and requests; of a claim with those of\n"
        "its Sandbox and Pod. The controller has to run with --trace-entries.",
    )
    add = trace.add_argument
    add("kind", choices=("sandbox", "claim"))
    add("name", metavar="NAME")
    add("-n", "--namespace", default="default", metavar="NS", help="(default)")
    url, meaning = "http://127.0.0.1:8080", "where the controller serves /metrics" + _SHOWN
    add("--url", default=url, help=meaning)
    add("--ca-file", type=Path, metavar="FILE", help="authority of an https URL")
    meaning = "chrome is the Trace Event Format, for Perfetto and chrome://tracing"
    _choose(trace, ("table", "json", "chrome"), meaning)


def _run(arguments: Sequence[str]) -> int:
    return _perform("run", _RUN, arguments, _run_controller)


def _config(arguments: Sequence[str]) -> int:
    own = {"-o, --output FORMAT": "table, json, or yaml: a config file (default: table)"}
    forms = {"output": _OUTPUT, "o": _OUTPUT}
    return _perform("config", _CONFIG, arguments, _print_settings, own, forms)


def _perform(
    command: str,
    summary: str,
    arguments: Sequence[str],
    act: Callable[[Scanned], int],
    own: Mapping[str, str] | None = None,
    forms: Mapping[str, Form] | None = None,
) -> int:
    """Do what a command does, or tell its version or help; ``own`` and ``forms`` are its flags."""
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


def _run_controller(scanned: Scanned) -> int:
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


def _print_settings(scanned: Scanned) -> int:
    from lean_sandbox.config.render import WRITERS  # noqa: PLC0415

    asked = scanned.last("output", "o")
    write = WRITERS["table" if asked is None else asked.parsed(_OUTPUT)]
    found = effective(scanned, os.environ)
    sys.stdout.write(write(found))
    for remark in found.remarks:
        told = ": ".join(filter(None, (remark.flag, remark.place, remark.why)))
        print(f"lean-sandbox: warning: {told}", file=sys.stderr)  # noqa: T201
    return EXIT_OK


def _run_bench(arguments: Sequence[str]) -> int:
    try:
        from lean_sandbox.bench import command  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"bench needs {error.name}", way_out="pip install 'lean-sandbox[local]'"
        ) from error
    return command.main(arguments)


def _run_demo(given: Namespace) -> int:
    from lean_sandbox import log  # noqa: PLC0415
    from lean_sandbox.demo.story import run_demo  # noqa: PLC0415

    log.configure(given.log_level, "auto")
    is_done = run_demo(given.sandboxes, given.pool, given.claims, given.output)
    return EXIT_OK if is_done else EXIT_FAILED


def _check_controller_flags(flags: Sequence[str]) -> None:
    """Raise ConfigError for what `lean-sandbox run` would refuse."""
    try:
        scanned = scan(flags)
    except HelpWanted:
        raise UsageError("see `lean-sandbox run --help`") from None
    if scanned.rest:
        raise UsageError(f"{scanned.rest[0]} is no flag")
    effective(scanned, os.environ)


def _run_crds(given: Namespace) -> int:
    paths = sorted(Path(__file__).with_name("crds").glob("*.yaml"))
    if given.output is None:
        sys.stdout.write("".join(path.read_text(encoding="utf-8") for path in paths))
        return EXIT_OK
    given.output.mkdir(parents=True, exist_ok=True)
    for path in paths:
        (given.output / path.name).write_bytes(path.read_bytes())
    return EXIT_OK


def _run_explain(given: Namespace) -> int:
    from filters.replay import explain  # noqa: PLC0415
    from lean_sandbox.watch.explain import by_cache, caches_by_kind  # noqa: PLC0415

    caches = caches_by_kind()
    if given.kind not in caches:
        raise ConfigError(f"{given.kind} is not watched; the kinds are {', '.join(caches)}")
    decide = by_cache(caches[given.kind])
    if given.file == "-":
        explain(sys.stdin, decide, out=sys.stdout, form=given.output)
        return EXIT_OK
    try:
        with Path(given.file).open(encoding="utf-8", newline="\n") as lines:
            explain(lines, decide, out=sys.stdout, form=given.output)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{given.file} cannot be read as a watch log: {error}") from error
    return EXIT_OK


def _run_trace(given: Namespace) -> int:
    from lean_sandbox.manager import trace  # noqa: PLC0415
    from lean_sandbox.watch.kind import Key  # noqa: PLC0415

    key = Key(given.namespace, given.name)
    life = trace.ask(given.url, given.kind, key, ca_file=given.ca_file)
    if not life.entries:
        print(f"lean-sandbox: {trace.nothing_kept(life)}", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    if given.output == "table":
        sys.stdout.write(trace.table(life))
    else:
        shown = trace.chrome(life) if given.output == "chrome" else life
        text = msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()
        sys.stdout.write(text + "\n")
    return EXIT_OK


def _run_metrics(_given: Namespace) -> int:
    from lean_sandbox.metrics.families import FAMILIES  # noqa: PLC0415

    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for family in FAMILIES.values():
        labels = ", ".join(f"`{label}`" for label in family.labels)
        meaning = family.help.replace("|", "\\|")
        if family.buckets:
            meaning += f" Buckets: {', '.join(f'{bound:g}' for bound in family.buckets)}."
        rows.append(f"| `{family.name}` | {family.kind} | {labels} | {meaning} |")
    sys.stdout.write("\n".join((*rows, "")))
    return EXIT_OK


def _run_version(_given: Namespace) -> int:
    print(f"lean-sandbox {__version__}")  # noqa: T201
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
