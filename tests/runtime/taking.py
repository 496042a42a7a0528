"""Takes what a queue hands out."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

from lean_sandbox.runtime.queue import WorkQueue

K = TypeVar("K", bound=Hashable)


def drain(queue: WorkQueue[K]) -> list[K]:
    """Work on everything that may run now; return the keys in their order."""
    keys = []
    while (item := queue.get_nowait()) is not None:
        keys.append(item.key)
        queue.done(item.key)
    return keys


def taken(queue: WorkQueue[K]) -> list[K]:
    """Take all that may run now; return it in its order."""
    keys = []
    while (item := queue.get_nowait()) is not None:
        keys.append(item.key)
    return keys
