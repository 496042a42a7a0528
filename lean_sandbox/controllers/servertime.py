"""The time by the clock that dates objects, which is the server's and not ours.

Ages are compared with graces of seconds to minutes. A wall clock that is apart from the server's,
or is set while we run, as on a laptop beside a virtual machine that slept, would have young members
replaced and claims wait for hours. So the server's time is counted on by our monotonic clock, from
what its dates tell.
"""

from __future__ import annotations

from lean_sandbox.clock import Clock
from lean_sandbox.model.times import parse_rfc3339

# Dates of objects are whole seconds, and a response takes a while.
_CLOCKS_AGREE_S = 5.0


class ServerTime:
    """Seconds since the epoch by the server's clock; by our own until a date says otherwise."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._zero_s = clock.now().timestamp() - clock.monotonic()

    def now_s(self) -> float:
        """Return the time now."""
        return self._zero_s + self._monotonic()

    def age_s(self, created_at: str) -> float:
        """Return how old an object is, at least 0: one from the future tells how late it is."""
        age_s = self.now_s() - parse_rfc3339(created_at).timestamp()
        if age_s < 0:
            self._zero_s -= age_s
            return 0.0
        return age_s

    def made_now(self, created_at: str) -> None:
        """Take an object that the server has just made for as young as it is."""
        age_s = self.now_s() - parse_rfc3339(created_at).timestamp()
        if abs(age_s) > _CLOCKS_AGREE_S:
            self._zero_s -= age_s
