"""``lean-sandbox local``: its actions on the command line."""

from __future__ import annotations

import argparse
import functools
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lean_sandbox.errors import ConfigError
from lean_sandbox.local.request import HOST, LocalSettings
from lean_sandbox.program import called
from lean_sandbox.signals import ending
from lean_sandbox.words import counted

if TYPE_CHECKING:
    from lean_sandbox.local.files import LocalCluster
    from lean_sandbox.local.up import Say, UpSettings

MetricsOf = Callable[[Sequence[str]], tuple[str, bool]]

PORT: Final = 7443
"""Where ``local up`` listens unless told otherwise."""
_METRICS_PORT: Final = 8080
# More than a controller is given to end.
_PATIENCE_S: Final = 60.0
_SHOWN: Final = " (default: %(default)s)"


def add_flags(
    parser: argparse.ArgumentParser,
    action: str,
    metrics_of: MetricsOf,
) -> None:
    """Add the flags of an action, and the function that acts as ``action``.

    ``metrics_of`` returns where the metrics of a controller with these flags are, and whether it
    was told so; it raises ConfigError for flags that `lean-sandbox run` refuses.
    """
    add = parser.add_argument
    if action == "up":
        parser.set_defaults(action=lambda given: _up(given, parser, metrics_of))
        add("-d", "--detach", action="store_true", help="go on in the background once it is up")
        meaning = "where the server listens, on 127.0.0.1; 0 picks a free port" + _SHOWN
        add("--port", type=whole(0, 65535), default=PORT, metavar="PORT", help=meaning)
        add(
            "--tls",
            action="store_true",
            help="serve HTTPS; without a credential nothing is told then",
        )
        add(
            "--state",
            type=Path,
            metavar="FILE",
            help="keep the cluster in this file over a restart",
        )
        meaning = "where to write the kubeconfig; other clusters in the file stay" + _SHOWN
        kubeconfig = Path("lean-sandbox.kubeconfig")
        add("--kubeconfig", type=Path, default=kubeconfig, metavar="FILE", help=meaning)
        add("--nodes", type=whole(1), default=2, metavar="N", help="simulated nodes" + _SHOWN)
        add("--no-controller", action="store_true", help="start no controller: run your own")
        meaning = "after --: any flags of `lean-sandbox run`, for the controller"
        add("flags", nargs="*", metavar="FLAG", help=meaning)
    elif action == "status":
        parser.set_defaults(action=_status)
    elif action == "down":
        parser.set_defaults(action=_down)
        meaning = "where the server of the cluster listens" + _SHOWN
        add("--port", type=whole(0, 65535), default=PORT, metavar="PORT", help=meaning)
    else:
        parser.set_defaults(action=_example)
        meaning = "which manifest; a claim needs the pool" + _SHOWN
        names = ("sandbox", "pool", "claim")
        add("name", nargs="?", choices=names, default="sandbox", help=meaning)


