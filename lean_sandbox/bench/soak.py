"""The scenario soak: everything that can happen in a namespace, again and again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import anyio

from lean_sandbox.bench import load
from lean_sandbox.bench.arithmetic import growth
from lean_sandbox.bench.environment import Environment
from lean_sandbox.bench.report import ScenarioReport
from lean_sandbox.kube import resources as kinds
from lean_sandbox.kube.resources import SANDBOXCLAIMS, SANDBOXES
from lean_sandbox.model.times import format_rfc3339

_NAMESPACES: Final = 3
_POOL: Final = 5
_SAMPLES: Final = 300
_POLL_S: Final = 0.25


async def soak(env: Environment) -> None:
    """Let namespaces come and go with all that happens in one, and look at what the process holds.

    The namespaces have the same few names: series of others are kept for an hour by design.
    """
    clock = env.clock
    seconds = env.options.seconds
    samples: list[tuple[float, Mapping[str, float]]] = []
    lives = 0

    async def churn(number: int) -> None:
        nonlocal lives
        while clock.monotonic() - began < seconds:
            async with env.namespace("soak", token=f"{number}") as where:
                await _live(env, where)
            lives += 1

    report = ScenarioReport(name="soak", figures={})
    async with env.controller():
        await env.measured.until_idle("its start")
        before = await env.measured.begin()
        began = clock.monotonic()
        async with anyio.create_task_group() as group:
            for number in range(_NAMESPACES):
                group.start_soon(churn, number)
            while (at := clock.monotonic() - began) < seconds:
                found = await env.measured.snapshot()
                samples.append((at, {**found.held, "rss_mib": found.rss_mib or 0.0}))
                await clock.sleep(max(_POLL_S, seconds / _SAMPLES))
        await env.measured.until_idle("all was gone")
        cost = await env.charge(report, before)
    report.figures = {
        "lives": lives,
        "conflicts": cost.conflicts,
        "caught_by_net": cost.caught,
        "left_cached": cost.held.get("cached", 0.0) - before.held.get("cached", 0.0),
        **growth(samples, seconds),
    }
    env.add(report)


async def _live(env: Environment, where: str) -> None:
    """Serve more claims than a pool has members, suspend, resume, resize, roll out and expire."""
    client = env.client
    size = _POOL
    await env.make_full_pool(where, size)
    async with env.load(SANDBOXES, where) as cold, env.load(SANDBOXCLAIMS, where) as claims:
        async with anyio.create_task_group() as group:
            group.start_soon(claims.make, range(size + 2))
            # A cold claim gives its Sandbox its own name.
            group.start_soon(cold.make, range(100, 100 + size))
        for mode in ("Suspended", "Running"):
            for name in cold.made:
                await load.change(client, SANDBOXES, where, name, operatingMode=mode)
        await load.change(client, kinds.SANDBOXWARMPOOLS, where, load.POOL, replicas=2 * size)
        changed = {"spec": {"terminationGracePeriodSeconds": 2}}
        await load.change(client, kinds.SANDBOXTEMPLATES, where, load.TEMPLATE, podTemplate=changed)
        end = format_rfc3339(env.clock.now() + timedelta(seconds=1))
        for name in claims.made:
            lifecycle = {"shutdownTime": end, "shutdownPolicy": "Delete"}
            await load.change(client, SANDBOXCLAIMS, where, name, lifecycle=lifecycle)
        await env.until_full(where, 2 * size)
        await load.change(client, kinds.SANDBOXWARMPOOLS, where, load.POOL, replicas=1)

        async def missing() -> str:
            left = await load.count(client, SANDBOXCLAIMS, where)
            return f"{left} claims in {where} to expire" if left else ""

        await env.until(missing)
