"""The load: objects made by a few tasks over a few connections, and what that cost the controller.

One task for each connection and none for each object, so that the client stays out of the way of
what it measures.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec

from lean_sandbox.bench import bodies
from lean_sandbox.bench.counts import Cost
from lean_sandbox.bench.figures import in_ms, milliseconds, per_item
from lean_sandbox.bench.process import BenchError
from lean_sandbox.bench.report import ScenarioReport
from lean_sandbox.bench.seen import Readiness
from lean_sandbox.bench.stage import Stage
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.resources import SANDBOXTEMPLATES, SANDBOXWARMPOOLS, Resource

_POOL_POLL_S = 0.25


class Sent(msgspec.Struct):
    """When each object was asked for and how long its creation took, in seconds."""

    at: dict[str, float]
    answered: dict[str, float]


class _PoolStatus(msgspec.Struct, frozen=True):
    readyReplicas: int = 0


class _Pool(msgspec.Struct, frozen=True):
    status: _PoolStatus = _PoolStatus()


class _Meta(msgspec.Struct, frozen=True):
    uid: str = ""


class _Made(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


async def send(
    stage: Stage,
    resource: Resource,
    namespace: str,
    names: list[str],
    body: Callable[[str], dict[str, Any]],
) -> Sent:
    """Create objects as fast as ``load_in_flight`` connections allow.

    Raises ControlPlaneError (in a group) when one is refused.
    """
    sent = Sent({}, {})
    waiting: Iterator[str] = iter(names)

    async def work() -> None:
        for name in waiting:
            await send_one(stage, resource, namespace, name, body, sent)

    async with anyio.create_task_group() as group:
        for _ in range(min(stage.options.load_in_flight, len(names))):
            group.start_soon(work)
    return sent


async def send_one(
    stage: Stage,
    resource: Resource,
    namespace: str,
    name: str,
    body: Callable[[str], dict[str, Any]],
    sent: Sent,
) -> None:
    """Create one object and note when."""
    made = body(name)
    began = sent.at[name] = stage.clock.monotonic()
    await stage.client.create(resource, namespace, made, bytes)
    sent.answered[name] = stage.clock.monotonic() - began


@asynccontextmanager
async def watching(stage: Stage, resource: Resource, namespace: str) -> AsyncIterator[Readiness]:
    """Follow a kind in a namespace as long as the block lasts."""
    seen = Readiness(stage.client, stage.clock, resource, namespace)
    async with anyio.create_task_group() as group:
        await group.start(seen.run)
        yield seen
        group.cancel_scope.cancel()


async def make_template(client: Client, namespace: str) -> None:
    """Create the template of the pool."""
    await client.create(SANDBOXTEMPLATES, namespace, bodies.template(), bytes)


async def make_pool(client: Client, namespace: str, replicas: int) -> str:
    """Create the pool; return its uid."""
    made = await client.create(SANDBOXWARMPOOLS, namespace, bodies.pool(replicas), _Made)
    return made.metadata.uid


async def until_full(stage: Stage, namespace: str, replicas: int) -> None:
    """Wait until the pool says that so many members are Ready. Raises BenchError."""
    deadline = stage.clock.monotonic() + stage.options.wait
    while True:
        pool = await stage.client.get(SANDBOXWARMPOOLS, namespace, bodies.POOL, _Pool)
        if pool.status.readyReplicas >= replicas:
            return
        if stage.clock.monotonic() > deadline:
            raise BenchError(
                f"waited {stage.options.wait:g} s for a pool of {replicas}, of which"
                f" {pool.status.readyReplicas} became Ready{_kubelet_help(stage)}"
            )
        await stage.clock.sleep(_POOL_POLL_S)


async def until_ready(stage: Stage, seen: Readiness, count: int, what: str) -> None:
    """Wait until so many were seen Ready. Raises BenchError, with what may be missing."""
    await seen.until(count, stage.options.wait, what, _kubelet_help(stage))


def latencies_of(sent: Sent, seen: Readiness) -> list[float]:
    """Return how long each object took from its creation to Ready, in the order of creation."""
    return [seen.ready_at[name] - at for name, at in sent.at.items() if name in seen.ready_at]


def latency_figures(sent: Sent, latencies_s: list[float]) -> dict[str, float | None]:
    """Return the percentiles of what a client saw."""
    answered = list(sent.answered.values())
    return {
        "ready": len(latencies_s),
        "p50_ms": in_ms(latencies_s, 50),
        "p90_ms": in_ms(latencies_s, 90),
        "p99_ms": in_ms(latencies_s, 99),
        "max_ms": in_ms(latencies_s, 100),
        "ack_p50_ms": in_ms(answered, 50),
        "ack_p99_ms": in_ms(answered, 99),
    }


def charge(report: ScenarioReport, cost: Cost, items: int, audit_differs: int | None) -> None:
    """Enter what a stretch cost the controller, in all and for each of ``items``."""
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
    report.requests = cost.by_kind()
    report.failures = cost.failures()
    report.audit_differs = audit_differs


def in_milliseconds(latencies_s: list[float]) -> list[float]:
    """Return latencies as they are reported."""
    return [milliseconds(latency) for latency in latencies_s]


def _kubelet_help(stage: Stage) -> str:
    if stage.has_kubelet:
        return ""
    return "; does anything run Pods on this server? --kubelet starts a simulated kubelet"
