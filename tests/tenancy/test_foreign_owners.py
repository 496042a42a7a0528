"""Objects whose owner reference names somebody else's object: nobody is served or harmed by them.

A uid is no secret and an owner reference is text. Each foreign object is held by a finalizer:
without it the garbage collector takes it away before anything can come of it.
"""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.model.names import name_hash
from tests.support.builders import claim, pool, template
from tests.support.extensions import (
    bound_name,
    fill,
    get_claim,
    ids,
    members,
    open_claims,
    open_pools,
    ready_of,
    rest,
)
from tests.support.names import SANDBOXES, WARM_POOL
from tests.support.world import (
    CONTROLLER,
    NS,
    World,
    condition,
    controlled_by,
    open_world,
    pod_body,
    sandbox,
    tracking,
)

Json = dict[str, Any]
THEIRS = "aaa"
_LONG_AGO = "2020-01-01T00:00:00Z"


def forge(
    world: World,
    owner: Json,
    name: str,
    *,
    namespace: str = NS,
    labels: dict[str, str] | None = None,
    **reference: str,
) -> Json:
    """Create a Sandbox that names an object as its controller; a finalizer keeps it."""
    _ensure(world, namespace)
    metadata = {
        "ownerReferences": [{**controlled_by(owner), **reference}],
        "finalizers": ["example.com/hold"],
        "labels": labels or {},
    }
    return world.plane.store.create(sandbox(name, metadata=metadata, namespace=namespace))


def _ensure(world: World, namespace: str) -> None:
    if world.plane.store.find("namespaces", "", namespace) is None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        world.plane.store.create(body)


def adopted_labels(uid: str) -> dict[str, str]:
    """Return the labels of a Sandbox that was taken over from a pool."""
    prefix = "agents.x-k8s.io"
    return {f"{prefix}/claim-uid": uid, f"{prefix}/launch-type": "warm"}


def uid_of(obj: Json) -> str:
    """Return the uid of an object."""
    return str(obj["metadata"]["uid"])


async def unbound(world: World) -> Json:
    """Create a claim whose pool is still to come."""
    return await world.create(claim(pool="later"))


async def serve(world: World) -> None:
    """Create the pool that the claim waits for."""
    await world.create(pool("later"))
    await world.advance(3.0)


def writes_to(world: World, namespace: str) -> list[str]:
    """Return the controller's writes about Sandboxes and the extensions in a namespace."""
    return [
        entry.what
        for entry in world.plane.audit.select(user=CONTROLLER, namespace=namespace)
        if entry.verb not in ("get", "list", "watch") and "sandbox" in entry.resource
        if entry.subresource != "status"
    ]


@pytest.mark.parametrize(
    ("how", "is_going"),
    [
        ({"namespace": THEIRS}, False),
        # Nobody took it over from a pool for this claim.
        ({"labels": {}}, False),
        ({"kind": "SandboxWarmPool"}, False),
        ({"kind": "ConfigMap"}, False),
        ({"apiVersion": "apps/v1"}, False),
        ({}, True),
    ],
    ids=["elsewhere", "not made for it", "a pool", "another kind", "another group", "going"],
)
async def test_a_claim_takes_no_sandbox_that_only_names_it(how: Json, *, is_going: bool) -> None:
    """An unbound claim gets one of its own, whoever else names it as owner, under whatever kind."""
    async with open_claims() as world:
        made = await unbound(world)
        forge(world, made, "trap", **{"labels": adopted_labels(uid_of(made)), **how})
        if is_going:
            world.plane.store.delete(SANDBOXES, NS, "trap")
        await serve(world)
        assert bound_name(world) == "c"


async def test_a_claim_reports_nothing_of_a_namesake_in_another_namespace() -> None:
    """The addresses that clients are told are those of the claim's own Sandbox, always."""
    async with open_claims() as world:
        made = await world.create(claim())
        forge(world, made, "c", namespace=THEIRS)
        ready = {"type": "Ready", "status": "True", "reason": "x", "message": "x"}
        status = {"podIPs": ["6.6.6.6"], "conditions": [{**ready, "lastTransitionTime": _LONG_AGO}]}
        world.plane.store.patch(SANDBOXES, THEIRS, "c", {"status": status}, subresource="status")
        await world.run_pod("c", ready=False)
        await world.advance(3.0)
        assert ready_of(world)[0] == "False"
        assert get_claim(world)["status"]["sandbox"].get("podIPs", []) in ([], ["10.244.0.5"])
        await world.run_pod("c")
        await world.advance(3.0)
        assert ready_of(world)[0] == "True"
        assert get_claim(world)["status"]["sandbox"]["podIPs"] == ["10.244.0.5"]


