"""What tests may see of a controller besides its requests: all of it is on this page.

Whatever else a test shows, it shows by what the API server was asked and what it stores, or by the
metrics that the controller exposes.
"""

from __future__ import annotations

from typing import Any, Protocol

import anyio
import msgspec
from anyio.abc import TaskStatus

from lean_sandbox.controllers.claim.controller import ClaimController
from lean_sandbox.controllers.sandbox.controller import SandboxController
from lean_sandbox.manager.manager import Manager
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.runtime.workers import ReconcileOutcome

__all__ = ["Activity", "Observable", "ObservedManager"]


class Activity(msgspec.Struct, frozen=True):
    """What a controller is at and has done: enough to tell whether it is at rest.

    ``busy`` counts, by queue, the keys that are worked on or may be now, ``delayed`` those that
    wait for their time; ``reconciles``, ``errors`` and what the safety net has ``caught`` count by
    controller, ``cached`` by resource. ``bugs`` are errors that nobody expects, of reconciles and
    what follows them by controller, of handlers by resource.
    """

    in_flight: int
    streams: int
    busy: dict[str, int]
    delayed: dict[str, int]
    reconciles: dict[str, int]
    errors: dict[str, int]
    caught: dict[str, int]
    bugs: dict[str, int]
    cached: dict[str, int]


class Observable(Protocol):
    """A controller that runs in the process of a test."""

    synced: anyio.Event
    """Is set once everything that is watched has been listed."""

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until stopped or cancelled; starts once the caches are in sync."""

    def stop(self) -> None:
        """Begin no more reconciles; running ones may finish."""

    def activity(self) -> Activity:
        """Return what is under way and what was done, as of now."""

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way, or a key is worked on or may be now."""

    def seen_versions(self) -> dict[str, list[str | None]]:
        """Return up to which resource version each watch has taken everything in, by resource."""

    @property
    def problems(self) -> dict[str, str]:
        """What each watch is failing with at present, by resource."""

    @property
    def not_ready(self) -> str | None:
        """Why the caches are not in sync yet; ``None`` once they were."""

    is_active: bool
    """Whether reconciles run: the kinds are known, and the election, if any, was won."""

    @property
    def is_idle(self) -> bool:
        """Whether the caches are in sync and no reconcile runs or waits to run."""


class ObservedManager(Manager):
    """A manager that tells tests what it is at."""

    @property
    def sandboxes(self) -> SandboxController:
        """The controller of Sandboxes."""
        found = self.controllers[0]
        assert isinstance(found, SandboxController)
        return found

    @property
    def claims(self) -> ClaimController:
        """The controller of claims."""
        return next(one for one in self.controllers if isinstance(one, ClaimController))

    def activity(self) -> Activity:
        """Return what is under way and what was done, as of now."""
        transport = self._client.transport
        controllers = self.controllers
        counts = {one.name: one.queue.counts() for one in controllers}
        return Activity(
            in_flight=transport._limiter.slots.in_use,
            streams=transport.counted.streams,
            busy={name: n["running"] + n["locked"] + n["ready"] for name, n in counts.items()},
            delayed={name: n["delayed"] for name, n in counts.items()},
            reconciles={one.name: _reconciles(one) for one in controllers},
            errors={one.name: one.workers.errors for one in controllers},
            caught={one.name: one.caught for one in controllers},
            bugs={
                **{one.name: _bugs(one) for one in controllers},
                **{one.kind.name: one.handlers.failures for one in self.all_caches},
            },
            cached={one.kind.name: len(one) for one in self.all_caches},
        )

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way, or a key is worked on or may be now."""
        in_flight = self._client.transport._limiter.slots.in_use > 0
        return in_flight or any(one.queue.is_busy for one in self.controllers)

    def seen_versions(self) -> dict[str, list[str | None]]:
        """Return up to which resource version each watch has taken everything in, by resource."""
        return {
            plural: [one._decoder.version for one in reflectors]
            for plural, reflectors in self.reflectors._reflectors.items()
        }

    @property
    def problems(self) -> dict[str, str]:
        """What each watch is failing with at present, by resource; empty while all is well."""
        return {
            plural: one.problem
            for plural, reflectors in self.reflectors._reflectors.items()
            for one in reflectors
            if one.problem is not None
        }


def _bugs(controller: Controller[Any]) -> int:
    """Return how many errors nobody expected, in reconciles and in what follows them."""
    return controller.workers.outcomes[ReconcileOutcome.PANIC] + controller.workers.callback_errors


def _reconciles(controller: Controller[Any]) -> int:
    """Return how many reconciles have ended, those that were cancelled left out."""
    outcomes = controller.workers.outcomes
    return sum(outcomes.values()) - outcomes[ReconcileOutcome.CANCELLED]
