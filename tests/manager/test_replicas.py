"""Replicas of the controller: one works, the others are ready to, and nothing is written twice."""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute

from lean_sandbox.config.options import Settings
from lean_sandbox.kube import transport as transport_module
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.errors import NotLeaderError
from lean_sandbox.kube.sockets import SocketStream, open_stream
from lean_sandbox.kube.transport import Transport
from lean_sandbox.manager.leaderelection import DURATION_S
from lean_sandbox.manager.preflight import LEASE_NAME
from lean_sandbox.runtime.workers import GRACE_S, ReconcileOutcome
from tests.manager.replicas import ELECTION_NS, LEASES, open_replicas
from tests.metrics.scrape import serving
from tests.support.builders import claim, pool, template
from tests.support.clock import FakeClock
from tests.support.names import CLAIMS, SANDBOXES
from tests.support.patience import PATIENCE_S
from tests.support.world import NS, sandbox

# What the sockets of both sides take before anybody reads.
_MORE_THAN_BUFFERS = 64 * 1024 * 1024


@pytest.mark.case(143)
async def test_one_replica_works_and_the_other_takes_over_within_two_seconds() -> None:
    """The Lease is released by a graceful end; both answer as ready all the while."""
    async with open_replicas("one", "two") as replicas:
        one, two = replicas.all
        async with serving(one.world) as first, serving(two.world) as second:
            for scraper in (first, second):
                assert (await scraper.get("/readyz", "health")).status_code == 200
            await one.world.create(sandbox("a"))
            await replicas.settle()
            assert replicas.leader is one
            assert one.writes()
            assert not two.writes()
            one.controller.stop()
            await one.world.until(lambda: one.has_ended)
            assert replicas.lease["holderIdentity"] == ""
            await replicas.advance(2.0)
            assert replicas.leader is two
            assert (await second.get("/readyz", "health")).status_code == 200
            await two.world.create(sandbox("b"))
            assert two.world.find("pods", "b") is not None
            assert next(entry.what for entry in two.writes()) == "create pods"
            assert one.elector.loss is None


async def test_a_standby_costs_its_watches_and_one_get_a_period() -> None:
    """Whatever the leader does meanwhile, and whatever changes."""
    async with open_replicas("one", "two") as replicas:
        one, two = replicas.all
        replicas.plane.audit.reset()
        for number in range(10):
            await one.world.ready_sandbox(sandbox(f"sb-{number}"))
        await replicas.advance(60.0)
        await one.world.delete(SANDBOXES, "sb-3")
        await replicas.settle()
        assert two.asked() == {"get leases": 30}
        assert two.controller.activity().cached["sandboxes"] == 9
        assert (
            two.controller.activity().cached["pods"]
            == len(replicas.plane.store.list("pods", NS))
            > 0
        )


@pytest.mark.parametrize("extensions", [False, True])
async def test_the_queues_of_a_standby_stay_empty(*, extensions: bool) -> None:
    """What comes and goes while it waits leaves nothing behind."""
    async with open_replicas("one", "two", settings=Settings(extensions=extensions)) as replicas:
        one, two = replicas.all
        for number in range(5):
            await one.world.create(sandbox(f"sb-{number}"))
            await one.world.run_pod(f"sb-{number}", ready=False)
            await one.world.run_pod(f"sb-{number}")
            await one.world.delete("sandboxes", f"sb-{number}")
        await replicas.settle()
        activity = two.controller.activity()
        assert len(activity.busy) == (5 if extensions else 1)
        assert not any((*activity.busy.values(), *activity.delayed.values()))
        assert len(two.world.whole.sandboxes._context.throttle) == 0
        assert two.controller.is_idle
        assert not two.controller.is_active


async def test_who_takes_over_finds_what_nobody_has_looked_at() -> None:
    """Sandboxes that came while nobody led get their Pods, each one Pod."""
    async with open_replicas("one", "two") as replicas:
        one, two = replicas.all
        await one.world.create(sandbox("before"))
        one.scope.cancel()
        await two.world.until(lambda: one.has_ended)
        await two.world.create(sandbox("between"))
        await two.world.delete("sandboxes", "before")
        assert two.world.find("pods", "between") is None
        await replicas.advance(17.0)
        assert replicas.leader is two
        assert two.world.find("pods", "between") is not None
        assert [entry.what for entry in two.writes()].count("create pods") == 1


