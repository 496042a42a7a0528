"""A Lease as data: what its record says, and what to write into it. Pure, but for the stamps.

Objects are plain JSON, so that what else a Lease holds goes back to the server as it came.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.kube.resources import LEASES
from lean_sandbox.model.times import format_micro_time

Json = dict[str, Any]

# That of the reference controller, so that the two never work at the same time (spec, 7.8).
LEASE_NAME: Final = "a3317529.agent-sandbox.x-k8s.io"
_RELEASED_DURATION_S: Final = 1
# What client-go compares, too: a change of anything else is no sign of life.
_RECORD: Final = (
    "holderIdentity",
    "leaseDurationSeconds",
    "acquireTime",
    "renewTime",
    "leaseTransitions",
)


class LeaseTimes(msgspec.Struct, frozen=True, gc=False):
    """The settings of an election in seconds; the defaults are the reference's (spec, 7.8)."""

    #: How long others respect a record that does not change; whole seconds.
    duration_s: int = 15
    #: How long a holder leads after its last renewal.
    renew_deadline_s: float = 10.0
    #: How often a holder renews, and how often a standby looks.
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        """Raise ValueError for times with which two could lead, or nobody."""
        if not 0 < self.retry_s < self.renew_deadline_s < self.duration_s:
            raise ValueError("it takes 0 < retry_s < renew_deadline_s < duration_s")

    @property
    def attempt_s(self) -> float:
        """Deadline of one request: a holder has time for another one before its own ends."""
        return self.renew_deadline_s / 2


class Stamps:
    """Times for records, each later than the one before, whatever the wall clock does.

    Two equal records would look to others as if their holder had not renewed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: datetime | None = None

    def next(self) -> str:
        """Return the time now, as a MicroTime."""
        now = self._clock.now()
        if self._last is not None and now <= self._last:
            now = self._last + timedelta(microseconds=1)
        self._last = now
        return format_micro_time(now)


def record_of(spec: Json) -> tuple[object, ...]:
    """Return the part of a Lease whose change shows that its holder lives."""
    return tuple(spec.get(field) for field in _RECORD)


def holder_of(spec: Json) -> str:
    """Return who holds the Lease, "" for nobody."""
    holder: str | None = spec.get("holderIdentity")
    return holder or ""


def respected_s(spec: Json, usual_s: float) -> float:
    """Return for how long a record is respected that does not change; it may not say."""
    said: int | None = spec.get("leaseDurationSeconds")
    return said if said is not None and said > 0 else usual_s


def new_lease(namespace: str, name: str) -> Json:
    """Return a Lease to be created, yet without its spec."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}


def first_spec(identity: str, duration_s: int, now: str) -> Json:
    """Return the spec of a Lease that nobody has held before."""
    return {
        "holderIdentity": identity,
        "leaseDurationSeconds": duration_s,
        "acquireTime": now,
        "renewTime": now,
        "leaseTransitions": 0,
    }


def held_spec(old: Json, identity: str, duration_s: int, now: str) -> Json:
    """Return the spec by which ``identity`` renews, or takes over what was not its own."""
    renewed = {"holderIdentity": identity, "leaseDurationSeconds": duration_s, "renewTime": now}
    if holder_of(old) == identity:
        return {**old, **renewed}
    transitions = (old.get("leaseTransitions") or 0) + 1
    return {**old, **renewed, "acquireTime": now, "leaseTransitions": transitions}


def released_spec(old: Json, now: str) -> Json:
    """Return the spec by which a holder gives the Lease up, as client-go writes it."""
    return {
        **old,
        "holderIdentity": "",
        "leaseDurationSeconds": _RELEASED_DURATION_S,
        "acquireTime": now,
        "renewTime": now,
    }


def written(lease: Json, spec: Json, version: str = "") -> Json:
    """Return a Lease with another spec, as it is sent, or as it stands at ``version``.

    Without managedFields, which the server then keeps by itself.
    """
    metadata = {key: value for key, value in lease["metadata"].items() if key != "managedFields"}
    if version:
        metadata["resourceVersion"] = version
    return {**lease, "metadata": metadata, "spec": spec}
