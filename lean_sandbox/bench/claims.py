"""Scenarios of claims on a warm pool, and the floor beside them."""

from __future__ import annotations

from math import ceil
from typing import Final

import anyio

from lean_sandbox.bench import load
from lean_sandbox.bench.environment import Environment, add_latencies
from lean_sandbox.bench.figures import (
    arrivals,
    in_ms,
    is_flat,
    medians_of_ends,
    milliseconds,
    next_rate,
    per_item,
    windows,
)
from lean_sandbox.bench.load import Load
from lean_sandbox.bench.report import ScenarioReport
from lean_sandbox.bench.workers import BenchError, Bound, Worker, process_usage, worker
from lean_sandbox.kube.resources import PODS, SANDBOXCLAIMS, SANDBOXES

_ONE_POOL: Final = 2
_SEARCH_POOL_S: Final = 10.0
_SEARCH_DWELL_S: Final = 3.0
_LATE_S: Final = 60.0
_POLL_S: Final = 0.05
_LOOK_S: Final = 0.5


async def run_floor(env: Environment) -> list[ScenarioReport]:
    """Bind ``count`` claims at once by bare requests, after a few one at a time.

    Each of those comes after a rest like that of the scenario ``one``: a server and a processor
    that have rested answer later, and that is no fault of a controller.
    No controller may run. Raises BenchError when the binding process fails.
    """
    count, alone = env.options.count, env.options.rounds
    report = ScenarioReport(name="floor", figures={"claims": count})
    async with env.namespace("floor") as where:
        uid = await load.make_pool(env.client, where, count + alone)
        members = [f"w{number}" for number in range(count + alone)]
        free = env.load(SANDBOXES, where, lambda name: load.sandbox(name, pool_uid=uid))
        await free.send(members)
        claims, single = (env.load(SANDBOXCLAIMS, where, load.claim) for _ in range(2))
        single.seen = claims.seen
        in_flight = str(env.options.floor_in_flight)
        arguments = (env.kubeconfig, env.context, where, uid, in_flight)
        async with (
            worker("floor", *arguments, folder=env.folder) as binder,
            claims.watching(),
        ):
            prepared = await binder.read(Bound)
            if prepared.free != len(members):
                raise BenchError(
                    f"{prepared.free} Sandboxes are free instead of {len(members)}: does another"
                    " controller serve this server?"
                )
            for number in range(alone):
                await env.clock.sleep(env.options.quiet)
                await single.send_one(f"a{number}")
                await env.until_ready(single, number + 1, "claims of the floor, one at a time,")
            before = process_usage(binder.pid).cpu_s
            began = env.clock.monotonic()
            await claims.send([f"c{number}" for number in range(count)])
            await env.until_ready(claims, count + alone, "claims of the floor")
            seconds = env.clock.monotonic() - began
            after = process_usage(binder.pid).cpu_s
            done = await _all_bound(env, binder, count + alone)
    add_latencies(report, claims)
    cpu_ms = None if before is None or after is None else 1000 * (after - before)
    report.figures |= {
        "one_p50_ms": in_ms(single.latencies_s().values(), 50),
        "seconds": round(seconds, 2),
        "requests_each": per_item(done.requests, count + alone),
        "cpu_ms_each": per_item(cpu_ms, count),
    }
    return [report]


async def _all_bound(env: Environment, binder: Worker, claims: int) -> Bound:
    """Wait until the last answers are there: a watch may show a claim Ready before them.

    Raises BenchError.
    """
    deadline = env.clock.monotonic() + env.options.wait
    while (done := await binder.ask(Bound)).bound < claims:
        if env.clock.monotonic() > deadline:
            raise binder.failed(f"bound {done.bound} claims of {claims}")
        await env.clock.sleep(_POLL_S)
    return done


async def run_one(env: Environment) -> list[ScenarioReport]:
    """Claims one at a time, each on an idle controller with a full pool of 2."""
    rounds = env.options.rounds
    async with env.namespace("one") as where:
        await load.make_pool(env.client, where, _ONE_POOL)
        await env.until_full(where, _ONE_POOL)
        await env.until_idle("filling a pool")
        claims = env.load(SANDBOXCLAIMS, where, load.claim)
        async with (
            claims.watching(),
            env.stretch("one", rounds, claims=rounds, pool=_ONE_POOL) as report,
        ):
            for number in range(rounds):
                await claims.send_one(f"c{number}")
                await env.until_ready(claims, number + 1, "claims, one at a time,")
                await env.until_full(where, _ONE_POOL)
                await env.until_idle("one claim")
            add_latencies(report, claims)
    return [report]


async def run_fill(env: Environment) -> list[ScenarioReport]:
    """Fill a pool."""
    async with env.namespace("fill") as where:
        return [await _fill(env, where)]


async def _fill(env: Environment, where: str) -> ScenarioReport:
    pool = env.options.burst_pool
    # What a template takes once is no cost of a member.
    await load.make_template(env.client, where)
    await env.until_idle("its start")
    async with env.stretch("fill", pool, pool=pool) as report:
        began = env.clock.monotonic()
        await load.make_pool_alone(env.client, where, pool)
        await env.until_full(where, pool)
        report.figures["seconds"] = round(env.clock.monotonic() - began, 2)
    return report


