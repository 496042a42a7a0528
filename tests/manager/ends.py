"""In what ways a leader ends while requests of it are under way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from lean_sandbox.local.http.faults import HeldRequests
from lean_sandbox.local.request import Target
from lean_sandbox.manager.preflight import LEASE_NAME
from tests.manager.replicas import ELECTION_NS, Replica, Replicas
from tests.support.names import LEASES

__all__ = ["ENDS", "End"]

End = Callable[[Replicas, Replica, HeldRequests], Awaitable[None]]


async def is_told_to_stop(_replicas: Replicas, one: Replica, held: HeldRequests) -> None:
    """SIGTERM: what has begun is finished, then the Lease is given up."""
    one.controller.stop()
    held.release()


async def is_killed(_replicas: Replicas, one: Replica, _held: HeldRequests) -> None:
    """Nothing is finished, and the Lease expires."""
    one.scope.cancel()


async def is_dispossessed(replicas: Replicas, _one: Replica, _held: HeldRequests) -> None:
    """Another holds the Lease, which the next renewal shows."""
    held_by = {"holderIdentity": "other", "renewTime": "2026-01-02T03:04:05.000001Z"}
    replicas.plane.store.patch(LEASES, ELECTION_NS, LEASE_NAME, {"spec": held_by})
    await replicas.clock.advance(2.0)


async def cannot_renew(replicas: Replicas, one: Replica, _held: HeldRequests) -> None:
    """The server takes its work, but not its renewals."""

    def is_its(_target: Target) -> bool:
        return not one.has_ended

    replicas.plane.fail_next("update", "leases", 503, times=1000, match=is_its)
    await replicas.clock.advance(12.0)


ENDS: tuple[End, ...] = (is_told_to_stop, is_killed, is_dispossessed, cannot_renew)
