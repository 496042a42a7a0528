"""What a change of the template does to the members there are."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lean_sandbox.controllers.resolver import TemplateResolver
from lean_sandbox.kube.client import Client
from lean_sandbox.local.kinds import Kind
from lean_sandbox.model.names import name_hash
from lean_sandbox.model.template import TemplateView
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources import build_caches
from lean_sandbox.watch.resources.extensions import TemplateEntry
from tests.support.builders import claim, placed, pool
from tests.support.clock import FakeClock
from tests.support.extensions import (
    bound_name,
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
from tests.support.names import POOLS, REF_HASH, TEMPLATE_HASH, TEMPLATE_REF, TEMPLATES
from tests.support.webhooks import add_webhook
from tests.support.world import NS, World

Json = dict[str, Any]


def disk(name: str = "data", size: str = "1Gi", labels: Json | None = None) -> Json:
    """Return a claim template."""
    metadata: Json = {"name": name}
    if labels:
        metadata["labels"] = labels
    resources = {"requests": {"storage": size}}
    return {
        "metadata": metadata,
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources},
    }


def pod(image: str = "busybox", memory: str | None = None, **more: Any) -> Json:
    """Return the change of a template's Pod."""
    container: Json = {"name": "main", "image": image}
    if memory is not None:
        container["resources"] = {"limits": {"memory": memory}}
    return {"podTemplate": {"spec": {"containers": [container], **more}}}


async def survivors(world: World, before: set[str]) -> int:
    """Let the pool come to rest, full again, and count the members that were there before."""
    await rest(world)
    await run_all(world)
    assert len(members(world)) == len(before)
    return len(before & ids(members(world)))


@pytest.mark.pool_case(75)
async def test_recreate_replaces_all_members_after_an_edit() -> None:
    """Pool case 75: the old ones go, the new ones have the new image and stamp."""
    async with open_pools() as world:
        await fill(world, pool(replicas=3, strategy="Recreate"))
        before = ids(members(world))
        stamp = members(world)[0]["metadata"]["labels"][TEMPLATE_HASH]
        await change_template(world, pod("new"))
        assert await survivors(world, before) == 0
        for one in members(world):
            assert one["spec"]["podTemplate"]["spec"]["containers"][0]["image"] == "new"
            assert one["metadata"]["labels"][TEMPLATE_HASH] != stamp
        writes = world.writes()
        assert writes["delete sandboxes"] == 3
        assert writes["create sandboxes"] == 3
        assert pool_status(world)["readyReplicas"] == 3


