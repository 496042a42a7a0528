"""A pool that cannot progress: it says so once, makes nothing in vain, and goes on by itself."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.kinds import Kind
from tests.metrics.scrape import scraping
from tests.support.builders import claim, of_image, placed, pool
from tests.support.crowd import seconds_until
from tests.support.extensions import (
    change_pool,
    change_template,
    fill,
    ids,
    members,
    names_of,
    open_pools,
    pool_events,
    pool_status,
    refuse_to_claims,
    rest,
    run_all,
)
from tests.support.names import CLAIMS, SANDBOXES
from tests.support.webhooks import add_webhook
from tests.support.world import NS, World, write_pod_status

Json = dict[str, Any]
NOT_PROGRESSING = "WarmPoolNotProgressing"
STUCK = "lean_sandbox_warmpool_not_progressing"


def refuse(plane: ControlPlane, resource: str, code: int = 403) -> None:
    """Have an admission policy refuse every create of a kind."""
    plane.fail_next("create", resource, code, times=100_000)


def reasons(world: World) -> list[str]:
    """Return the reasons of the Events about pools."""
    return [reason for _, reason, _ in pool_events(world)]


async def test_a_pool_whose_pods_are_refused_keeps_its_members_and_heals_in_seconds() -> None:
    """One Event, no member more than wanted; the end of the policy fills it within 5 s."""
    async with open_pools(sandbox_warm_pool_readiness_grace_period=15.0) as world:
        refuse(world.plane, "pods")
        await world.create(placed())
        await world.create(pool(replicas=2))
        await world.advance(100.0)
        before = ids(members(world))
        assert len(before) == 2
        assert world.writes()["create sandboxes"] == 2
        assert reasons(world) == [NOT_PROGRESSING]
        assert "2/2 sandboxes are refused and tried again: " in pool_events(world)[0][2]
        found = await scraping(world)
        assert [value for _, value in found.find(STUCK, cause="refused")] == [1.0]
        world.plane.faults.clear()
        await world.advance(5.0)
        assert all(world.find("pods", name) for name in names_of(members(world)))
        await run_all(world)
        assert ids(members(world)) == before
        assert reasons(world) == [NOT_PROGRESSING, "WarmPoolProgressing"]


async def test_a_pool_whose_pods_are_refused_makes_no_more_members() -> None:
    """What a claim takes is not replaced in vain: the next one would be refused as well."""
    async with open_pools() as world:
        await fill(world, pool(replicas=3))
        refuse(world.plane, "pods")
        await world.advance(10.0)
        for name in "ab":
            await world.create(claim(name))
            await world.advance(5.0)
        assert world.writes()["create sandboxes"] == 1
        world.plane.faults.clear()
        await world.advance(6.0)
        assert len(members(world)) == 3
        assert world.plane.store.list(CLAIMS, NS)


def _disk(labels: Json | None) -> Json:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": "data", "labels": labels}, "spec": wanted}


def _named(name: str) -> Json:
    return {"containers": [{"name": name, "image": "x"}]}


@pytest.mark.parametrize("strategy", ["OnReplenish", "Recreate"])
@pytest.mark.parametrize(
    ("broken", "mended"),
    [
        (placed(pod_spec=_named("Main")), {"podTemplate": {"spec": _named("main")}}),
        (placed(metadata={"labels": {"no label": "x"}}), {"podTemplate": {"metadata": None}}),
        (
            placed(volumeClaimTemplates=[_disk({"no label": "x"})]),
            {"volumeClaimTemplates": [_disk(None)]},
        ),
    ],
    ids=["spec", "labels of the Pod", "labels of a volume"],
)
async def test_a_template_edit_replaces_refused_members_at_once(
    broken: Json, mended: Json, strategy: str
) -> None:
    """Nobody would take what cannot run, so here even metadata of the template counts.

    One member is fetched to compare it, for all that were made alike.
    """
    async with open_pools() as world:
        await world.create(broken)
        await world.create(pool(replicas=2, strategy=strategy))
        await world.advance(30.0)
        before = ids(members(world))
        assert reasons(world) == [NOT_PROGRESSING]
        said = "2/2 sandboxes are refused until the template is edited: "
        assert said in pool_events(world)[0][2]
        old = names_of(members(world))
        world.forget_requests()
        await change_template(world, mended)
        await rest(world)
        assert sum(one.name in old for one in world.requests("get", "sandboxes")) == 1
        assert len(members(world)) == 2
        assert not ids(members(world)) & before
        await run_all(world)
        assert reasons(world)[-1] == "WarmPoolProgressing"


@pytest.mark.parametrize("reason", ["ErrImagePull", "CrashLoopBackOff"])
async def test_a_template_edit_replaces_members_whose_containers_fail_at_once(reason: str) -> None:
    """They need not wait for the end of their grace; one that only takes its time stays."""
    async with open_pools() as world:
        await world.create(placed())
        await world.create(pool(replicas=2))
        await rest(world)
        failing, slow = names_of(members(world))
        state = {"state": {"waiting": {"reason": reason}}, "image": "busybox", "imageID": ""}
        container = {"name": "main", "ready": False, "restartCount": 0, **state}
        write_pod_status(world.plane, failing, {"containerStatuses": [container]})
        await rest(world)
        await change_template(world, of_image("new")["spec"])
        await rest(world)
        now = names_of(members(world))
        assert len(now) == 2
        assert failing not in now
        assert slow in now


@pytest.mark.parametrize("code", [400, 403, 422, 500])
async def test_a_pool_that_may_create_no_members_says_so_once_and_goes_on_in_seconds(
    code: int,
) -> None:
    """A quota, a policy or a dead webhook for Sandboxes: one Event, a try every few seconds."""
    async with open_pools() as world:
        refuse(world.plane, "sandboxes", code)
        await world.create(placed())
        await world.create(pool(replicas=2))
        await world.advance(600.0)
        assert reasons(world) == [NOT_PROGRESSING]
        assert world.writes()["create sandboxes"] <= 170
        world.plane.faults.clear()
        await world.advance(5.0)
        assert len(members(world)) == 2


@pytest.mark.parametrize("code", [409, 429, 503])
async def test_a_refused_pool_that_meets_another_error_says_nothing_of_progress(code: int) -> None:
    """A busy or restarting server answers one of its tries; nothing was made by that."""
    async with open_pools() as world:
        refuse(world.plane, "sandboxes")
        await world.create(placed())
        await world.create(pool(replicas=2))
        await world.advance(60.0)
        world.plane.faults.clear()
        world.plane.fail_next("create", "sandboxes", code)
        refuse(world.plane, "sandboxes")
        await world.advance(60.0)
        assert [one for one in world.requests("create", "sandboxes") if one.code == code]
        assert reasons(world) == [NOT_PROGRESSING]


async def test_a_pool_that_is_refused_again_for_the_same_reason_says_so_again() -> None:
    """After it has made progress: its patience begins anew, and another Event follows."""
    async with open_pools() as world:
        for replicas in (1, 2):
            refuse(world.plane, "sandboxes")
            if replicas == 1:
                await world.create(placed())
                await world.create(pool(replicas=replicas))
            else:
                await change_pool(world, {"replicas": replicas})
            await world.advance(60.0)
            assert (await scraping(world)).find(STUCK)
            world.plane.faults.clear()
            await world.advance(10.0)
            assert not (await scraping(world)).find(STUCK)
            assert len(members(world)) == replicas
        # Events of the same words are one, which counts them.
        assert reasons(world) == [NOT_PROGRESSING, "WarmPoolProgressing"]


async def test_a_member_that_has_ended_is_replaced_at_once() -> None:
    """It can never become ready, so it does not hold its place for the grace."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        name = names_of(members(world))[0]
        write_pod_status(world.plane, name, {"phase": "Failed"})
        await rest(world)
        assert name not in names_of(members(world))
        assert len(members(world)) == 2


