"""A look at a cluster that goes on, while the test moves the clock."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest

from lean_sandbox.errors import ConfigError
from lean_sandbox.kube.connection import to_listener
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.top import look
from lean_sandbox.top.figures import ControllerFigures
from lean_sandbox.top.look import METRICS_INTERVAL_S, Wanted, opened
from tests.kube.server import Answer, in_turn, reply, serve
from tests.support.builders import claim
from tests.support.clients import connection_to
from tests.support.clock import FakeClock
from tests.support.patience import PATIENCE_S
from tests.support.world import NS


async def until(holds: Callable[[], object]) -> None:
    """Wait for what comes over the wire; no time passes."""
    with anyio.fail_after(PATIENCE_S):
        while not holds():
            await anyio.lowlevel.checkpoint()


async def test_the_rate_of_claims_and_the_page_of_metrics_are_followed() -> None:
    """New claims are counted as they come, and the page is read every five seconds."""
    pages = [f"process_cpu_seconds_total {cpu_s}\n".encode() for cpu_s in (1.0, 3.5)]
    clock = FakeClock()
    async with ControlPlane() as plane, serve(in_turn(*(reply(body=one) for one in pages))) as web:
        plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
        async with opened(connection_to(plane), clock, Wanted(url=web.url)) as looking:

            def said() -> ControllerFigures:
                found = looking.figures().controller
                assert found is not None
                return found

            assert (said().cpu_seconds, looking.figures().claims.per_second) == (1.0, None)
            plane.store.create(claim())
            await until(lambda: looking.figures().claims.total == 1)
            await clock.advance(METRICS_INTERVAL_S)
            await until(lambda: said().cpu_seconds == 3.5)
            assert (said().cores, looking.figures().claims.per_second) == (0.5, 0.2)


async def test_a_list_that_never_ends_is_told() -> None:
    """After two minutes, with the server."""
    clock = FakeClock()
    async with ControlPlane() as plane, anyio.create_task_group() as group:
        # The first list asks for one object, to see whether it may.
        plane.fail_next(
            "list", "sandboxes", 503, times=10**6, match=lambda target: target.query["limit"] != "1"
        )

        async def pass_time() -> None:
            while True:
                await clock.advance(1.0)

        group.start_soon(pass_time)
        with pytest.raises(ExceptionGroup) as raised:
            async with opened(connection_to(plane), clock, Wanted()):
                pass
        assert raised.group_contains(ConfigError, match=plane.url)
        assert 120.0 <= clock.monotonic() < 130.0
        group.cancel_scope.cancel()


async def test_a_server_that_accepts_and_does_not_answer_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sooner than a request ends otherwise: somebody waits in front of an empty screen."""
    monkeypatch.setattr(look, "_ANSWER_S", 0.05)
    async with serve(lambda _: Answer(hang=True)) as web:
        with anyio.fail_after(PATIENCE_S), pytest.raises(ExceptionGroup) as raised:
            async with opened(to_listener(web.url, None), FakeClock(), Wanted()):
                pass
    told = f"no cluster answers at {web.url}: .*no answer within 0.05 s"
    assert raised.group_contains(ConfigError, match=told)
