"""The members of a pool as one pass sees them: how they do, which go first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from lean_sandbox.model.conditions import Condition, find, is_true
from lean_sandbox.model.names import (
    FALSE,
    LAUNCH_TYPE_LABEL,
    LAUNCH_TYPE_WARM,
    POD_SCHEDULED,
    READY,
    REASON_SCHEDULING_GATED,
    REASON_UNSCHEDULABLE,
)

# The look at a member's grace comes this much after it ended, so that clocks need not agree.
GRACE_SLACK_S: Final = 2.0
_GRACE_JITTER: Final = 0.5
_WAITING: Final = frozenset({REASON_UNSCHEDULABLE, REASON_SCHEDULING_GATED})


class Member(msgspec.Struct, frozen=True, gc=False):
    """The facts about one Sandbox that carries the label of a pool."""

    name: str
    uid: str = ""
    # Seconds since the epoch; None when the object says nothing.
    created_s: float | None = None
    is_ready: bool = False
    # Its Pod cannot be placed, or is held back from being placed.
    is_waiting: bool = False
    is_deleting: bool = False
    # Of the controller reference; empty: an orphan.
    owner_uid: str = ""


class Readiness(Enum):
    """What the age of an active member means."""

    READY = "ready"
    # Not ready within its grace period.
    YOUNG = "young"
    # Past it, but waiting for a place: kept.
    HELD = "held"
    # Past it for no good reason: deleted.
    STUCK = "stuck"


class Judgement(NamedTuple):
    """The readiness of a member; for a young one the seconds until it has to be looked at."""

    readiness: Readiness
    remaining_s: float | None = None


def lacks_launch_type(labels: Mapping[str, str]) -> bool:
    """Return whether the label of a warm launch has to be written to a member."""
    return labels.get(LAUNCH_TYPE_LABEL) != LAUNCH_TYPE_WARM


def is_ready(conditions: Iterable[Condition]) -> bool:
    """Return whether a Sandbox is ready; the generation it was observed for does not count."""
    return is_true(conditions, READY)


def is_waiting_on_scheduling(conditions: Iterable[Condition], *, is_deleting: bool) -> bool:
    """Return whether a Sandbox mirrors that its Pod cannot be placed or is gated."""
    scheduled = None if is_deleting else find(conditions, POD_SCHEDULED)
    return scheduled is not None and scheduled.status == FALSE and scheduled.reason in _WAITING


def judge_readiness(member: Member, now_s: float, grace_s: float) -> Judgement:
    """Return what to do about an active member; ``now_s`` is in seconds since the epoch.

    The age counts from creation, not from the loss of readiness. Exactly at the end of its grace a
    member is still young.
    """
    if member.is_ready:
        return Judgement(Readiness.READY)
    if member.created_s is None:
        return Judgement(Readiness.YOUNG)
    age_s = now_s - member.created_s
    if age_s <= grace_s:
        return Judgement(Readiness.YOUNG, grace_s - age_s + GRACE_SLACK_S)
    return Judgement(Readiness.HELD if member.is_waiting else Readiness.STUCK)


def jittered_requeue_s(remaining_s: float, fraction: float) -> float:
    """Return the wait for the earliest grace to end; ``fraction`` is a random number in [0, 1)."""
    return remaining_s * (1 + _GRACE_JITTER * fraction)


def victims(members: Iterable[Member], count: int) -> list[Member]:
    """Return the ``count`` members that go first: not ready ones, and of each kind the newest."""
    ordered = sorted(
        members,
        key=lambda member: (member.is_ready, -(member.created_s or 0.0), member.name),
    )
    return ordered[: max(0, count)]
