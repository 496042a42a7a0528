"""The table of commands: what each is called, its help, its flags, and what it does.

Each imports what it needs when it runs: the controller does not pay for others.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from lean_sandbox.config.forms import BOOLEAN
from lean_sandbox.config.options import COMPANIONS
from lean_sandbox.config.sources import (
    EXIT_FAILED,
    EXIT_OK,
    HelpRequested,
    Scanned,
    UsageError,
    effective,
    scan,
)
from lean_sandbox.errors import ConfigError
from lean_sandbox.kube.errors import NotLeaderError
from lean_sandbox.program import called
from lean_sandbox.version import about, described

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_SHOWN: Final = " (default: %(default)s)"


class Command(NamedTuple):
    """One command: ``run`` gets its parsed arguments, or the arguments as given if ``is_raw``."""

    summary: str
    examples: tuple[str, ...]
    run: Callable[..., int]
    text: str = ""
    flags: Callable[[ArgumentParser], object] = lambda _: None
    extra: str = ""
    is_raw: bool = False

    def parser(self, name: str) -> ArgumentParser:
        """Return a parser with the flags of the command, which is called ``name``."""
        from lean_sandbox.config.render import new_parser  # noqa: PLC0415 -- not for the controller

        parser = new_parser(name, self.summary, self.text, self.examples)
        self.flags(parser)
        return parser


def _flags_of(module: str, *more: object) -> Callable[[ArgumentParser], object]:
    """Return a function that adds the flags of a module, which is only imported then."""
    return lambda parser: import_module(module).add_flags(parser, *more)


def _add_explain(explain: ArgumentParser) -> None:
    add = explain.add_argument
    add("file", metavar="FILE", help="the recorded log; - reads standard input")
    meaning = "kind of metadata alone and of rows, which do not name theirs" + _SHOWN
    add("--kind", metavar="KIND", default="Sandbox", help=meaning)


def _with_settings(name: str, act: Callable[[Scanned], int], arguments: Sequence[str]) -> int:
    """Run a command that takes settings, or print the version or help."""
    try:
        scanned = scan(arguments, {"version": BOOLEAN})
        versions = [flag for flag in scanned.flags if flag.name == "version"]
        if not (versions and versions[-1].parsed(BOOLEAN)):
            return act(scanned)
        print(about())  # noqa: T201
    except HelpRequested:
        sys.stdout.write(GROUPS[_RUNNING][name].parser(name).format_help())
    except UsageError:
        print(f"usage: lean-sandbox {name} [FLAGS]", file=sys.stderr)  # noqa: T201
        raise
    return EXIT_OK


def _run_controller(scanned: Scanned, *, companions_only: bool = False) -> int:
    found = effective(scanned, os.environ)
    if companions_only and not found.settings.companions:
        way_out = f"name some of {', '.join(COMPANIONS)}"
        raise ConfigError("--companions names none", way_out=way_out)
    # structlog imports rich for coloured tracebacks where it is installed: 6 MiB that a controller
    # never uses. None in its place reads as not installed.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    import anyio  # noqa: PLC0415
    import structlog  # noqa: PLC0415

    from lean_sandbox import log  # noqa: PLC0415
    from lean_sandbox.manager.server import run_until_signalled  # noqa: PLC0415

    log.configure(found.settings.log_level, found.settings.log_format)
    logger = structlog.get_logger("config")
    for remark in found.remarks:
        place = {"source": remark.place} if remark.place else {}
        logger.warning("flag_warning", flag=remark.flag, **place, why=remark.why)
    run = functools.partial(run_until_signalled, found.settings, companions_only=companions_only)
    try:
        return EXIT_OK if anyio.run(run) else EXIT_FAILED
    except NotLeaderError:
        # The log has said why. When the process is restarted, it contends for the Lease again.
        return EXIT_FAILED


def _print_settings(scanned: Scanned) -> int:
    from lean_sandbox.config.render import as_yaml  # noqa: PLC0415

    found = effective(scanned, os.environ)
    sys.stdout.write(as_yaml(found))
    for remark in found.remarks:
        text = ": ".join(filter(None, (remark.flag, remark.place, remark.why)))
        print(f"lean-sandbox: warning: {text}", file=sys.stderr)  # noqa: T201
    return EXIT_OK


def _run_bench(arguments: Sequence[str]) -> int:
    from lean_sandbox.bench import command  # noqa: PLC0415

    return command.main(arguments)


def _metrics_of(flags: Sequence[str]) -> tuple[str, bool]:
    """Return where `lean-sandbox run` with ``flags`` serves its metrics, or "", and if it was told.

    Raises ConfigError for what it refuses.
    """
    try:
        scanned = scan(flags)
    except HelpRequested:
        raise UsageError(f"see `{called()} run --help`") from None
    if scanned.rest:
        raise UsageError(f"{scanned.rest[0]} is not a flag")
    found = effective(scanned, os.environ)
    settings = found.settings
    host, colon, port = settings.metrics_bind_address.rpartition(":")
    scheme = "https" if settings.metrics_secure_serving else "http"
    known = port if port != "0" else "PORT  # `metrics` of the line `listening` in the log"
    url = f"{scheme}://{host or '127.0.0.1'}:{known}" if colon else ""
    return url, "metrics_bind_address" in found.given


def _act(given: Namespace) -> int:
    """Run the action that the flags of a command have set; return its exit code."""
    code: int = given.action(given)
    return code


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
    from lean_sandbox.watch.explain import by_kind  # noqa: PLC0415

    decide = by_kind(given.kind)
    with sys.stdin.buffer if given.file == "-" else Path(given.file).open("rb") as lines:
        summary = explain(lines, decide, out=sys.stdout)
    # A log in YAML has a few lines that could be events: what was applied, as an annotation.
    if len(summary.broken_lines) > summary.events:
        way_out = "record one with kubectl get sandboxes -w --output-watch-events -o json"
        raise ConfigError(f"{given.file} is not a log of a watch", way_out=way_out)
    return EXIT_OK


def _run_completion(given: Namespace) -> int:
    import argparse  # noqa: PLC0415

    import shtab  # noqa: PLC0415

    whole = argparse.ArgumentParser(prog="lean-sandbox")
    groups = {"": whole.add_subparsers()}
    for name, command in COMMANDS.items():
        first, last = name.split() if " " in name else ("", name)
        if first not in groups:
            actions = [one.split()[1] for one in COMMANDS if one.startswith(f"{first} ")]
            groups[first] = groups[""].add_parser(first, help=", ".join(actions)).add_subparsers()
        parser = command.parser(name)
        for action in parser._actions:  # noqa: SLF001 -- as shtab reads them
            if action.type is Path:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        groups[first].add_parser(last, parents=[parser], add_help=False, help=command.summary)
    print(shtab.complete(whole, shell=given.shell))  # noqa: T201
    return EXIT_OK


def _run_version(_given: Namespace) -> int:
    print(described())  # noqa: T201
    return EXIT_OK


_RUN_COMPANIONS: Final = functools.partial(_run_controller, companions_only=True)
_RUNNING: Final = "Run it"
GROUPS: Final[Mapping[str, Mapping[str, Command]]] = {
    "Try it, without a cluster": {
        "demo": Command(
            "show on an embedded cluster what the controller does and costs",
            ("lean-sandbox demo", "lean-sandbox demo --sandboxes 200 --pool 40 --claims 30"),
            _act,
            "Starts an API server and a simulated kubelet in this process, runs the controller"
            " against them over HTTP, takes Sandboxes from a manifest to Ready, through suspend,"
            " resume, loss of the Pod and expiry, gives claims Sandboxes of a warm pool, and prints"
            " the requests that took. Needs no cluster and leaves nothing behind.",
            _flags_of("lean_sandbox.demo.command"),
            "local",
        ),
        "local up": Command(
            "run an API server, simulated nodes and the controller",
            (
                "lean-sandbox local up",
                "lean-sandbox local up -d --state cluster.json",
                "lean-sandbox local up -- --log-level debug --sandbox-concurrent-workers 4",
            ),
            _act,
            "Writes a kubeconfig that kubectl and every other client can use. No image is pulled"
            " and no container runs: docs/local.md says what works.",
            _flags_of("lean_sandbox.local.command", "up", _metrics_of),
            "local",
        ),
        "local status": Command(
            "list the local clusters that run",
            ("lean-sandbox local status",),
            _act,
            flags=_flags_of("lean_sandbox.local.command", "status", _metrics_of),
        ),
        "local down": Command(
            "stop a local cluster",
            ("lean-sandbox local down",),
            _act,
            flags=_flags_of("lean_sandbox.local.command", "down", _metrics_of),
        ),
        "local example": Command(
            "print a manifest to begin with: sandbox, pool or claim",
            ("lean-sandbox local example | kubectl apply -f -", "lean-sandbox local example pool"),
            _act,
            flags=_flags_of("lean_sandbox.local.command", "example", _metrics_of),
        ),
    },
    _RUNNING: {
        "run": Command(
            "run the controller against a cluster",
            (
                "lean-sandbox run --context minikube --extensions",
                "LEAN_SANDBOX_PAGE_SIZE=100 lean-sandbox run --log-level debug",
            ),
            functools.partial(_with_settings, "run", _run_controller),
            "Begin with --context (which cluster), --extensions (claims and pools as well),"
            " --namespaces (only these) and --companions (docs/companions.md); the defaults of the"
            " other flags seldom need a change.\n\n"
            "Uses the kubeconfig, or the Pod's service account inside a cluster. Ends with 0 on"
            " SIGINT, SIGTERM or SIGHUP after running reconciles have ended; a second signal stops"
            " at once, with 1, and so does the loss of the Lease.",
            _flags_of("lean_sandbox.config.render"),
            is_raw=True,
        ),
        "companions": Command(
            "run companions beside whatever controller the cluster has",
            ("lean-sandbox companions --companions=idle,recreate,rollout --extensions",),
            functools.partial(_with_settings, "companions", _RUN_COMPANIONS),
            "Needs nothing but the definitions and a controller of Sandboxes, this one or the"
            " reference's, and has a Lease of its own. docs/companions.md says what each does.",
            _flags_of("lean_sandbox.config.render"),
            is_raw=True,
        ),
        "config": Command(
            "print the effective settings and where each came from",
            (
                "lean-sandbox config --extensions",
                "LEAN_SANDBOX_PAGE_SIZE=100 lean-sandbox config",
            ),
            functools.partial(_with_settings, "config", _print_settings),
            "Prints the settings that `lean-sandbox run` would have with the same flags and"
            " environment, as YAML whose comments tell their units and where each came from.",
            _flags_of("lean_sandbox.config.render"),
            is_raw=True,
        ),
        "crds": Command(
            "print the CustomResourceDefinitions of the four kinds",
            ("lean-sandbox crds | kubectl apply --server-side -f -",),
            _run_crds,
            flags=lambda parser: parser.add_argument(
                *("-o", "--output"),
                type=Path,
                metavar="DIR",
                help="write one file for each kind there instead of printing them",
            ),
        ),
    },
    "Look into it": {
        "top": Command(
            "show pools, claims and what is refused, as it happens",
            (
                "lean-sandbox top",
                "lean-sandbox top -n team-a --url http://127.0.0.1:8080",
                "lean-sandbox top -o json",
            ),
            _act,
            "Watches the objects of a cluster, whichever controller it has; --url adds what a"
            " controller says of itself. Ctrl-C ends it. docs/observability.md has the meanings.",
            _flags_of("lean_sandbox.top.command"),
            "top",
        ),
        "trace": Command(
            "say how long an object took to be Ready, and what happened",
            ("lean-sandbox trace claim my-claim -n team-a",),
            _act,
            "Asks a running controller: how long until Ready and in which requests, then events"
            " with the verdict of the predicates, reconciles and requests; of a claim with those of"
            " its Sandbox and Pod. The controller has to run with --trace-entries."
            " docs/troubleshooting.md has the meanings.",
            _flags_of("lean_sandbox.trace.client"),
        ),
        "explain": Command(
            "say why each event of a recorded watch passes or is dropped",
            (
                "kubectl get sandboxes -w --output-watch-events -o json | lean-sandbox explain -",
                "lean-sandbox explain pods.log --kind Pod",
            ),
            _run_explain,
            "The log has one event a line, as kubectl or a watch request prints them; full"
            " objects, partial metadata and Tables all do. Every event goes through the cache and"
            " the predicates of `lean-sandbox run`.",
            _add_explain,
        ),
    },
    "Measure it": {
        "bench": Command(
            "measure the controller under load, and its memory",
            (),
            _run_bench,
            flags=_flags_of("lean_sandbox.bench.options"),
            extra="local",
            is_raw=True,
        ),
    },
    "Besides": {
        "completion": Command(
            "print the script that completes commands and flags in a shell",
            (
                "source <(lean-sandbox completion bash)",
                'lean-sandbox completion zsh > "${fpath[1]}/_lean-sandbox"',
                "lean-sandbox completion fish > ~/.config/fish/completions/lean-sandbox.fish",
            ),
            _run_completion,
            flags=lambda parser: parser.add_argument(
                "shell", choices=("bash", "zsh", "fish"), help="the shell that reads the script"
            ),
            extra="local",
        ),
        "version": Command("print version, revision and date", (), _run_version),
    },
}
COMMANDS: Final[Mapping[str, Command]] = {
    name: command for group in GROUPS.values() for name, command in group.items()
}
"""Every command by its name, of one word or two."""
