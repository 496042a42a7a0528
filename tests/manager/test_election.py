"""Who leads, for how long, and what it asks of the server, over the wire."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from lean_sandbox.local.kinds import to_events
from lean_sandbox.manager.leaderelection import (
    ATTEMPT_S,
    DURATION_S,
    RENEW_DEADLINE_S,
    RETRY_S,
    Elector,
)
from lean_sandbox.manager.preflight import LEASE_NAME
from tests.manager.foreign import moment
from tests.manager.rig import NS, allow, open_rig
from tests.support.clock import EPOCH, FakeClock

DAY_S = 86400.0


async def test_the_first_contender_creates_the_lease() -> None:
    """It is in the form of the reference: whole seconds, MicroTimes, no transition yet."""
    async with open_rig() as rig:
        one = await rig.begin("one")
        assert one.leads
        assert one.elector.acquired.is_set()
        assert one.elector.holder == "one"
        spec = dict(rig.spec)
        assert moment(spec.pop("acquireTime")) == EPOCH
        assert moment(spec.pop("renewTime")) == EPOCH
        assert spec == {"holderIdentity": "one", "leaseDurationSeconds": 15, "leaseTransitions": 0}
        assert rig.asked(one) == {"get leases": 1, "create leases": 1}


async def test_a_holder_renews_with_one_put_every_two_seconds() -> None:
    """No read before it; only the time of renewal changes."""
    async with open_rig() as rig:
        one = await rig.begin("one")
        before = dict(rig.spec)
        rig.plane.audit.reset()
        await rig.advance(60.0)
        assert one.leads
        assert rig.asked(one) == {"update leases": 30}
        after = dict(rig.spec)
        assert (moment(after.pop("renewTime")) - EPOCH).total_seconds() == 60.0
        del before["renewTime"]
        assert after == before


async def test_a_renewal_is_small() -> None:
    """The answer is metadata only, and managedFields are not sent back and forth."""
    async with open_rig() as rig:
        one = await rig.begin("one")
        rig.plane.audit.reset()
        await rig.advance(2.0)
        (renewal,) = rig.requests(one)
        assert renewal.request_bytes < 500
        assert "as=PartialObjectMetadata" in renewal.accept


@pytest.mark.parametrize(("uniform", "gets"), [(0.0, 30), (0.99, 33)])
async def test_a_standby_makes_one_get_a_period_and_nothing_else(uniform: float, gets: int) -> None:
    """It asks every two seconds, at most a tenth of that earlier, and never writes."""
    async with open_rig() as rig:
        await rig.begin("one")
        two = rig.contend("two", uniform=lambda: uniform)
        await rig.settle()
        rig.plane.audit.reset()
        await rig.advance(60.0)
        assert rig.asked(two) == {"get leases": gets}
        assert two.elector.holder == "one"
        assert not two.elector.acquired.is_set()


@pytest.mark.parametrize(("expires", "transitions"), [(False, 0), (True, 5)])
async def test_of_several_that_contend_at_once_one_leads(
    *, expires: bool, transitions: int
) -> None:
    """For a new Lease, or one that expires: the losers are told by a conflict."""
    async with open_rig() as rig:
        if expires:
            rig.put(holderIdentity="gone", leaseDurationSeconds=15, leaseTransitions=4)
        for name in ("one", "two", "three"):
            rig.contend(name)
        await rig.advance(40.0)
        assert sum(one.leads for one in rig.contenders) == 1
        assert rig.spec["leaseTransitions"] == transitions


async def test_when_the_holder_dies_the_other_leads_after_the_duration() -> None:
    """Fifteen seconds after it last saw a renewal, to the moment; times begin anew."""
    async with open_rig() as rig:
        one = rig.contend("one")
        await rig.advance(1.0)
        two = rig.contend("two")
        await rig.advance(10.0)
        last = moment(rig.spec["renewTime"])
        one.kill()
        took_s = await rig.until(lambda: two.leads, within_s=15.0)
        assert took_s >= 13.0
        assert (rig.clock.now() - last).total_seconds() >= 15.0
        assert rig.spec["holderIdentity"] == "two"
        assert rig.spec["leaseTransitions"] == 1
        assert rig.spec["acquireTime"] == rig.spec["renewTime"]
        assert moment(rig.spec["acquireTime"]) > last


async def test_a_graceful_end_hands_over_within_two_seconds() -> None:
    """The record is that of client-go's release, and the transition is counted."""
    async with open_rig() as rig:
        one = rig.contend("one")
        await rig.advance(1.0)
        two = rig.contend("two")
        await rig.advance(10.0)
        await one.elector.release()
        assert not one.leads
        assert rig.spec == {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": "2026-01-02T03:04:16.000000Z",
            "renewTime": "2026-01-02T03:04:16.000000Z",
            "leaseTransitions": 0,
        }
        assert await rig.until(lambda: two.leads, within_s=2.0) <= 2.0
        assert rig.spec["leaseDurationSeconds"] == 15
        assert rig.spec["leaseTransitions"] == 1
        assert one.is_done
        assert one.elector.loss is None