async def test_who_takes_over_serves_the_claims_and_pools_that_came_in_between() -> None:
    """Every controller reconciles everything that it serves."""
    settings = Settings(extensions=True, sandbox_status_window=1.0)
    async with open_replicas("one", "two", settings=settings) as replicas:
        one, two = replicas.all
        one.scope.cancel()
        await two.world.until(lambda: one.has_ended)
        for body in (template(), pool(replicas=2), claim()):
            await two.world.create(body)
        assert replicas.plane.store.list(SANDBOXES, NS) == []
        await replicas.advance(20.0)
        assert replicas.leader is two
        status = replicas.plane.store.get(CLAIMS, NS, "c")["status"]
        assert status["sandbox"]["name"]
        assert len(replicas.plane.store.list(SANDBOXES, NS)) == 3


async def test_who_takes_over_healthy_sandboxes_writes_nothing() -> None:
    """Its caches are warm: there is no list to wait for, and nothing to mend."""
    async with open_replicas("one", "two") as replicas:
        one, two = replicas.all
        for number in range(5):
            await one.world.ready_sandbox(sandbox(f"sb-{number}"))
        await replicas.advance(5.0)
        one.controller.stop()
        await one.world.until(lambda: one.has_ended)
        replicas.plane.audit.reset()
        await replicas.advance(10.0)
        assert replicas.leader is two
        assert two.writes() == []
        assert not two.asked().keys() & {"list sandboxes", "list pods", "list services"}


async def test_the_lease_is_released_after_the_last_write() -> None:
    """A reconcile in the middle of its requests is finished first, however long that takes."""
    async with open_replicas("one", "two") as replicas:
        one, two = replicas.all
        replicas.plane.delay("create", "pods", 5.0)
        replicas.plane.store.create(sandbox())
        await one.world.until(lambda: replicas.asks("create pods"))
        one.controller.stop()
        for _ in range(5):
            await replicas.clock.advance(2.0)
        assert replicas.leader is one
        replicas.plane.delay("create", "pods", 0.0)
        await replicas.all[0].world.server_clock.advance(5.0)
        await two.world.until(lambda: one.has_ended)
        last = replicas.plane.audit.select(user=one.user)[-1]
        assert (last.what, last.code) == ("update leases", 200)
        assert replicas.lease["holderIdentity"] == ""
        assert "create pods" in {entry.what for entry in one.writes()}


async def test_a_lease_is_not_given_up_while_a_write_may_still_be_carried_out() -> None:
    """A reconcile that was cut off after its grace has left a request behind: the Lease expires."""
    async with open_replicas("one", "two") as replicas:
        one, two = replicas.all
        replicas.plane.delay("create", "pods", 1000.0)
        replicas.plane.store.create(sandbox())
        await one.world.until(lambda: replicas.asks("create pods"))
        one.controller.stop()
        for _ in range(int(GRACE_S)):
            await replicas.clock.advance(1.0)
        await two.world.until(lambda: one.has_ended)
        assert one.world.whole.sandboxes.workers.outcomes[ReconcileOutcome.CANCELLED] == 1
        assert replicas.lease["holderIdentity"] == one.elector.identity
        replicas.plane.delay("create", "pods", 0.0)
        await replicas.advance(DURATION_S - 2.5)
        assert not two.elector.is_leader
        await replicas.advance(4.0)
        assert replicas.leader is two
        assert two.world.find("pods", "sb-1") is not None


# -- the fence -------------------------------------------------------------------------------------


async def test_when_the_lease_is_lost_reconciles_are_cut_off_and_nothing_is_written() -> None:
    """A request that gets no answer is broken off, those that would follow are never made."""
    async with open_replicas("one") as replicas:
        (one,) = replicas.all
        replicas.plane.delay("create", "pods", 5.0)
        replicas.plane.store.create(sandbox())
        await one.world.until(lambda: replicas.asks("create pods"))
        held = {"holderIdentity": "other", "renewTime": "2026-01-02T03:04:05.000001Z"}
        replicas.plane.store.patch(LEASES, ELECTION_NS, LEASE_NAME, {"spec": held})
        await replicas.clock.advance(2.0)
        await one.world.until(lambda: one.has_ended)
        assert "'other' holds the Lease" in str(one.elector.loss)
        assert one.world.whole.sandboxes.workers.outcomes[ReconcileOutcome.CANCELLED] == 1
        written = len(one.writes())
        await replicas.all[0].world.server_clock.advance(60.0)
        await replicas.clock.advance(60.0)
        assert len(one.writes()) == written
        assert one.world.find("pods") is None


async def test_a_process_that_was_stopped_writes_nothing_when_it_goes_on() -> None:
    """A waiting event starts a reconcile before any timer has rung; its write is refused."""
    async with open_replicas("one") as replicas:
        (one,) = replicas.all
        replicas.clock.leap(10.0)
        replicas.plane.store.create(sandbox())
        await one.world.until(
            lambda: one.world.whole.sandboxes.workers.outcomes[ReconcileOutcome.TERMINAL] == 1
        )
        assert one.writes() == []
        await replicas.clock.advance(0.1)
        await one.world.until(lambda: one.has_ended)
        assert "not renewed for 10 s" in str(one.elector.loss)