@pytest.mark.pool_case(76, 77)
@pytest.mark.parametrize("strategy", [None, "OnReplenish"])
async def test_on_replenish_an_edit_writes_nothing(strategy: str | None) -> None:
    """Pool case 76, 77: no request at all; who comes later is made of the new template."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2, strategy=strategy))
        before = ids(members(world))
        await change_template(world, pod("new"))
        await rest(world)
        assert not world.asked()
        assert ids(members(world)) == before
        await world.delete("sandboxes", names_of(members(world))[0])
        assert await survivors(world, before) == 1
        images = [
            one["spec"]["podTemplate"]["spec"]["containers"][0]["image"] for one in members(world)
        ]
        assert sorted(images) == ["busybox", "new"]


@pytest.mark.pool_case(78, 86)
@pytest.mark.template_case(48)
async def test_metadata_alone_makes_nobody_stale() -> None:
    """Pool case 78, 86, Template case 48: the hash changes, the comparison decides; no write."""
    async with open_pools() as world:
        body = placed(volumeClaimTemplates=[disk()])
        await fill(world, pool(replicas=2, strategy="Recreate"), template_body=body)
        before = ids(members(world))
        await change_template(
            world,
            {
                "podTemplate": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}},
                "volumeClaimTemplates": [disk(labels={"e": "f"})],
            },
        )
        assert await survivors(world, before) == 2
        assert not world.writes()
        await world.advance(3600.0)
        assert not world.writes()


@pytest.mark.pool_case(78, 87)
@pytest.mark.parametrize("edited", [0, 1])
async def test_an_edited_member_is_judged_for_itself(edited: int) -> None:
    """Pool case 78, 87: whichever is compared first, the edited one goes and the other one stays.

    Both have the same stamp, which tells nothing of the template by now.
    """
    async with open_pools() as world:
        await fill(world, pool(replicas=2, strategy="Recreate"))
        before = members(world)
        name = before[edited]["metadata"]["name"]
        await world.patch("sandboxes", name, {"spec": pod("edited")})
        await change_template(world, {"podTemplate": {"metadata": {"labels": {"a": "b"}}}})
        assert await survivors(world, ids(before)) == 1
        assert name not in names_of(members(world))
        assert world.writes()["delete sandboxes"] == 1


@pytest.mark.pool_case(79, 80, 84)
@pytest.mark.parametrize(
    ("first", "change"),
    [
        ({}, {"volumeClaimTemplates": [disk()]}),
        ({"volumeClaimTemplates": [disk()]}, {"volumeClaimTemplates": None}),
        (
            {"volumeClaimTemplates": [disk("a"), disk("b")]},
            {"volumeClaimTemplates": [disk("b"), disk("a")]},
        ),
        ({"volumeClaimTemplates": [disk("a")]}, {"volumeClaimTemplates": [disk("b")]}),
        ({"volumeClaimTemplates": [disk()]}, {"volumeClaimTemplates": [disk(size="2Gi")]}),
        ({}, {"service": True}),
        ({}, {"service": False}),
        (
            {"networkPolicyManagement": "Unmanaged"},
            pod(dnsPolicy="ClusterFirst"),
        ),
    ],
    ids=["added", "removed", "reordered", "renamed", "resized", "service", "no service", "dns"],
)
async def test_what_reaches_the_sandbox_makes_members_stale(first: Json, change: Json) -> None:
    """Pool case 79, 80, 84: volumes in any respect but metadata, the service, the resolvers."""
    async with open_pools() as world:
        await fill(world, pool(replicas=1, strategy="Recreate"), template_body=placed(**first))
        before = ids(members(world))
        await change_template(world, change)
        assert await survivors(world, before) == 0


@pytest.mark.pool_case(81)
async def test_the_same_quantity_in_other_words_is_no_change() -> None:
    """Pool case 81: 1Gi and 1024Mi are one amount."""
    async with open_pools() as world:
        body = placed()
        body["spec"].update(pod(memory="1Gi", nodeName="node-1"))
        await fill(world, pool(replicas=1, strategy="Recreate"), template_body=body)
        before = ids(members(world))
        await change_template(world, pod(memory="1024Mi"))
        assert await survivors(world, before) == 1
        assert not world.writes()


@pytest.mark.pool_case(82)
async def test_another_template_of_the_same_content_replaces_all() -> None:
    """Pool case 82: members carry the name of their template."""
    async with open_pools(placed("u")) as world:
        await fill(world, pool(replicas=2, strategy="Recreate"))
        before = ids(members(world))
        await change_pool(world, {"sandboxTemplateRef": {"name": "u"}})
        assert await survivors(world, before) == 0
        for one in members(world):
            assert one["metadata"]["annotations"][TEMPLATE_REF] == "u"
            assert one["metadata"]["labels"][REF_HASH] == name_hash("u")


@pytest.mark.pool_case(83)
async def test_a_template_concerns_its_own_pools_only() -> None:
    """Pool case 83: the members of the other pool stay."""
    async with open_pools() as world:
        await fill(world, pool(replicas=1, strategy="Recreate"))
        await fill(
            world,
            pool("q", replicas=1, template="u", strategy="Recreate"),
            template_body=placed("u"),
        )
        here = ids(members(world))
        there = ids(members(world, "q"))
        await change_template(world, pod("new"))
        await rest(world)
        assert not here & ids(members(world))
        assert ids(members(world, "q")) == there


@pytest.mark.pool_case(85)
@pytest.mark.template_case(49)
async def test_a_network_policy_changes_the_next_members() -> None:
    """Pool case 85, Template case 49: a matching stamp proves a member fresh; new ones have no DNS.

    The rules of the network are no part of the blueprint, so the stamp stays the same.
    """
    async with open_pools() as world:
        await fill(world, pool(replicas=2, strategy="Recreate"))
        before = ids(members(world))
        await change_template(world, {"networkPolicy": {}})
        assert await survivors(world, before) == 2
        await world.delete("sandboxes", names_of(members(world))[0])
        assert await survivors(world, before) == 1
        (new,) = [one for one in members(world) if one["metadata"]["uid"] not in before]
        assert "dnsPolicy" not in new["spec"]["podTemplate"]["spec"]


@pytest.mark.pool_case(86, 87)
@pytest.mark.parametrize(("stamp", "gets"), [("deadbeef", 1), (None, 3)])
async def test_stamps_of_another_implementation_cost_one_get_for_all(
    stamp: str | None, gets: int
) -> None:
    """Pool case 86, 87: one comparison for equal stamps, none is replaced, no label rewritten.

    Members without one are compared once each.
    """
    async with open_pools() as world:
        await fill(world, pool(replicas=3))
        for name in names_of(members(world)):
            patch = {"metadata": {"labels": {TEMPLATE_HASH: stamp}}}
            world.plane.store.patch("sandboxes.agents.x-k8s.io", NS, name, patch)
        await rest(world)
        before = ids(members(world))
        world.forget_requests()
        await change_pool(world, {"updateStrategy": {"type": "Recreate"}})
        await rest(world)
        assert ids(members(world)) == before
        assert world.asked() == {"get sandboxes": gets, "patch sandboxwarmpools/status": 1}
        assert {one["metadata"]["labels"].get(TEMPLATE_HASH) for one in members(world)} == {stamp}
        await change_pool(world, {"replicas": 2})
        await rest(world)
        assert world.asked()["get sandboxes"] == gets


@pytest.mark.pool_case(88)
async def test_a_stale_member_that_cannot_be_deleted_is_not_replaced_yet() -> None:
    """Pool case 88: 500 on its delete; tried again, and never more members than wanted."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2, strategy="Recreate"))
        before = ids(members(world))
        seen: list[int] = []

        def count(_: object) -> bool:
            seen.append(len(members(world)))
            return False

        world.plane.fail_next("create", "sandboxes", 500, match=count)
        world.plane.fail_next("delete", "sandboxes", 500)
        await change_template(world, pod("new"))
        assert await survivors(world, before) == 0
        assert max(seen) <= 1
        assert len(world.requests("delete", "sandboxes")) == 3


