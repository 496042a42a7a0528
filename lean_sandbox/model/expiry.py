"""When a Sandbox expires, and when to look again."""

from __future__ import annotations

from datetime import datetime
from typing import Final

# A look that would come sooner is put off, so expiry may be noticed up to this much late.
MINIMUM_REQUEUE_S: Final = 2.0
# After marking a Sandbox as expired its teardown follows in a pass of its own.
MARK_REQUEUE_S: Final = 0.001
# A timer set for the very moment may ring a hair early by the wall clock, which is read in whole
# microseconds; taken literally that would put the end off by the minimum above.
_TIMER_SLACK_S: Final = 0.001


def is_expired(shutdown_time: float | None, now: datetime) -> bool:
    """Return whether ``shutdown_time`` (seconds since the epoch) has come; never without one."""
    return shutdown_time is not None and now.timestamp() + _TIMER_SLACK_S >= shutdown_time


def requeue_after_s(shutdown_time: float | None, now: datetime) -> float | None:
    """Return the seconds until the next look at the expiry, None when nothing is to come."""
    if shutdown_time is None or is_expired(shutdown_time, now):
        return None
    return max(shutdown_time - now.timestamp(), MINIMUM_REQUEUE_S)
