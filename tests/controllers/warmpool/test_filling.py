"""How a pool is filled: what its members look like, how many there are, what they cost."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.model.names import name_hash
from tests.support.builders import claim, placed, pool
from tests.support.clock import FakeClock
from tests.support.extensions import (
    add_member,
    change_pool,
    fill,
    members,
    names_of,
    open_pools,
    pool_status,
    rest,
    run_all,
)
from tests.support.names import (
    CREATED_BY,
    LAUNCH_TYPE,
    POD_TEMPLATE_HASH,
    REF_HASH,
    SANDBOXES,
    TEMPLATE_HASH,
    TEMPLATE_REF,
    WARM_POOL,
)
from tests.support.volumes import volume
from tests.support.world import NS, controlled_by, open_world

Json = dict[str, Any]
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
POLICY: Json = {"networkPolicy": {}}


@pytest.mark.pool_case(1, 10)
async def test_an_empty_pool_is_filled_with_members_of_its_own() -> None:
    """Pool case 10: prefix, owner, six labels and one annotation are as agreed."""
    async with open_pools(placed()) as world:
        made = await world.create(pool(replicas=3))
        found = members(world)
        assert len(found) == 3
        for one in found:
            metadata = one["metadata"]
            assert metadata["name"].startswith("pool-")
            assert metadata["ownerReferences"] == [controlled_by(made)]
            assert metadata["labels"][WARM_POOL] == name_hash("pool")
            assert metadata["labels"][REF_HASH] == name_hash("tpl")
            assert metadata["labels"][LAUNCH_TYPE] == "warm"
            assert metadata["labels"][CREATED_BY] == "controller"
            assert set(metadata["labels"]) == {
                WARM_POOL,
                REF_HASH,
                LAUNCH_TYPE,
                POD_TEMPLATE_HASH,
                TEMPLATE_HASH,
                CREATED_BY,
            }
            assert metadata["annotations"] == {TEMPLATE_REF: "tpl"}
            assert one["spec"]["operatingMode"] == "Running"


@pytest.mark.pool_case(1)
async def test_a_pool_that_does_not_say_how_many_wants_one() -> None:
    """Pool case 1: replicas reads 1 and one member is created."""
    async with open_pools(placed()) as world:
        made = await world.create(pool(replicas=None))
        assert made["spec"]["replicas"] == 1
        assert len(members(world)) == 1


@pytest.mark.pool_case(11)
async def test_metadata_of_the_template_comes_along_and_reaches_the_pod() -> None:
    """Pool case 11: own keys are kept, the four system labels added; the Pod shows the pool."""
    own = {"labels": {"team": "blue"}, "annotations": {"note": "x"}}
    async with open_pools(placed(metadata=own)) as world:
        await world.create(pool(replicas=1))
        (one,) = members(world)
        metadata = one["spec"]["podTemplate"]["metadata"]
        system = {WARM_POOL, REF_HASH, POD_TEMPLATE_HASH, TEMPLATE_HASH}
        assert set(metadata["labels"]) == {"team", *system}
        assert metadata["annotations"] == {"note": "x", SAFE: "true"}
        labels = world.pod(one["metadata"]["name"])["metadata"]["labels"]
        assert labels["team"] == "blue"
        assert labels[WARM_POOL] == name_hash("pool")
        assert labels[REF_HASH] == name_hash("tpl")
        assert TEMPLATE_HASH not in labels


@pytest.mark.pool_case(12)
async def test_volumes_and_service_are_copied_and_made() -> None:
    """Pool case 12: the Sandbox has both, and so has the cluster."""
    body = placed(volumeClaimTemplates=[volume()], service=True)
    async with open_pools(body) as world:
        await world.create(pool(replicas=1))
        (one,) = members(world)
        assert one["spec"]["volumeClaimTemplates"] == [volume()]
        assert one["spec"]["service"] is True
        name = one["metadata"]["name"]
        assert world.find("persistentvolumeclaims", f"data-{name}") is not None
        assert world.find("services", name) is not None


@pytest.mark.pool_case(13, 14, 15, 16)
@pytest.mark.template_case(14, 42)
@pytest.mark.parametrize(
    ("spec", "pod_spec", "dns", "token"),
    [
        ({}, {}, "None", False),
        ({}, {"automountServiceAccountToken": True}, "None", True),
        ({}, {"dnsPolicy": "ClusterFirst"}, "ClusterFirst", False),
        ({"networkPolicyManagement": "Unmanaged"}, {}, None, False),
        ({"networkPolicyManagement": "Unmanaged", **POLICY}, {}, None, False),
        (POLICY, {}, None, False),
        (POLICY, {"dnsPolicy": "Default"}, "Default", False),
    ],
)
async def test_secure_defaults_reach_the_members(
    spec: Json, pod_spec: Json, dns: str | None, token: object
) -> None:
    """Pool case 13, 14, 15, 16, Template case 14, 42: token and resolvers by the rules."""
    async with open_pools(placed(**(spec or {}), pod_spec=pod_spec)) as world:
        await world.create(pool(replicas=1))
        (one,) = members(world)
        made = one["spec"]["podTemplate"]["spec"]
        assert made["automountServiceAccountToken"] is token
        assert made.get("dnsPolicy") == dns
        public = {"nameservers": ["8.8.8.8", "1.1.1.1"]}
        assert made.get("dnsConfig") == (public if dns == "None" else None)


@pytest.mark.pool_case(17)
@pytest.mark.parametrize(
    ("flag", "own", "expected"),
    [(True, None, "true"), (True, "false", "false"), (False, None, None), (False, "true", "true")],
)
async def test_the_eviction_mark_follows_flag_and_template(
    flag: bool,  # noqa: FBT001
    own: str | None,
    expected: str | None,
) -> None:
    """Pool case 17: the flag adds it, the template decides."""
    metadata = {"annotations": {SAFE: own}} if own else None
    async with open_pools(placed(metadata=metadata), enable_warm_pool_eviction=flag) as world:
        await world.create(pool(replicas=1))
        (one,) = members(world)
        found = one["spec"]["podTemplate"]["metadata"].get("annotations") or {}
        assert found.get(SAFE) == expected


@pytest.mark.pool_case(20, 27)
async def test_a_failed_create_ends_the_groups_of_a_reconcile() -> None:
    """Pool case 20, 27: groups of 1, 2 and 4 are sent, no more; the status is written; a retry."""
    async with open_pools(placed()) as world:
        failing = {"left": 5}

        def sixth(_: object) -> bool:
            failing["left"] -= 1
            return failing["left"] == -1

        world.plane.fail_next("create", "sandboxes", 500, match=sixth)
        await world.create(pool(replicas=12))
        assert len(world.requests("create", "sandboxes")) == 7
        assert len(members(world)) == 6
        assert pool_status(world)["replicas"] == 6
        await rest(world)
        assert len(members(world)) == 12
        assert len(world.requests("create", "sandboxes")) == 13
        assert pool_status(world)["replicas"] == 12


@pytest.mark.pool_case(20)
async def test_a_refusal_ends_a_large_group_as_well() -> None:
    """Pool case 20: of a group of 64, half is on its way and is refused; the rest is not sent."""
    allowed = [63]

    def is_beyond(_: object) -> bool:
        allowed[0] -= 1
        return allowed[0] < 0

    async with open_pools(placed()) as world:
        world.plane.fail_next("create", "sandboxes", 500, times=1000, match=is_beyond)
        world.plane.store.create(pool(replicas=127))
        await world.settle()
        refused = [one for one in world.requests("create", "sandboxes") if one.code == 500]
        assert 1 <= len(refused) <= 32
        world.plane.faults.clear()
        await rest(world, 30.0)
        assert len(members(world)) == 127


@pytest.mark.pool_case(9, 21)
async def test_one_reconcile_creates_no_more_than_a_batch() -> None:
    """Pool case 9, 21: a huge pool grows batch by batch, and can be stopped in between."""
    async with open_pools(placed(), sandbox_warm_pool_max_batch_size=30) as world:
        await world.create(pool(replicas=2147483647))
        assert len(members(world)) == 30
        await world.advance(0.05)
        assert len(members(world)) == 60
        await change_pool(world, {"replicas": 60})
        await rest(world)
        assert len(members(world)) == 60


async def test_filling_costs_three_writes_a_member() -> None:
    """Budget: Sandbox, Pod and one status for each; the pool's own status a few times."""
    count = 40
    async with open_pools(placed()) as world:
        await rest(world)
        world.forget_requests()
        await world.create(pool(replicas=count))
        await run_all(world)
        assert pool_status(world)["readyReplicas"] == count
        writes = world.writes()
        assert writes.pop("patch sandboxwarmpools/status") <= 4
        assert writes == {
            "create sandboxes": count,
            "create pods": count,
            "patch sandboxes/status": count,
        }
        assert world.asked()["get sandboxes"] == 0
        assert not world.conflicts()


