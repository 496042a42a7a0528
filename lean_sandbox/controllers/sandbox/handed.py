"""Whole Sandboxes that the answer to a create has shown, kept for the first pass over them.

That pass needs the whole spec to build the Pod; without these it would have to GET what this very
process was just told.
"""

from __future__ import annotations

from collections import OrderedDict

from lean_sandbox.model.meta import as_version
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.watch.kind import Key, key_of
from lean_sandbox.watch.resources.sandbox import SandboxEntry


class CreateResponses:
    """Sandboxes by key, each handed out once; the oldest give way above ``limit``.

    At 2 to 3 KiB each the bound is what a large batch of a pool may hold for a moment.
    """

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._held: OrderedDict[Key, Sandbox] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def keep(self, sandbox: Sandbox) -> None:
        """Keep a Sandbox as the server has just shown it."""
        key = key_of(sandbox.metadata.namespace, sandbox.metadata.name)
        self._held[key] = sandbox
        self._held.move_to_end(key)
        if len(self._held) > self._limit:
            self._held.popitem(last=False)

    def take(self, key: Key, known: SandboxEntry | None) -> Sandbox | None:
        """Return the Sandbox unless anything newer is ``known`` of it; it is not kept any longer.

        What the watch has not told yet is not known to a GET much earlier either: acting on it is
        guarded as acting on any answer is.
        """
        sandbox = self._held.pop(key, None)
        if sandbox is None or known is None:
            return None
        meta = sandbox.metadata
        is_latest = known.uid == meta.uid and known.version == as_version(meta.resource_version)
        return sandbox if is_latest else None

    def forget(self, key: Key) -> None:
        """Drop what is kept of a Sandbox."""
        self._held.pop(key, None)
