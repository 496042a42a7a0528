"""A Lease that somebody edits, deletes or takes by force."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from lean_sandbox.local.schema import defaults
from lean_sandbox.manager.preflight import LEASE_NAME
from tests.manager.rig import NS, open_rig


async def test_what_else_a_lease_holds_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels, annotations and fields that are not of the election survive every write."""
    # As with the feature CoordinatedLeaderElection, which a cluster may turn on.
    monkeypatch.delitem(defaults._DEFAULTS, "Lease")
    async with open_rig() as rig:
        rig.put(holderIdentity="", strategy="OldestEmulationVersion", preferredHolder="x")
        marks = {"labels": {"team": "red"}, "annotations": {"note": "keep"}}
        rig.plane.store.patch("leases.coordination.k8s.io", NS, LEASE_NAME, {"metadata": marks})
        one = rig.contend("one")
        await rig.advance(10.0)
        await one.elector.release()
        lease = rig.lease()
        assert lease is not None
        assert lease["metadata"]["labels"] == marks["labels"]
        assert lease["metadata"]["annotations"] == marks["annotations"]
        assert lease["spec"]["strategy"] == "OldestEmulationVersion"
        assert lease["spec"]["preferredHolder"] == "x"


async def test_an_edit_of_something_else_is_no_sign_of_life_and_no_loss() -> None:
    """A label put on the Lease costs the holder one GET, and prolongs nothing."""
    async with open_rig() as rig:
        one = await rig.begin("one")
        two = rig.contend("two")
        label = {"metadata": {"labels": {"team": "red"}}}
        rig.plane.store.patch("leases.coordination.k8s.io", NS, LEASE_NAME, label)
        rig.plane.audit.reset()
        await rig.advance(4.0)
        assert one.leads
        assert rig.asked(one) == {"update leases": 3, "get leases": 1}
        one.kill()
        await rig.advance(8.0)
        label["metadata"]["labels"]["team"] = "blue"
        rig.plane.store.patch("leases.coordination.k8s.io", NS, LEASE_NAME, label)
        assert await rig.until(lambda: two.leads, within_s=9.0)


async def test_a_lease_that_cannot_be_read_after_an_edit_is_left_to_expire() -> None:
    """Its holder leads by its clock, and knows no version at which it could release the Lease."""
    async with open_rig() as rig:
        one = await rig.begin("one")
        label = {"metadata": {"labels": {"team": "red"}}}
        rig.plane.store.patch("leases.coordination.k8s.io", NS, LEASE_NAME, label)
        rig.plane.fail_next("get", "leases", 503)
        await rig.advance(2.0)
        assert one.leads
        await one.elector.release()
        assert rig.spec["holderIdentity"] == "one"


async def test_a_lease_deleted_under_its_holder_is_made_again() -> None:
    """As client-go does; nobody else was told to lead, and this process goes on."""
    async with open_rig() as rig:
        one = rig.contend("one")
        await rig.advance(3.0)
        rig.plane.store.delete("leases.coordination.k8s.io", NS, LEASE_NAME)
        await rig.advance(2.0)
        assert one.leads
        assert rig.spec["holderIdentity"] == "one"
        await rig.advance(20.0)
        assert one.leads


async def test_a_standby_leaves_a_deleted_lease_to_its_holder() -> None:
    """The holder leads on by its clock and makes it again; else another may once it has expired."""
    async with open_rig() as rig:
        one = await rig.begin("one")
        await rig.advance(1.0)
        two = await rig.begin("two")
        await rig.advance(1.5)
        rig.plane.store.delete("leases.coordination.k8s.io", NS, LEASE_NAME)
        await rig.advance(30.0)
        assert one.leads
        rig.plane.store.delete("leases.coordination.k8s.io", NS, LEASE_NAME)
        one.kill()
        assert await rig.until(two.elector.acquired.is_set, 15.0) > 10.0


@pytest.mark.parametrize("is_new", [False, True])
async def test_a_lease_that_is_given_to_another_is_lost_at_the_next_renewal(
    *, is_new: bool
) -> None:
    """By an edit or as a new one: there is no second leader for longer than one period."""
    async with open_rig() as rig:
        one = rig.contend("one")
        await rig.advance(3.0)
        if is_new:
            rig.plane.store.delete("leases.coordination.k8s.io", NS, LEASE_NAME)
            rig.put(holderIdentity="other", leaseDurationSeconds=15, leaseTransitions=0)
        rig.edit(holderIdentity="other")
        with capture_logs() as logs:
            await rig.advance(1.0)
        assert not one.leads
        assert one.is_done
        assert "'other' holds the Lease" in str(one.elector.loss)
        assert [line["log_level"] for line in logs if line["event"] == "leadership_lost"] == [
            "error"
        ]
        await rig.advance(30.0)
        assert rig.spec["holderIdentity"] == "other"


async def test_a_count_of_transitions_that_is_full_keeps_nobody_from_leading() -> None:
    """The field has 32 bits: a server refuses a greater number than the greatest."""
    async with open_rig() as rig:
        rig.put(holderIdentity="", leaseTransitions=2**31 - 1)
        one = await rig.begin("one")
        assert one.leads
        assert rig.spec["leaseTransitions"] == 2**31 - 1
