"""A clock for laws without tasks: it is moved by hand, at once."""

from __future__ import annotations

from tests.support.clock import FakeClock


class HandClock(FakeClock):
    """The fake clock, also moved where nothing can be awaited."""

    def move(self, seconds: float) -> None:
        """Move time forward; nobody may be sleeping."""
        assert not self.sleepers
        self._elapsed += seconds
