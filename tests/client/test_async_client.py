"""Laws of what the official client for asyncio gets: the same as the blocking one."""

from __future__ import annotations

import asyncio

import pytest
from k8s_agent_sandbox.async_sandbox import AsyncSandbox
from k8s_agent_sandbox.async_sandbox_client import AsyncSandboxClient
from k8s_agent_sandbox.exceptions import SandboxClaimFailedError, SandboxWarmPoolNotFoundError

from tests.client.cluster import CLAIMS, SANDBOXES, Room

Client = AsyncSandboxClient[AsyncSandbox]


async def test_a_claim_is_served_and_taken_back(async_client: Client, room: Room) -> None:
    """Create gives a Ready member of the pool; delete takes claim, Sandbox and Pod."""
    room.pool()
    before = room.members()
    sandbox = await async_client.create_sandbox("pool", room.name)
    assert sandbox.sandbox_id in before
    assert (await sandbox.status())[0] == "SandboxReady"
    assert await sandbox.get_pod_ip() == room.pod(sandbox.sandbox_id)["status"]["podIP"]
    claim = sandbox.claim_name
    assert claim is not None
    await async_client.delete_sandbox(claim, room.name)
    room.cluster.until_gone(CLAIMS, room.name, claim)
    room.cluster.until_gone(SANDBOXES, room.name, sandbox.sandbox_id)
    room.cluster.until_gone("pods", room.name, sandbox.sandbox_id)


async def test_claims_at_once_get_different_members(async_client: Client, room: Room) -> None:
    """As many claims at once as the pool has members: each gets one of its own.

    The last may get one that has replaced the first, on a node with fewer claims.
    """
    room.pool(replicas=8)
    made = await asyncio.gather(*(async_client.create_sandbox("pool", room.name) for _ in range(8)))
    names = {one.sandbox_id for one in made}
    assert len(names) == 8
    assert all(name.startswith("pool-") for name in names)


async def test_more_claims_at_once_than_members_all_come_up(
    async_client: Client, room: Room
) -> None:
    """Claims beyond the pool's size get a Sandbox as well, each its own."""
    room.pool(replicas=2)
    made = await asyncio.gather(*(async_client.create_sandbox("pool", room.name) for _ in range(6)))
    assert len({one.sandbox_id for one in made}) == 6


async def test_failures_come_by_their_own_errors(async_client: Client, room: Room) -> None:
    """A missing pool and a refused variable are told as such, promptly."""
    room.pool(replicas=0)
    with pytest.raises(SandboxWarmPoolNotFoundError, match="nowhere"):
        await async_client.create_sandbox("nowhere", room.name, 5)
    with pytest.raises(SandboxClaimFailedError, match="EnvVarsInjectionRejected"):
        await async_client.create_sandbox("pool", room.name, 5, env={"TASK": "count"})


async def test_a_named_claim_is_taken_up_again(async_client: Client, room: Room) -> None:
    """The same name with adoption gives the same Sandbox."""
    room.pool()
    first = await async_client.create_sandbox("pool", room.name, claim_name="mine")
    again = await async_client.create_sandbox(
        "pool", room.name, claim_name="mine", adopt_existing=True
    )
    assert again.sandbox_id == first.sandbox_id
