"""rollout: free members of an old template are replaced, and never too many are missing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lean_sandbox.local.kinds import Kind
from lean_sandbox.model import names
from tests.companions.rolling import (
    NEW,
    change_template,
    image_of,
    images,
    make_ready,
    members,
    old_members,
    open_rolling,
    ready,
    status,
)
from tests.companions.support import PREFIX, annotate, counts, reasons, reports, warned_of
from tests.support.builders import claim, placed
from tests.support.extensions import settings
from tests.support.names import CLAIMS, POOLS, SANDBOXES, TEMPLATES
from tests.support.webhooks import add_webhook
from tests.support.world import NS, open_world

Json = dict[str, Any]


async def test_old_members_are_replaced_one_after_the_other() -> None:
    """The next one goes when the one before is ready again; the end is told."""
    async with open_rolling("1") as world:
        await change_template(world)
        for done in range(4):
            await world.advance(10.0)
            assert (ready(world), len(members(world))) == (3, 4)
            assert status(world) == f"Progressing {done}/4"
            assert old_members(world) == 3 - done
            await make_ready(world)
        await world.advance(10.0)
        assert images(world) == [NEW] * 4
        assert ready(world) == 4
        assert status(world) == "Complete"
        assert sorted(reasons(world)) == ["MemberRenewed", "RolloutComplete"]
        assert warned_of(world) == []
        assert counts(world, "rollout") == {"MemberRenewed": 4, "RolloutComplete": 1}


@pytest.mark.parametrize(("wish", "missing"), [("74%", 2), ("5%", 1), ("100%", 4), ("3", 3)])
async def test_as_many_are_missing_as_the_annotation_permits(wish: str, missing: int) -> None:
    """A part is of all members, rounded down, at least one; they go without a pause."""
    async with open_rolling(wish) as world:
        await change_template(world)
        for after_s in (1.0, 20.0):
            await world.advance(after_s)
            assert ready(world) == 4 - missing
            assert images(world).count(NEW) == missing


async def test_a_member_costs_one_get_and_one_delete_and_a_step_one_patch() -> None:
    """Beside what the controller does to make the next one."""
    async with open_rolling("2") as world:
        await change_template(world)
        await world.advance(10.0)
        made = world.asked()
        assert made["delete sandboxes"] == 2
        assert made["patch sandboxwarmpools"] == 1
        # One for the state of the template, one to be sure of it before each DELETE.
        assert made["get sandboxtemplates"] == 3
        # One member tells of all that were made alike.
        assert made["get sandboxes"] == 1
        world.forget_requests()
        await make_ready(world)
        await world.advance(10.0)
        made = world.asked()
        assert made["delete sandboxes"] == 2
        assert made["patch sandboxwarmpools"] == 1
        assert made["get sandboxtemplates"] == 2
        assert made["get sandboxes"] == 0


async def test_without_the_annotation_old_members_stay() -> None:
    """As the lazy strategy leaves them, and not one request is made."""
    async with open_rolling(None) as world:
        await change_template(world)
        await world.advance(60.0)
        assert images(world) == ["busybox"] * 4
        assert "get sandboxtemplates" not in world.asked()
        assert not reports(world)


async def test_members_of_the_same_template_stay() -> None:
    """A change of labels makes nobody old."""
    async with open_rolling("1") as world:
        before = [one["metadata"]["uid"] for one in members(world)]
        body = placed(metadata={"labels": {"team": "a"}})
        await world.patch(TEMPLATES, "tpl", {"spec": body["spec"]})
        await world.advance(60.0)
        assert [one["metadata"]["uid"] for one in members(world)] == before
        assert status(world) is None
        assert not reports(world)


async def test_members_of_another_controller_are_compared_by_what_they_are_made_of() -> None:
    """Its stamps are other hashes: one GET for all that were made alike."""
    async with open_rolling("1") as world:
        for one in members(world):
            stamp = {"metadata": {"labels": {"agents.x-k8s.io/sandbox-template-hash": "81c9dc5f"}}}
            world.plane.store.patch(SANDBOXES, NS, one["metadata"]["name"], stamp)
        await world.advance(10.0)
        assert world.asked()["get sandboxes"] == 1
        assert world.asked()["delete sandboxes"] == 0
        await change_template(world)
        await world.advance(10.0)
        assert world.asked()["delete sandboxes"] == 1


async def test_a_member_that_goes_before_it_is_compared_is_not_old() -> None:
    """Nothing is asked about it again."""
    async with open_rolling("1", replicas=1) as world:

        def remove() -> None:
            world.plane.store.delete(SANDBOXES, NS, members(world)[0]["metadata"]["name"])

        world.meanwhile("get", "sandboxes", remove)
        await change_template(world)
        await world.advance(10.0)
        assert images(world) == [NEW]
        assert world.asked()["get sandboxes"] == 1
        assert world.asked()["delete sandboxes"] == 0


async def test_the_status_is_written_every_five_seconds_at_most() -> None:
    """While its numbers alone change; the end is told at once."""
    async with open_rolling("1", replicas=2) as world:
        await change_template(world)
        await world.advance(1.0)
        await make_ready(world)
        await world.advance(1.0)
        assert status(world) == "Progressing 0/2"
        await world.advance(4.0)
        assert status(world) == "Progressing 1/2"
        await make_ready(world)
        await world.advance(1.0)
        assert status(world) == "Complete"


async def test_claimed_sandboxes_are_left_alone() -> None:
    """Whatever they were made of."""
    async with open_rolling("100%") as world:
        await world.create(claim())
        await make_ready(world)
        await world.advance(10.0)
        name = world.plane.store.get(CLAIMS, NS, "c")["status"]["sandbox"]["name"]
        await change_template(world)
        await world.advance(10.0)
        await make_ready(world)
        await world.advance(10.0)
        assert images(world) == [NEW] * 4
        assert image_of(world.plane.store.get(SANDBOXES, NS, name)) == "busybox"


async def test_a_member_that_a_claim_takes_before_the_delete_stays() -> None:
    """The DELETE names the version at which it was free."""
    async with open_rolling("1") as world:

        def take() -> None:
            for one in members(world):
                labels = {"agents.x-k8s.io/warm-pool-sandbox": None}
                taken = {"metadata": {"ownerReferences": None, "labels": labels}}
                world.plane.store.patch(SANDBOXES, NS, one["metadata"]["name"], taken)

        before = {one["metadata"]["uid"] for one in members(world)}
        world.meanwhile("delete", "sandboxes", take)
        await change_template(world)
        await world.advance(2.0)
        left = {one["metadata"]["uid"] for one in world.plane.store.list(SANDBOXES, NS)}
        assert before <= left


async def test_members_that_claims_take_count_as_missing() -> None:
    """While as many as are permitted are missing anyway, none is deleted."""
    async with open_rolling("1") as world:
        await world.create(claim())
        await world.advance(1.0)
        await change_template(world)
        await world.advance(60.0)
        assert images(world) == ["busybox"] * 3 + [NEW]
        assert ready(world) == 3
        await make_ready(world)
        await world.advance(10.0)
        assert images(world) == ["busybox"] * 2 + [NEW] * 2


async def test_old_members_that_never_became_ready_are_replaced_too() -> None:
    """A template that was mended renews them, no more at a time than permitted."""
    async with open_rolling("2", replicas=2) as world:
        await world.patch(POOLS, "pool", {"spec": {"replicas": 6}})
        await world.advance(10.0)
        assert ready(world) == 2
        await change_template(world)
        await world.advance(10.0)
        assert images(world).count(NEW) == 2
        assert ready(world) == 2
        await make_ready(world, NEW)
        await world.advance(10.0)
        assert images(world).count(NEW) == 4
        assert ready(world) == 4


async def test_a_new_template_that_does_not_work_stops_the_rollout() -> None:
    """Only so many are missing, and a Warning names a Sandbox that is why, once."""
    async with open_rolling("2", sandbox_warm_pool_readiness_grace_period=3600.0) as world:
        await world.patch(POOLS, "pool", {"spec": {"readinessGracePeriodSeconds": 60}})
        await change_template(world)
        await world.advance(20.0)
        assert "RolloutStalled" not in reasons(world)
        await world.advance(60.0)
        assert ready(world) == 2
        assert status(world) == "Stalled 0/4"
        (why,) = [note for _, reason, note in reports(world) if reason == "RolloutStalled"]
        assert "2 of 4 members are missing or not ready" in why
        assert "permits 2" in why
        assert why.count('sandbox "pool-') == 1
        assert counts(world, "rollout")["RolloutStalled"] == 1
        assert warned_of(world) == ["RolloutStalled"]
        await change_template(world, "busybox:3")
        await world.advance(10.0)
        for _ in range(4):
            await make_ready(world)
            await world.advance(10.0)
        assert images(world) == ["busybox:3"] * 4
        assert status(world) == "Complete"


async def test_members_that_a_policy_changes_as_they_are_made_are_not_replaced_over_and_over() -> (
    None
):
    """After growing pauses one is tried again, as the controller may only have been late."""
    async with open_rolling("2") as world:

        def change(kind: Kind, obj: Json) -> None:
            if kind.plural == "sandboxes" and world.plane.clock.now() < mended:
                obj["metadata"].setdefault("labels", {})[names.TEMPLATE_HASH_LABEL] = "81c9dc5f"
                obj["spec"]["podTemplate"]["spec"]["schedulerName"] = "another"

        mended = world.plane.clock.now() + timedelta(minutes=20)
        add_webhook(world.plane, change)
        await change_template(world)
        await world.advance(60.0)
        assert 2 < counts(world, "rollout")["MemberRenewed"] <= 5
        assert status(world) == "Progressing 0/4"
        await world.advance(1100.0)
        assert 6 < counts(world, "rollout")["MemberRenewed"] < 12
        assert status(world) == "Stalled 0/4"
        assert counts(world, "rollout")["RolloutStalled"] == 1
        (why,) = [note for _, reason, note in reports(world) if reason == "RolloutStalled"]
        assert "policy" in why
        for _ in range(4):
            await make_ready(world)
            await world.advance(100.0)
        assert status(world) == "Complete"


async def test_a_template_that_cannot_be_used_makes_nobody_old() -> None:
    """The status says that nothing goes on, and the Event what is wrong."""
    async with open_rolling("1") as world:
        broken = {"spec": {"podTemplate": {"metadata": {"labels": {"a": "b" * 300_000}}}}}
        world.plane.store.patch(TEMPLATES, NS, "tpl", broken)
        await world.advance(60.0)
        assert images(world) == ["busybox"] * 4
        assert status(world) == "Stalled"
        ((kind, reason, note),) = reports(world)
        assert (kind, reason) == ("SandboxWarmPool", "RolloutStalled")
        assert 'SandboxTemplate "tpl" cannot be used' in note


@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_template_that_is_gone_makes_nobody_old(*, is_seen: bool) -> None:
    """The controller could not make the next ones; the watch may not have shown its end yet."""
    async with open_rolling("1") as world:

        def remove() -> None:
            world.plane.store.delete(TEMPLATES, NS, "tpl")

        if is_seen:
            remove()
        else:
            world.meanwhile("get", "sandboxtemplates", remove)
            await change_template(world)
        await world.advance(60.0)
        assert images(world) == ["busybox"] * 4


async def test_a_wrong_value_is_told_once_and_nothing_is_deleted() -> None:
    """The Event names the annotation and what it may be."""
    async with open_rolling("0") as world:
        await change_template(world)
        await world.advance(60.0)
        assert images(world) == ["busybox"] * 4
        ((kind, reason, note),) = reports(world)
        assert (kind, reason) == ("SandboxWarmPool", "InvalidAnnotation")
        assert PREFIX + "rolling-update" in note
        assert "from 1% to 100%" in note
        await annotate(world, POOLS, "pool", rolling_update="4")
        await world.advance(10.0)
        assert images(world) == [NEW] * 4


@pytest.mark.parametrize(("wish", "told"), [("1", "to OnReplenish"), ("x", "from 1% to 100%")])
async def test_a_pool_with_the_strategy_recreate_is_told_what_to_do(wish: str, told: str) -> None:
    """Its controller replaces all at once, so a rolling update has no meaning."""
    async with open_rolling(wish, strategy="Recreate") as world:
        await world.advance(10.0)
        ((_, reason, note),) = reports(world)
        assert reason == "InvalidAnnotation"
        assert told in note
        world.forget_requests()
        await world.advance(600.0)
        assert not world.asked(events=True)


async def test_whoever_takes_the_annotation_off_ends_the_rollout() -> None:
    """The status goes with it, and the rest stays as it is."""
    async with open_rolling("1") as world:
        await change_template(world)
        await world.advance(10.0)
        await annotate(world, POOLS, "pool", rolling_update=None)
        await make_ready(world)
        await world.advance(60.0)
        assert images(world) == ["busybox"] * 3 + [NEW]
        assert status(world) is None


async def test_a_policy_that_drops_the_status_makes_no_loop() -> None:
    """It is written again when it says something else."""
    async with open_rolling("1") as world:
        await change_template(world)
        await world.advance(10.0)
        world.forget_requests()
        for _ in range(5):
            await annotate(world, POOLS, "pool", rollout_status=None)
            await world.advance(10.0)
        assert world.asked()["patch sandboxwarmpools"] == 0


async def test_the_end_is_told_where_one_step_is_enough() -> None:
    """The status is written before the first member goes."""
    async with open_rolling("1", replicas=1) as world:
        world.plane.fail_next("patch", "sandboxwarmpools", 503)
        await change_template(world)
        await world.advance(10.0)
        await make_ready(world)
        await world.advance(10.0)
        assert status(world) == "Complete"
        assert "RolloutComplete" in reasons(world)


async def test_a_restart_goes_on_where_it_was() -> None:
    """What is new and what is old is seen again, and no more are missing than before."""
    async with open_rolling("1") as world:
        await change_template(world)
        await world.advance(10.0)
        given_ = settings(companions=("rollout",))
        async with open_world(given_, plane=world.plane, clock=world.clock) as after:
            await after.advance(10.0)
            assert ready(after) == 3
            assert status(after) == "Progressing 0/4"


@pytest.mark.parametrize("is_gone", [True, False])
async def test_a_member_whose_deletion_failed_is_looked_at_first(*, is_gone: bool) -> None:
    """It may be gone all the same: a GET says so where the watch lags, and no other one goes."""
    async with open_rolling("1") as world:
        world.plane.fail_next("delete", "sandboxes", 503, after=is_gone)
        held = world.plane.hold_events("sandboxes")
        await change_template(world)
        await world.advance(60.0)
        asked = world.asked()
        # The other one tells which template the stamp of the members stands for.
        assert asked["get sandboxes"] == 2
        assert asked["delete sandboxes"] == (1 if is_gone else 2)
        held.release()
        await world.advance(60.0)
        assert (ready(world), len(members(world))) == (3, 4)


async def test_a_change_of_the_template_that_the_watch_has_not_shown_deletes_no_new_member() -> (
    None
):
    """Before a step the template is fetched: members of the newest state are not old."""
    async with open_rolling("4") as world:
        before = {one["metadata"]["uid"] for one in members(world)}

        def change_back() -> None:
            world.plane.store.patch(TEMPLATES, NS, "tpl", {"spec": placed()["spec"]})

        await change_template(world)
        world.meanwhile("get", "sandboxes", change_back)
        await world.advance(30.0)
        assert {one["metadata"]["uid"] for one in members(world)} == before


async def test_a_template_that_was_made_anew_makes_members_old() -> None:
    """It has the name of the one before, and its generation, but another uid."""
    async with open_rolling("4") as world:
        world.plane.store.delete(TEMPLATES, NS, "tpl")
        world.plane.store.create(placed(image=NEW))
        for _ in range(4):
            await world.advance(5.0)
            await make_ready(world)
        assert images(world) == [NEW] * 4
