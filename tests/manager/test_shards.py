"""Shards: controllers share the load by namespace, each with a standby and a Lease of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import structlog.testing
from hypothesis import given
from hypothesis import strategies as st

from filters import parse_labels
from lean_sandbox.config.options import Settings
from lean_sandbox.local.request import LocalSettings, Target
from lean_sandbox.manager.preflight import LEASE_NAME, lease_of, scope_of
from lean_sandbox.model.names import shard_hash
from lean_sandbox.model.shard import Shard, parse_shard
from tests.manager.replicas import ELECTION_NS, LEASES, Replica, Replicas, open_replicas
from tests.metrics.scrape import serving
from tests.support.builders import claim, pool, template
from tests.support.names import CLAIMS, SANDBOXES
from tests.support.patience import PATIENCE_S
from tests.support.world import running_status, sandbox, write_pod_status

Json = dict[str, Any]
# By CRC-32 two of them are even, two odd; by the server's hash, below and above the middle.
TEAMS = ("lab", "mail", "team-a", "team-b")
MIDDLE = "0x8000000000000000"
EVEN = tuple(team for team in TEAMS if Shard(0, 2).admits(team))
ODD = tuple(team for team in TEAMS if Shard(1, 2).admits(team))
QUICK: Json = {"sandbox_status_window": 1.0, "sandbox_status_step_window": 0.0}
MEMBERS = 1


def by_hash() -> tuple[Settings, Settings]:
    """Nobody enumerates namespaces; the Leases are made of the shards."""
    one, two = (Settings(extensions=True, shard=Shard(index, 2), **QUICK) for index in (0, 1))
    return one, two


def by_range() -> tuple[Settings, Settings]:
    """The server sends each its own, where it can."""
    one, two = (
        Settings(extensions=True, shard=parse_shard(f"{at}/{MIDDLE}"), **QUICK) for at in (0, 1)
    )
    return one, two


def by_name() -> tuple[Settings, Settings]:
    """One names its namespaces, the other serves the rest, whatever will come."""
    return (
        Settings(extensions=True, namespaces=EVEN, **QUICK),
        Settings(
            extensions=True, exclude_namespaces=EVEN, leader_election_lease="the-rest", **QUICK
        ),
    )


SPLITS = {"hash": by_hash, "ranges": by_range, "names": by_name}
SHARDING = LocalSettings(sharded_lists=True)
STOCK = LocalSettings()


def at(namespace: str, body: Json) -> Json:
    """Return an object in another namespace."""
    return {**body, "metadata": {**body["metadata"], "namespace": namespace}}


class Shards:
    """Two shards of two replicas, and the users and the kubelet of four namespaces."""

    def __init__(self, replicas: Replicas) -> None:
        """Hold them; replicas are started shard after shard."""
        self.replicas = replicas
        self.store = replicas.plane.store

    @property
    def leaders(self) -> tuple[Replica, Replica]:
        """Those that work, in the order of the shards; fails unless there is one for each."""
        first, second = (
            [
                one
                for one in self.replicas.all
                if one.elector.is_leader and one.elector.lease == name
            ]
            for name in dict.fromkeys(one.elector.lease for one in self.replicas.all)
        )
        assert (len(first), len(second)) == (1, 1)
        return first[0], second[0]

    async def create(self, bodies: Iterable[Json]) -> None:
        """Create objects and let all work."""
        for body in bodies:
            self.store.create(body)
        await self.replicas.settle()

    async def run_pods(self) -> None:
        """Take each Pod that waits to Ready, as scheduler and kubelets do."""
        for _ in range(3):
            for number, pod in enumerate(self.store.list("pods")):
                namespace = pod["metadata"]["namespace"]
                name = pod["metadata"]["name"]
                if pod.get("status", {}).get("phase") == "Running":
                    continue
                status = running_status(ips=(f"10.244.1.{number + 1}",))
                write_pod_status(self.replicas.plane, name, status, namespace)
            await self.replicas.advance(2.0)

    def writers(self, namespace: str) -> set[str]:
        """Return who has written anything in a namespace."""
        return {
            one.user
            for one in self.replicas.all
            for entry in one.writes()
            if entry.namespace == namespace
        }

    def asked(self, one: Replica, namespaces: Iterable[str]) -> Counter[str]:
        """Return what a replica asked for in namespaces, watches and lists apart."""
        return Counter(
            entry.what
            for entry in self.replicas.plane.audit.select(user=one.user)
            if entry.namespace in namespaces and entry.verb not in ("watch", "list")
        )

    def bound(self, namespace: str) -> list[str]:
        """Return the Sandboxes that the statuses of claims name."""
        held = self.store.list(CLAIMS, namespace)
        return [one["status"]["sandbox"]["name"] for one in held]

    def owners(self, namespace: str) -> Counter[str]:
        """Return how many Sandboxes each owner controls, by kind and name."""
        return Counter(
            f"{owner['kind']}/{owner['name']}"
            for one in self.store.list(SANDBOXES, namespace)
            for owner in one["metadata"].get("ownerReferences", [])
        )


@asynccontextmanager
async def open_shards(
    settings: tuple[Settings, Settings], local: LocalSettings = SHARDING
) -> AsyncIterator[Shards]:
    """Start two shards with a standby each over a control plane with four namespaces."""
    async with open_replicas(local=local) as replicas, anyio.create_task_group() as group:
        for team in TEAMS:
            metadata = {"name": team}
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            replicas.plane.store.create(body)
        shards = Shards(replicas)
        for number, given in enumerate(settings):
            for role in ("leader", "standby"):
                one = await replicas.build(f"{role}-{number}", given)
                group.start_soon(one.run)
                await one.world.until(one.controller.synced.is_set)
                await replicas.settle()
        yield shards
        group.cancel_scope.cancel()


async def filled(shards: Shards) -> None:
    """Give each namespace a template and a full pool."""
    for team in TEAMS:
        await shards.create([at(team, template()), at(team, pool(replicas=MEMBERS))])
    await shards.run_pods()


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
    """The metric names it, the Lease tells what its holder serves."""
    async with open_shards(by_hash()) as shards:
        for number, leader in enumerate(shards.leaders):
            name = f"{LEASE_NAME}-{number}-of-2"
            spec = shards.store.get(LEASES, ELECTION_NS, name)["spec"]
            assert spec["holderIdentity"] == f"leader-{number} shard={number}/2"
            async with serving(leader.world) as scraper:
                found = await scraper.scrape()
            assert found.value("leader_election_master_status", name=name) == 1.0
        assert shards.store.find(LEASES, ELECTION_NS, LEASE_NAME) is None


async def test_what_is_in_namespaces_of_others_is_counted_and_not_kept() -> None:
    """The price of a split by hash: it is received, and dropped before any predicate."""
    async with open_shards(by_hash()) as shards:
        for team in TEAMS:
            await shards.create([at(team, sandbox())])
        even, _ = shards.leaders
        async with serving(even.world) as scraper:
            found = await scraper.scrape()
        name = "lean_sandbox_watch_events_total"
        dropped = found.value(name, resource="sandboxes", outcome="dropped_elsewhere")
        # ADDED and the status of each, at least.
        assert dropped >= len(ODD)
        assert {key.namespace for key in even.world.whole.caches.sandboxes.keys()} == set(EVEN)  # noqa: SIM118


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


# -- which shard serves what -----------------------------------------------------------------------


@given(st.text(alphabet="abcz09-", min_size=1, max_size=63), st.integers(1, 64))
def test_every_namespace_has_exactly_one_shard(namespace: str, count: int) -> None:
    """Whatever it is called and however many they are."""
    assert sum(Shard(index, count).admits(namespace) for index in range(count)) == 1


def test_a_namespace_never_changes_its_shard() -> None:
    """CRC-32 and not Python's hash: two versions of the program must agree."""
    assert [Shard(1, 2).admits(team) for team in TEAMS] == [team in ODD for team in TEAMS]
    assert [Shard(0, 3).admits(name) for name in ("default", "kube-system", "a")] == [
        False,
        False,
        True,
    ]


