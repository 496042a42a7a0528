"""What a run happens in: a server, what moves its Pods, namespaces, and the controller.

All processes are started here and ended here; namespaces are deleted here, also after Ctrl-C.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import msgspec

from lean_sandbox.bench import load
from lean_sandbox.bench.arithmetic import per_item, percentile
from lean_sandbox.bench.controller import Cost, MeasuredController
from lean_sandbox.bench.load import Load
from lean_sandbox.bench.options import BenchError, BenchOptions
from lean_sandbox.bench.report import Report, ScenarioReport, Screen, Server
from lean_sandbox.bench.workers import (
    KUBECONFIG,
    NODE_PREFIX,
    NODES,
    Worker,
    open_client,
    process,
    process_usage,
    worker,
)
from lean_sandbox.clock import Clock
from lean_sandbox.config.sources import UsageError
from lean_sandbox.errors import ConfigError
from lean_sandbox.kube import resources
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import ControlPlaneError, NotFound, NotServed
from lean_sandbox.kube.kubeconfig import load as load_connection
from lean_sandbox.kube.resources import (
    NAMESPACES,
    PODS,
    SANDBOXCLAIMS,
    SANDBOXES,
    PartialObject,
    Resource,
)
from lean_sandbox.program import called

_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_POLL_S = 0.05
_POLL_S = 0.25
_ACCOUNT_S = 10.0
_GOODBYE_S = 20.0
_PROBE_S = 2.0


@dataclass
class Environment:
    """The server of a run and everything on it that belongs to the run."""

    options: BenchOptions
    clock: Clock
    client: Client
    report: Report
    kubeconfig: str
    folder: Path
    screen: Screen
    kept: AsyncExitStack
    """Holds what outlasts a scenario, until the end of the run."""
    measured: MeasuredController = field(init=False)
    """The controller of the scenario that runs."""
    over: str = ""
    """The namespace of the Sandboxes that some scenarios share, once it is there."""

    @asynccontextmanager
    async def namespace(self, scenario: str, token: str = "") -> AsyncIterator[str]:
        """Make a namespace and delete it at the end; a run that is given up does not await that."""
        name = f"{self.options.namespace}-{scenario}-{token or secrets.token_hex(3)}"
        made = load.manifest(NAMESPACES, name, labels={load.MARK: "bench"})
        await self.client.create(NAMESPACES, made, bytes)
        try:
            if not self.options.is_embedded:
                # What Pods need there is made by a controller manager, which not every server has.
                with anyio.move_on_after(_ACCOUNT_S):
                    while not await self.client.get(
                        _ACCOUNTS, "default", PartialObject, namespace=name
                    ):
                        await self.clock.sleep(_POLL_S)
            yield name
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_GOODBYE_S):
                await self.delete(NAMESPACES, name)

        async def left() -> str:
            found = await self.client.get(NAMESPACES, name, PartialObject)
            return "" if found is None else f"the namespace {name} to be gone"

        await self.until(left)

    async def delete(self, resource: Resource, name: str) -> None:
        """Delete what was made; where that fails there is nothing more to do than to say so."""
        try:
            await self.client.delete(resource, name)
        except NotFound:
            return
        except ControlPlaneError as error:
            self.screen.progress(f"the {resource.kind} {name} could not be deleted: {error}")

    @asynccontextmanager
    async def controller(self) -> AsyncIterator[None]:
        """Start the controller and wait for its caches, or take the one that runs already."""
        if not self.options.against:
            async with self.starting("--extensions") as started:
                await started.until_logged("caches_synced")
                yield
            return
        pid = self.options.against_pid
        url = self.options.against_url
        try:
            process_usage(pid)
        except BenchError as error:
            raise UsageError(f"--against {pid}: {error}") from error
        self.measured = MeasuredController(self.clock, self.options.quiet, pid, url)
        yield

    @asynccontextmanager
    async def starting(self, *flags: str) -> AsyncIterator[Worker]:
        """Start the controller with some flags more; yields once it serves its metrics."""
        command = (
            *("run", "--log-format=json", *flags),
            *("--kubeconfig", self.kubeconfig, "--context", self.options.context),
            # As in a cluster with its listeners open, but on ports that nobody has.
            *("--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"),
            # The run has looked for company itself; in a cluster the Lease decides.
            "--allow-second-controller",
            *self.options.controller_flags,
        )
        log = self.folder / f"controller-{secrets.token_hex(3)}.log"
        async with process("lean_sandbox", *command, log=log) as started:
            line = await started.until_logged("listening")
            url = f"http://127.0.0.1:{line['metrics']}/metrics"
            self.measured = MeasuredController(self.clock, self.options.quiet, started.pid, url)
            yield started

    @asynccontextmanager
    async def load(self, resource: Resource, where: str, **metadata: Any) -> AsyncIterator[Load]:
        """Yield what makes objects of a kind and, in the block, sees what becomes of them."""
        made = Load(self.client, self.clock, self.options, resource, where, metadata)
        follow = partial(load.following, self.client, self.clock)
        async with AsyncExitStack() as watches:
            if resource == SANDBOXCLAIMS:
                pods = follow(PODS, where, PartialObject, made.see_pod)
                await watches.enter_async_context(pods)
            await watches.enter_async_context(follow(resource, where, load.Seen, made.see))
            yield made

    async def until(self, missing: Callable[[], Awaitable[str]]) -> None:
        """Wait until nothing is missing any more. Raises BenchError, which says what was."""
        deadline = self.clock.monotonic() + self.options.wait
        while what := await missing():
            if self.clock.monotonic() > deadline:
                raise BenchError(f"waited {self.options.wait:g} s for {what}")
            await self.clock.sleep(_POLL_S)

    async def make_full_pool(self, where: str, pool: int) -> None:
        """Make a pool with its template and wait until it is full. Raises BenchError."""
        await load.make_template(self.client, where)
        await load.make_pool(self.client, where, pool)
        await self.until_full(where, pool)

    async def until_full(self, where: str, pool: int) -> None:
        """Wait until the pool says that so many members are Ready. Raises BenchError."""

        async def missing() -> str:
            ready = await load.ready_members(self.client, where)
            if ready >= pool:
                return ""
            return f"a pool of {pool}, of which {ready} became Ready{self.options.advice}"

        await self.until(missing)

    @asynccontextmanager
    async def stretch(
        self, name: str, items: int, made: Load | None = None, **figures: float | None
    ) -> AsyncIterator[ScenarioReport]:
        """Report what the block, and the rest that follows, cost for each of ``items``.

        Reported is also what a client saw of what was ``made``.
        """
        report = ScenarioReport(name=name, figures=figures)
        before = await self.measured.begin()
        yield report
        if made is not None:
            await add_latencies(report, made)
        await self.measured.until_idle(f"the scenario {name}")
        cost = await self.charge(report, before)
        report.figures |= {
            "requests_each": per_item(cost.total, items),
            "requests_each_without_events": per_item(cost.without_events, items),
            "writes_each": per_item(cost.writes, items),
            "conflicts": cost.conflicts,
            "caught_by_net": cost.caught,
            "cpu_ms_each": per_item(cost.cpu_ms, items),
            "received_kib_each": per_item(cost.received_kib, items),
            "rss_mib": cost.rss_mib,
        }
        self.add(report)

    async def charge(self, report: ScenarioReport, before: Cost) -> Cost:
        """Add the requests since ``before`` to a report; return all that was counted."""
        cost = await self.measured.end(before)
        report.requests = cost.by_kind()
        report.failures = cost.failures()
        return cost

    def add(self, one: ScenarioReport) -> None:
        """Add what a scenario found to the report of the run."""
        self.report.scenarios.append(one)
        claims = one.figures.get("claims")
        not_usable = one.figures.get("not_usable")
        if claims and not_usable:
            never_ready = claims - (one.figures.get("ready") or 0)
            self.report.notes.append(
                f"{one.name}: {not_usable:g} of {claims:g} claims were never usable,"
                f" {never_ready:g} of them never Ready; what never was is in no percentile"
            )


async def add_latencies(report: ScenarioReport, load_: Load) -> None:
    """Add to a report what a client saw of the objects it made, once claims are usable."""
    made = load_.made.values()
    if load_.resource == SANDBOXCLAIMS:
        await load_.until_usable()
        usable_ms = [one.usable_ms for one in made if one.usable_ms is not None]
        lags_ms = [one.lag_ms for one in made]
        report.usable_ms = usable_ms
        report.figures |= {
            "not_usable": len(made) - len(usable_ms),
            "usable_p50_ms": percentile(usable_ms, 50),
            "usable_p90_ms": percentile(usable_ms, 90),
            "usable_p99_ms": percentile(usable_ms, 99),
            "lag_p50_ms": percentile(lags_ms, 50),
            "lag_max_ms": percentile(lags_ms, 100),
        }
    ready_ms = report.ready_ms = [one.ready_ms for one in made if one.ready_ms is not None]
    answered_ms = [one.answered_ms for one in made]
    report.figures |= {
        "ready": len(ready_ms),
        "p50_ms": percentile(ready_ms, 50),
        "p90_ms": percentile(ready_ms, 90),
        "p99_ms": percentile(ready_ms, 99),
        "max_ms": percentile(ready_ms, 100),
        "ack_p50_ms": percentile(answered_ms, 50),
        "ack_p99_ms": percentile(answered_ms, 99),
    }


@asynccontextmanager
async def open_environment(
    options: BenchOptions, clock: Clock, screen: Screen
) -> AsyncIterator[Environment]:
    """Start, or connect to, the server of a run, with what moves its Pods."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="lean-sandbox-bench-")))
        kubeconfig = options.kubeconfig
        if options.is_embedded:
            screen.progress("starting an embedded control plane")
            await stack.enter_async_context(worker("api-server", str(folder), folder=folder))
            kubeconfig = str(folder / KUBECONFIG)
        try:
            connection = load_connection(kubeconfig or None, options.context or None, clock=clock)
        except ConfigError as error:
            raise UsageError(str(error)) from error
        in_flight = options.load_in_flight + 2
        client = await stack.enter_async_context(
            open_client(connection, clock, agent="bench-load", in_flight=in_flight)
        )
        kind = "embedded" if options.is_embedded else "kubeconfig"
        report = Report(server=Server(kind, await _version_of(client)))
        env = Environment(options, clock, client, report, kubeconfig, folder, screen, stack)
        if options.is_embedded or options.kubelet:
            await stack.enter_async_context(
                worker("kubelet", kubeconfig, options.context, folder=folder)
            )
        if options.kubelet:
            stack.push_async_callback(_delete_nodes, env)
        if not options.is_embedded and not options.against:
            await _refuse_company(env)
        yield env


