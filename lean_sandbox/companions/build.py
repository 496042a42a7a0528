"""Builds the companions that the settings name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lean_sandbox.companions.autosize import Autosize
from lean_sandbox.companions.caches import build_companion_caches
from lean_sandbox.companions.common import REPORTER, Companion, Kit, Reports, recorder_of
from lean_sandbox.companions.defaults import Defaults
from lean_sandbox.companions.idle import Idle
from lean_sandbox.companions.recreate import Recreate
from lean_sandbox.companions.rollout import Rollout
from lean_sandbox.controllers.common import Shared

_BY_NAME: dict[str, Callable[[Kit], Companion[Any]]] = {
    "autosize": Autosize,
    "defaults": Defaults,
    "idle": Idle,
    "recreate": Recreate,
    "rollout": Rollout,
}


def build_companions(shared: Shared) -> list[Companion[Any]]:
    """Return the companions, which share one recorder of Events; no request is made."""
    recorder = shared.recorders[REPORTER] = recorder_of(shared.client, shared.clock)
    shard = shared.settings.shard
    kit = Kit(
        writer=shared.writer,
        caches=build_companion_caches(
            shared.clock.monotonic, None if shard is None else shard.admits
        ),
        settings=shared.settings,
        server_time=shared.server_time,
        reports=Reports(recorder),
        clock=shared.clock,
    )
    return [_BY_NAME[name](kit) for name in dict.fromkeys(shared.settings.companions)]