def whole(least: int, most: int = 1_000_000) -> Callable[[str], int]:
    """Return what reads a whole number within these bounds."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
        return int(text)

    return read


def _up(
    given: argparse.Namespace,
    parser: argparse.ArgumentParser,
    metrics_of: MetricsOf,
) -> int:
    from lean_sandbox.local.kubelet.pods import KubeletSettings  # noqa: PLC0415
    from lean_sandbox.local.up import UpSettings  # noqa: PLC0415

    flags = ["--extensions", *given.flags]
    try:
        metrics, is_told = metrics_of(flags)
        if not (is_told or given.no_controller):
            # With port 0 several may start at once.
            port = _free_port(_METRICS_PORT if given.port else 0)
            flags.append(f"--metrics-bind-address={HOST}:{port}")
            metrics, _ = metrics_of(flags)
    except ConfigError as error:
        parser.error(str(error))
    if given.no_controller and given.flags:
        parser.error(f"{given.flags[0]} is for the controller, which --no-controller leaves out")
    settings = UpSettings(
        server=LocalSettings(port=given.port, tls=given.tls, state_file=given.state),
        kubelet=KubeletSettings(nodes=given.nodes),
        kubeconfig=given.kubeconfig.absolute(),
        controller=None if given.no_controller else flags,
        metrics="" if given.no_controller else metrics,
    )
    return _detach(settings) if given.detach else _run(settings, _say)


def _free_port(wanted: int) -> int:
    """Return the port that is wanted, or another one if somebody listens on it."""
    for port in (wanted, 0):
        try:
            with socket.create_server((HOST, port)) as server:
                found: int = server.getsockname()[1]
                return found
        except OSError as error:
            if not port:
                raise ConfigError(f"cannot listen on {HOST}: {error.strerror}") from error
    return 0


def _say(line: str) -> None:
    try:
        print(line, flush=True)  # noqa: T201 - this is the command's output
    except BrokenPipeError:
        # Nobody listens any more; the cluster goes on.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(settings: UpSettings, say: Say) -> int:
    import anyio  # noqa: PLC0415

    from lean_sandbox import log  # noqa: PLC0415
    from lean_sandbox.local.up import up  # noqa: PLC0415

    # In the background that is a file, whatever the terminal was.
    log.configure("info", "auto")
    anyio.run(functools.partial(up, settings, say=say))
    return 0


def _detach(settings: UpSettings) -> int:
    """Run the cluster in a process of its own; return when it is up, or has failed."""
    from lean_sandbox.local.files import OTHER_PLACE, make_folder, open_log  # noqa: PLC0415

    # Until it is up, the log of its name may be that of another one, which has the port.
    draft = make_folder() / f"local-{os.getpid()}.log"
    log = draft.with_name(f"local-{settings.server.port}.log") if settings.server.port else draft
    # A signal before the fork would leave the file behind, and one amid it would be lost.
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, ending())
    output = open_log(draft)
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(output)
        os.close(writing)
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
            with os.fdopen(reading, encoding="utf-8") as told:
                greeting = told.read()
        except KeyboardInterrupt:
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
            draft.unlink()
            raise
        if greeting:
            draft.replace(log)
            sys.stdout.write(greeting)
            return 0
        _, status = os.waitpid(child, 0)
        said = draft.read_text(encoding="utf-8", errors="replace")
        draft.unlink()
        code = os.waitstatus_to_exitcode(status)
        if not said:
            problem = f"the cluster has ended with code {code}, and nothing of why could be written"
            raise ConfigError(problem, source=str(draft), way_out=f"make room, or {OTHER_PLACE}")
        sys.stderr.write(said)
        return code
    signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
    os.setsid()
    for stream, of in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
        os.dup2(of, stream)
    told = os.fdopen(writing, "w", encoding="utf-8")

    def say(text: str) -> None:
        _say(text)
        if not told.closed:
            told.write(f"{text}\n")
            told.close()

    return _run(replace(settings, log=str(log)), say)


def _status(_given: argparse.Namespace) -> int:
    from lean_sandbox.local.files import clusters  # noqa: PLC0415

    found = clusters()
    for one in found:
        controller = "with its controller" if one.has_controller else "no controller"
        nodes = counted(one.nodes, "simulated node", "simulated nodes")
        _say(f"{one.url}: {nodes}, {controller}, process {one.pid}")
        _say(f"  kubeconfig: {one.kubeconfig}")
        if one.metrics:
            _say(f"  metrics: {one.metrics}")
        if one.log:
            _say(f"  log: {one.log}")
    if not found:
        _say(f"No local cluster runs. `{called()} local up` starts one.")
    return 0


def _down(given: argparse.Namespace) -> int:
    from lean_sandbox.local.files import clusters  # noqa: PLC0415

    def running() -> LocalCluster | None:
        return next((one for one in clusters() if one.port == given.port), None)

    found = running()
    if found is None:
        _say(f"No local cluster runs on port {given.port}. `{called()} local status` lists them.")
        return 0
    os.kill(found.pid, signal.SIGTERM)
    until = time.monotonic() + _PATIENCE_S
    while running() is not None:
        if time.monotonic() > until:
            raise ConfigError(
                f"process {found.pid} has not ended after {_PATIENCE_S:g} s",
                way_out=f"kill -9 {found.pid} ends it without a last save of its state",
            )
        time.sleep(0.05)
    _say(f"Stopped {found.url}.")
    if found.kubeconfig in os.environ.get("KUBECONFIG", "").split(os.pathsep):
        _say("KUBECONFIG still names its file: unset KUBECONFIG")
    return 0


def _example(given: argparse.Namespace) -> int:
    from lean_sandbox.local.files import EXAMPLES  # noqa: PLC0415

    sys.stdout.write(EXAMPLES[given.name])
    return 0
