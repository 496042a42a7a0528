"""Shards: controllers share the load by namespace, each with a standby and a Lease of its own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import structlog.testing

from filters import parse_labels
from lean_sandbox.config.options import Settings
from lean_sandbox.local.request import LocalSettings, Target
from lean_sandbox.manager.preflight import LEASE_NAME
from tests.manager.replicas import ELECTION_NS, LEASES, open_replicas
from tests.manager.shards import (
    EVEN,
    MEMBERS,
    ODD,
    QUICK,
    SHARDING,
    SPLITS,
    TEAMS,
    Shards,
    at,
    by_hash,
    by_range,
    filled,
    open_shards,
)
from tests.metrics.scrape import serving
from tests.support.builders import claim
from tests.support.names import SANDBOXES
from tests.support.patience import PATIENCE_S
from tests.support.world import sandbox

Json = dict[str, Any]
STOCK = LocalSettings()


@pytest.mark.parametrize("split", SPLITS)
async def test_each_object_is_handled_by_exactly_one(split: str) -> None:
    """In the audit log nobody asks for anything in a namespace of the other, nor do standbys."""
    async with open_shards(SPLITS[split]()) as shards:
        await filled(shards)
        for team in TEAMS:
            await shards.create([at(team, claim()), at(team, sandbox("cold"))])
        await shards.run_pods()
        even, odd = shards.leaders
        for leader, own, others in ((even, EVEN, ODD), (odd, ODD, EVEN)):
            assert {user for team in own for user in shards.writers(team)} == {leader.user}
            assert not shards.asked(leader, others)
            for kept in (leader.world.whole.caches.sandboxes, leader.world.whole.caches.pods):
                assert {key.namespace for key in kept.keys()} == set(own)  # noqa: SIM118
        for team in TEAMS:
            assert len(shards.bound(team)) == 1
            assert shards.owners(team) == {"SandboxClaim/c": 1, "SandboxWarmPool/pool": MEMBERS}
            assert shards.store.find("pods", team, "cold") is not None


async def test_shards_of_sandboxes_can_go_by_label() -> None:
    """Without claims and pools a selector divides as well, even inside of a namespace."""
    one, two = (
        Settings(
            sandbox_label_selector=parse_labels(selector),
            leader_election_lease=f"shard-{number}",
            **QUICK,
        )
        for number, selector in enumerate(("size=big", "size!=big"))
    )
    async with open_shards((one, two)) as shards:
        for number, size in enumerate(("big", "small", "big", "small")):
            body = at("team-a", sandbox(f"sb-{number}"))
            body["metadata"]["labels"] = {"size": size}
            await shards.create([body])
        await shards.run_pods()
        for leader, names in zip(shards.leaders, (("sb-0", "sb-2"), ("sb-1", "sb-3")), strict=True):
            created = [entry for entry in leader.writes() if entry.what == "create pods"]
            patched = {entry.name for entry in leader.writes() if entry.what.endswith("/status")}
            assert len(created) == 2
            assert patched == set(names)
        assert len(shards.store.list("pods", "team-a")) == 4


@pytest.mark.parametrize(
    ("split", "verb", "resource"),
    [
        ("hash", "patch", "sandboxes"),
        ("hash", "patch", "sandboxclaims/status"),
        ("hash", "create", "sandboxes"),
        ("names", "patch", "sandboxes"),
    ],
)
async def test_the_standby_of_a_shard_takes_over_without_doubling_anything(
    split: str, verb: str, resource: str
) -> None:
    """Its leader dies while the request is on its way; the other shard goes on undisturbed."""
    async with open_shards(SPLITS[split]()) as shards:
        await filled(shards)
        dying, other = shards.leaders
        shards.replicas.plane.audit.reset()
        deaths: list[str] = []

        def die(target: Target) -> bool:
            if target.verb == verb and target.namespace in EVEN and not deaths:
                deaths.append(target.namespace)
                dying.scope.cancel()
            return False

        shards.replicas.plane.fail_next(verb, resource, 500, match=die)
        for team in TEAMS:
            shards.store.create(at(team, claim()))
        with anyio.fail_after(PATIENCE_S):
            while not dying.has_ended:
                await shards.replicas.clock.advance(0.1)
                for _ in range(100):
                    await anyio.lowlevel.checkpoint()
        assert deaths
        await shards.replicas.advance(20.0)
        await shards.run_pods()
        heir, same = shards.leaders
        assert heir is shards.replicas.all[1]
        assert same is other
        for team in TEAMS:
            assert len(shards.bound(team)) == 1
            assert shards.owners(team) == {"SandboxClaim/c": 1, "SandboxWarmPool/pool": MEMBERS}
            sandboxes = {one["metadata"]["name"] for one in shards.store.list(SANDBOXES, team)}
            assert len(shards.store.list("pods", team)) == len(sandboxes)
            assert set(shards.bound(team)) <= sandboxes
        # One replacement a claim was made in all, whoever made it.
        made = Counter(
            entry.namespace
            for one in shards.replicas.all
            for entry in one.writes()
            if entry.what == "create sandboxes" and entry.code == 201
        )
        assert made == dict.fromkeys(TEAMS, 1)
        assert not shards.asked(heir, ODD)
        assert not shards.asked(other, EVEN)


async def test_two_shards_on_one_lease_are_both_named() -> None:
    """The one that cannot work says who works instead, and how both can."""
    async with open_replicas() as replicas, anyio.create_task_group() as group:
        with structlog.testing.capture_logs() as logs:
            for name, given in (
                ("one", Settings(namespaces=("team-b", "team-a"))),
                ("two", Settings(namespaces=("team-c",))),
                ("same", Settings(namespaces=("team-a", "team-b"))),
                ("all", Settings()),
            ):
                one = await replicas.build(name, given)
                group.start_soon(one.run)
                await one.world.until(one.controller.synced.is_set)
                await replicas.settle()
            await replicas.advance(10.0)
        group.cancel_scope.cancel()
    told = [line for line in logs if line["event"] == "lease_of_another_shard"]
    # Once by each that would serve something else.
    assert [(line["served"], line["unserved"]) for line in told] == [
        ("namespaces=team-a,team-b", "namespaces=team-c"),
        ("namespaces=team-a,team-b", "everything else"),
    ]
    assert {line["holder"] for line in told} == {"one namespaces=team-a,team-b"}
    assert all("--leader-election-lease" in line["fix"] for line in told)
    assert {line["lease"] for line in told} == {LEASE_NAME}


async def test_a_shard_beside_one_that_serves_everything_waits_in_silence() -> None:
    """Nothing stays unserved: so it is on the way from one controller to shards."""
    async with open_replicas("all") as replicas, anyio.create_task_group() as group:
        with structlog.testing.capture_logs() as logs:
            one = await replicas.build("one", Settings(namespaces=("team-a",)))
            group.start_soon(one.run)
            await one.world.until(one.controller.synced.is_set)
            await replicas.advance(5.0)
        group.cancel_scope.cancel()
    assert not [line for line in logs if line["event"] == "lease_of_another_shard"]


async def test_each_shard_has_its_lease_and_tells_of_it() -> None:
    """The metric names it, the Lease tells what its holder serves.

    What is in namespaces of others is counted: a split by hash has it received.
    """
    async with open_shards(by_hash()) as shards:
        for team in TEAMS:
            await shards.create([at(team, sandbox())])
        for number, leader in enumerate(shards.leaders):
            name = f"{LEASE_NAME}-{number}-of-2"
            spec = shards.store.get(LEASES, ELECTION_NS, name)["spec"]
            assert spec["holderIdentity"] == f"leader-{number} shard={number}/2"
            async with serving(leader.world) as scraper:
                found = await scraper.scrape()
            assert found.value("leader_election_master_status", name=name) == 1.0
            events = "lean_sandbox_watch_events_total"
            dropped = found.value(events, resource="sandboxes", outcome="dropped_elsewhere")
            assert dropped >= len(ODD)
        assert shards.store.find(LEASES, ELECTION_NS, LEASE_NAME) is None


@pytest.mark.parametrize("local", [SHARDING, STOCK], ids=["sharding", "stock"])
async def test_a_server_that_shards_sends_each_only_its_own(local: LocalSettings) -> None:
    """By ranges it filters lists and watches; one that ignores them costs bytes, and is told of."""
    with structlog.testing.capture_logs() as logs:
        async with open_shards(by_range(), local) as shards:
            await filled(shards)
            await shards.create([at(team, claim()) for team in TEAMS])
            late = await shards.replicas.build("late", by_range()[0])
            async with anyio.create_task_group() as group:
                group.start_soon(late.run)
                await late.world.until(late.controller.synced.is_set)
                group.cancel_scope.cancel()
            for leader, own in zip(shards.leaders, (EVEN, ODD), strict=True):
                caches = leader.world.whole.all_caches
                sandboxes = leader.world.whole.caches.sandboxes
                assert {one.key.namespace for one in sandboxes} == set(own)
                foreign = sum(cache.dropped_elsewhere for cache in caches)
                served = sum(cache.passed + cache.dropped_unchanged for cache in caches)
                assert foreign == 0 if local.sharded_lists else foreign > served
    told = {line["kind"] for line in logs if line["event"] == "shard_selector_ignored"}
    assert ("sandboxes" in told) == (not local.sharded_lists)


async def test_two_shards_by_ranges_receive_half_each() -> None:
    """Budget: what lists and watches bring to either of two, against what they bring to one.

    The description of a Table's columns comes to each.
    """

    async def received(*settings: Settings) -> list[int]:
        async with open_replicas(local=SHARDING) as replicas, anyio.create_task_group() as group:
            for team in TEAMS:
                metadata = {"name": team}
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
                replicas.plane.store.create(body)
            shards = Shards(replicas)
            for number, given in enumerate(settings):
                one = await replicas.build(f"r-{number}", given)
                group.start_soon(one.run)
                await one.world.until(one.controller.synced.is_set)
            for number in range(10):
                await shards.create([at(team, sandbox(f"sb-{number}")) for team in TEAMS])
            await shards.run_pods()
            group.cancel_scope.cancel()
            entries = (*replicas.plane.audit.entries, *replicas.plane.pending)
            unique = {id(one): one for one in entries if one.verb in ("list", "watch")}.values()
        return [
            sum(entry.response_bytes for entry in unique if entry.user == one.user)
            for one in replicas.all
        ]

    (whole,) = await received(Settings(extensions=True, **QUICK))
    for part in await received(*by_range()):
        assert 0.45 * whole < part < 0.57 * whole
