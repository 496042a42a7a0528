"""Where the scenarios play: a server, what moves its Pods, namespaces, and the controller.

All processes are started here and ended here; namespaces are deleted here, also after Ctrl-C.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from lean_sandbox.bench import bodies
from lean_sandbox.bench.connecting import flags, open_client
from lean_sandbox.bench.nodes import NODE_PREFIX, Serving
from lean_sandbox.bench.options import BenchOptions, UsageError
from lean_sandbox.bench.plane import KUBECONFIG, Listening
from lean_sandbox.bench.preflight import require_kinds, version_of
from lean_sandbox.bench.process import BenchError, Worker, process
from lean_sandbox.bench.report import Server
from lean_sandbox.bench.subject import Subject, open_subject, process_usage
from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import (
    ConfigError,
    ControlPlaneError,
    NotFound,
)
from lean_sandbox.kube.resources import (
    NAMESPACES,
    NODES,
    SANDBOXES,
    SANDBOXTEMPLATES,
    SANDBOXWARMPOOLS,
    Resource,
)
from lean_sandbox.kube.wire import Page, PartialObject

_SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_NODES = 4
_START_S = 60.0
_POLL_S = 0.05
_GONE_POLL_S = 0.5
_ACCOUNT_S = 10.0
_GOODBYE_S = 20.0
_PROBE_S = 2.0


@dataclass
class Stage:
    """The server of a run and everything on it that belongs to the run."""

    options: BenchOptions
    clock: Clock
    client: Client
    server: Server
    kubeconfig: str
    context: str
    plane: Worker | None
    folder: Path
    progress: Callable[[str], None]
    has_kubelet: bool

    @property
    def connection_arguments(self) -> tuple[str, str]:
        """Kubeconfig and context, for the bench's own processes."""
        return (self.kubeconfig, self.context)

    @asynccontextmanager
    async def namespace(self, scenario: str) -> AsyncIterator[str]:
        """Make a namespace; it is deleted with all that is in it, and awaited, at the end.

        When the run is being given up, it is deleted without waiting.
        """
        name = f"{self.options.namespace}-{scenario}-{secrets.token_hex(3)}"
        await self.client.create(NAMESPACES, None, bodies.namespace(name), bytes)
        try:
            if not self.options.is_embedded:
                await self._until_account(name)
            yield name
        except BaseException:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_GOODBYE_S):
                await self._delete(name)
            raise
        await self._delete(name)
        await self._until_gone(name)

    @asynccontextmanager
    async def controller(self) -> AsyncIterator[Subject]:
        """Start the controller, or take the one that runs already.

        Yields once its caches are in sync. Raises BenchError when that takes too long, UsageError
        when the process that was named is not there.
        """
        options = self.options
        if options.is_against:
            try:
                process_usage(options.against_pid)
            except BenchError as error:
                raise UsageError(f"--against {options.against_pid}: {error}") from error
            async with open_subject(
                self.clock, pid=options.against_pid, metrics_url=options.against_url
            ) as subject:
                yield subject
            return
        async with self.starting() as (worker, url):
            began = self.clock.monotonic()
            await self.until_logged(worker, "caches_synced", began)
            async with open_subject(
                self.clock, pid=worker.pid, metrics_url=url, plane=self.plane
            ) as subject:
                yield subject

    @asynccontextmanager
    async def starting(self) -> AsyncIterator[tuple[Worker, str]]:
        """Start the controller; yields its process and the address of its metrics at once."""
        command = (
            *("run", *flags(self.kubeconfig, self.context), "--extensions", "--log-format=json"),
            # As in a cluster with its listeners open, but on ports that nobody has.
            *("--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"),
            # The run has looked for company itself; in a cluster the Lease decides.
            "--allow-second-controller",
            *self.options.controller_flags,
        )
        log = self.folder / f"controller-{secrets.token_hex(3)}.log"
        async with process("lean_sandbox.cli", *command, log=log) as worker:
            line = await self.until_logged(worker, "listening", self.clock.monotonic())
            yield worker, f"http://127.0.0.1:{line['metrics']}/metrics"

    async def until_logged(self, worker: Worker, event: str, began: float) -> dict[str, object]:
        """Wait for a line of the controller's log. Raises BenchError with the end of the log."""
        while True:
            for line in worker.log().splitlines():
                if f'"{event}"' in line:
                    found: dict[str, object] = json.loads(line)
                    return found
            if worker.started.returncode is not None or self.clock.monotonic() - began > _START_S:
                raise worker.failed(f"(the controller) did not say {event!r}")
            await self.clock.sleep(_POLL_S)

    async def _delete(self, name: str) -> None:
        try:
            await self.client.delete(NAMESPACES, None, name)
        except NotFound:
            return
        except ControlPlaneError as error:
            # There is nothing more that can be done about it than to say so.
            self.progress(f"the namespace {name} could not be deleted: {error}")

    async def _until_gone(self, name: str) -> None:
        deadline = self.clock.monotonic() + self.options.wait
        while await self.client.find(NAMESPACES, None, name, PartialObject) is not None:
            if self.clock.monotonic() > deadline:
                raise BenchError(
                    f"waited {self.options.wait:g} s for the namespace {name} to be gone"
                )
            await self.clock.sleep(_GONE_POLL_S)

    async def _until_account(self, name: str) -> None:
        """Give a controller manager time to make what Pods need; not every server has one."""
        deadline = self.clock.monotonic() + _ACCOUNT_S
        while self.clock.monotonic() < deadline:
            if await self.client.find(_SERVICE_ACCOUNTS, name, "default", PartialObject):
                return
            await self.clock.sleep(_POLL_S)

    async def refuse_company(self) -> None:
        """Raise UsageError when a controller already serves this server."""
        async with self.namespace("probe") as name:
            await self.client.create(SANDBOXTEMPLATES, name, bodies.template(), bytes)
            await self.client.create(SANDBOXWARMPOOLS, name, bodies.pool(1), bytes)
            await self.clock.sleep(_PROBE_S)
            if (await self.client.list_page(SANDBOXES, name, Page[PartialObject])).items:
                raise UsageError(
                    "a controller already serves this server: measure it with --against, or stop it"
                )


