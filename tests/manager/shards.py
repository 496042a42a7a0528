"""Two shards of two replicas each, and how the load is split between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel

from lean_sandbox.config.options import Settings
from lean_sandbox.local.request import LocalSettings
from lean_sandbox.model.shard import Shard, parse_shard
from tests.manager.replicas import Replica, Replicas, open_replicas
from tests.support.builders import pool, template
from tests.support.names import CLAIMS, SANDBOXES
from tests.support.world import running_status, write_pod_status

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
