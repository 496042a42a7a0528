"""The Events of pools (pools, section 8)."""

from __future__ import annotations

from typing import Protocol

from lean_sandbox.api.events import EventType
from lean_sandbox.api.wire import ObjectReference
from lean_sandbox.model import names
from lean_sandbox.watch.extension_objects import PoolEntry

__all__ = ["PoolNotes", "PoolRecorder"]


class PoolRecorder(Protocol):
    """Takes an Event and never waits."""

    def emit(
        self,
        regarding: ObjectReference,
        type_: EventType,
        reason: str,
        action: str,
        note: str,
        related: ObjectReference | None = None,
    ) -> None:
        """Queue one Event."""


class PoolNotes:
    """Says when a pool stops and starts to make progress; silent without a recorder."""

    def __init__(self, recorder: PoolRecorder | None) -> None:
        self._recorder = recorder

    def not_progressing(self, entry: PoolEntry, note: str) -> None:
        """Note that the pool cannot be filled."""
        self._emit(entry, "Warning", "WarmPoolNotProgressing", note)

    def progressing(self, entry: PoolEntry) -> None:
        """Note that what stood in the way is gone."""
        self._emit(entry, "Normal", "WarmPoolProgressing", "The pool makes progress again")

    def _emit(self, entry: PoolEntry, type_: EventType, reason: str, note: str) -> None:
        if self._recorder is None:
            return
        regarding = ObjectReference(
            apiVersion=names.EXTENSIONS_API_VERSION,
            kind=names.SANDBOX_WARM_POOL_KIND,
            name=entry.key.name,
            namespace=entry.key.namespace,
            uid=entry.uid,
        )
        self._recorder.emit(regarding, type_, reason, "Reconciling", note)
