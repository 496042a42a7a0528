"""What is remembered of a pool from one reconcile to the next."""

from __future__ import annotations

import math

import msgspec

from lean_sandbox.kube.resources import ObjectReference
from lean_sandbox.model.warmpool import MemberOutcomes, ReplacementPace, ReplenishHold
from lean_sandbox.rates import TokenBucket
from lean_sandbox.runtime.states import State


class Backoff(msgspec.Struct):
    """Tries at something that the server refuses: how many have failed, and when the next is."""

    in_vain: int = 0
    next_at: float = -math.inf


class PoolProblem(msgspec.Struct, frozen=True):
    """Why a pool makes no progress: a word for metrics, and a sentence.

    ``may_pass``: it is reported only once it has lasted for a moment.
    """

    name: str
    note: str
    requeue_s: float | None = None
    may_pass: bool = False
    related: ObjectReference | None = None

    @property
    def reported_as(self) -> str:
        """What decides whether an Event has reported it: numbers and messages do not count."""
        return self.note if self.name in ("template", "policy") else self.name


class PoolState(State):
    """What is remembered of one pool."""

    hold: ReplenishHold
    bucket: TokenBucket
    pace: ReplacementPace = msgspec.field(default_factory=ReplacementPace)
    outcomes: MemberOutcomes = msgspec.field(default_factory=MemberOutcomes)
    # The template that the members of ``outcomes`` were made from.
    blueprint: str = ""
    status_at: float = -math.inf
    differs_since: float | None = None
    # When the pool needs a reconcile, however many have failed.
    due_at: float = math.inf
    # The last generation at which the pool was full.
    full_at: int = 0
    # How many members are created at once when its refill goes on.
    next_size: int = 1
    # What keeps the pool from progressing, since when, and which problem an Event has reported.
    stuck_by: str = ""
    stuck_since: float = -math.inf
    reported: PoolProblem | None = None
    # Why the last member could not be created, and when the next is.
    refusal: str = ""
    creates: Backoff = msgspec.field(default_factory=Backoff)
    # How many members were refused when last counted, and when one of them is launched again.
    refused: int = 0
    launches: Backoff = msgspec.field(default_factory=Backoff)
    # By uid: when a member was last refused or held, by the server's clock.
    kept_at: dict[str, float] = msgspec.field(default_factory=dict)

    @property
    def is_refused(self) -> bool:
        """Whether the server refuses the pool's members, or what these are made of."""
        return bool(self.refusal) or self.refused > 0

    @property
    def next_try_at(self) -> float:
        """When the pool next tries what was refused to it."""
        return max(self.creates.next_at, self.launches.next_at)

    def try_at(self, now: float) -> None:
        """Let the pool try everything at once that was refused to it."""
        self.creates.next_at = min(now, self.creates.next_at)
        self.launches.next_at = min(now, self.launches.next_at)
