"""Scenarios of claims on a warm pool: one, fill, burst, sustained, and the search for a rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from lean_sandbox.bench import bodies
from lean_sandbox.bench.figures import arrivals, flatness, next_rate, windows
from lean_sandbox.bench.load import (
    Sent,
    charge,
    in_milliseconds,
    latencies_of,
    latency_figures,
    make_pool,
    make_template,
    send,
    send_one,
    until_full,
    until_ready,
    watching,
)
from lean_sandbox.bench.report import ScenarioReport
from lean_sandbox.bench.seen import Readiness
from lean_sandbox.bench.stage import Stage
from lean_sandbox.bench.subject import Subject
from lean_sandbox.kube.resources import PODS, SANDBOXCLAIMS, SANDBOXES, Resource
from lean_sandbox.kube.wire import Page, PartialObject

_ONE_POOL = 2
_LATE_S = 60.0
_LEFT_POLL_S = 0.5
_FLAT = 1.3
_FLAT_MS = 1000.0
# Below this a median that grew is the noise of a machine; a queue that grows soon passes it.
_NOISE_MS = 100.0


async def run_one(stage: Stage, subject: Subject) -> ScenarioReport:
    """Claims one at a time, each on an idle controller with a full pool of 2."""
    rounds, quiet_s = stage.options.rounds, stage.options.quiet
    async with stage.namespace("one") as namespace:
        await make_template(stage.client, namespace)
        await make_pool(stage.client, namespace, _ONE_POOL)
        await until_full(stage, namespace, _ONE_POOL)
        await subject.quiet(quiet_s, "filling a pool")
        sent = Sent({}, {})
        async with watching(stage, SANDBOXCLAIMS, namespace) as seen:
            mark = await subject.begin()
            for number in range(rounds):
                name = f"c{number}"
                await send_one(stage, SANDBOXCLAIMS, namespace, name, bodies.claim, sent)
                await until_ready(stage, seen, number + 1, "claims, one at a time,")
                await until_full(stage, namespace, _ONE_POOL)
                await subject.quiet(quiet_s, "one claim")
            cost, audit_differs = await subject.end(mark)
        latencies_s = latencies_of(sent, seen)
        figures: dict[str, float | None] = {"claims": rounds, "pool": _ONE_POOL}
        report = ScenarioReport(
            name="one",
            figures=figures | latency_figures(sent, latencies_s),
            latencies_ms=in_milliseconds(latencies_s),
        )
        charge(report, cost, rounds, audit_differs)
        return report


async def run_fill(stage: Stage, subject: Subject) -> ScenarioReport:
    """Fill a pool."""
    async with stage.namespace("fill") as namespace:
        return await _fill(stage, subject, namespace)


async def run_burst(stage: Stage, subject: Subject) -> list[ScenarioReport]:
    """Fill a pool, then claim from it all at once; the cost includes the refill."""
    options = stage.options
    count, pool = options.count, options.burst_pool
    async with stage.namespace("burst") as namespace:
        filled = await _fill(stage, subject, namespace)
        async with watching(stage, SANDBOXCLAIMS, namespace) as seen:
            mark = await subject.begin()
            began = stage.clock.monotonic()
            names = [f"c{number}" for number in range(count)]
            sent = await send(stage, SANDBOXCLAIMS, namespace, names, bodies.claim)
            await until_ready(stage, seen, count, "claims of a burst")
            seconds = stage.clock.monotonic() - began
            await until_full(stage, namespace, pool)
            await subject.quiet(options.quiet, "a burst")
            cost, audit_differs = await subject.end(mark)
        latencies_s = latencies_of(sent, seen)
        figures: dict[str, float | None] = {"claims": count, "pool": pool}
        report = ScenarioReport(
            name="burst",
            figures=figures
            | latency_figures(sent, latencies_s)
            | {
                "seconds": round(seconds, 2),
                "doubly_bound": seen.doubly_bound(),
                "replacements": cost.count("create", "sandboxes"),
            },
            latencies_ms=in_milliseconds(latencies_s),
        )
        charge(report, cost, count, audit_differs)
        return [filled, report]


async def _fill(stage: Stage, subject: Subject, namespace: str) -> ScenarioReport:
    pool = stage.options.burst_pool
    # What a template takes once is no cost of a member.
    await make_template(stage.client, namespace)
    await subject.quiet(stage.options.quiet, "its start")
    mark = await subject.begin()
    began = stage.clock.monotonic()
    await make_pool(stage.client, namespace, pool)
    await until_full(stage, namespace, pool)
    seconds = stage.clock.monotonic() - began
    await subject.quiet(stage.options.quiet, "filling a pool")
    cost, audit_differs = await subject.end(mark)
    report = ScenarioReport(name="fill", figures={"pool": pool, "seconds": round(seconds, 2)})
    charge(report, cost, pool, audit_differs)
    return report


async def run_sustained(
    stage: Stage, subject: Subject, rate: float, *, name: str = "sustained"
) -> ScenarioReport:
    """Poisson arrivals; each claim is deleted a while after it was Ready."""
    options = stage.options
    pool = options.sustained_pool
    times = arrivals(rate, options.seconds)
    async with stage.namespace(name) as namespace:
        await make_template(stage.client, namespace)
        await make_pool(stage.client, namespace, pool)
        await until_full(stage, namespace, pool)
        await subject.quiet(options.quiet, "filling a pool")
        async with watching(stage, SANDBOXCLAIMS, namespace) as seen:
            mark = await subject.begin()
            began = stage.clock.monotonic()
            sent = await _arrive(stage, seen, namespace, times)
            await until_full(stage, namespace, pool)
            left = await _left_over(stage, namespace, pool)
            await subject.quiet(options.quiet, "sustained load")
            cost, audit_differs = await subject.end(mark)
        pairs = [
            (at - began, seen.ready_at[claim] - at)
            for claim, at in sent.at.items()
            if claim in seen.ready_at
        ]
        latencies_s = [latency for _, latency in pairs]
        flat = flatness(pairs, options.seconds)
        figures: dict[str, float | None] = {"rate": rate, "claims": len(times), "pool": pool}
        report = ScenarioReport(
            name=name,
            figures=figures
            | latency_figures(sent, latencies_s)
            | {
                "first_p50_ms": flat.first_p50_ms,
                "last_p50_ms": flat.last_p50_ms,
                "left_over": left,
            },
            latencies_ms=in_milliseconds(latencies_s),
            windows=windows(pairs),
        )
        charge(report, cost, len(times), audit_differs)
        return report


async def run_search(
    stage: Stage, subject: Subject, say: Callable[[str], None]
) -> list[ScenarioReport]:
    """Try rates until the highest that stays flat is known to within 15 percent."""
    options = stage.options
    tried: list[tuple[float, bool]] = []
    reports: list[ScenarioReport] = []
    rate: float | None = options.rates[0]
    while rate is not None:
        found = await run_sustained(stage, subject, rate, name="search")
        reports.append(found)
        tried.append((rate, is_flat(found.figures)))
        say(
            f"{rate:g} claims/s: {'flat' if tried[-1][1] else 'not flat'}, median of the first and"
            f" last 10 s {found.figures['first_p50_ms']} and {found.figures['last_p50_ms']} ms"
        )
        rate = next_rate(tried, most=options.most_rate)
    not_flat = min((rate for rate, is_flat in tried if not is_flat), default=float("inf"))
    flat = [rate for rate, is_flat in tried if is_flat and rate < not_flat]
    for report in reports:
        report.figures["highest_flat_rate"] = max(flat, default=0.0)
    return reports


def is_flat(figures: dict[str, float | None]) -> bool:
    """Return whether a load was carried: all Ready, nothing left over, no slower at its end.

    At most 1.3 times as slow as at its beginning and a second, where it is not below 100 ms anyway.
    """
    first, last = figures["first_p50_ms"], figures["last_p50_ms"]
    if first is None or last is None or figures["ready"] != figures["claims"]:
        return False
    bound = min(_FLAT_MS, max(_NOISE_MS, _FLAT * first))
    return last <= bound and figures["left_over"] == 0


async def _arrive(stage: Stage, seen: Readiness, namespace: str, times: list[float]) -> Sent:
    """Make claims at their times and delete each ``dwell`` after it was Ready.

    One that is not Ready a minute, or the time of the load, after the last arrival is given up: the
    load was too much, which is a finding and no failure of the bench.
    """
    options, clock = stage.options, stage.clock
    sent = Sent({}, {})
    began = clock.monotonic()
    ready: dict[str, anyio.Event] = {f"c{number}": anyio.Event() for number in range(len(times))}
    seen.on_ready = lambda name: ready[name].set()
    deadline = began + options.seconds + max(_LATE_S, options.seconds)

    async def live(name: str, at: float) -> None:
        await clock.sleep(began + at - clock.monotonic())
        await send_one(stage, SANDBOXCLAIMS, namespace, name, bodies.claim, sent)
        if await clock.wait(ready[name], max(0.0, deadline - clock.monotonic())):
            await clock.sleep(options.dwell)
        await stage.client.delete(SANDBOXCLAIMS, namespace, name)

    async with anyio.create_task_group() as group:
        for name, at in zip(ready, times, strict=True):
            group.start_soon(live, name, at)
    return sent


async def _left_over(stage: Stage, namespace: str, pool: int) -> int:
    """Return how many Sandboxes and Pods above the pool stay once the claims are gone.

    What is deleted takes its time: counted is what is still there after a minute.
    """
    deadline = stage.clock.monotonic() + _LATE_S
    while True:
        claims = await _count(stage, SANDBOXCLAIMS, namespace)
        above = sum(
            [abs(await _count(stage, kind, namespace) - pool) for kind in (SANDBOXES, PODS)]
        )
        if claims + above == 0 or stage.clock.monotonic() > deadline:
            return claims + above
        await stage.clock.sleep(_LEFT_POLL_S)


async def _count(stage: Stage, resource: Resource, namespace: str) -> int:
    listed: Page[Any] = await stage.client.list_page(
        resource, namespace, Page[PartialObject], limit=None
    )
    return len(listed.items)
