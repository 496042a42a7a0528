"""Scenarios of Sandboxes without a pool: cold, idle, restart; and bare Pods beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import anyio
import msgspec

from lean_sandbox.bench import bodies
from lean_sandbox.bench.connecting import connected
from lean_sandbox.bench.counts import Snapshot
from lean_sandbox.bench.load import (
    charge,
    in_milliseconds,
    latencies_of,
    latency_figures,
    send,
    until_ready,
    watching,
)
from lean_sandbox.bench.plane import Asked
from lean_sandbox.bench.report import Sample, ScenarioReport
from lean_sandbox.bench.seen import Readiness
from lean_sandbox.bench.stage import Stage
from lean_sandbox.bench.subject import (
    Mark,
    Subject,
    open_subject,
    process_usage,
)
from lean_sandbox.kube.config import load
from lean_sandbox.kube.resources import (
    NETWORKPOLICIES,
    PODS,
    SANDBOXCLAIMS,
    SANDBOXES,
    SANDBOXTEMPLATES,
    SANDBOXWARMPOOLS,
    SERVICES,
)
from lean_sandbox.kube.wire import ListMeta
from lean_sandbox.model.times import parse_rfc3339

_SAMPLE_S = 0.5
_PAGE_SIZE = 250
# The counters of a process that has just been started.
_BIRTH = Mark(Snapshot(requests=Counter(), received_bytes=0.0, cpu_s=0.0))
_LISTED = (
    SANDBOXES,
    PODS,
    SERVICES,
    SANDBOXCLAIMS,
    SANDBOXTEMPLATES,
    SANDBOXWARMPOOLS,
    NETWORKPOLICIES,
)


class _Head(msgspec.Struct, frozen=True):
    metadata: ListMeta


async def run_pods(stage: Stage) -> ScenarioReport:
    """Bare Pods, as many as Sandboxes: what a server and its kubelets take for themselves."""
    count = stage.options.sandboxes
    async with stage.namespace("pods") as namespace, watching(stage, PODS, namespace) as seen:
        began = stage.clock.monotonic()
        names = [f"s{number}" for number in range(count)]
        sent = await send(stage, PODS, namespace, names, bodies.pod)
        await until_ready(stage, seen, count, "bare Pods")
        seconds = stage.clock.monotonic() - began
        latencies_s = latencies_of(sent, seen)
        figures: dict[str, float | None] = {"pods": count, "seconds": round(seconds, 2)}
        return ScenarioReport(
            name="pods",
            figures=figures | latency_figures(sent, latencies_s),
            latencies_ms=in_milliseconds(latencies_s),
        )


async def launch(stage: Stage, namespace: str) -> None:
    """Make the Sandboxes that others are measured over, unmeasured."""
    count = stage.options.sandboxes
    async with watching(stage, SANDBOXES, namespace) as seen:
        names = [f"s{number}" for number in range(count)]
        await send(stage, SANDBOXES, namespace, names, bodies.sandbox)
        await until_ready(stage, seen, count, "Sandboxes")


async def run_cold(stage: Stage, subject: Subject, namespace: str) -> ScenarioReport:
    """Sandboxes without a pool, all at once. They stay for idle and restart."""
    count = stage.options.sandboxes
    await subject.quiet(stage.options.quiet, "its start")
    samples: list[Sample] = []
    async with watching(stage, SANDBOXES, namespace) as seen, anyio.create_task_group() as group:
        mark = await subject.begin()
        began = stage.clock.monotonic()
        group.start_soon(_sample, stage, subject, seen, samples)
        names = [f"s{number}" for number in range(count)]
        sent = await send(stage, SANDBOXES, namespace, names, bodies.sandbox)
        await until_ready(stage, seen, count, "Sandboxes")
        seconds = stage.clock.monotonic() - began
        await subject.quiet(stage.options.quiet, "a launch of Sandboxes")
        group.cancel_scope.cancel()
    cost, audit_differs = await subject.end(mark)
    latencies_s = latencies_of(sent, seen)
    figures: dict[str, float | None] = {"sandboxes": count, "seconds": round(seconds, 2)}
    report = ScenarioReport(
        name="cold",
        figures=figures | latency_figures(sent, latencies_s),
        latencies_ms=in_milliseconds(latencies_s),
        samples=samples,
    )
    charge(report, cost, count, audit_differs)
    return report


async def _sample(stage: Stage, subject: Subject, seen: Readiness, samples: list[Sample]) -> None:
    began = stage.clock.monotonic()
    first = process_usage(subject.pid).cpu_s
    while True:
        usage = process_usage(subject.pid)
        samples.append(
            Sample(
                at_s=round(stage.clock.monotonic() - began, 2),
                sandboxes=len(seen.ready_at),
                cpu_s=None
                if usage.cpu_s is None or first is None
                else round(usage.cpu_s - first, 2),
                rss_mib=None if usage.rss_kib is None else round(usage.rss_kib / 1024, 1),
            )
        )
        await stage.clock.sleep(_SAMPLE_S)


async def run_idle(stage: Stage, subject: Subject) -> ScenarioReport:
    """Nothing happens: requests and CPU."""
    await subject.quiet(stage.options.quiet, "what came before")
    mark = await subject.begin()
    began = stage.clock.monotonic()
    await stage.clock.sleep(stage.options.idle_seconds)
    seconds = stage.clock.monotonic() - began
    cost, audit_differs = await subject.end(mark)
    return ScenarioReport(
        name="idle",
        figures={
            "sandboxes": stage.options.sandboxes,
            "requests": cost.total,
            "cpu_ms_per_s": None if cost.cpu_ms is None else round(cost.cpu_ms / seconds, 2),
            "rss_mib": cost.rss_mib,
        },
        requests=cost.by_kind(),
        audit_differs=audit_differs,
    )


async def run_restart(stage: Stage) -> ScenarioReport:
    """Start the controller over the Sandboxes that are there, until it rests.

    ``quiet_s`` begins before the process does and so includes its imports.
    """
    listing_s = await _list_everything(stage)
    if stage.plane is not None:
        await stage.plane.ask(Asked)
    began, began_at = stage.clock.monotonic(), stage.clock.now()

    def told_after_s(line: Mapping[str, object]) -> float:
        # By the line's own time: this process looks at the log only now and then.
        return (parse_rfc3339(str(line["ts"])) - began_at).total_seconds()

    async with (
        stage.starting() as (worker, url),
        open_subject(stage.clock, pid=worker.pid, metrics_url=url, plane=stage.plane) as subject,
    ):
        started_s = told_after_s(await stage.until_logged(worker, "listening", began))
        logged = await stage.until_logged(worker, "caches_synced", began)
        synced_s = told_after_s(logged)
        quiet_s = await _until_no_request(stage, subject, began, synced_s)
        cost, audit_differs = await subject.end(_BIRTH)
    return ScenarioReport(
        name="restart",
        figures={
            "sandboxes": float(str(logged.get("sandboxes", 0))),
            "writes": cost.writes,
            "gets": cost.gets,
            "lists": cost.lists,
            "started_s": round(started_s, 2),
            "synced_s": round(synced_s, 2),
            "quiet_s": round(quiet_s, 2),
            "listing_s": round(listing_s, 3),
            "received_kib": None if cost.received_kib is None else round(cost.received_kib, 1),
            "cpu_ms": None if cost.cpu_ms is None else round(cost.cpu_ms, 1),
            "rss_mib": cost.rss_mib,
        },
        requests=cost.by_kind(),
        failures=cost.failures(),
        audit_differs=audit_differs,
    )


async def _list_everything(stage: Stage) -> float:
    """List what the controller lists at its start, page by page; return the seconds that took.

    Each page has a connection of its own, as curl makes one for each; nothing of it is kept.
    """
    kubeconfig, context = stage.connection_arguments
    connection = load(kubeconfig or None, context or None, clock=stage.clock)
    began = stage.clock.monotonic()
    for resource in _LISTED:
        token = ""
        while True:
            async with connected(connection, stage.clock, agent="bench-list") as client:
                page = await client.list_page(
                    resource, None, _Head, limit=_PAGE_SIZE, continue_=token or None
                )
            token = page.metadata.continue_
            if not token:
                break
    return stage.clock.monotonic() - began


async def _until_no_request(stage: Stage, subject: Subject, began: float, synced_s: float) -> float:
    """Wait for the rest of a process that is in sync; return when its last request was over.

    That is when it was in sync if none follows, else the beginning of the rest. Raises BenchError.
    """
    requests = (await subject.snapshot()).requests
    await subject.quiet(stage.options.quiet, "its start")
    if (await subject.snapshot()).requests == requests:
        return synced_s
    return stage.clock.monotonic() - began - stage.options.quiet