async def test_a_member_is_launched_from_the_response_to_its_create_however_late() -> None:
    """The watch shows it seconds before, and nobody fetches it for that."""
    async with open_pools(placed()) as world:
        held = world.plane.hold("create", "sandboxes")
        await world.create(pool(replicas=4))
        await world.advance(5.0)
        assert len(members(world)) == len(held.waiting) == 1
        assert world.asked()["create pods"] == 0
        held.release()
        # After so slow a create the others are left to the next reconcile.
        await rest(world)
        assert world.asked()["create pods"] == 4
        assert world.requests("get", "sandboxes") == []


async def test_a_member_is_launched_at_once_if_the_response_to_its_create_is_lost() -> None:
    """Then it is fetched; nothing waits for a time that somebody has chosen."""
    async with open_pools(placed()) as world:
        world.plane.fail_next("create", "sandboxes", 500, after=True)
        await world.create(pool(replicas=1))
        assert len(members(world)) == 1
        assert world.asked()["create pods"] == 1
        assert len(world.requests("get", "sandboxes")) == 1


async def test_a_member_that_somebody_else_has_made_is_launched_at_once() -> None:
    """No create of ours is in flight."""
    async with open_pools(placed(), pool(replicas=1)) as world:
        await rest(world)
        add_member(world.plane, "theirs")
        await world.settle()
        assert world.find("pods", "theirs") is not None


