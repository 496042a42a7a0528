"""Liveness and readiness over HTTP."""

from __future__ import annotations

import anyio
import httpx

from lean_sandbox.config.options import Settings
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.transport import Transport
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.manager.server import Listeners
from tests.metrics.scrape import ON_FREE_PORTS, Scraper, serving
from tests.support.clients import connection_to
from tests.support.clock import FakeClock
from tests.support.observable import ObservedManager
from tests.support.patience import PATIENCE_S
from tests.support.world import open_world


async def test_a_synced_controller_is_alive_and_ready() -> None:
    """What the reference's framework answers, word for word."""
    answers = {
        "/healthz": "ok",
        "/readyz": "ok",
        "/healthz/": "ok",
        "/healthz/healthz": "ok",
        "/readyz/readyz": "ok",
        "/readyz/readyz?verbose": "ok",
        "/healthz?verbose": "[+]healthz ok\nhealthz check passed\n",
        "/readyz?verbose=1": "[+]readyz ok\nreadyz check passed\n",
        "/readyz?verbose&exclude=readyz": "[+]readyz excluded: ok\nreadyz check passed\n",
        **dict.fromkeys(("/healthz/other", "/readyz/healthz", "/", "/metrics", "/debug/pprof/")),
    }
    async with open_world() as world, serving(world) as scraper:
        for path, body in answers.items():
            answer = await scraper.get(path, "health")
            assert answer.status_code == (404 if body is None else 200), path
            assert body is None or answer.text == body


async def test_readiness_waits_for_every_list_and_says_which_is_missing() -> None:
    """Before the caches are in sync it is alive but not ready, and names the watch that fails."""
    async with ControlPlane(LocalSettings(), clock=FakeClock()) as plane:
        plane.fail_next("list", "pods", 403, times=3)
        clock = FakeClock()
        transport = Transport(connection_to(plane), clock=clock)
        controller = ObservedManager(Client(transport), Settings(), clock=clock)
        listeners = Listeners(controller, Settings(**ON_FREE_PORTS), clock)
        async with anyio.create_task_group() as group, httpx.AsyncClient() as client:
            group.start_soon(listeners.run)
            scraper = Scraper(listeners, client, clock)
            before = await scraper.get("/readyz", "health")
            group.start_soon(controller.run)
            with anyio.fail_after(PATIENCE_S):
                while list(controller.reflectors.missing) != ["pods"] or not controller.problems:
                    await anyio.lowlevel.checkpoint()
            alive = await scraper.get("/healthz", "health")
            during = await scraper.get("/readyz", "health")
            detail = await scraper.get("/readyz/readyz", "health")
            excluded = await scraper.get("/readyz?exclude=readyz", "health")
            unknown = await scraper.get("/readyz?exclude=etcd", "health")
            scraped = await scraper.get("/metrics")
            for _ in range(20):
                await clock.advance(60.0)
            with anyio.fail_after(PATIENCE_S):
                while not controller.synced.is_set():
                    await clock.advance(1.0)
            after = await scraper.get("/readyz", "health")
            group.cancel_scope.cancel()
        await transport.aclose()
    assert (before.status_code, before.text) == (
        500,
        "[-]readyz failed: not started\nreadyz check failed\n",
    )
    assert alive.status_code == 200
    assert during.status_code == 500
    assert during.text.startswith("[-]readyz failed: pods: ")
    assert "sandboxes" not in during.text
    assert detail.text.startswith("internal server error: pods: ")
    assert excluded.status_code == 200
    assert "no matches for 'etcd'" in unknown.text
    assert 'lean_sandbox_watch_failing{resource="pods"} 1' in scraped.text
    assert 'lean_sandbox_watch_failing{resource="sandboxes"} 0' in scraped.text
    assert (after.status_code, after.text) == (200, "ok")
