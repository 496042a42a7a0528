"""The command line.

Commands import what they need when they run, so that the controller never pays for the demo.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lean_sandbox.manager.exits import (
    EXIT_CONFIG,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
)
from lean_sandbox.version import __version__, about

if TYPE_CHECKING:
    import argparse

    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

__all__ = ["EXIT_CONFIG", "EXIT_FAILED", "EXIT_INTERRUPTED", "EXIT_OK", "EXIT_USAGE", "main"]

_EPILOG = """\
exit codes:
  0    done
  1    failed, or configuration refused: the last lines name the file or flag and the way out
  2    wrong usage: an unknown flag, or a value that cannot be read
  130  interrupted

Start with `lean-sandbox demo`: it needs no cluster.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code of the process."""
    from lean_sandbox.kube.errors import ConfigError  # noqa: PLC0415

    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if words[:1] in (["run"], ["config"]):
            return _run_flagged(*words)
        if words[:1] == ["bench"]:
            return _run_bench(words[1:])
        return _run_other(words)
    except ConfigError as error:
        print(f"lean-sandbox: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_CONFIG
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has seen enough.
        sys.stderr.close()
        return EXIT_OK


def _run_flagged(command: str, *arguments: str) -> int:
    """Run a command whose flags are the controller's, which argparse would read otherwise."""
    from lean_sandbox.manager import commands as cli_flags  # noqa: PLC0415

    return (cli_flags.run if command == "run" else cli_flags.config)(arguments)


def _run_bench(arguments: Sequence[str]) -> int:
    """Run the bench, whose many flags no other command pays for."""
    from lean_sandbox.kube.errors import ConfigError  # noqa: PLC0415

    try:
        from lean_sandbox.bench import command  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"bench needs {error.name}", way_out="pip install 'lean-sandbox[local]'"
        ) from error
    return command.main(arguments)


def _run_other(arguments: Sequence[str]) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], int] | None = getattr(given, "run", None)
    if run is None:
        parser.print_help()
        return EXIT_USAGE
    return run(given)