@given(
    st.text(alphabet="abcz09-", min_size=1, max_size=63),
    st.sets(st.integers(1, 2**64 - 1), min_size=1, max_size=20),
)
def test_ranges_ask_the_server_for_what_they_serve(namespace: str, bounds: set[int]) -> None:
    """Every namespace is in exactly one range, the same here and there."""
    text = ",".join(f"{bound:#018x}" for bound in sorted(bounds))
    serving_it = []
    edges = []
    for index in range(len(bounds) + 1):
        shard = parse_shard(f"{index}/{text}")
        found = re.fullmatch(
            r"shardRange\(object\.metadata\.namespace, '(0x\w{16})', '(0x\w{16,17})'\)",
            shard.selector,
        )
        assert found is not None
        low = int(found[1], 16)
        high = int(found[2], 16)
        edges += [low, high]
        assert shard.admits(namespace) == (low <= shard_hash(namespace) < high)
        serving_it += [index] if shard.admits(namespace) else []
    assert len(serving_it) == 1
    assert (edges[0], edges[-1]) == (0, 2**64)


def test_without_bounds_nothing_is_asked_of_the_server() -> None:
    """CRC-32 is no hash of its."""
    assert Shard(0, 2).selector == ""


@pytest.mark.parametrize(
    ("name", "hashed"),
    [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)],
)
def test_the_servers_hash_is_fnv(name: str, hashed: int) -> None:
    """FNV-1a of 64 bits, by its published vectors."""
    assert shard_hash(name) == hashed


