"""Whom a pool takes for its own: orphans, members of others, members with a label missing."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.kinds import Kind
from lean_sandbox.model.names import name_hash
from tests.support.builders import claim, orphan, placed, pool
from tests.support.extensions import (
    change_pool,
    change_template,
    fill,
    ids,
    members,
    names_of,
    open_pools,
    pool_status,
    rest,
    run_all,
)
from tests.support.names import (
    CONTROLLER,
    CREATED_BY,
    LAUNCH_TYPE,
    POD_TEMPLATE_HASH,
    POOLS,
    REF_HASH,
    SANDBOXES,
    TEMPLATE_HASH,
    TEMPLATE_REF,
    WARM_POOL,
)
from tests.support.webhooks import add_webhook
from tests.support.world import NS, World, controlled_by, sandbox

Json = dict[str, Any]


def owner_uid(world: World, name: str) -> str | None:
    """Return the uid of the controller of a Sandbox."""
    references = world.get(name)["metadata"].get("ownerReferences") or []
    return next((one["uid"] for one in references if one.get("controller")), None)


@pytest.mark.pool_case(28)
async def test_orphans_that_fit_are_adopted_and_spare_creates() -> None:
    """Pool case 28: owner and launch type come in one patch each; claims may take them."""
    first = orphan("a")
    second = orphan("b")
    del first["metadata"]["labels"][LAUNCH_TYPE]
    async with open_pools(placed(), first, second) as world:
        made = await world.create(pool(replicas=2))
        await run_all(world)
        assert names_of(members(world)) == ["a", "b"]
        for name in ("a", "b"):
            metadata = world.get(name)["metadata"]
            assert metadata["ownerReferences"] == [controlled_by(made)]
            assert metadata["labels"][LAUNCH_TYPE] == "warm"
        assert world.writes()["create sandboxes"] == 0
        assert world.writes()["patch sandboxes"] == 2
        assert pool_status(world)["readyReplicas"] == 2
        await world.create(claim())
        await rest(world)
        bound = world.plane.store.get("sandboxclaims.extensions.agents.x-k8s.io", NS, "c")
        assert bound["status"]["sandbox"]["name"] in ("a", "b")


@pytest.mark.pool_case(28)
async def test_an_orphan_keeps_the_references_of_others() -> None:
    """Pool case 28: who does not control it stays its owner."""
    async with open_pools(placed()) as world:
        friend = {**world.foreign_owner(), "controller": False, "blockOwnerDeletion": False}
        await world.create(orphan("a", owner=friend))
        made = await world.create(pool(replicas=1))
        stored = world.get("a")["metadata"]["ownerReferences"]
        assert [one["uid"] for one in stored] == [friend["uid"], made["metadata"]["uid"]]


@pytest.mark.pool_case(28)
async def test_an_orphan_that_appears_beside_a_running_pool_is_noticed() -> None:
    """Pool case 28: nobody has to touch the pool; what is then too much goes."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        await world.create(orphan("a"))
        await rest(world)
        assert len(members(world)) == 2
        assert pool_status(world)["replicas"] == 2
        await world.create(pool("q", replicas=0))
        await rest(world)
        world.forget_requests()
        await world.advance(600.0)
        assert not world.asked()


@pytest.mark.pool_case(29)
@pytest.mark.parametrize("strategy", ["Recreate", "OnReplenish"])
async def test_an_orphan_of_another_image_is_deleted(strategy: str) -> None:
    """Pool case 29: the labels of an orphan are not trusted, under either strategy."""
    stale = orphan("a", template_body=placed(image="old"))
    right = orphan("b")["metadata"]["labels"]
    stale["metadata"]["labels"] = right
    async with open_pools(placed(), stale) as world:
        await world.create(pool(replicas=1, strategy=strategy))
        await rest(world)
        assert "a" not in names_of(members(world))
        assert len(members(world)) == 1
        assert world.writes()["delete sandboxes"] == 1


