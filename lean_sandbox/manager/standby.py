"""What a standby does when it takes over, before it reconciles anything."""

from __future__ import annotations

from lean_sandbox.watch.group import ReflectorGroup
from lean_sandbox.watch.resources import Caches


async def list_what_changed(caches: Caches, reflectors: ReflectorGroup, page_size: int) -> None:
    """List kinds again if the watch has shown of many objects only that they changed.

    That takes a request for each page of them; reconciles would take one for each object.
    """
    for sandbox in list(caches.sandboxes):
        # Of two writes of its status within a second rows show but one.
        if sandbox.version > caches.sandboxes.gate.listed_at(sandbox.key.namespace):
            caches.sandboxes.mark(sandbox, status=None)
    unknown = (
        (caches.sandboxes, sum(sandbox.needs_fetch for sandbox in caches.sandboxes)),
        (caches.pods, sum(pod.needs_fetch for pod in caches.pods)),
    )
    await reflectors.list_anew(*(cache for cache, number in unknown if number > page_size))