async def test_a_write_that_was_waiting_for_a_connection_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fence is looked at again right before the bytes are sent."""
    async with open_replicas("one") as replicas:
        (one,) = replicas.all
        transport = one.world.whole._client.transport
        await transport.aclose()
        transport._closed = False

        async def slow(connection: Connection) -> SocketStream:
            stream = await open_stream(connection)
            replicas.clock.leap(10.0)
            return stream

        monkeypatch.setattr(transport_module, "open_stream", slow)
        with pytest.raises(Exception, match="the request was not sent"):
            await transport.request("POST", "/api/v1/namespaces/ns/configmaps", body=b"{}")
        assert one.writes() == []


async def test_of_a_write_that_was_half_sent_the_rest_is_not_sent_after_the_loss() -> None:
    """A server that reads slowly leaves half of a large request with a process that is stopped."""
    clock = FakeClock()
    received = bytearray()
    loses_at_s = 10.0

    def fence() -> None:
        if clock.monotonic() >= loses_at_s:
            raise NotLeaderError("lost")

    async def serve(stream: ByteStream) -> None:
        async with stream:
            received.extend(await stream.receive())
            clock.leap(loses_at_s)
            with suppress(anyio.EndOfStream):
                while len(received) < _MORE_THAN_BUFFERS:
                    received.extend(await stream.receive())
            is_read.set()

    is_read = anyio.Event()
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, serve)
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 -- not of Django
        transport = Transport(Connection(f"http://127.0.0.1:{port}"), clock=clock)
        transport.fence = fence
        with anyio.move_on_after(PATIENCE_S), pytest.raises(NotLeaderError):
            await transport.request("POST", "/pods", body=bytes(_MORE_THAN_BUFFERS))
        with anyio.fail_after(PATIENCE_S):
            await is_read.wait()
        assert b"content-length: %d" % _MORE_THAN_BUFFERS in received.lower()
        assert len(received) < _MORE_THAN_BUFFERS
        await transport.aclose()
        group.cancel_scope.cancel()


async def test_a_standby_cannot_write() -> None:
    """Not even by mistake, and it costs no connection; reads pass."""
    async with open_replicas("one", "two") as replicas:
        two = replicas.all[1]
        transport = two.world.whole._client.transport
        before = dict(transport.counted.requests)
        with pytest.raises(Exception, match="does not hold the Lease; the request was not sent"):
            await transport.request("POST", "/api/v1/namespaces/ns/configmaps", body=b"{}")
        assert transport.counted.requests == before
        assert (await transport.request("GET", "/api/v1/namespaces/ns")).status == 200
        assert two.writes() == []


async def test_a_replica_contends_only_once_its_caches_are_in_sync() -> None:
    """One that could not work yet does not keep others from it."""
    async with open_replicas("one") as replicas:
        one = replicas.all[0]
        late = await replicas.build("late")
        replicas.plane.fail_next("list", "pods", 403, times=1000)
        async with anyio.create_task_group() as group:
            group.start_soon(late.run)
            await late.world.until(lambda: late.controller.problems)
            one.controller.stop()
            await one.world.until(lambda: one.has_ended)
            await replicas.clock.advance(20.0)
            assert replicas.lease["holderIdentity"] == ""
            assert "get leases" not in late.asked()
            group.cancel_scope.cancel()


# -- what is told ----------------------------------------------------------------------------------


async def test_metrics_tell_who_leads() -> None:
    """The leader says 1 and the standby 0; both count their requests for the Lease."""
    async with open_replicas("one", "two") as replicas:
        one, two = replicas.all
        await replicas.advance(20.0)
        for replica, leads, method in ((one, 1.0, "PUT"), (two, 0.0, "GET")):
            async with serving(replica.world) as scraper:
                found = await scraper.scrape()
            name = "leader_election_master_status"
            assert found.value(name, name=LEASE_NAME) == leads
            (_, counted), *_ = found.find("rest_client_requests_total", method=method, code="200")
            assert counted >= 10.0
        replicas.plane.fail_next("update", "leases", 503)
        await replicas.advance(4.0)
        async with serving(one.world) as scraper:
            found = await scraper.scrape()
        failures = "lean_sandbox_lease_failures_total"
        assert found.value(failures, error="ServerFault") == 1.0
        posted = found.value(
            "lean_sandbox_events_recorded_total", controller="leader-election", outcome="posted"
        )
        assert posted == 1.0