async def test_members_that_have_ended_beside_ready_ones_go_several_at_a_time() -> None:
    """A lost node ends many, and on a slow server the other pools would wait for each of them."""
    async with open_pools() as world:
        await fill(world, pool(replicas=10))
        first, *others = names_of(members(world))
        world.plane.delay("delete", "sandboxes", 1.0)
        for name in others:
            world.plane.store.patch(
                "pods", NS, name, {"status": {"phase": "Failed"}}, subresource="status"
            )
        took_s = await seconds_until(world, lambda: not set(others) & set(names_of(members(world))))
        world.plane.delay("delete", "sandboxes", 0.0)
        assert took_s < 4.0
        assert first in names_of(members(world))


async def test_a_pool_whose_members_all_end_is_no_hot_loop_and_says_so_once() -> None:
    """Pauses between the replacements grow, as between the restarts of a container."""
    async with open_pools() as world:
        await world.create(placed())
        await world.create(pool(replicas=3))
        for _ in range(50):
            for name in names_of(members(world)):
                if world.find("pods", name) is not None:
                    write_pod_status(world.plane, name, {"phase": "Failed"})
            await world.advance(1.0)
        assert world.writes()["create sandboxes"] <= 6
        assert reasons(world) == [NOT_PROGRESSING]
        assert "Pod failed" in pool_events(world)[0][2]
        assert pool_status(world)["replicas"] == 3
        # A pool of none needs none that lasts.
        await change_pool(world, {"replicas": 0})
        await rest(world)
        assert reasons(world) == [NOT_PROGRESSING, "WarmPoolProgressing"]