async def test_who_does_not_lead_releases_nothing() -> None:
    """A standby that ends writes nothing, and contends no more."""
    async with open_rig() as rig:
        await rig.begin("one")
        two = await rig.begin("two")
        await two.elector.release()
        await rig.advance(4.0)
        assert rig.spec["holderIdentity"] == "one"
        assert rig.asked(two) == {"get leases": 1}
        assert two.is_done


async def test_a_release_that_fails_is_told_and_changes_nothing_else() -> None:
    """The server is away: the Lease expires by itself, and this process leads no more."""
    async with open_rig() as rig:
        one = await rig.begin("one")
        rig.plane.fail_next("update", "leases", 503)
        with capture_logs() as logs:
            await one.elector.release()
        assert not one.leads
        assert rig.spec["holderIdentity"] == "one"
        assert [line["event"] for line in logs] == ["lease_request_failed"]


async def test_a_release_waits_for_the_renewal_under_way() -> None:
    """So that it does not fail by a conflict with this process itself."""
    async with open_rig() as rig:
        one = await rig.begin("one")
        rig.hold("update")
        await rig.advance(2.0)
        rig.plane.delay("update", "leases", 0.0)
        rig._group.start_soon(one.elector.release)
        await rig.settle()
        assert one.leads
        await rig.let_go()
        assert rig.spec["holderIdentity"] == ""
        assert rig.asked(one) == {"get leases": 1, "create leases": 1, "update leases": 2}


@pytest.mark.parametrize("ahead_s", [-400 * DAY_S, -60.0, 0.0, 60.0, 400 * DAY_S])
async def test_clocks_of_two_machines_are_never_compared(ahead_s: float) -> None:
    """A record is respected for its duration from when it is first seen, whatever it says."""
    async with open_rig() as rig:
        far = FakeClock()
        far.set_wall(ahead_s)
        stamp = far.now().strftime("%Y-%m-%dT%H:%M:%S.000000Z")
        rig.put(
            holderIdentity="foreign",
            leaseDurationSeconds=15,
            acquireTime=stamp,
            renewTime=stamp,
            leaseTransitions=7,
        )
        one = rig.contend("one")
        await rig.advance(14.9)
        assert not one.leads
        await rig.advance(1.2)
        assert one.leads
        assert rig.spec["leaseTransitions"] == 8


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": ""}, {"leaseDurationSeconds": 15}])
async def test_a_lease_that_nobody_holds_is_taken_at_once(spec: dict[str, Any] | None) -> None:
    """Whatever else it says or leaves out."""
    async with open_rig() as rig:
        rig.put(**(spec or {}))
        if spec is None:
            rig.plane.fail_next("get", "leases", 200, body={**(rig.lease() or {}), "spec": None})
        one = await rig.begin("one")
        assert one.leads
        assert rig.spec["leaseTransitions"] == 1


