"""The Lease of an election: the requests that read and write it, and what others write in it.

A write is a PUT and not a patch, because access rules and flow schemas for Leases know get, create
and update; all other fields of the Lease are written back as they were read.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.resources import LEASES, METADATA_ACCEPT, PartialObject
from lean_sandbox.model.times import format_micro_time

Json = dict[str, Any]

# As in client-go: a change of anything else is not a sign of life.
_RECORD: Final = (
    *("holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime", "leaseTransitions"),
)

# The field has 32 bits.
_MOST_TRANSITIONS: Final = 2**31 - 1

_log = structlog.get_logger("leader")


class LeaseRequests:
    """Reads and writes the Lease ``name`` for one process.

    Each method makes one request and raises ControlPlaneError; Conflict if the Lease has been
    written since it was read.
    """

    def __init__(
        self, client: Client, *, namespace: str, name: str, identity: str, clock: Clock
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._stamped: datetime | None = None

    async def read(self) -> Json | None:
        """Return the Lease, None if there is none."""
        lease: Json | None = await self._client.get(
            LEASES, self._name, dict, namespace=self._namespace
        )
        return lease

    async def hold(self, lease: Json | None, duration_s: int) -> Json:
        """Acquire or renew the Lease for ``duration_s``, and return it as written.

        ``lease`` is the Lease as it was read or written last, None to create it.
        """
        old: Json = (lease and lease.get("spec")) or {}
        now = self._stamp()
        spec = {
            "leaseTransitions": 0,
            **old,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": duration_s,
            "renewTime": now,
        }
        if old.get("holderIdentity") != self._identity:
            spec["acquireTime"] = now
            if lease is not None:
                spec["leaseTransitions"] = min(
                    (old.get("leaseTransitions") or 0) + 1, _MOST_TRANSITIONS
                )
        if lease is None:
            metadata = {"name": self._name, "namespace": self._namespace}
            lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
            response = await self._create(_with_spec(lease, spec))
        else:
            response = await self._replace(_with_spec(lease, spec))
        return _with_spec(lease, spec, response.metadata.resource_version)

    async def give_up(self, lease: Json) -> None:
        """Let another process take the Lease at once, as client-go does."""
        now = self._stamp()
        given_up = {"holderIdentity": "", "leaseDurationSeconds": 1}
        times = {"acquireTime": now, "renewTime": now}
        await self._replace(_with_spec(lease, {**lease["spec"], **given_up, **times}))

    async def _create(self, body: Json) -> PartialObject:
        # Tried every two seconds, even while the namespace is missing.
        self._client.ending.forget(self._namespace)
        return await self._client.create(
            LEASES, body, PartialObject, namespace=self._namespace, accept=METADATA_ACCEPT
        )

    async def _replace(self, body: Json) -> PartialObject:
        return await self._client.replace(
            LEASES,
            body,
            PartialObject,
            namespace=self._namespace,
            name=self._name,
            accept=METADATA_ACCEPT,
        )

    def _stamp(self) -> str:
        # Two equal records would look to others as if their holder had not renewed.
        now = self._clock.now()
        if self._stamped is not None and now <= self._stamped:
            now = self._stamped + timedelta(microseconds=1)
        self._stamped = now
        return format_micro_time(now)


class LeaseHolder:
    """Who holds the Lease ``lease``, and since when its record has not changed.

    ``identity`` and ``scope`` are those of this process.
    """

    def __init__(self, lease: str, *, identity: str, scope: str, clock: Clock) -> None:
        #: Who held the Lease when it was last read or written; "" for nobody.
        self.name = ""
        #: When the present record was first seen, by our own monotonic clock.
        self.seen_at = float("-inf")
        self._lease = lease
        self._identity = identity
        self._scope = scope
        self._clock = clock
        self._seen: tuple[object, ...] | None = None

    def observe(self, spec: Json) -> None:
        """Note a record that was read or written; log another holder."""
        seen = tuple(spec.get(field) for field in _RECORD)
        if seen != self._seen:
            self._seen = seen
            self.seen_at = self._clock.monotonic()
        name: str = spec.get("holderIdentity") or ""
        if name == self.name:
            return
        self.name = name
        if name == self._identity:
            return
        _log.info("holder_changed", lease=self._lease, holder=name)
        served = name.partition(" ")[2]
        if served and served != self._scope:
            # Nobody serves what this process would serve.
            _log.error(
                "lease_of_another_shard",
                lease=self._lease,
                holder=name,
                served=served,
                unserved=self._scope or "everything else",
                fix="give each shard a Lease of its own with --leader-election-lease",
            )


def _with_spec(lease: Json, spec: Json, version: str = "") -> Json:
    # Without managedFields, which the server then keeps by itself.
    metadata = {key: value for key, value in lease["metadata"].items() if key != "managedFields"}
    if version:
        metadata["resourceVersion"] = version
    return {**lease, "metadata": metadata, "spec": spec}
