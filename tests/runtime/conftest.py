"""An empty queue, and its clock."""

from __future__ import annotations

import pytest

from lean_sandbox.runtime.queue import WorkQueue
from tests.runtime.hand_clock import HandClock


@pytest.fixture
def clock() -> HandClock:
    """Return a clock that stands still."""
    return HandClock()


@pytest.fixture
def queue(clock: HandClock) -> WorkQueue[str]:
    """Return an empty queue."""
    return WorkQueue(clock)
