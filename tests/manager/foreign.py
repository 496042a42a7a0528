"""A contender that keeps to client-go's rules, written from them and sharing nothing with ours.

The algorithm of ``tools/leaderelection`` of Kubernetes' Go client: the whole record is put, times
are those of its own clock, the expiry counts from the local time at which the record was first
seen. The test calls :meth:`GoContender.tick` where Go would have its retry timer fire.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import ApiError, TransportError
from lean_sandbox.kube.resources import LEASES
from tests.manager.rig import NS
from tests.support.clock import FakeClock

__all__ = ["GoContender"]

Json = dict[str, Any]
_NAME = "a3317529.agent-sandbox.x-k8s.io"
_DURATION_S = 15
_RENEW_DEADLINE_S = 10.0


class GoContender:
    """Holds or contends for the Lease as a Go controller does."""

    def __init__(self, client: Client, identity: str, clock: FakeClock) -> None:
        """Begin without knowing anything."""
        self.identity = identity
        self.client = client
        self._clock = clock
        self._lease: Json = {}
        self._record: Json = {}
        self._observed_at = 0.0
        self._renewed_at: float | None = None

    @property
    def leads(self) -> bool:
        """Whether its callbacks would be running."""
        if self._renewed_at is None:
            return False
        return self._clock.monotonic() < self._renewed_at + _RENEW_DEADLINE_S

    async def tick(self) -> bool:
        """Try to acquire or renew once; tell whether that went well."""
        began = self._clock.monotonic()
        try:
            done = await self._try()
        except (ApiError, TransportError):
            return False
        if done:
            self._renewed_at = began
        return done

    async def release(self) -> None:
        """Give the Lease up, as ReleaseOnCancel does."""
        self._renewed_at = None
        now = self._now()
        await self._update(
            {
                "holderIdentity": "",
                "leaseDurationSeconds": 1,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": self._record["leaseTransitions"],
            }
        )

    async def _try(self) -> bool:
        record = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": _DURATION_S,
            "acquireTime": self._now(),
            "renewTime": self._now(),
            "leaseTransitions": 0,
        }
        if self._is_mine() and self._is_valid():
            kept = {key: self._record[key] for key in ("acquireTime", "leaseTransitions")}
            try:
                await self._update(record | kept)
            except ApiError:
                pass
            else:
                return True
        lease = await self.client.get(LEASES, _NAME, dict, namespace=NS)
        if lease is None:
            metadata = {"name": _NAME, "namespace": NS}
            self._lease = await self.client.create(
                LEASES, {"metadata": metadata, "spec": record}, dict, namespace=NS
            )
            self._observe(record)
            return True
        self._lease = lease
        found = self._lease["spec"]
        if found != self._record:
            self._observe(found)
        if found.get("holderIdentity") and self._is_valid() and not self._is_mine():
            return False
        if self._is_mine():
            record |= {key: found[key] for key in ("acquireTime", "leaseTransitions")}
        else:
            record["leaseTransitions"] = found["leaseTransitions"] + 1
        await self._update(record)
        return True

    async def _update(self, record: Json) -> None:
        self._lease = await self.client.replace(
            LEASES, {**self._lease, "spec": record}, dict, namespace=NS, name=_NAME
        )
        self._observe(record)

    def _observe(self, record: Json) -> None:
        self._record = record
        self._observed_at = self._clock.monotonic()

    def _is_mine(self) -> bool:
        return self._record.get("holderIdentity") == self.identity

    def _is_valid(self) -> bool:
        lasts_s: int = self._record["leaseDurationSeconds"]
        return self._observed_at + lasts_s > self._clock.monotonic()

    def _now(self) -> str:
        return self._clock.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(text: str) -> datetime:
    """Return a time of a record; fails unless it is a MicroTime as the server writes it."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
