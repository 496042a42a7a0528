"""A holder that cannot renew its Lease, or not in time, leads no longer than its deadline."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import anyio
import pytest
from structlog.testing import capture_logs

from lean_sandbox.kube.errors import NotLeaderError
from lean_sandbox.local.request import Target
from tests.manager.foreign import moment
from tests.manager.rig import open_rig
from tests.support.clock import EPOCH


@pytest.mark.parametrize("status", [403, 429, 500, 503])
async def test_a_holder_whose_renewals_fail_leads_until_the_deadline(status: int) -> None:
    """Ten seconds after the last renewal that succeeded was sent, and not one moment longer."""
    async with open_rig() as rig:
        one = rig.contend("one")
        await rig.advance(4.0)
        rig.plane.fail_next("*", "leases", status, times=1000)
        with capture_logs() as logs:
            await rig.advance(9.9)
            assert one.leads
            await rig.advance(0.1)
        assert not one.leads
        assert one.is_done
        assert "not renewed for 10 s" in str(one.elector.loss)
        assert str(status) in str(one.elector.loss)
        assert [line["event"] for line in logs] == ["lease_request_failed", "leadership_lost"]
        with pytest.raises(NotLeaderError, match="not renewed"):
            one.elector.fence()


async def test_a_server_that_comes_back_in_time_changes_nothing() -> None:
    """Renewals are tried every second meanwhile; nine seconds without a server are survived."""
    async with open_rig() as rig:
        one = rig.contend("one")
        await rig.advance(4.0)
        rig.plane.fail_next("*", "leases", 503, times=7)
        await rig.advance(30.0)
        assert one.leads
        assert rig.spec["leaseTransitions"] == 0
        assert moment(rig.spec["acquireTime"]) == EPOCH


async def test_a_server_that_does_not_answer_is_given_two_attempts() -> None:
    """An attempt is given up after half the deadline, and the next one follows at once."""
    async with open_rig() as rig:
        one = await rig.begin("one")
        rig.plane.delay("update", "leases", 1000.0)
        rig.held = 1
        await rig.advance(2.0)
        assert one.elector.problem is None
        await rig.advance(5.0)
        assert type(one.elector.problem).__name__ == "RequestTimeout"
        assert one.leads
        rig.plane.delay("update", "leases", 0.0)
        await rig.advance(2.9)
        assert one.leads
        await rig.advance(0.1)
        assert one.is_done
        assert "no answer within 3 s" in str(one.elector.loss)


async def test_leadership_counts_from_when_a_renewal_was_sent() -> None:
    """Others may have seen it then; how long the answer took is no part of it."""
    async with open_rig() as rig:
        one = await rig.begin("one")
        rig.hold("update")
        await rig.advance(6.0)
        rig.plane.delay("update", "leases", 0.0)
        rig.plane.fail_next("update", "leases", 503, times=1000, match=_after(1))
        await rig.let_go()
        assert moment(rig.spec["renewTime"]) > EPOCH
        await rig.advance(5.9)
        assert one.leads
        await rig.advance(0.1)
        assert not one.leads


def _after(count: int) -> Callable[[Target], bool]:
    """Match all but the first requests."""
    seen = itertools.count()
    return lambda _target: next(seen) >= count


async def test_an_answer_after_the_deadline_brings_nothing_back() -> None:
    """The renewal was carried out, but this process was stopped when the answer came."""
    async with open_rig() as rig:
        one = await rig.begin("one")
        rig.hold("update")
        await rig.advance(2.0)
        rig.clock.leap(8.0)
        assert not one.leads
        await rig.let_go()
        assert moment(rig.spec["renewTime"]) > EPOCH
        assert not one.leads
        await rig.advance(0.0)
        await rig.advance(0.1)
        assert one.is_done


async def test_an_acquisition_answered_too_late_takes_another_write() -> None:
    """Nobody leads by an answer that is older than the deadline."""
    async with open_rig() as rig:
        rig.hold("create")
        one = await rig.begin("one")
        rig.plane.fail_next("update", "leases", 500)
        rig.clock.leap(10.0)
        await rig.let_go()
        assert rig.spec["holderIdentity"] == "one"
        assert not one.elector.acquired.is_set()
        await rig.advance(2.0)
        assert one.leads
        assert rig.spec["leaseTransitions"] == 0


async def test_a_process_that_was_stopped_leads_no_more_before_any_task_has_run() -> None:
    """The fence looks at the clock itself; a release then writes nothing, the Lease expires."""
    async with open_rig() as rig:
        one = rig.contend("one")
        await rig.advance(4.0)
        one.elector.fence()
        rig.clock.leap(9.9)
        one.elector.fence()
        rig.clock.leap(0.1)
        with pytest.raises(NotLeaderError):
            one.elector.fence()
        await one.elector.release()
        assert rig.spec["holderIdentity"] == "one"


@pytest.mark.parametrize("is_ending", [False, True])
async def test_no_renewal_and_no_release_waits_for_an_event(*, is_ending: bool) -> None:
    """As where a webhook for Events does not answer: the requests of the election go first."""
    async with open_rig() as rig:
        rig.plane.delay("create", "events", 1000.0)
        rig.held = 1
        one = await rig.begin("one", with_events=True)
        assert one.leads
        rig.plane.audit.reset()
        if is_ending:
            async with anyio.create_task_group() as group:
                group.start_soon(one.elector.release)
                await rig.advance(1.0)
            assert rig.spec["holderIdentity"] == ""
        else:
            await rig.advance(2.0)
            assert rig.asked(one) == {"update leases": 1}