async def _delete_nodes(env: Environment) -> None:
    """Delete the Nodes of the simulated kubelet, which runs until they are gone."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(_GOODBYE_S):
        for number in range(NODES):
            await env.delete(resources.NODES, f"{NODE_PREFIX}-{number}")


async def _version_of(client: Client) -> str:
    """Return the version a server tells, if any. Raises UsageError for one without the kinds."""
    try:
        answer = await client.transport.request("GET", "/version", timeout_s=10.0)
        for resource in (SANDBOXES, SANDBOXCLAIMS):
            await client.list(resource, bytes, chunk_size=1)
        return msgspec.json.decode(answer.body, type=dict[str, str]).get("gitVersion", "")
    except (NotServed, NotFound) as error:
        way_out = f"{called()} crds | kubectl apply --server-side -f -"
        raise UsageError(f"the server does not know {error.asked.resource}: {way_out}") from error
    except ControlPlaneError as error:
        server = client.transport.connection.server
        raise UsageError(f"the server {server} cannot be reached or used: {error}") from error
    except msgspec.MsgspecError:
        return ""


async def _refuse_company(env: Environment) -> None:
    """Raise UsageError when a controller already serves this server."""
    async with env.namespace("probe") as where:
        await load.make_template(env.client, where)
        await load.make_pool(env.client, where, 1)
        await env.clock.sleep(_PROBE_S)
        if await load.count(env.client, SANDBOXES, where):
            raise UsageError(
                "a controller already serves this server: measure it with --against, or stop it"
            )