def test_the_bounds_of_the_page_divide_what_there_is() -> None:
    """The command of docs/scale.md prints bounds that --shard takes, and that divide evenly."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "scale.md").read_text()
    found = re.search(r"python -c '\n(.*?)' (\d)", page, re.DOTALL)
    assert found is not None
    names = [f"team-{number % 40}" for number in range(400)]
    done = subprocess.run(  # noqa: S603 -- the page's own words
        [sys.executable, "-c", found[1], "4"],
        input="\n".join([*names, *["team-7"] * 300]),  # one namespace has most of the Sandboxes
        capture_output=True,
        text=True,
        check=True,
    )
    bounds = done.stdout.strip()
    parts = [sum(map(parse_shard(f"{index}/{bounds}").admits, names)) for index in range(4)]
    assert parts == [100, 100, 100, 100]


@given(st.integers(0, 99), st.integers(1, 20), st.sampled_from(["count", "bounds"]))
def test_an_index_counts_modulo_the_count(index: int, count: int, form: str) -> None:
    """So the ordinals of a StatefulSet with twice as many Pods as shards give each a standby."""
    bounds = ",".join(f"{number << 58:#018x}" for number in range(1, count))
    rest = bounds if form == "bounds" and bounds else count
    assert parse_shard(f"{index + count}/{rest}") == parse_shard(f"{index}/{rest}")


NAMESPACES = st.lists(
    st.text(alphabet="abc", min_size=1, max_size=30), min_size=1, max_size=12, unique=True
)


@given(NAMESPACES, NAMESPACES)
def test_scopes_are_equal_exactly_where_the_same_is_served(one: list[str], two: list[str]) -> None:
    """In any order, and also where the text is cut; short and in one line."""
    first = scope_of(Settings(namespaces=tuple(one)))
    second = scope_of(Settings(namespaces=tuple(two)))
    assert (first == second) == (set(one) == set(two))
    assert scope_of(Settings(namespaces=tuple(one))) != scope_of(
        Settings(exclude_namespaces=tuple(one))
    )
    assert 0 < len(first) <= 120
    assert first.isprintable()


def test_without_a_shard_the_lease_is_the_references() -> None:
    """So the two never work at the same time; a name that is given wins."""
    assert lease_of(Settings()) == LEASE_NAME == lease_of(Settings(namespaces=("a",)))
    assert scope_of(Settings()) == ""
    assert lease_of(Settings(shard=Shard(3, 4))) == f"{LEASE_NAME}-3-of-4"
    assert lease_of(Settings(shard=parse_shard(f"1/{MIDDLE}"))) == f"{LEASE_NAME}-1-of-2"
    assert lease_of(Settings(shard=Shard(3, 4), leader_election_lease="mine")) == "mine"
