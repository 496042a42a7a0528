"""Waiting for what has to come, and saying what the server was at when it did not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio

from lean_sandbox.local.controlplane import ControlPlane

__all__ = ["PATIENCE_S", "patient", "requests_under_way"]

PATIENCE_S = int(os.environ.get("SANDBOX_TESTS_PATIENCE_S", "300"))
"""After so many real seconds a test gives up what does not come: the one limit of all waits.

It only ends what hangs. A slow machine must not make a test fail, so nothing is asserted of it.
"""


@contextmanager
def patient(what: str, explain: Callable[[], str]) -> Iterator[None]:
    """Fail when patience ends, naming ``what`` did not come and what ``explain`` returns."""
    try:
        with anyio.fail_after(PATIENCE_S):
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