@asynccontextmanager
async def open_stage(
    options: BenchOptions, clock: Clock, progress: Callable[[str], None]
) -> AsyncIterator[Stage]:
    """Start, or connect to, the server of a run.

    Raises UsageError for a server that cannot be used, BenchError when a process fails.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="lean-sandbox-bench-")))
        plane: Worker | None = None
        kubeconfig, context = options.kubeconfig, options.context
        if options.is_embedded:
            progress("starting an embedded control plane")
            plane = await stack.enter_async_context(
                process("lean_sandbox.bench.plane", "0", str(folder), log=folder / "plane.log")
            )
            await plane.read(Listening)
            kubeconfig = str(folder / KUBECONFIG)
        try:
            client = await stack.enter_async_context(
                open_client(
                    kubeconfig,
                    context,
                    clock,
                    agent="bench-load",
                    in_flight=options.load_in_flight + 2,
                )
            )
        except ConfigError as error:
            raise UsageError(str(error)) from error
        server = Server(
            "embedded" if options.is_embedded else "kubeconfig", await version_of(client)
        )
        stage = Stage(
            options=options,
            clock=clock,
            client=client,
            server=server,
            kubeconfig=kubeconfig,
            context=context,
            plane=plane,
            folder=folder,
            progress=progress,
            has_kubelet=options.is_embedded or options.kubelet,
        )
        await require_kinds(client)
        if stage.has_kubelet:
            await stack.enter_async_context(_kubelet(stage))
        if not options.is_embedded and not options.is_against:
            await stage.refuse_company()
        yield stage


@asynccontextmanager
async def _kubelet(stage: Stage) -> AsyncIterator[None]:
    """Run the simulated kubelet; on a server that stays, its Nodes go with it."""
    arguments = (*stage.connection_arguments, str(_NODES))
    log = stage.folder / "kubelet.log"
    async with process("lean_sandbox.bench.nodes", *arguments, log=log) as kubelet:
        await kubelet.read(Serving)
        try:
            yield
        finally:
            if not stage.options.is_embedded:
                with anyio.CancelScope(shield=True), anyio.move_on_after(_GOODBYE_S):
                    await _delete_nodes(stage)


async def _delete_nodes(stage: Stage) -> None:
    for number in range(_NODES):
        try:
            await stage.client.delete(NODES, None, f"{NODE_PREFIX}-{number}")
        except ControlPlaneError as error:
            stage.progress(f"the Node {NODE_PREFIX}-{number} could not be deleted: {error}")