async def test_members_that_claims_cannot_take_are_replaced_one_at_a_time() -> None:
    """A policy that refuses every adoption does not churn the pool."""
    async with open_pools() as world:
        await fill(world, pool(replicas=3))
        before = ids(members(world))
        first = members(world)[0]
        refuse_to_claims(world, {"metadata": {**first["metadata"], "uid": "another"}})
        await rest(world)
        assert ids(members(world)) == before
        refuse_to_claims(world, *members(world))
        await rest(world)
        assert len(ids(members(world)) & before) == 2
        await world.advance(5.0)
        assert len(ids(members(world)) & before) == 2
        await world.advance(60.0)
        assert not ids(members(world)) & before
        assert len(members(world)) == 3


async def test_members_whose_owner_is_taken_from_them_are_not_made_over_and_over() -> None:
    """A webhook strips owners: each attempt is undone, nothing is left, and one Event says so."""
    is_on = [True]

    def strip(kind: Kind, one: Json) -> None:
        if kind.plural == "sandboxes" and is_on[0]:
            one["metadata"].pop("ownerReferences", None)

    async with open_pools(prepare=lambda plane: add_webhook(plane, strip)) as world:
        await world.create(placed())
        await world.create(pool(replicas=3))
        await world.advance(60.0)
        # The first pauses double from a tenth of a second to the four that follow.
        assert 2 <= world.writes()["create sandboxes"] <= 60.0 / 4.0 + 6
        assert world.plane.store.list(SANDBOXES, NS) == []
        assert reasons(world) == [NOT_PROGRESSING]
        assert "without its pool as owner" in pool_events(world)[0][2]
        is_on.clear()
        is_on.append(False)
        await world.advance(6.0)
        assert len(members(world)) == 3


async def test_a_member_that_lacks_its_service_alone_does_not_hold_up_the_others() -> None:
    """Somebody took its Service, and a claim the member that was ready: two new ones follow."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2), template_body=placed(service=True))
        _, alone = names_of(members(world))
        owners = [world.foreign_owner()]
        await world.patch("services", alone, {"metadata": {"ownerReferences": owners}})
        await world.create(claim())
        await rest(world)
        await run_all(world)
        assert pool_status(world)["readyReplicas"] == 1
        # The one that nobody can use is replaced once its grace is over.
        await rest(world, 600.0)
        await run_all(world)
        assert pool_status(world)["readyReplicas"] == 2
        assert alone not in names_of(members(world))
