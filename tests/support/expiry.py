"""Sandboxes and claims whose time ends, by the clock of the tests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from lean_sandbox.model.times import format_rfc3339
from tests.support.builders import claim
from tests.support.clock import EPOCH
from tests.support.world import World, condition, sandbox

Json = dict[str, Any]


def at(seconds: float) -> str:
    """Return the moment that many seconds after the start of the clock."""
    return format_rfc3339(EPOCH + timedelta(seconds=seconds))


def dying(seconds: float, *, policy: str | None = None, **spec: Any) -> Json:
    """Return a Sandbox whose time ends that many seconds after the start of the clock."""
    more = {} if policy is None else {"shutdownPolicy": policy}
    return sandbox(spec={"shutdownTime": at(seconds), **more, **spec})


def reason(world: World) -> str:
    """Return why the Sandbox is ready or not; empty while it has no status."""
    stored = world.get()
    return str(condition(stored, "Ready")["reason"]) if "status" in stored else ""


def ends(seconds: float, policy: str = "Retain", **more: Any) -> Json:
    """Return a claim that ends so many seconds after the epoch; the worlds begin at two."""
    return claim(lifecycle={"shutdownTime": at(seconds), "shutdownPolicy": policy, **more})
