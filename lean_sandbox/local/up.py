"""``lean-sandbox local up``: a whole cluster in one process, until Ctrl-C.

Starts the embedded control plane, simulated Nodes with their kubelet and, if one is handed in, the
controller; writes a kubeconfig, says what to type next, waits for SIGINT or SIGTERM, saves state.
"""

from __future__ import annotations

import contextlib
import os
import random
import shlex
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import TaskStatus

from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.kubeconfig import load
from lean_sandbox.kube.transport import Transport
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.local.kubelet import Kubelet, KubeletSettings
from lean_sandbox.version import __version__

StartController = Callable[[Path], Awaitable[None]]
"""Runs the controller against the cluster of a kubeconfig until it is cancelled."""
Say = Callable[[str], None]
"""Tells the user one line."""

_USER_AGENT = f"lean-sandbox-kubelet/{__version__}"


@dataclass(frozen=True, slots=True)
class UpSettings:
    """Options of the local cluster; ``seed`` repeats the simulated kubelet's delays."""

    server: LocalSettings = field(default_factory=LocalSettings)
    kubelet: KubeletSettings = field(default_factory=KubeletSettings)
    kubeconfig: Path = Path("lean-sandbox.kubeconfig")
    seed: int | None = None


async def up(
    settings: UpSettings,
    *,
    start_controller: StartController | None = None,
    say: Say | None = None,
    clock: Clock | None = None,
    task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Run the local cluster until SIGINT or SIGTERM; started, with its URL, once Pods can be made.

    ``say`` gets each line for the user; by default they are printed, with colours on a terminal.
    A controller that ends by itself leaves the cluster running; one that fails ends it, and its
    error is raised (in a group) after the state was saved. Raises OSError when the port is taken or
    a file cannot be written.
    """
    say = say or _speaker()
    clock = clock or SystemClock()
    async with ControlPlane(settings.server, clock=clock) as plane:
        kubeconfig = plane.kubeconfig(settings.kubeconfig)
        async with _client(kubeconfig, clock) as client, anyio.create_task_group() as group:
            chance = random.Random(settings.seed)  # noqa: S311 - delays, not secrets
            kubelet = Kubelet(client, settings.kubelet, clock=clock, chance=chance)
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                await group.start(kubelet.run)
                if start_controller is not None:
                    group.start_soon(_control, start_controller, kubeconfig, say)
                for line in _greeting(
                    settings, plane.url, has_controller=start_controller is not None
                ):
                    say(line)
                task_status.started(plane.url)
                async for received in signals:
                    say(f"{received.name}: stopping")
                    break
            group.cancel_scope.cancel()
    if settings.server.state_file is not None:
        say(f"State saved to {settings.server.state_file}; the next start continues with it.")


async def _control(start_controller: StartController, kubeconfig: Path, say: Say) -> None:
    await start_controller(kubeconfig)
    say("The controller has ended; the cluster runs on without it.")


@asynccontextmanager
async def _client(kubeconfig: Path, clock: Clock) -> AsyncIterator[Client]:
    transport = Transport(load(str(kubeconfig)), clock=clock, user_agent=_USER_AGENT)
    try:
        yield Client(transport, field_manager="kubelet")
    finally:
        await transport.aclose()


def _greeting(settings: UpSettings, url: str, *, has_controller: bool) -> list[str]:
    file = shlex.quote(os.fspath(settings.kubeconfig.absolute()))
    lines = [
        f"Cluster is up at {url} with {settings.kubelet.nodes} simulated nodes"
        + (" and the controller." if has_controller else "; no controller runs."),
        "",
        "Next, in another terminal:",
        f"  export KUBECONFIG={file}",
        "  kubectl get nodes",
        "  kubectl run web --image=nginx && kubectl wait --for=condition=Ready pod/web",
    ]
    if has_controller:
        lines.append("  kubectl get sandboxes,sandboxclaims,sandboxwarmpools")
    else:
        lines.append(f"  lean-sandbox run --kubeconfig {file}")
    return [*lines, "", "Ctrl-C stops it."]


def _speaker() -> Say:
    """Return how to talk to the user: rich where it is there and someone looks, else plainly."""
    with contextlib.suppress(ImportError):
        from rich.console import Console  # noqa: PLC0415 - a luxury, and slow to import

        console = Console(highlight=True, soft_wrap=True)
        if console.is_terminal:
            return lambda line: console.print(line, markup=False)
    return lambda line: print(line, flush=True)  # noqa: T201 - this is the command's output