@pytest.mark.parametrize(("spec", "respected_s"), [({}, 15), ({"leaseDurationSeconds": 60}, 60)])
async def test_the_duration_that_counts_is_that_of_the_holder(
    spec: dict[str, int], respected_s: int
) -> None:
    """One that asks to be respected for a minute is; one that says nothing has the usual time."""
    async with open_rig() as rig:
        rig.put(holderIdentity="by hand", **spec)
        one = rig.contend("one")
        await rig.advance(respected_s - 0.1)
        assert not one.leads
        assert await rig.until(lambda: one.leads, within_s=2.0)


@pytest.mark.parametrize("ahead_s", [-DAY_S, -2.0, 2.0, DAY_S])
async def test_jumps_of_the_wall_clock_change_nothing(ahead_s: float) -> None:
    """Neither the holder loses the Lease nor does the standby take it; each renewal is a change."""
    async with open_rig() as rig:
        one = rig.contend("one")
        await rig.advance(1.0)
        two = rig.contend("two")
        stamps = []
        for _ in range(20):
            await rig.advance(2.0)
            stamps.append(rig.spec["renewTime"])
            rig.clock.set_wall(ahead_s)
        assert one.leads
        assert not two.elector.acquired.is_set()
        assert len(set(stamps)) == len(stamps)


# -- what stands in the way ------------------------------------------------------------------------


async def test_without_permission_a_standby_waits_and_says_so_once() -> None:
    """The message names verb and resource; once it is allowed the process leads."""
    async with open_rig(allowed=False) as rig:
        with capture_logs() as logs:
            one = rig.contend("one")
            await rig.advance(60.0)
            assert not one.leads
            allow(rig.plane)
            await rig.advance(2.0)
        assert one.leads
        (told,) = (line for line in logs if line["event"] == "lease_request_failed")
        assert "'get'" in told["error"]
        assert "leases.coordination.k8s.io" in told["error"]
        assert one.elector.problem is None


async def test_a_namespace_that_is_missing_is_waited_for() -> None:
    """Creating the Lease fails until there is a place for it."""
    async with open_rig() as rig:
        rig.plane.store.delete("namespaces", "", NS)
        await rig.plane.settled()
        allow_client = rig.client("admin")
        clock = rig.clock
        elector = Elector(allow_client, namespace=NS, identity="one", clock=clock)
        rig._group.start_soon(elector.run)
        await rig.advance(10.0)
        assert type(elector.problem).__name__ == "NotFound"
        metadata = {"name": NS}
        rig.plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        await rig.advance(2.0)
        assert elector.is_leader


async def test_a_standby_waits_as_long_as_the_server_asks() -> None:
    """Retry-After goes before the period."""
    async with open_rig() as rig:
        rig.plane.fail_next("get", "leases", 429, retry_after=7)
        one = rig.contend("one")
        await rig.advance(6.9)
        assert rig.asked(one) == {"get leases": 1}
        await rig.advance(0.1)
        assert one.leads


async def test_each_change_of_leadership_is_an_event() -> None:
    """About the Lease, of the reason that Kubernetes' own elections have."""
    async with open_rig() as rig:
        one = rig.contend("one", with_events=True)
        await rig.settle()
        await one.elector.release()
        await rig.settle()
        events = [to_events(each) for each in rig.plane.store.list("events.events.k8s.io", NS)]
        notes = {event["note"] for event in events}
        assert notes == {"one became leader", "one stopped leading"}
        assert {event["reason"] for event in events} == {"LeaderElection"}
        assert {event["type"] for event in events} == {"Normal"}
        assert {event["regarding"]["kind"] for event in events} == {"Lease"}
        assert {event["regarding"]["name"] for event in events} == {LEASE_NAME}
        assert rig.requests(one)[-1].what == "update leases"


def test_a_record_is_respected_for_longer_than_its_holder_leads() -> None:
    """The duration is longer than the deadline, which leaves time for a second attempt."""
    assert 0 < RETRY_S < ATTEMPT_S < RENEW_DEADLINE_S < DURATION_S
    assert 2 * ATTEMPT_S <= RENEW_DEADLINE_S