async def run_burst(env: Environment) -> list[ScenarioReport]:
    """Fill a pool, then claim from it all at once; the cost includes the refill."""
    count, pool = env.options.count, env.options.burst_pool
    async with env.namespace("burst") as where:
        filled = await _fill(env, where)
        claims = env.load(SANDBOXCLAIMS, where, load.claim)
        async with (
            claims.watching(),
            env.stretch("burst", count, claims=count, pool=pool) as report,
        ):
            began = env.clock.monotonic()
            await claims.send([f"c{number}" for number in range(count)])
            await env.until_ready(claims, count, "claims of a burst")
            seconds = env.clock.monotonic() - began
            await env.until_full(where, pool)
            add_latencies(report, claims)
            report.figures["seconds"] = round(seconds, 2)
    report.figures["doubly_bound"] = claims.seen.doubly_bound()
    report.figures["replacements"] = report.requests.get("create sandboxes")
    return [filled, report]


async def run_sustained(env: Environment) -> list[ScenarioReport]:
    """Poisson arrivals at each of the rates."""
    pool, seconds, dwell = env.options.sustained_pool, env.options.seconds, env.options.dwell
    return [
        await _sustain(env, "sustained", rate, seconds, pool, dwell) for rate in env.options.rates
    ]


async def run_search(env: Environment) -> list[ScenarioReport]:
    """Try rates until the highest that stays flat is known to within 15 percent.

    Each is tried for 60 s, with a pool of 10 s of arrivals, so that none is carried by its pool.
    """
    tried: list[tuple[float, bool]] = []
    reports: list[ScenarioReport] = []
    rate: float | None = env.options.rates[0]
    most = max(env.options.most_rate, *env.options.rates)
    while rate is not None:
        pool, seconds = ceil(_SEARCH_POOL_S * rate), env.options.search_seconds
        found = await _sustain(env, "search", rate, seconds, pool, _SEARCH_DWELL_S)
        figures = found.figures
        tried.append((rate, is_flat(figures)))
        reports.append(found)
        env.screen.progress(
            f"{rate:g} claims/s: {'flat' if tried[-1][1] else 'not flat'}; in the first and last"
            f" 10 s a median of {figures['first_p50_ms']} and {figures['last_p50_ms']} ms, and"
            f" {figures['first_members']} and {figures['last_members']} ready members of {pool}"
        )
        rate = next_rate(tried, most=most)
    not_flat = min((rate for rate, is_flat in tried if not is_flat), default=float("inf"))
    flat = [rate for rate, is_flat in tried if is_flat and rate < not_flat]
    for report in reports:
        report.figures["highest_flat_rate"] = max(flat, default=0.0)
    return reports


async def _sustain(
    env: Environment, name: str, rate: float, seconds: float, pool: int, dwell: float
) -> ScenarioReport:
    """Poisson arrivals; each claim is deleted a while after it was Ready."""
    times = arrivals(rate, seconds)
    async with env.namespace(name) as where:
        await load.make_pool(env.client, where, pool)
        await env.until_full(where, pool)
        await env.until_idle("filling a pool")
        claims = env.load(SANDBOXCLAIMS, where, load.claim)
        members: list[tuple[float, float]] = []
        async with (
            claims.watching(),
            env.stretch(name, len(times), rate=rate, claims=len(times), pool=pool) as report,
        ):
            began = env.clock.monotonic()
            async with anyio.create_task_group() as group:
                group.start_soon(_count_members, env, where, members)
                await _arrive(env, claims, where, times, seconds, dwell)
                group.cancel_scope.cancel()
            await env.until_full(where, pool)
            left = await _left_over(env, where, pool)
            add_latencies(report, claims)
    pairs = [(claims.sent_at[one] - began, s) for one, s in claims.latencies_s().items()]
    looks = [(at - began, ready) for at, ready in members if at - began < seconds]
    first, last = medians_of_ends(pairs, seconds)
    first_members, last_members = medians_of_ends(looks, seconds)
    report.figures |= {
        "first_p50_ms": None if first is None else milliseconds(first),
        "last_p50_ms": None if last is None else milliseconds(last),
        "first_members": first_members,
        "last_members": last_members,
        "left_over": left,
    }
    report.windows = windows(pairs)
    return report


async def _count_members(env: Environment, where: str, into: list[tuple[float, float]]) -> None:
    while True:
        ready = await load.ready_members(env.client, where)
        into.append((env.clock.monotonic(), float(ready)))
        await env.clock.sleep(_LOOK_S)


async def _arrive(
    env: Environment, claims: Load, where: str, times: list[float], seconds: float, dwell: float
) -> None:
    """Make claims at their times and delete each ``dwell`` after it was Ready.

    One that is not Ready a minute, or the time of the load, after the last arrival is given up: the
    load was too much, which is a finding and no failure of the bench.
    """
    clock = env.clock
    began = clock.monotonic()
    ready: dict[str, anyio.Event] = {f"c{number}": anyio.Event() for number in range(len(times))}
    claims.seen.on_ready = lambda name: ready[name].set()
    deadline = began + seconds + max(_LATE_S, seconds)

    async def live(name: str, at: float) -> None:
        await clock.sleep(began + at - clock.monotonic())
        await claims.send_one(name)
        if await clock.wait(ready[name], max(0.0, deadline - clock.monotonic())):
            await clock.sleep(dwell)
        await env.client.delete(SANDBOXCLAIMS, where, name)

    async with anyio.create_task_group() as group:
        for name, at in zip(ready, times, strict=True):
            group.start_soon(live, name, at)


async def _left_over(env: Environment, where: str, pool: int) -> int:
    """Return how many Sandboxes and Pods above the pool stay once the claims are gone.

    What is deleted takes its time: counted is what is still there after a minute.
    """
    deadline = env.clock.monotonic() + _LATE_S
    while True:
        left = await load.count(env.client, SANDBOXCLAIMS, where)
        for kind in (SANDBOXES, PODS):
            left += abs(await load.count(env.client, kind, where) - pool)
        if left == 0 or env.clock.monotonic() > deadline:
            return left
        await env.clock.sleep(_LOOK_S)