async def test_a_sandbox_counts_no_pods_of_another_namespace() -> None:
    """Its Pod stays the only one, and is made again when it is gone."""
    async with open_world() as world:
        made = await world.ready_sandbox()
        body = pod_body("trap", labels=tracking(), owners=(controlled_by(made),))
        body["metadata"].update(namespace=THEIRS, finalizers=["example.com/hold"])
        _ensure(world, THEIRS)
        world.plane.store.create(body)
        await world.poke()
        assert condition(world.get(), "Ready")["status"] == "True"
        before = uid_of(world.pod())
        await world.delete("pods", "sb-1")
        await world.advance(3.0)
        assert uid_of(world.pod()) != before
        await world.run_pod()
        await world.advance(3.0)
        assert condition(world.get(), "Ready")["reason"] == "DependenciesReady"


async def test_an_expired_claim_deletes_its_own_sandbox() -> None:
    """A Sandbox elsewhere that names the claim does not stand in for it."""
    async with open_claims() as world:
        made = await world.create(claim())
        forge(world, made, "a-first", namespace=THEIRS)
        await world.patch("sandboxclaims." + made["apiVersion"].split("/")[0], "c", _EXPIRES)
        await world.advance(3.0)
        assert world.find("sandboxes", "c") is None
        assert world.plane.store.find(SANDBOXES, THEIRS, "a-first") is not None


_EXPIRES = {"spec": {"lifecycle": {"shutdownTime": _LONG_AGO, "shutdownPolicy": "Retain"}}}


async def test_a_pool_counts_no_members_of_another_namespace() -> None:
    """It stays as large as its spec says, and what it reports is its own."""
    async with open_pools() as world:
        await fill(world, pool(replicas=3))
        held = world.plane.store.get("sandboxwarmpools.extensions.agents.x-k8s.io", NS, "pool")
        for number in range(12):
            labels = {WARM_POOL: name_hash("pool")}
            forge(world, held, f"trap-{number}", namespace=THEIRS, labels=labels)
        await rest(world)
        before = members(world)
        assert len(before) == 3
        await world.delete("sandboxes", before[0]["metadata"]["name"])
        await rest(world)
        after = members(world)
        assert len(after) == 3
        assert ids(after) != ids(before)
        assert "delete sandboxes" not in writes_to(world, THEIRS)


async def test_nothing_of_a_claim_is_written_into_another_namespace() -> None:
    """Neither the template's metadata nor the claim's own reaches what claims to be its Sandbox."""
    secret = template(metadata={"annotations": {"internal/key": "of-the-template"}})
    async with open_claims(templates=(secret,)) as world:
        mine = {"annotations": {"my/key": "of-the-claim"}}
        made = await world.create(claim(pool="later", additionalPodMetadata=mine))
        labels = adopted_labels(uid_of(made))
        trap = forge(world, made, "trap", namespace=THEIRS, labels=labels)
        world.forget_requests()
        await serve(world)
        await world.advance(60.0)
        assert writes_to(world, THEIRS) == []
        found = world.plane.store.get(SANDBOXES, THEIRS, "trap")
        assert found["spec"] == trap["spec"]


async def test_a_pool_counts_no_member_of_an_owner_of_another_kind() -> None:
    """The uid of the pool under another kind is not the pool."""
    async with open_pools() as world:
        await fill(world, pool(replicas=1))
        held = world.plane.store.get("sandboxwarmpools.extensions.agents.x-k8s.io", NS, "pool")
        labels = {WARM_POOL: name_hash("pool")}
        forge(world, held, "trap", labels=labels, kind="SandboxClaim")
        await rest(world)
        (mine,) = (one for one in members(world) if one["metadata"]["name"] != "trap")
        assert "deletionTimestamp" not in mine["metadata"]
        await world.delete("sandboxes", mine["metadata"]["name"])
        await rest(world)
        assert len(members(world)) == 2