@pytest.mark.pool_case(30)
async def test_an_orphan_without_the_hash_of_the_template_is_deleted_unread() -> None:
    """Pool case 30: labels prove it foreign, so nothing is read."""
    stale = orphan("a")
    del stale["metadata"]["labels"][REF_HASH]
    async with open_pools(placed(), stale) as world:
        await rest(world)
        world.forget_requests()
        await world.create(pool(replicas=0))
        await rest(world)
        assert not members(world)
        assert world.writes()["delete sandboxes"] == 1
        assert world.asked()["get sandboxes"] == 0


@pytest.mark.pool_case(31)
async def test_without_a_template_orphans_are_adopted_unchecked() -> None:
    """Pool case 31: there is nothing to compare with."""
    async with open_pools(orphan("a", template_body=placed(image="old"))) as world:
        made = await world.create(pool(replicas=1))
        await rest(world)
        assert owner_uid(world, "a") == made["metadata"]["uid"]


@pytest.mark.pool_case(32, 33, 34, 48)
async def test_whom_others_control_is_neither_counted_nor_touched() -> None:
    """Pool case 32, 33, 34, 48: a ReplicaSet's, another pool's, an orphan, a member, a stranger."""
    async with open_pools(placed(), sandbox("stranger")) as world:
        made = await world.create(pool(replicas=0))
        mine = controlled_by(made)
        other = controlled_by(world.plane.store.create(pool("q", replicas=1)))
        world.plane.store.create(orphan("foreign", owner=world.foreign_owner("ReplicaSet")))
        world.plane.store.create(orphan("other", owner=other))
        world.plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": 2}})
        world.plane.store.create(orphan("own", owner=mine))
        world.plane.store.create(orphan("orphan"))
        await rest(world)
        assert names_of(members(world)) == ["foreign", "orphan", "own"]
        # It is a member of the pool that owns it, which puts its own label back.
        assert names_of(members(world, "q")) == ["other"]
        assert pool_status(world)["replicas"] == 2
        assert world.writes()["create sandboxes"] == 0
        assert world.get("other")["metadata"]["ownerReferences"] == [other]


@pytest.mark.pool_case(35)
async def test_a_missing_launch_type_is_written_once() -> None:
    """Pool case 35: one patch adds it, and the member counts all the while."""
    async with open_pools() as world:
        await fill(world, pool(replicas=1))
        (one,) = members(world)
        name = one["metadata"]["name"]
        await world.patch("sandboxes", name, {"metadata": {"labels": {LAUNCH_TYPE: None}}})
        await rest(world)
        assert world.get(name)["metadata"]["labels"][LAUNCH_TYPE] == "warm"
        assert world.writes() == {"patch sandboxes": 1}
        assert pool_status(world)["replicas"] == 1


