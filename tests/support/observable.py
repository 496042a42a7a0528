"""What tests may see of a controller besides its requests: all of it is on this page.

Whatever else a test shows, it shows by what the API server was asked and what it stores, or by the
metrics that the controller exposes.
"""

from __future__ import annotations

from typing import Protocol

import anyio
from anyio.abc import TaskStatus

from lean_sandbox.manager.manager import Activity

__all__ = ["Observable"]


class Observable(Protocol):
    """A controller that runs in the process of a test."""

    synced: anyio.Event
    """Is set once everything that is watched has been listed."""

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until stopped or cancelled; starts once the caches are in sync."""

    def stop(self) -> None:
        """Begin no more passes; running ones may finish."""

    def activity(self) -> Activity:
        """Return what is under way and what was done, as of now."""

    def seen_versions(self) -> dict[str, list[str | None]]:
        """Return up to which resource version each watch has taken everything in, by resource."""

    @property
    def problems(self) -> dict[str, str]:
        """What each watch is failing with at present, by resource."""

    @property
    def not_ready(self) -> str | None:
        """Why the caches are not in sync yet; ``None`` once they were."""

    @property
    def is_active(self) -> bool:
        """Whether passes run: the kinds are known, and the election, if any, was won."""

    @property
    def is_idle(self) -> bool:
        """Whether the caches are in sync and no pass runs or waits to run."""
