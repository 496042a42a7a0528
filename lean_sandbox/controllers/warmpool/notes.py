"""The Events of pools (pools, section 8)."""

from __future__ import annotations

from lean_sandbox.controllers.recording import ObjectEvents, Recorder
from lean_sandbox.kube.events import EventType
from lean_sandbox.model import names
from lean_sandbox.watch.resources.pool import PoolEntry


class PoolNotes:
    """Says when a pool stops and starts to make progress; silent without a recorder."""

    def __init__(self, recorder: Recorder | None) -> None:
        self._events = ObjectEvents(
            recorder, names.EXTENSIONS_API_VERSION, names.SANDBOX_WARM_POOL_KIND
        )

    def not_progressing(self, entry: PoolEntry, note: str) -> None:
        """Note that the pool cannot be filled."""
        self._emit(entry, "Warning", "WarmPoolNotProgressing", note)

    def progressing(self, entry: PoolEntry) -> None:
        """Note that what stood in the way is gone."""
        self._emit(entry, "Normal", "WarmPoolProgressing", "Warm pool is progressing again")

    def _emit(self, entry: PoolEntry, type_: EventType, reason: str, note: str) -> None:
        self._events.emit(entry, type_, reason, "Reconciling", note)