@pytest.mark.pool_case(36)
async def test_a_refused_label_is_tried_again_and_costs_no_member() -> None:
    """Pool case 36: 409 on the patch, and never more members than wanted."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        name = names_of(members(world))[0]
        world.plane.fail_next("patch", "sandboxes", 409)
        await world.patch("sandboxes", name, {"metadata": {"labels": {LAUNCH_TYPE: None}}})
        await rest(world)
        assert world.get(name)["metadata"]["labels"][LAUNCH_TYPE] == "warm"
        assert world.writes() == {"patch sandboxes": 2}
        assert len(members(world)) == 2


@pytest.mark.pool_case(28)
async def test_an_orphan_that_somebody_takes_before_the_patch_stays_theirs() -> None:
    """Pool case 28: the adopting patch is guarded by the version that was judged."""
    async with open_pools(placed()) as world:
        theirs = world.foreign_owner()
        await world.create(orphan("a"))

        def take() -> None:
            patch = {"metadata": {"ownerReferences": [theirs]}}
            world.plane.store.patch(SANDBOXES, NS, "a", patch)

        world.meanwhile("patch", "sandboxes", take)
        await world.create(pool(replicas=1))
        await rest(world)
        assert world.get("a")["metadata"]["ownerReferences"] == [theirs]
        assert pool_status(world)["replicas"] == 1


@pytest.mark.pool_case(37)
async def test_orphans_of_other_namespaces_are_no_concern() -> None:
    """Pool case 37: pools look no further than their own namespace."""
    async with open_pools(placed()) as world:
        home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
        world.plane.store.create(home)
        await world.create(orphan("a", namespace="other"))
        await world.create(pool(replicas=1))
        await rest(world)
        stored = world.plane.store.get(SANDBOXES, "other", "a")
        assert "ownerReferences" not in stored["metadata"]
        assert len(members(world)) == 1


ITS = (WARM_POOL, REF_HASH, LAUNCH_TYPE)


@pytest.mark.parametrize(
    ("labels", "notes", "template"),
    [
        ((WARM_POOL,), (), "tpl"),
        ((REF_HASH,), (), "tpl"),
        ((*ITS, CREATED_BY, TEMPLATE_HASH, POD_TEMPLATE_HASH), (), "tpl"),
        # Nothing says what it was made from: it counts as made from what the pool names now.
        ((REF_HASH,), (TEMPLATE_REF,), "u"),
    ],
)
async def test_a_member_that_loses_its_labels_stays_one_and_gets_them_back(
    labels: tuple[str, ...], notes: tuple[str, ...], template: str
) -> None:
    """Law: what a pool owns is its member, is counted, and can be claimed; one patch mends it."""
    async with open_pools(placed("u")) as world:
        await fill(world, pool(replicas=2))
        await change_pool(world, {"sandboxTemplateRef": {"name": "u"}})
        world.forget_requests()
        before = ids(members(world))
        name = names_of(members(world))[0]
        lost = {"labels": dict.fromkeys(labels), "annotations": dict.fromkeys(notes)}
        await world.patch("sandboxes", name, {"metadata": lost})
        await rest(world)
        assert ids(members(world)) == before
        found = world.get(name)["metadata"]["labels"]
        assert [found[key] for key in ITS] == [name_hash("pool"), name_hash(template), "warm"]
        assert world.writes()["patch sandboxes"] == 1
        assert not world.requests("create", "sandboxes")
        assert pool_status(world)["readyReplicas"] == 2
        assert world.pod(name)["metadata"]["labels"][WARM_POOL] == name_hash("pool")


async def test_a_label_that_is_taken_away_with_each_write_is_not_written_over_and_over() -> None:
    """Law: a member that cannot have its label is counted, and costs one patch for all times."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        name = names_of(members(world))[0]

        def strip(kind: Kind, stored: Json) -> None:
            if kind.plural == "sandboxes":
                stored["metadata"].get("labels", {}).pop(WARM_POOL, None)

        add_webhook(world.plane, strip)
        await world.patch("sandboxes", name, {"metadata": {"labels": {WARM_POOL: None}}})
        await world.advance(60.0)
        await change_pool(world, {"readinessGracePeriodSeconds": 600})
        await rest(world)
        assert world.writes()["patch sandboxes"] == 1
        assert not world.requests("create", "sandboxes")


