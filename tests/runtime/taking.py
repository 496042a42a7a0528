"""Takes what a queue hands out."""

from __future__ import annotations

from lean_sandbox.runtime.queue import WorkQueue


def drain(queue: WorkQueue[str]) -> list[str]:
    """Work on everything that may run now; return the keys in their order."""
    keys = []
    while (item := queue.get_nowait()) is not None:
        keys.append(item.key)
        queue.done(item.key)
    return keys


def taken(queue: WorkQueue[str]) -> list[str]:
    """Take all that may run now; return it in its order."""
    keys = []
    while (item := queue.get_nowait()) is not None:
        keys.append(item.key)
    return keys
