"""Waiting for what has to come, and saying what the server was at when it did not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio

from lean_sandbox.local.controlplane import ControlPlane

__all__ = ["patient", "requests_under_way"]

# A test that hangs fails this late; a slow machine must not make one fail.
PATIENCE_S = float(os.environ.get("SANDBOX_TESTS_PATIENCE_S", "120"))


@contextmanager
def patient(what: str, explain: Callable[[], str], seconds: float | None = None) -> Iterator[None]:
    """Fail after some real seconds, naming ``what`` did not come and what ``explain`` returns."""
    try:
        with anyio.fail_after(PATIENCE_S if seconds is None else seconds):
            yield
    except TimeoutError:
        raise TimeoutError(f"never {what}:\n  {explain()}") from None


def requests_under_way(plane: ControlPlane) -> list[str]:
    """Return the requests that a control plane is answering, watches apart, held ones marked."""
    waiting = {id(entry) for entry in plane.faults.waiting}
    return [
        f"{entry.user} waits for {entry.what} {entry.path}"
        + (" (held)" if id(entry) in waiting else "")
        for entry in plane.pending
        if entry.verb != "watch"
    ]