def _parser() -> argparse.ArgumentParser:
    import argparse  # noqa: PLC0415 -- not for the controller, whose flags are read otherwise

    parser = argparse.ArgumentParser(
        prog="lean-sandbox",
        description="A lean controller for agent sandboxes on Kubernetes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=about())
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_demo(commands)
    # Only for the list of commands, as bench below: see main.
    commands.add_parser("run", help="run the controller against a cluster")
    commands.add_parser("config", help="print the effective settings and where each came from")
    _add_local(commands)
    _add_crds(commands)
    _add_explain(commands)
    _add_trace(commands)
    _add_metrics(commands)
    commands.add_parser(
        "bench", help="measure the controller under load, its memory and its events"
    )
    _add_version(commands)
    return parser


def _command(
    commands: _Commands, name: str, summary: str, text: str = ""
) -> argparse.ArgumentParser:
    import argparse  # noqa: PLC0415 -- see _parser

    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.\n\n{text}".rstrip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


# -- demo ------------------------------------------------------------------------------------------


def _add_demo(commands: _Commands) -> None:
    parser = _command(
        commands,
        "demo",
        "show the main job on an embedded control plane, and what it costs",
        "Starts an API server and a simulated kubelet in this process, runs the controller\n"
        "against them over HTTP, takes Sandboxes from a manifest to Ready, through suspend,\n"
        "resume, loss of the Pod and expiry, binds a burst of claims from a warm pool, and\n"
        "prints the requests that took. Needs no cluster and leaves nothing behind.",
    )
    parser.add_argument(
        "--sandboxes",
        type=int,
        default=50,
        metavar="N",
        help="Sandboxes of the launch whose cost is counted (default: 50)",
    )
    parser.add_argument(
        "--pool",
        type=int,
        default=20,
        metavar="N",
        help="members of the warm pool of the second act (default: 20)",
    )
    parser.add_argument(
        "--claims",
        type=int,
        default=10,
        metavar="N",
        help="claims bound at once; 0 leaves the second act out (default: 10)",
    )
    parser.add_argument(
        "--output",
        choices=("table", "json"),
        default="table",
        help="tables for people, or one JSON object (default: table)",
    )
    parser.add_argument(
        "--log-level", default="warning", metavar="LEVEL", help="of the controller's own log"
    )
    parser.set_defaults(run=_run_demo)


def _run_demo(given: argparse.Namespace) -> int:
    from lean_sandbox import log  # noqa: PLC0415
    from lean_sandbox.demo.script import run_demo  # noqa: PLC0415

    log.configure(given.log_level, "auto")
    return (
        EXIT_OK
        if run_demo(given.sandboxes, given.pool, given.claims, given.output)
        else EXIT_FAILED
    )


# -- local -----------------------------------------------------------------------------------------


def _add_local(commands: _Commands) -> None:
    import argparse  # noqa: PLC0415 -- see _parser

    parser = _command(commands, "local", "an embedded control plane to work against")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    up = _command(
        actions,
        "up",
        "run an API server, simulated nodes and the controller until Ctrl-C",
        "Writes a kubeconfig that kubectl and every other client can use.",
    )
    up.add_argument("--port", type=int, default=0, metavar="PORT", help="0 picks a free one")
    up.add_argument("--tls", action="store_true", help="serve HTTPS")
    up.add_argument(
        "--state", type=Path, default=None, metavar="FILE", help="keep the state over a restart"
    )
    up.add_argument(
        "--kubeconfig",
        type=Path,
        default=Path("lean-sandbox.kubeconfig"),
        metavar="FILE",
        help="where to write the kubeconfig (default: lean-sandbox.kubeconfig)",
    )
    up.add_argument(
        "--nodes", type=int, default=2, metavar="N", help="simulated nodes (default: 2)"
    )
    up.add_argument(
        "--no-controller", action="store_true", help="leave the controller to be run by hand"
    )
    up.add_argument(
        "--extensions",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="let the controller serve claims, templates and pools as well (default: yes)",
    )
    up.add_argument("--log-level", default="info", metavar="LEVEL", help="of the controller's log")
    up.set_defaults(run=_run_local_up)


def _run_local_up(given: argparse.Namespace) -> int:
    import anyio  # noqa: PLC0415

    from lean_sandbox import log  # noqa: PLC0415
    from lean_sandbox.local.kubelet_settings import KubeletSettings  # noqa: PLC0415
    from lean_sandbox.local.serversettings import LocalSettings  # noqa: PLC0415
    from lean_sandbox.local.up import UpSettings, up  # noqa: PLC0415

    log.configure(given.log_level, "auto")

    async def start_controller(kubeconfig: Path) -> None:
        from lean_sandbox.config.options import Settings as ControllerSettings  # noqa: PLC0415
        from lean_sandbox.manager.manager import run_controller  # noqa: PLC0415

        await run_controller(
            ControllerSettings(kubeconfig=str(kubeconfig), extensions=given.extensions)
        )

    settings = UpSettings(
        server=LocalSettings(port=given.port, tls=given.tls, state_file=given.state),
        kubelet=KubeletSettings(nodes=given.nodes),
        kubeconfig=given.kubeconfig,
    )
    starter = None if given.no_controller else start_controller
    anyio.run(functools.partial(up, settings, start_controller=starter))
    return EXIT_OK


# -- crds ------------------------------------------------------------------------------------------


def _add_crds(commands: _Commands) -> None:
    parser = _command(commands, "crds", "print the CustomResourceDefinitions of the four kinds")
    parser.add_argument(
        "--output",
        type=Path,
        default=None,
        metavar="DIR",
        help="write one file for each kind there instead of printing them",
    )
    parser.set_defaults(run=_run_crds)


def _run_crds(given: argparse.Namespace) -> int:
    paths = sorted(Path(__file__).with_name("crds").glob("*.yaml"))
    if given.output is None:
        sys.stdout.write("".join(path.read_text(encoding="utf-8") for path in paths))
        return EXIT_OK
    given.output.mkdir(parents=True, exist_ok=True)
    for path in paths:
        (given.output / path.name).write_bytes(path.read_bytes())
    return EXIT_OK


# -- explain ---------------------------------------------------------------------------------------


def _add_explain(commands: _Commands) -> None:
    parser = _command(
        commands,
        "explain",
        "say for each event of a recorded watch why it passes or is dropped",
        "The log has one event a line, as `kubectl get sandboxes --watch --output-watch-events -o\n"
        "json` or a watch request prints them; full objects, partial metadata and Tables all do.\n"
        "Every event goes through the cache and the predicates of `lean-sandbox run`.",
    )
    parser.add_argument("file", metavar="FILE", help="the recorded log; - reads standard input")
    parser.add_argument("--kind", metavar="KIND", default="Sandbox", help="(default: Sandbox)")
    parser.add_argument(
        "--output", choices=("text", "json"), default="text", help="(default: text)"
    )
    parser.set_defaults(run=_run_explain)


def _run_explain(given: argparse.Namespace) -> int:
    from filters.replay import explain  # noqa: PLC0415
    from lean_sandbox.kube.errors import ConfigError  # noqa: PLC0415
    from lean_sandbox.watch.explain import KINDS, by_cache  # noqa: PLC0415

    if given.kind not in KINDS:
        raise ConfigError(f"{given.kind} is not watched; the kinds are {', '.join(KINDS)}")
    decide = by_cache(KINDS[given.kind]())
    if given.file == "-":
        explain(sys.stdin, decide, out=sys.stdout, form=given.output)
        return EXIT_OK
    try:
        with Path(given.file).open(encoding="utf-8", newline="\n") as lines:
            explain(lines, decide, out=sys.stdout, form=given.output)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{given.file} cannot be read as a watch log: {error}") from error
    return EXIT_OK


# -- trace -----------------------------------------------------------------------------------------


def _add_trace(commands: _Commands) -> None:
    parser = _command(
        commands,
        "trace",
        "show what a running controller remembers of one object",
        "Events with the verdict of the predicates, passes and requests; of a claim with those of\n"
        "its Sandbox and Pod. The controller has to run with --trace-entries.",
    )
    parser.add_argument("kind", choices=("sandbox", "claim"))
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("-n", "--namespace", default="default", metavar="NS", help="(default)")
    parser.add_argument(
        "--url",
        default="http://127.0.0.1:8080",
        help="where the controller serves /metrics (default: http://127.0.0.1:8080)",
    )
    parser.add_argument(
        "--ca-file", type=Path, default=None, metavar="FILE", help="authority of an https URL"
    )
    parser.add_argument(
        "--output",
        choices=("table", "json", "chrome"),
        default="table",
        help="chrome is the Trace Event Format, for Perfetto and chrome://tracing (default: table)",
    )
    parser.add_argument(
        "--chrome", type=Path, default=None, metavar="FILE", help="write the Chrome trace as well"
    )
    parser.set_defaults(run=_run_trace)


def _run_trace(given: argparse.Namespace) -> int:
    import msgspec  # noqa: PLC0415

    from lean_sandbox.kube.errors import ConfigError  # noqa: PLC0415
    from lean_sandbox.manager import trace  # noqa: PLC0415
    from lean_sandbox.watch.kind import Key  # noqa: PLC0415

    key = Key(given.namespace, given.name)
    life = trace.ask(given.url, given.kind, key, ca_file=given.ca_file)
    if not life.entries:
        print(f"lean-sandbox: {trace.nothing_kept(life)}", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    if given.chrome is not None:
        try:
            given.chrome.write_bytes(msgspec.json.encode(trace.chrome(life)))
        except OSError as error:
            raise ConfigError(f"--chrome: {given.chrome} cannot be written: {error}") from error
    if given.output == "table":
        sys.stdout.write(trace.table(life))
    else:
        shown = trace.chrome(life) if given.output == "chrome" else life
        text = msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()
        sys.stdout.write(text + "\n")
    return EXIT_OK


# -- metrics ---------------------------------------------------------------------------------------


def _add_metrics(commands: _Commands) -> None:
    _command(
        commands,
        "metrics",
        "print every metric that `lean-sandbox run` exposes: name, type, labels, meaning",
        "What begins with lean_sandbox is of this controller; the other names, labels and buckets\n"
        "are those of the reference controller and its framework.",
    ).set_defaults(run=_run_metrics)


def _run_metrics(_given: argparse.Namespace) -> int:
    from lean_sandbox.metrics.families import FAMILIES  # noqa: PLC0415

    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for family in FAMILIES.values():
        labels = ", ".join(f"`{label}`" for label in family.labels)
        meaning = family.help.replace("|", "\\|")
        if family.buckets:
            meaning += f" Buckets: {', '.join(f'{bound:g}' for bound in family.buckets)}."
        rows.append(f"| `{family.name}` | {family.kind.value} | {labels} | {meaning} |")
    sys.stdout.write("\n".join((*rows, "")))
    return EXIT_OK


# -- version ---------------------------------------------------------------------------------------


def _add_version(commands: _Commands) -> None:
    _command(commands, "version", "print the version").set_defaults(run=_run_version)


def _run_version(_given: argparse.Namespace) -> int:
    print(f"lean-sandbox {__version__}")  # noqa: T201
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
