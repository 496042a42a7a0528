"""What the reconciles of all Sandboxes share, and what is remembered of each."""

from __future__ import annotations

import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.config.options import Settings
from lean_sandbox.controllers.common import ObjectEvents, ServerTime, Undone, Wakes
from lean_sandbox.controllers.metrics import Metrics
from lean_sandbox.controllers.sandbox.requests import SandboxRequests
from lean_sandbox.controllers.sandbox.throttle import StatusThrottle
from lean_sandbox.runtime.states import State
from lean_sandbox.watch.group import ReflectorGroup
from lean_sandbox.watch.resources import Caches


class SandboxState(State):
    """What is remembered of one Sandbox."""

    # Since when the metadata of its Pod has differed from the desired one, while the write waits.
    drift_since: float | None = None
    # The generation at which the server has refused any update of it.
    refused: int | None = None


class SandboxContext(msgspec.Struct, kw_only=True, frozen=True):
    """What the reconciles of all Sandboxes share."""

    caches: Caches
    clock: Clock
    events: ObjectEvents
    metrics: Metrics
    reflectors: ReflectorGroup
    requests: SandboxRequests
    server_time: ServerTime
    settings: Settings
    throttle: StatusThrottle
    undone: Undone
    wakes: Wakes
