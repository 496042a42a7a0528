"""Leader election on a Lease, after the rules of Kubernetes' own client (client-go).

* A process that finds no Lease creates it; one that finds a Lease that nobody holds, or that has
  expired, takes it over. Every write is a PUT at the version that was read, so that one of several
  wins.
* A Lease has expired when its record has not changed for ``leaseDurationSeconds`` *since we first
  saw it so, on our own monotonic clock*: clocks of two machines are never compared. If somebody
  deletes a Lease that is held, those who saw it wait for as long, which client-go does not.
* The holder renews every ``RETRY_S``, and twice as often while that fails, with one PUT and no
  read. It leads until ``RENEW_DEADLINE_S`` after it *sent* the last renewal that succeeded, which
  others respect for ``DURATION_S``. So no two lead at once while no clock runs faster than another
  by more than the ratio of the two (3 to 2).
* Leadership ends by the clock: :meth:`Elector.fence` checks it before each write, so a process that
  was stopped for a minute writes nothing when it goes on. A lost Lease is not contended for again:
  the process ends and is started anew.
* On a graceful end the Lease is released, once nothing is written any more. A Lease that was lost
  expires, and so does one whose holder still has requests without an answer: that gives them time
  to end.
"""

from __future__ import annotations

import random
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import structlog

from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.config.options import Settings
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import (
    Conflict,
    ControlPlaneError,
    NotFound,
    NotLeaderError,
    RequestTimeout,
)
from lean_sandbox.kube.events import EventRecorder
from lean_sandbox.kube.kubeconfig import own_namespace
from lean_sandbox.kube.limits import Limits
from lean_sandbox.kube.resources import LEASES, ObjectReference
from lean_sandbox.kube.transport import Transport
from lean_sandbox.manager.lease import Json, LeaseHolder, LeaseRequests
from lean_sandbox.manager.preflight import HOME, LEASE_NAME, lease_of, scope_of
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Counters, Exposition
from lean_sandbox.turns import RANK, Rank

# As the reference's. How long others respect a record that does not change; whole seconds.
DURATION_S: Final = 15
# How long a holder leads after its last renewal.
RENEW_DEADLINE_S: Final = 10.0
# How often a holder renews, and how often a standby reads.
RETRY_S: Final = 2.0
# Deadline of an attempt: a holder has time for another one before its own ends.
ATTEMPT_S: Final = RENEW_DEADLINE_S / 2
# A standby asks up to this share sooner than its period, so that several do not ask in step.
_JITTER: Final = 0.1
# How long a release waits for its Event.
_FAREWELL_S: Final = 1.0
#: For a request of the election and one for an Event.
LIMITS: Final = Limits(max_in_flight=2)
_NEVER: Final = float("-inf")
_AWAKE: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_log = structlog.get_logger("leader")


