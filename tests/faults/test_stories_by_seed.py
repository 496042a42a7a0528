"""A story that failed is told again by its seed, in whatever process."""

from __future__ import annotations

import os
import subprocess
import sys

from lean_sandbox.local.request import AuditEntry
from tests.faults.disturbances import Disturbances
from tests.faults.telling import Stories

_PROGRAM = "from tests.faults.test_stories_by_seed import tell_aloud; tell_aloud()"


class _Aloud(Disturbances):
    """A story that says who asked for what, at which moment of the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.story.plane.audit.listeners.append(self._say)

    def _say(self, entry: AuditEntry) -> None:
        # The name of an Event is random, and nothing depends on it.
        name = "" if entry.resource == "events" else entry.name
        what = f"{entry.what} {entry.namespace}/{name} {entry.query}"
        # The log goes to standard output: it has the time of day.
        print(f"{self.story.clock.monotonic():.4f} {entry.user} {what}", file=sys.stderr)  # noqa: T201


def tell_aloud() -> None:
    """Print all that is asked for in the stories of one part."""
    Stories("SANDBOX_TESTS_STORIES", 1).tell(_Aloud, 0, acts=25)


def test_a_story_is_told_by_its_seed_alone() -> None:
    """Every request of every controller comes at the same moment, in the same order.

    The order of a set goes by the addresses or the hashes of what it holds: both are others in each
    process.
    """
    told = []
    for hashes in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hashes,
            "SANDBOX_TESTS_SEED": "500",
            "SANDBOX_TESTS_STORIES": "10",
        }
        command = [sys.executable, "-c", _PROGRAM]
        done = subprocess.run(command, env=environment, capture_output=True, check=True)  # noqa: S603 -- ours
        told.append(done.stderr.decode().splitlines())
    assert len(told[0]) > 500
    assert told[0] == told[1]