async def test_an_edit_that_meets_the_labelling_of_the_template_is_not_lost() -> None:
    """The label's answer shows a newer version; the spec written before it still arrives."""
    async with open_pools() as world:

        def edit() -> None:
            world.plane.store.patch(TEMPLATES, NS, "tpl", {"spec": pod("new")})

        world.meanwhile("patch", "sandboxtemplates", edit)
        await world.create(placed())
        await world.create(pool(replicas=1))
        await rest(world)
        (one,) = members(world)
        assert one["spec"]["podTemplate"]["spec"]["containers"][0]["image"] == "new"


@pytest.mark.pool_case(82)
async def test_under_on_replenish_another_template_comes_in_by_and_by() -> None:
    """Pool case 82: without Recreate the switch is no reason to write."""
    async with open_pools(placed("u")) as world:
        await fill(world, pool(replicas=1))
        before = ids(members(world))
        world.plane.store.patch(POOLS, NS, "pool", {"spec": {"sandboxTemplateRef": {"name": "u"}}})
        await rest(world)
        assert ids(members(world)) == before
        assert world.writes() == {"patch sandboxwarmpools/status": 1}


@pytest.mark.parametrize(("label", "can_be_claimed"), [(REF_HASH, False), (TEMPLATE_HASH, True)])
async def test_members_that_a_policy_changes_as_they_are_made_are_replaced_only_for_an_edit(
    label: str,
    can_be_claimed: bool,  # noqa: FBT001
) -> None:
    """Neither label nor spec are those of the template; the next would be no other."""

    def change(kind: Kind, one: Json) -> None:
        if kind.plural == "sandboxes":
            one["metadata"].get("labels", {}).pop(label, None)
            one["spec"]["podTemplate"]["spec"]["hostname"] = "theirs"

    async with open_pools(prepare=lambda plane: add_webhook(plane, change)) as world:
        await fill(world, pool(replicas=2, strategy="Recreate"))
        before = ids(members(world))
        await rest(world)
        assert not world.writes()
        await change_template(world, pod("new"))
        assert await survivors(world, before) == 0
        assert world.writes()["create sandboxes"] == 2
        await world.create(claim())
        await rest(world)
        assert (bound_name(world) != "c") is can_be_claimed


def test_verdicts_on_members_go_with_the_template_they_were_made_on() -> None:
    """A claim may still hold the template of a moment ago: its verdicts are not those of now."""
    caches = build_caches()
    resolver = TemplateResolver(cast("Client", None), caches, FakeClock())
    before, now = (TemplateView("tpl", NS, blueprint_hash=name) for name in "ab")
    caches.templates.put(TemplateEntry(Key(NS, "tpl"), "uid", 1, view=now))
    kept = resolver.staleness(now)
    assert resolver.staleness(before).template is before
    assert resolver.staleness(now) is kept