class Elector:
    """Contends for a Lease and holds it.

    ``acquired`` is set when this process begins to lead; ``loss`` says why it has lost the Lease.
    :meth:`run` belongs in a task group.

    Requests: a standby makes one GET each ``RETRY_S``, a holder one PUT. ``client`` should have
    connections and slots of its own, as a renewal must not wait behind the work that it allows.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        identity: str,
        clock: Clock,
        uniform: Callable[[], float] = random.random,
        recorder: EventRecorder | None = None,
        lease: str = LEASE_NAME,
        scope: str = "",
    ) -> None:
        """``identity`` is unique to this process, ``uniform`` gives numbers in [0, 1).

        ``scope`` says what the process serves, empty for everything; in the Lease it is appended to
        the identity. ``recorder``, which nothing else may run, gets an Event for each change.
        """
        self.client = client
        self.namespace = namespace
        self.lease = lease
        self.identity = f"{identity} {scope}" if scope else identity
        self.acquired = anyio.Event()
        self.loss: NotLeaderError | None = None
        #: What the last attempt failed with, ``None`` when it went well.
        self.problem: ControlPlaneError | None = None
        self.recorder = recorder
        self._clock = clock
        self._uniform = uniform
        self._requests = LeaseRequests(
            client, namespace=namespace, name=lease, identity=self.identity, clock=clock
        )
        self._holder = LeaseHolder(lease, identity=self.identity, scope=scope, clock=clock)
        # Until when this process leads; _NEVER before it is elected and after it has ceased to.
        self._leads_until = _NEVER
        self._stops = False
        # Held by an attempt, and by a release from its beginning to its end.
        self._turn = anyio.Lock()
        # The Lease as this process wrote it last; None when it has to be read first.
        self._own: Json | None = None
        self._expires_at = _NEVER
        self._failures = Counters(families.LEASE_FAILURES)

    @property
    def holder(self) -> str:
        """Who held the Lease when it was last read or written; empty for nobody."""
        return self._holder.name

    @property
    def is_leader(self) -> bool:
        """Whether this process leads at this moment."""
        return self._clock.monotonic() < self._leads_until

    def fence(self) -> None:
        """Raise NotLeaderError unless this process leads at this moment; for a transport."""
        if not self.is_leader:
            why = self.loss or "this process does not hold the Lease"
            raise NotLeaderError(f"{why}; the request was not sent")

    def collect(self, into: Exposition) -> None:
        """Add the series: whether this process leads, and its failed requests by error."""
        into.one(families.LEADER, int(self.is_leader), self.lease)
        self._failures.collect(into)
        if self.recorder is not None:
            self.recorder.collect(into, "leader-election")

    async def run(self) -> None:
        """Contend for the Lease and keep it until it is lost or released; cancelled, it expires."""
        _log.info("contending", lease=self.lease, namespace=self.namespace, identity=self.identity)
        if not await self._acquire():
            return
        async with anyio.create_task_group() as group:
            if self.recorder is not None:
                group.start_soon(self.recorder.run)
            await self._keep()
            group.cancel_scope.cancel()

    async def release(self) -> None:
        """Give the Lease up so that another can take it at once; from now on nothing is written.

        Makes at most one PUT and, with a recorder, one POST before it. Does nothing for a process
        that does not lead. A failure is logged and counted: the Lease then expires.
        """
        self._stops = True
        async with self._turn:
            if not self.is_leader or self._own is None:
                return
            self._leads_until = _NEVER
            if self.recorder is not None:
                self._announce("Released", "stopped leading")
                self.recorder.close()
                await self._clock.wait(self.recorder.ended, _FAREWELL_S)
            lease = self._own
            if await self._within(ATTEMPT_S, lambda: self._requests.give_up(lease)):
                self._holder.name = ""
                _log.info("released", lease=self.lease)

    async def _acquire(self) -> bool:
        """Try until this process leads; false when it is stopped before."""
        while not self._stops:
            began = self._clock.monotonic()
            await self._try(ATTEMPT_S)
            if self._leads_until != _NEVER:
                _log.info("leading", lease=self.lease, namespace=self.namespace)
                self.acquired.set()
                self._announce("Acquired", "became leader")
                return True
            wait_s = RETRY_S * (1.0 - _JITTER * self._uniform())
            asked_s = getattr(self.problem, "retry_after_s", None) or 0.0
            next_at = began + max(wait_s, min(asked_s, DURATION_S))
            now = self._clock.monotonic()
            if now < self._expires_at:
                # The Lease of a holder that has died is taken over the moment it expires.
                next_at = min(next_at, self._expires_at)
            await self._clock.sleep(next_at - now)
        return False

    async def _keep(self) -> None:
        began = self._leads_until - RENEW_DEADLINE_S
        while self.loss is None:
            pause_s = RETRY_S if self.problem is None else RETRY_S / 2
            next_at = min(began + pause_s, self._leads_until)
            await self._clock.sleep(next_at - self._clock.monotonic())
            if self._stops:
                async with self._turn:
                    return
            began = self._clock.monotonic()
            if began < self._leads_until:
                await self._try(min(ATTEMPT_S, self._leads_until - began))
            else:
                why = f": {self.problem}" if self.problem is not None else ""
                self._lose(f"the Lease was not renewed for {RENEW_DEADLINE_S:g} s{why}")

    def _lose(self, why: str) -> None:
        self._leads_until = _NEVER
        self.loss = NotLeaderError(f"leadership lost: {why}")
        _log.error("leadership_lost", lease=self.lease, reason=why)

    async def _try(self, limit_s: float) -> None:
        async with self._turn:
            if not self._stops:
                await self._within(limit_s, self._attempt)

    async def _within(self, limit_s: float, ask: Callable[[], Awaitable[object]]) -> bool:
        """Await ``ask()`` under a deadline by the clock; note whether and why it failed."""
        # It goes before the Events of the election.
        RANK.set(Rank.CLIENT)
        problem: ControlPlaneError | None = None
        try:
            async with self._clock.limit(limit_s):
                await ask()
        except TimeoutError:
            problem = RequestTimeout(f"no answer within {limit_s:g} s")
        except ControlPlaneError as error:
            problem = error
        before = self.problem
        self.problem = problem
        if problem is None:
            return True
        self._failures.add(type(problem).__name__)
        # A lost race is normal in elections, and what fails every two seconds is logged once.
        if type(before) is not type(problem) and not isinstance(problem, Conflict):
            _log.warning("lease_request_failed", lease=self.lease, error=str(problem))
        return False

    async def _attempt(self) -> None:
        """Renew, or take the Lease if it can be had. At most three requests, usually one."""
        if self._own is not None:
            try:
                await self._hold(self._own)
            except (Conflict, NotFound):
                # Somebody wrote or deleted it: read it first.
                self._own = None
            else:
                return
        lease = await self._requests.read()
        if lease is None:
            # Somebody deleted it: its holder leads on by its own clock, and creates it again.
            if self._leads_until != _NEVER or self._clock.monotonic() >= self._expires_at:
                await self._hold(None)
            return
        spec: Json = lease.get("spec") or {}
        self._holder.observe(spec)
        if self.holder and self.holder != self.identity:
            if self._leads_until != _NEVER:
                self._lose(f"{self.holder!r} holds the Lease")
                return
            duration_s = spec.get("leaseDurationSeconds") or 0
            self._expires_at = self._holder.seen_at + (duration_s if duration_s > 0 else DURATION_S)
            if self._clock.monotonic() < self._expires_at:
                return
        await self._hold(lease)

    async def _hold(self, lease: Json | None) -> None:
        """Acquire or renew the Lease, which is None to create it. One request."""
        sent_at = self._clock.monotonic()
        self._own = await self._requests.hold(lease, DURATION_S)
        self._holder.observe(self._own["spec"])
        now_s = self._clock.monotonic()
        until = sent_at + RENEW_DEADLINE_S
        # A response that comes after its own term, or after leadership has ended, renews nothing.
        if now_s < until and (self._leads_until == _NEVER or now_s < self._leads_until):
            self._leads_until = until

    def _announce(self, action: str, what: str) -> None:
        if self.recorder is not None:
            lease = ObjectReference(LEASES.api_version, LEASES.kind, self.lease, self.namespace)
            note = f"{self.identity} {what}"
            self.recorder.emit(lease, "Normal", "LeaderElection", action, note)


class AwakeClock(SystemClock):
    """A clock that goes on while the machine is suspended: other replicas do not wait for it."""

    def monotonic(self) -> float:
        """Return seconds since the start of the machine, with suspensions if it counts them."""
        return time.clock_gettime(_AWAKE)


def open_elector(settings: Settings, client: Client, *, companions_only: bool = False) -> Elector:
    """Build an elector with connections of its own, without a request."""
    namespace = settings.leader_election_namespace or own_namespace() or HOME
    clock = AwakeClock()
    transport = Transport(
        client.transport.connection,
        clock=clock,
        limits=LIMITS,
        counted=client.transport.counted,
    )
    own = Client(transport, timeout_s=ATTEMPT_S)
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    return Elector(
        own,
        namespace=namespace,
        identity=identity,
        clock=clock,
        recorder=EventRecorder(own, clock, "agent-sandbox-controller", identity),
        lease=lease_of(settings, companions_only=companions_only),
        scope=scope_of(settings),
    )