async def test_a_full_pool_rests() -> None:
    """Budget: a hundred Ready members and an hour of the clock: not one request."""
    async with open_pools() as world:
        await fill(world, pool(replicas=100))
        assert pool_status(world)["readyReplicas"] == 100
        await world.advance(3600.0)
        assert not world.asked()


async def test_a_restart_over_a_full_pool_reads_the_lists_and_writes_nothing() -> None:
    """Budget: each kind is listed once, and that is all that is asked."""
    clock = FakeClock()
    async with ControlPlane(LocalSettings(), clock=clock) as plane:
        async with open_pools(plane=plane, clock=clock) as world:
            await fill(world, pool(replicas=20))
        plane.audit.reset()
        version = plane.store.version
        async with open_pools(plane=plane, clock=clock) as world:
            await rest(world)
            assert all(what.startswith("list ") for what in world.asked())
            assert set(world.asked().values()) == {1}
            assert plane.store.version == version


@pytest.mark.pool_case(93)
async def test_a_claimed_member_is_replaced_by_one_create() -> None:
    """Pool case 93: no delay is set, so the replacement comes with the next reconcile."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        before = names_of(members(world))
        await world.create(claim())
        await rest(world)
        after = names_of(members(world))
        assert len(after) == 2
        assert len(set(before) & set(after)) == 1
        assert world.writes()["create sandboxes"] == 1
        assert world.writes()["delete sandboxes"] == 0


async def test_without_the_extensions_nothing_of_pools_happens() -> None:
    """The pool controller runs only when it is asked for."""
    async with open_world() as world:
        await world.create(placed())
        await world.create(pool(replicas=2))
        await rest(world)
        assert not members(world)
        assert not world.requests("list", "sandboxwarmpools")


async def test_a_pool_with_the_longest_name_has_members() -> None:
    """Law: a name of 253 characters is one as well, of which members have the beginning."""
    name = "p" * 253
    async with open_pools(placed(), pool(name, replicas=2)) as world:
        await rest(world)
        assert len(members(world, name)) == 2


@pytest.mark.parametrize(("lose", "window_s"), [(False, 0.2), (True, 0.05)])
async def test_changes_of_members_are_gathered(
    lose: bool,  # noqa: FBT001
    window_s: float,
) -> None:
    """A pool whose members keep changing, or going, is reconciled once in a window and no more."""
    async with open_pools() as world:
        await fill(world, pool(replicas=50))
        names = names_of(members(world))

        def reconciles() -> int:
            return world.controller.activity().reconciles["sandboxwarmpool"]

        before = reconciles()
        store = world.plane.store
        for number, name in enumerate(names):
            if lose:
                store.delete(SANDBOXES, NS, name)
            else:
                labels = {CREATED_BY: f"user-{number}"}
                store.patch(SANDBOXES, NS, names[0], {"metadata": {"labels": labels}})
            await world.advance(window_s / 10)
        assert reconciles() - before == pytest.approx(5, abs=1)
