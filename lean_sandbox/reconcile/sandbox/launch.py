"""When an unready status may wait (design: one status write per launch).

A Sandbox on its way up passes through states nobody acts upon. Their status is written only when
the way up takes longer than a window, so that a quick launch costs one status write and a slow one
two. What a user would act upon is never held back: readiness, its loss, an error, the end,
suspension.
"""

from __future__ import annotations

from lean_sandbox.model import names
from lean_sandbox.model.sandbox import Condition, SandboxStatus
from lean_sandbox.watch.store import Key

__all__ = ["Launches", "is_on_the_way_up"]

# The window grows with the number of launches under way: when a thousand Pods start at once each
# takes longer, and a status in between is as useless as in a quick launch.
_WINDOW_PER_LAUNCH_S = 0.01
_LONGEST_WINDOW_S = 30.0

_BEFORE = frozenset(
    {
        "",
        names.REASON_DEPENDENCIES_NOT_READY,
        names.REASON_SANDBOX_SUSPENDED,
        names.REASON_SANDBOX_EXPIRED,
    }
)


def _condition(status: SandboxStatus, type_: str) -> Condition | None:
    return next((found for found in status.conditions if found.type == type_), None)


def is_on_the_way_up(old: SandboxStatus, new: SandboxStatus) -> bool:
    """Tell whether ``new`` is a mere step of a launch, given what is published (``old``)."""
    ready = _condition(new, names.READY)
    if ready is None or ready.status == "True":
        return False
    if ready.reason != names.REASON_DEPENDENCIES_NOT_READY:
        return False
    suspended = _condition(new, names.SUSPENDED)
    if suspended is None or suspended.status != "False":
        return False
    finished = names.FINISHED
    if _condition(new, finished) is not None or _condition(old, finished) is not None:
        return False
    before = _condition(old, names.READY)
    return before is None or (before.status != "True" and before.reason in _BEFORE)


class Launches:
    """Since when each Sandbox has had an unpublished step, on the monotonic clock."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._since: dict[Key, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    @property
    def window_s(self) -> float:
        """The window at the present number of launches; 0 publishes every step."""
        if self._window_s <= 0:
            return 0.0
        grown_s = self._window_s + _WINDOW_PER_LAUNCH_S * max(0, len(self._since) - 1)
        return max(self._window_s, min(grown_s, _LONGEST_WINDOW_S))

    def remaining_s(self, key: Key, now: float) -> float:
        """Return for how long the step may still wait, starting its window when it is new."""
        since = self._since.setdefault(key, now)
        return max(0.0, since + self.window_s - now)

    def settled(self, key: Key) -> None:
        """Forget the step: it was published, or is no more."""
        self._since.pop(key, None)
