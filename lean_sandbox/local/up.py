"""``lean-sandbox local up``: a whole cluster, until Ctrl-C.

Starts the embedded control plane, simulated Nodes with their kubelet and, if it is wanted, the
controller: `lean-sandbox run`, in a process of its own. Writes a kubeconfig, says what to type
next, waits for the signal to end, saves the state.
"""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import Process, TaskStatus

from lean_sandbox import signals
from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.errors import ConfigError
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.kubeconfig import load
from lean_sandbox.kube.transport import Transport
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.local.files import (
    NAME,
    LocalCluster,
    clusters,
    current_context,
    listed,
    restorer_of,
)
from lean_sandbox.local.kubelet.kubelet import Kubelet
from lean_sandbox.local.kubelet.pods import KubeletSettings
from lean_sandbox.local.request import AuditEntry
from lean_sandbox.program import called
from lean_sandbox.version import __version__
from lean_sandbox.words import counted

Say = Callable[[str], None]

_USER_AGENT = f"lean-sandbox-kubelet/{__version__}"
_CONTROLLER_AGENT = "lean-sandbox/"
# Flags of every controller here, before those of the user: 3 MiB for `lean-sandbox trace`.
_FLAGS = ("--trace-entries=10000", "--health-probe-bind-address=0")
# Runs a command that Linux ends with this process, however that ends: a controller that is left
# behind would serve the next cluster on this port beside the one of its own.
_BOUND = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
bind = getattr(ctypes.CDLL(None), "prctl", None)
bind and bind(PR_SET_PDEATHSIG, signal.SIGTERM)
os.execv(sys.argv[1], sys.argv[1:])
"""
_GRACE_S = 25.0
_AUDIT_ENTRIES = 1000  # Nobody counts requests here; the memory of tests would be in the way.


@dataclass(frozen=True, slots=True)
class UpSettings:
    """Options of the local cluster."""

    server: LocalSettings = field(default_factory=LocalSettings)
    kubelet: KubeletSettings = field(default_factory=KubeletSettings)
    kubeconfig: Path = Path("lean-sandbox.kubeconfig")
    controller: Sequence[str] | None = None
    """Flags of `lean-sandbox run`; None starts no controller."""
    log: str = ""  # Of a cluster in the background.
    metrics: str = ""  # Where the controller serves them.


async def up(
    settings: UpSettings,
    *,
    say: Say = print,
    task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Run the local cluster until it is told to end; started, with its URL, once Pods can be made.

    The first that ``say`` gets is what to do next. A controller that ends by itself leaves the
    cluster running; one that fails ends it, after the state was saved, and raises ConfigError, as
    do a port that is taken and a file that cannot be read or written. A start that fails leaves the
    kubeconfig as it was.
    """
    clock = SystemClock()
    _check_unused(settings)
    async with (
        AsyncExitStack() as undo,
        AsyncExitStack() as ends,
        ControlPlane(settings.server, clock=clock) as plane,
    ):
        plane.audit.keep(_AUDIT_ENTRIES)
        undo.callback(restorer_of(settings.kubeconfig))
        plane.kubeconfig(settings.kubeconfig)

        def greet() -> None:
            cluster = _described(settings, plane.url)
            # Until the state is saved and the port is free: `local down` waits for that.
            ends.enter_context(listed(cluster))
            undo.pop_all()
            say(_greeting(cluster))
            task_status.started(plane.url)

        code = await _live(plane, settings, clock, greet, say)
    if settings.server.state_file is not None:
        say(f"State saved to {settings.server.state_file}; the next start continues with it.")
    _check_code(code)


async def _live(
    plane: ControlPlane, settings: UpSettings, clock: Clock, greet: Callable[[], None], say: Say
) -> int:
    """Run nodes and controller until a signal, or until the controller fails; return its code.

    ``greet`` is called once Pods can be made, and before it nothing is said.
    """
    watching = _first_watch(plane)
    connection = load(str(settings.kubeconfig), NAME)
    transport = Transport(connection, clock=clock, user_agent=_USER_AGENT)
    is_up = False
    code = 0
    async with aclosing(transport), anyio.create_task_group() as group:
        client = Client(transport, field_manager="kubelet")
        kubelet = Kubelet(client, settings.kubelet, clock=clock, chance=random.Random())  # noqa: S311

        async def control(process: Process) -> None:
            nonlocal code
            code = await process.wait()
            if code:
                group.cancel_scope.cancel()
            elif is_up:
                say("The controller has ended; the cluster runs on without it.")

        async def hear(arriving: AsyncIterator[signal.Signals]) -> None:
            received = await anext(arriving)
            if is_up:
                say(f"{received.name}: stopping")
            group.cancel_scope.cancel()

        with anyio.open_signal_receiver(*signals.ending()) as arriving:
            group.start_soon(hear, arriving)
            await group.start(kubelet.run)
            async with _controller(settings) as process:
                if process is not None:
                    group.start_soon(control, process)
                    await clock.wait(watching, _GRACE_S)
                greet()
                is_up = True
                await anyio.sleep_forever()
    return code