@pytest.mark.pool_case(103)
async def test_members_that_outlive_their_pool_are_adopted_by_the_next_of_that_name() -> None:
    """Pool case 103: deleted with orphans, made again from the same template: nothing is lost."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        before = ids(members(world))
        world.plane.store.delete(POOLS, NS, "pool", policy="Orphan")
        await rest(world)
        assert ids(members(world)) == before
        made = await world.create(pool(replicas=2))
        await rest(world)
        assert ids(members(world)) == before
        assert {owner_uid(world, name) for name in names_of(members(world))} == {
            made["metadata"]["uid"]
        }
        assert world.writes()["create sandboxes"] == 0
        await change_pool(world, {"replicas": 0})
        await rest(world)
        assert not members(world)


@pytest.mark.parametrize("way", ["sandbox", "template"])
async def test_an_orphan_whose_adoption_a_webhook_undoes_is_not_patched_over_and_over(
    way: str,
) -> None:
    """It is left unread until somebody changes it or the template; then it is tried once more."""
    is_on = [True]

    def strip(kind: Kind, one: Json) -> None:
        if kind.plural == "sandboxes" and one["metadata"]["name"] == "a" and is_on:
            one["metadata"].pop("ownerReferences", None)

    async with open_pools(placed(), prepare=lambda plane: add_webhook(plane, strip)) as world:
        await world.create(orphan("a"))
        await world.create(pool(replicas=1))
        await rest(world)
        await change_pool(world, {"replicas": 2})
        await rest(world)

        def asked() -> list[str]:
            sent = [one for one in world.plane.audit.select(user=CONTROLLER) if one.name == "a"]
            about = ("get sandboxes", "patch sandboxes")
            return [one.what for one in sent if one.what in about]

        tried = asked()
        assert 1 <= tried.count("patch sandboxes") <= 2
        await world.advance(600.0)
        assert owner_uid(world, "a") is None
        if way == "sandbox":
            is_on.clear()
        await change_pool(world, {"replicas": 3})
        await rest(world)
        assert asked() == tried
        if way == "sandbox":
            await world.patch("sandboxes", "a", {"spec": {"shutdownPolicy": "Delete"}})
        else:
            metadata = {"podTemplate": {"metadata": {"labels": {"new": "label"}}}}
            await change_template(world, metadata)
        await rest(world)
        assert asked().count("patch sandboxes") == tried.count("patch sandboxes") + 1


@pytest.mark.parametrize("verb", ["get", "patch"])
async def test_an_orphan_that_cannot_be_taken_in_makes_nothing_else_wait(verb: str) -> None:
    """Though it has failed for an hour, the pool is refilled after its delay, as any other."""
    async with open_pools(sandbox_warm_pool_replenish_delay=10.0) as world:
        await fill(world)
        world.plane.fail_next(verb, "sandboxes", 403, times=10_000, match=lambda to: to.name == "a")
        await world.create(orphan("a"))
        await world.advance(3600.0)
        lost = next(name for name in names_of(members(world)) if name != "a")
        await world.delete("sandboxes", lost)
        await world.advance(9.0)
        assert len(members(world)) == 2
        await world.advance(2.0)
        assert len(members(world)) == 3


@pytest.mark.parametrize("act", ["delete", "hold", "own", "detach", "replace"])
async def test_an_orphan_that_is_none_any_more_when_it_is_looked_at_is_left_alone(act: str) -> None:
    """The watch is late; nothing is written to what is going, or has an owner or no label."""
    async with open_pools(placed()) as world:
        changes: dict[str, Json] = {
            "hold": {"finalizers": ["example.com/hold"]},
            "own": {"ownerReferences": [world.foreign_owner()]},
            "detach": {"labels": {WARM_POOL: None}},
        }
        store = world.plane.store
        held = world.plane.hold_events("sandboxes")

        def meanwhile() -> None:
            if act in changes:
                store.patch(SANDBOXES, NS, "a", {"metadata": changes[act]})
            if act in ("delete", "hold", "replace"):
                store.delete(SANDBOXES, NS, "a", grace_s=0)
            if act == "replace":
                store.create(sandbox("a"))

        body = orphan("a")
        # Its labels do not decide whether it fits.
        body["metadata"]["labels"].pop("agents.x-k8s.io/sandbox-template-hash", None)
        store.create(body)
        held.release()
        await world.settle()
        held = world.plane.hold_events("sandboxes")
        world.meanwhile("get", "sandboxes", meanwhile)
        store.create(pool(replicas=1))
        await world.until(lambda: world.requests("get", "sandboxes"))
        await world.moments(300)
        held.release()
        await rest(world)
        patches = [one for one in world.requests("patch", "sandboxes") if one.name == "a"]
        assert all(one.what == "patch sandboxes/status" for one in patches)
        assert len([one for one in members(world) if owner_uid(world, names_of([one])[0])]) >= 1
