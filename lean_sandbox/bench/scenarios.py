"""The scenarios: claims on a warm pool, Sandboxes without one, bare requests and bare Pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from math import ceil
from typing import Any, Final, NamedTuple

import anyio

from lean_sandbox.bench import load
from lean_sandbox.bench.arithmetic import (
    arrivals,
    is_flat,
    medians_of_ends,
    next_rate,
    per_item,
    percentile,
    windows,
)
from lean_sandbox.bench.controller import Cost
from lean_sandbox.bench.environment import Environment, add_latencies
from lean_sandbox.bench.listing import list_everything
from lean_sandbox.bench.report import ScenarioReport
from lean_sandbox.bench.soak import soak
from lean_sandbox.bench.workers import process_usage, worker
from lean_sandbox.kube import resources as kinds
from lean_sandbox.kube.resources import PODS, SANDBOXCLAIMS, SANDBOXES
from lean_sandbox.model.meta import controller_reference
from lean_sandbox.model.times import parse_rfc3339

_ONE_POOL: Final = 2
_SEARCH_POOL_S: Final = 10.0
_SEARCH_DWELL_S: Final = 3.0
_LATE_S: Final = 60.0
_POLL_S: Final = 0.5
_LARGE: Final = 10_000


# -- claims on a warm pool -------------------------------------------------------------------------


async def _one(env: Environment) -> None:
    rounds = env.options.rounds
    async with env.controller(), env.namespace("one") as where:
        await env.make_full_pool(where, _ONE_POOL)
        await env.measured.until_idle("filling a pool")
        async with (
            env.load(SANDBOXCLAIMS, where) as claims,
            env.stretch("one", rounds, claims, claims=rounds, pool=_ONE_POOL),
        ):
            for number in range(rounds):
                await claims.send_one(number)
                await claims.until_ready()
                await env.until_full(where, _ONE_POOL)
                await env.measured.until_idle("one claim")


async def _burst(env: Environment) -> None:
    count = env.options.count
    pool = env.options.burst_pool
    async with env.controller(), env.namespace("burst") as where:
        await env.make_full_pool(where, pool)
        await env.measured.until_idle("filling a pool")
        async with (
            env.load(SANDBOXCLAIMS, where) as claims,
            env.stretch("burst", count, claims, claims=count, pool=pool) as report,
        ):
            report.figures["seconds"] = await claims.make(range(count))
            # The cost includes the refill.
            await env.until_full(where, pool)
    report.figures["doubly_bound"] = claims.doubly_bound()
    report.figures["replacements"] = report.requests.get("create sandboxes")


async def _fill(env: Environment) -> None:
    pool = env.options.burst_pool
    async with env.controller(), env.namespace("fill") as where:
        # What a template takes once is no cost of a member.
        await load.make_template(env.client, where)
        await env.measured.until_idle("its start")
        async with env.stretch("fill", pool, pool=pool) as report:
            began = env.clock.monotonic()
            await load.make_pool(env.client, where, pool)
            await env.until_full(where, pool)
            report.figures["seconds"] = round(env.clock.monotonic() - began, 2)


async def _sustained(env: Environment) -> None:
    options = env.options
    for rate in options.rates:
        await _sustain(
            env, "sustained", rate, options.seconds, options.sustained_pool, options.dwell
        )


async def _search(env: Environment) -> None:
    """Try rates until the highest that stays flat is known to within 15 percent."""
    tried: list[tuple[float, bool]] = []
    rate: float | None = env.options.rates[0]
    most = max(env.options.most_rate, *env.options.rates)
    while rate is not None:
        pool = ceil(_SEARCH_POOL_S * rate)
        seconds = env.options.search_seconds
        report = await _sustain(env, "search", rate, seconds, pool, _SEARCH_DWELL_S)
        tried.append((rate, is_flat(report.figures)))
        env.screen.progress(f"{rate:g} claims/s: {'flat' if tried[-1][1] else 'not flat'}")
        rate = next_rate(tried, most=most)
    not_flat = min((rate for rate, is_flat in tried if not is_flat), default=float("inf"))
    flat = [rate for rate, is_flat in tried if is_flat and rate < not_flat]
    for report in env.report.named("search"):
        report.figures["highest_flat_rate"] = max(flat, default=0.0)


async def _sustain(
    env: Environment, name: str, rate: float, seconds: float, pool: int, dwell: float
) -> ScenarioReport:
    """Poisson arrivals; each claim is deleted ``dwell`` after it was Ready."""
    clock = env.clock
    times = arrivals(rate, seconds)
    count = len(times)
    members: list[tuple[float, float]] = []
    async with env.controller(), env.namespace(name) as where:
        await env.make_full_pool(where, pool)
        await env.measured.until_idle("filling a pool")
        async with (
            env.load(SANDBOXCLAIMS, where) as claims,
            env.stretch(name, count, claims, rate=rate, claims=count, pool=pool) as report,
        ):
            began = clock.monotonic()
            # A claim that is late by a minute, or the time of the load, is given up: the load was
            # too much, which is a finding and no failure of the bench.
            deadline = began + seconds + max(_LATE_S, seconds)

            async def live(number: int, at: float) -> None:
                await clock.sleep(began + at - clock.monotonic())
                made = await claims.send_one(number)
                ready = claims.made[made].ready
                left_s = max(0.0, deadline - clock.monotonic())
                if await clock.wait(ready, left_s):
                    await clock.sleep(dwell)
                await claims.delete(made)

            async def count_members() -> None:
                while (at := clock.monotonic() - began) < seconds:
                    members.append((at, float(await load.ready_members(env.client, where))))
                    await clock.sleep(_POLL_S)

            async with anyio.create_task_group() as group:
                group.start_soon(count_members)
                for number, at in enumerate(times):
                    group.start_soon(live, number, at)
            await env.until_full(where, pool)
            pairs = [
                (one.sent_at - began, one.usable_ms)
                for one in claims.made.values()
                if one.usable_ms is not None
            ]
            first_p50_ms, last_p50_ms = medians_of_ends(pairs, seconds)
            first_members, last_members = medians_of_ends(members, seconds)
            report.figures |= {
                "first_usable_p50_ms": first_p50_ms,
                "last_usable_p50_ms": last_p50_ms,
                "first_members": first_members,
                "last_members": last_members,
                "left_over": await _left_over(env, where, pool),
            }
            report.windows = windows(pairs)
    return report


async def _left_over(env: Environment, where: str, pool: int) -> int:
    """Return how many Sandboxes and Pods above the pool are still there after a minute."""
    deadline = env.clock.monotonic() + _LATE_S
    while True:
        left = await load.count(env.client, SANDBOXCLAIMS, where)
        for kind in (SANDBOXES, PODS):
            left += abs(await load.count(env.client, kind, where) - pool)
        if left == 0 or env.clock.monotonic() > deadline:
            return left
        await env.clock.sleep(_POLL_S)


# -- Sandboxes without a pool ----------------------------------------------------------------------


async def launch(env: Environment, where: str, end: int, *, begin: int = 0) -> None:
    """Make Sandboxes that others are measured over, unmeasured."""
    env.screen.progress(f"making {end - begin} Sandboxes")
    async with env.load(SANDBOXES, where) as sandboxes:
        await sandboxes.make(range(begin, end))
    await env.measured.until_idle("a launch of Sandboxes")


async def _cold(env: Environment) -> None:
    count = env.options.sandboxes
    async with env.controller():
        # They stay for idle and restart.
        env.over = await env.kept.enter_async_context(env.namespace("cold"))
        await env.measured.until_idle("its start")
        async with (
            env.load(SANDBOXES, env.over) as sandboxes,
            env.stretch("cold", count, sandboxes, sandboxes=count) as report,
        ):
            report.figures["seconds"] = await sandboxes.make(range(count))


async def _find_sandboxes(env: Environment) -> None:
    """Make the Sandboxes that idle and restart are measured over, unless the scenario cold has."""
    if not env.over:
        async with env.controller():
            env.over = await env.kept.enter_async_context(env.namespace("cold"))
            await launch(env, env.over, env.options.sandboxes)


async def _idle(env: Environment) -> None:
    await _find_sandboxes(env)
    report = ScenarioReport(name="idle", figures={"sandboxes": env.options.sandboxes})
    async with env.controller():
        await env.measured.until_idle("its start")
        before = await env.measured.begin()
        began = env.clock.monotonic()
        await env.clock.sleep(env.options.idle_seconds)
        seconds = env.clock.monotonic() - began
        cost = await env.charge(report, before)
    report.figures |= {
        "requests": cost.total,
        "cpu_ms_per_s": per_item(cost.cpu_ms, seconds),
        "rss_mib": cost.rss_mib,
    }
    env.add(report)


async def _restart(env: Environment) -> None:
    await _find_sandboxes(env)
    listing_s = await list_everything(env.client.transport.connection, env.clock)
    report = await _start_over(env, "restart", "--extensions", measures_rest=True)
    report.figures["listing_s"] = round(listing_s, 3)


async def _memory(env: Environment) -> None:
    """Start the controller over ever more Sandboxes, which it has launched itself before."""
    made = 0
    async with env.namespace("memory") as where:
        for size in sorted(set(env.options.sizes)):
            if size > made:
                async with env.controller():
                    await launch(env, where, size, begin=made)
                made = size
            await _start_over(env, "memory")
    reports = env.report.named("memory")
    by_size = {one.figures["sandboxes"] or 0: one.figures["rss_mib"] or 0.0 for one in reports}
    empty = by_size.get(0)
    largest = max(by_size)
    grown_kib = None if empty is None else (by_size[largest] - empty) * 1024
    for report in reports:
        report.figures |= {
            "empty_mib": empty,
            "each_kib": per_item(grown_kib, largest),
            "most_mib": by_size.get(_LARGE),
        }


async def _start_over(
    env: Environment, name: str, *flags: str, measures_rest: bool = False
) -> ScenarioReport:
    """Start the controller over what is there, until it rests.

    ``quiet_s`` begins before the process does and so includes its imports. It takes a scrape in the
    middle to tell, which costs memory: where that is measured, none comes before.
    """
    report = ScenarioReport(name=name, figures={})
    began = env.clock.monotonic()
    began_at = env.clock.now()

    def told_after_s(line: Mapping[str, Any]) -> float:
        # By the line's own time: this process looks at the log only now and then.
        return round((parse_rfc3339(str(line["ts"])) - began_at).total_seconds(), 2)

    async with env.starting(*flags) as started:
        started_s = told_after_s(await started.until_logged("listening"))
        logged = await started.until_logged("caches_synced")
        quiet_s = synced_s = told_after_s(logged)
        asked = (await env.measured.snapshot()).requests if measures_rest else None
        await env.measured.until_idle("its start")
        if measures_rest and (await env.measured.snapshot()).requests != asked:
            # The last request was over when the rest began.
            quiet_s = round(env.clock.monotonic() - began - env.options.quiet, 2)
        usage = process_usage(started.pid)
        # The counters of a process that has just been started are zero.
        birth = Cost(requests=Counter(), received_kib=0.0, cpu_ms=0.0)
        cost = await env.charge(report, birth)
    report.figures = {
        "sandboxes": int(logged.get("sandboxes", 0)),
        "writes": cost.writes,
        "gets": cost.gets,
        "lists": cost.lists,
        "started_s": started_s,
        "synced_s": synced_s,
        "quiet_s": quiet_s if measures_rest else None,
        "received_kib": per_item(cost.received_kib, 1),
        "cpu_ms": per_item(cost.cpu_ms, 1),
        "rss_mib": usage.rss_mib,
        "peak_mib": usage.peak_mib,
    }
    env.add(report)
    return report


# -- without a controller --------------------------------------------------------------------------


async def _pods(env: Environment) -> None:
    count = env.options.sandboxes
    report = ScenarioReport(name="pods", figures={"pods": count})
    async with env.namespace("pods") as where, env.load(PODS, where) as pods:
        report.figures["seconds"] = await pods.make(range(count))
        await add_latencies(report, pods)
    env.add(report)


async def _floor(env: Environment) -> None:
    """Bind ``count`` claims at once by bare requests, after a few one at a time.

    Each of those comes after a rest as in the scenario ``one``: rested machines answer later.
    """
    count = env.options.count
    alone = env.options.rounds
    members = count + alone
    report = ScenarioReport(name="floor", figures={"claims": count})
    async with env.namespace("floor") as where:
        await load.make_template(env.client, where)
        uid = await load.make_pool(env.client, where, members)
        owner = controller_reference(kinds.SANDBOXWARMPOOLS.kind, load.POOL, uid)
        async with env.load(SANDBOXES, where, ownerReferences=[owner]) as free:
            await free.send(range(members))
        async with env.load(PODS, where, **load.FREE) as pods:
            await pods.make(range(members))
        in_flight = str(env.options.floor_in_flight)
        arguments = (env.kubeconfig, env.options.context, where, uid, in_flight)
        async with worker("floor", *arguments, folder=env.folder) as binder:
            async with env.load(SANDBOXCLAIMS, where) as single:
                for number in range(alone):
                    await env.clock.sleep(env.options.quiet)
                    await single.send_one(number)
                    await single.until_ready()
                await single.until_usable()
            async with env.load(SANDBOXCLAIMS, where) as claims:
                before = process_usage(binder.pid).cpu_ms
                report.figures["seconds"] = await claims.make(range(alone, members))
                after = process_usage(binder.pid).cpu_ms
                await add_latencies(report, claims)
    alone_ms = (one.usable_ms for one in single.made.values())
    report.figures |= {
        "one_usable_p50_ms": percentile(alone_ms, 50),
        "cpu_ms_each": None if before is None or after is None else per_item(after - before, count),
    }
    env.add(report)


class Scenario(NamedTuple):
    """What is said of a scenario, how it is run, and what has to be there."""

    name: str
    text: str
    run: Callable[[Environment], Awaitable[None]]
    is_in_all: bool = True
    needs_own: bool = False
    """Whether a controller that runs already stands in its way."""


_ALL: Final = (
    Scenario("floor", "--count claims bound by four bare requests each", _floor, needs_own=True),
    Scenario("one", "one claim on an idle controller, pool of 2", _one),
    Scenario("burst", "--count claims at once on a filled pool of --pool", _burst),
    Scenario("fill", "filling a pool of --pool", _fill),
    Scenario(
        "sustained", "--rate claims a second for --seconds, deleted --dwell after Ready", _sustained
    ),
    Scenario(
        "search", "highest rate flat for 60 s on a pool of 10 s of it", _search, is_in_all=False
    ),
    Scenario(
        "soak",
        "mixed churn for --seconds: does anything that is held grow?",
        soak,
        is_in_all=False,
    ),
    Scenario("memory", "memory over --sizes Sandboxes", _memory, is_in_all=False, needs_own=True),
    Scenario("pods", "--sandboxes bare Pods, without Sandboxes", _pods),
    # Its Sandboxes, and those of the next two, stay until the end of the run.
    Scenario("cold", "--sandboxes Sandboxes at once, without a pool", _cold),
    Scenario("idle", "CPU over --sandboxes Sandboxes at rest", _idle),
    Scenario("restart", "a start over --sandboxes Sandboxes", _restart, needs_own=True),
)
SCENARIOS: Final = {scenario.name: scenario for scenario in _ALL}
"""Every scenario by its name, in the order in which they run."""
IN_TURNS: Final = ("floor", "one", "burst")
"""Those of which one run against another says little."""
