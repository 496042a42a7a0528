"""Scenarios of Sandboxes without a pool, of starts over them, and bare Pods beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lean_sandbox.bench import load
from lean_sandbox.bench.controller import MeasuredController, Snapshot
from lean_sandbox.bench.environment import Environment, add_latencies
from lean_sandbox.bench.load import Load
from lean_sandbox.bench.report import ScenarioReport
from lean_sandbox.bench.workers import Asked, connected, process_usage
from lean_sandbox.kube import kubeconfig
from lean_sandbox.kube.resources import (
    NETWORKPOLICIES,
    PODS,
    SANDBOXCLAIMS,
    SANDBOXES,
    SANDBOXTEMPLATES,
    SANDBOXWARMPOOLS,
    SERVICES,
    ListMeta,
)
from lean_sandbox.model.times import parse_rfc3339

_PAGE_SIZE: Final = 250
_LARGE: Final = 10_000.0
# The counters of a process that has just been started.
_BIRTH: Final = Snapshot(requests=Counter(), received_bytes=0.0, cpu_s=0.0)
_LISTED: Final = (
    SANDBOXES,
    PODS,
    SERVICES,
    SANDBOXCLAIMS,
    SANDBOXTEMPLATES,
    SANDBOXWARMPOOLS,
    NETWORKPOLICIES,
)


async def _make(env: Environment, made: Load, count: int, what: str, *, begin: int = 0) -> float:
    """Make ``count`` objects at once; return the seconds until all were Ready."""
    began = env.clock.monotonic()
    await made.send([f"s{number}" for number in range(begin, begin + count)])
    await env.until_ready(made, begin + count, what)
    return round(env.clock.monotonic() - began, 2)


async def run_pods(env: Environment) -> list[ScenarioReport]:
    """Bare Pods, as many as Sandboxes: what a server and its kubelets take for themselves."""
    count = env.options.sandboxes
    report = ScenarioReport(name="pods", figures={"pods": count})
    async with env.namespace("pods") as where:
        pods = env.load(PODS, where, load.pod)
        async with pods.watching():
            report.figures["seconds"] = await _make(env, pods, count, "bare Pods")
    add_latencies(report, pods)
    return [report]


async def launch(env: Environment, where: str, count: int, *, begin: int = 0) -> None:
    """Make Sandboxes that others are measured over, unmeasured."""
    sandboxes = env.load(SANDBOXES, where, load.sandbox)
    async with sandboxes.watching():
        await _make(env, sandboxes, count, "Sandboxes", begin=begin)
    await env.until_idle("a launch of Sandboxes")


async def run_cold(env: Environment) -> list[ScenarioReport]:
    """Sandboxes without a pool, all at once. They stay for idle and restart."""
    count = env.options.sandboxes
    await env.until_idle("its start")
    sandboxes = env.load(SANDBOXES, env.over, load.sandbox)
    async with sandboxes.watching(), env.stretch("cold", count, sandboxes=count) as report:
        report.figures["seconds"] = await _make(env, sandboxes, count, "Sandboxes")
        add_latencies(report, sandboxes)
    return [report]


async def run_idle(env: Environment) -> list[ScenarioReport]:
    """Nothing happens: requests and CPU."""
    await env.until_idle("what came before")
    before = await env.measured.begin()
    began = env.clock.monotonic()
    await env.clock.sleep(env.options.idle_seconds)
    seconds = env.clock.monotonic() - began
    cost, audit_differs = await env.measured.end(before)
    report = ScenarioReport(
        name="idle",
        figures={
            "sandboxes": env.options.sandboxes,
            "requests": cost.total,
            "cpu_ms_per_s": None if cost.cpu_ms is None else round(cost.cpu_ms / seconds, 2),
            "rss_mib": cost.rss_mib,
        },
        requests=cost.by_kind(),
        audit_differs=audit_differs,
    )
    return [report]


async def run_restart(env: Environment) -> list[ScenarioReport]:
    """Start the controller over the Sandboxes that are there, until it rests."""
    listing_s = await _list_everything(env)
    report = await _start_over(env, "restart", "--extensions", tells_rest=True)
    report.figures["listing_s"] = round(listing_s, 3)
    return [report]


async def run_memory(env: Environment) -> list[ScenarioReport]:
    """Start the controller over ever more Sandboxes, which it has launched itself before."""
    reports: list[ScenarioReport] = []
    made = 0
    async with env.namespace("memory") as where:
        for size in sorted(env.options.sizes):
            if size > made:
                env.screen.progress(f"making {size - made} Sandboxes")
                async with env.controller():
                    await launch(env, where, size - made, begin=made)
                made = size
            report = await _start_over(env, "memory")
            reports.append(report)
            env.screen.progress(
                f"over {report.figures['sandboxes']:g} Sandboxes {report.figures['rss_mib']} MiB"
            )
    by_size = {one.figures["sandboxes"] or 0.0: one.figures["rss_mib"] or 0.0 for one in reports}
    empty, largest = by_size.get(0.0), max(by_size)
    is_known = largest > 0 and empty is not None
    each_kib = (by_size[largest] - (empty or 0.0)) * 1024 / largest if is_known else None
    for report in reports:
        report.figures |= {
            "empty_mib": empty,
            "each_kib": None if each_kib is None else round(each_kib, 2),
            "most_mib": by_size.get(_LARGE),
        }
    return reports


async def _start_over(
    env: Environment, name: str, *flags: str, tells_rest: bool = False
) -> ScenarioReport:
    """Start the controller over what is there, until it rests.

    ``quiet_s`` begins before the process does and so includes its imports. It takes a scrape in the
    middle to tell, which costs memory: where that is measured, none comes before.
    """
    if env.api_server is not None:
        await env.api_server.ask(Asked)
    began, began_at = env.clock.monotonic(), env.clock.now()

    def told_after_s(line: Mapping[str, Any]) -> float:
        # By the line's own time: this process looks at the log only now and then.
        return round((parse_rfc3339(str(line["ts"])) - began_at).total_seconds(), 2)

    async with env.starting(*flags) as (started, controller):
        started_s = told_after_s(await env.until_logged(started, "listening", began))
        logged = await env.until_logged(started, "caches_synced", began)
        synced_s = told_after_s(logged)
        quiet_s = None
        if tells_rest:
            quiet_s = round(await _until_rest(env, controller, began, synced_s), 2)
        else:
            await controller.until_idle(env.options.quiet, "its start")
        usage = process_usage(controller.pid)
        cost, audit_differs = await controller.end(_BIRTH)
    return ScenarioReport(
        name=name,
        figures={
            "sandboxes": int(logged.get("sandboxes", 0)),
            "writes": cost.writes,
            "gets": cost.gets,
            "lists": cost.lists,
            "started_s": started_s,
            "synced_s": synced_s,
            "quiet_s": quiet_s,
            "received_kib": None if cost.received_kib is None else round(cost.received_kib, 1),
            "cpu_ms": None if cost.cpu_ms is None else round(cost.cpu_ms, 1),
            "rss_mib": _mib(usage.rss_kib),
            "peak_mib": _mib(usage.peak_kib),
        },
        requests=cost.by_kind(),
        failures=cost.failures(),
        audit_differs=audit_differs,
    )


def _mib(kib: float | None) -> float | None:
    return None if kib is None else round(kib / 1024, 1)


async def _until_rest(
    env: Environment, controller: MeasuredController, began: float, synced_s: float
) -> float:
    """Wait for the rest of a process that is in sync; return when its last request was over.

    That is when it was in sync if none follows, else the beginning of the rest. Raises BenchError.
    """
    requests = (await controller.snapshot()).requests
    await controller.until_idle(env.options.quiet, "its start")
    if (await controller.snapshot()).requests == requests:
        return synced_s
    return env.clock.monotonic() - began - env.options.quiet


class _Head(msgspec.Struct, frozen=True):
    metadata: ListMeta


async def _list_everything(env: Environment) -> float:
    """List what the controller lists at its start, page by page; return the seconds that took.

    Each page has a connection of its own, as curl makes one for each; nothing of it is kept.
    """
    connection = kubeconfig.load(env.kubeconfig or None, env.context or None, clock=env.clock)
    began = env.clock.monotonic()
    for resource in _LISTED:
        token = ""
        while True:
            async with connected(connection, env.clock, agent="bench-list") as client:
                page = await client.list_page(
                    resource, None, _Head, limit=_PAGE_SIZE, continue_=token or None
                )
            token = page.metadata.continue_
            if not token:
                break
    return env.clock.monotonic() - began
