"""What the reconciles of all pools share."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.config.options import Settings
from lean_sandbox.controllers.common import ObjectEvents, ServerTime, Undone, Wakes
from lean_sandbox.controllers.resolver import TemplateResolver
from lean_sandbox.controllers.warm import WarmQueue
from lean_sandbox.controllers.warmpool.refusals import Refusals
from lean_sandbox.runtime.writer import ObjectWriter
from lean_sandbox.watch.resources import Caches


class PoolContext(msgspec.Struct, kw_only=True, frozen=True):
    """What the reconciles of all pools share."""

    caches: Caches
    clock: Clock
    events: ObjectEvents
    refusals: Refusals
    resolver: TemplateResolver
    server_time: ServerTime
    settings: Settings
    undone: Undone
    uniform: Callable[[], float]
    wakes: Wakes
    warm: WarmQueue
    writer: ObjectWriter