def _first_watch(plane: ControlPlane) -> anyio.Event:
    """Return an event that is set once the controller watches: it has refused nothing then."""
    watching = anyio.Event()

    def see(entry: AuditEntry) -> None:
        if entry.verb == "watch" and entry.user_agent.startswith(_CONTROLLER_AGENT):
            watching.set()

    plane.audit.listeners.append(see)
    return watching


def _described(settings: UpSettings, url: str) -> LocalCluster:
    """Return what other commands are told of this cluster."""
    state = settings.server.state_file
    return LocalCluster(
        pid=os.getpid(),
        port=int(url.rpartition(":")[2]),
        url=url,
        kubeconfig=str(settings.kubeconfig),
        nodes=settings.kubelet.nodes,
        has_controller=settings.controller is not None,
        log=settings.log,
        metrics=settings.metrics,
        state=str(state.absolute()) if state is not None else "",
    )


def _check_code(code: int) -> None:
    """Raise ConfigError if this code says that the controller has failed."""
    if code < 0:
        raise ConfigError(f"somebody has ended the controller by {signal.Signals(-code).name}")
    if code:
        raise ConfigError(
            f"the controller ended with code {code}; it says above why",
            way_out="flags for it go after --, as in"
            f" {called()} local up -- --metrics-bind-address=127.0.0.1:9090",
        )


def _check_unused(settings: UpSettings) -> None:
    """Raise ConfigError if a cluster that runs has the kubeconfig or the state of this one."""
    for one in clusters():
        for what, mine, theirs in (
            ("kubeconfig", settings.kubeconfig, one.kubeconfig),
            ("state", settings.server.state_file, one.state),
        ):
            if mine and theirs and os.path.realpath(mine) == os.path.realpath(theirs):
                raise ConfigError(
                    f"this is the {what} of the cluster at {one.url}",
                    source=str(mine),
                    way_out=f"name another file with --{what}, or stop that cluster: "
                    f"{called()} local down --port {one.port}",
                )


@asynccontextmanager
async def _controller(settings: UpSettings) -> AsyncIterator[Process | None]:
    """Start the controller; at the end stop it while the server still answers."""
    if settings.controller is None:
        yield None
        return
    # Last, so that no flag of the user leads to another cluster.
    where = ("--kubeconfig", str(settings.kubeconfig), "--context", NAME)
    run = (sys.executable, "-m", "lean_sandbox", "run", *_FLAGS, *settings.controller, *where)
    process = await anyio.open_process(
        [sys.executable, "-c", _BOUND, *run],
        stdin=subprocess.DEVNULL,
        stdout=None,
        stderr=None,
        # Ctrl-C is for this process, which then stops the controller.
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.terminate()
            with anyio.move_on_after(_GRACE_S):
                await process.wait()
            if process.returncode is None:
                process.kill()


def _greeting(cluster: LocalCluster) -> str:
    file = shlex.quote(cluster.kubeconfig)
    program = called(elsewhere=not cluster.log)
    nodes = counted(cluster.nodes, "simulated node", "simulated nodes")
    lines = [
        f"Cluster is up at {cluster.url} with {nodes}"
        + (" and the controller." if cluster.has_controller else "; no controller runs."),
        "No image is pulled and no container runs: docs/local.md says what works.",
        "",
        "Next:" if cluster.log else "Next, in another terminal:",
        f"  export KUBECONFIG={file}",
    ]
    if current_context(Path(cluster.kubeconfig)) != NAME:
        lines.append(f"  kubectl config use-context {NAME}")
    if not cluster.has_controller:
        lines.append(f"  {program} run --extensions --kubeconfig {file} --context {NAME}")
    lines += [
        f"  {program} local example | kubectl apply -f -",
        "  kubectl wait --for=condition=Ready sandbox/code-interpreter",
    ]
    if cluster.metrics:
        lines.append(f"  {program} top --url {cluster.metrics}")
        lines.append(f"  {program} trace sandbox code-interpreter --url {cluster.metrics}")
    end = f"`{program} local down --port {cluster.port}` stops it. Its log: {cluster.log}"
    return "\n".join([*lines, "", end if cluster.log else "Ctrl-C stops it."])
