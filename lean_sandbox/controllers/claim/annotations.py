"""The annotations of claims, written in parallel with their status or after it, one patch a claim.

When a claim becomes ready, its annotations are sent at the same time as its status, unless other
claims are being served: then they wait. A claim that is refused, or not ready for long, gets the
time when it was first seen, to show that the controller has seen it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from lean_sandbox.controllers.claim.state import ClaimState
from lean_sandbox.controllers.common import Shared, Undone
from lean_sandbox.kube.errors import NotFound
from lean_sandbox.model import names
from lean_sandbox.model.times import format_micro_time, no_earlier
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.runtime.queue import Item
from lean_sandbox.runtime.states import States
from lean_sandbox.runtime.workers import Result
from lean_sandbox.turns import Rank
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.extensions import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# How long the annotations of a claim that is not ready are gathered into one patch.
_GATHERING_S = 1.0
# How long a claim may take to become ready before it is annotated with when it was first seen.
_LONG_WAIT_S = 30.0


class AnnotationWriter(Controller[ClaimEntry]):
    """Collects annotations by claim and writes them when it is their turn.

    They are lost with the process: the next one finds what is missing when it reconciles the claim.
    """

    def __init__(self, shared: Shared, states: States[ClaimState]) -> None:
        super().__init__("claim-annotations", shared.caches.claims, shared.clock, workers=4)
        self._writer = shared.writer
        self._server_time = shared.server_time
        self._states = states
        self._undone = Undone()
        # Whether to write when a claim was first seen, and its trace.
        self._observes = not shared.settings.disable_claim_observability_annotations

    def saw(self, entry: ClaimEntry) -> None:
        """Remember when a claim that has never been ready was first seen."""
        carried = entry.annotations or {}
        key = names.CLAIM_FIRST_READY_AT_ANNOTATION
        if carried.get(key):
            return
        state = self._states.begin(entry)
        if state.first_seen is None and key not in state.pending:
            stamped = carried.get(names.CONTROLLER_FIRST_OBSERVED_AT_ANNOTATION, "")
            state.first_seen = self._seen_before(stamped, entry.created_at)

    def annotate(
        self,
        entry: ClaimEntry,
        state: ClaimState,
        sandbox: SandboxEntry | None,
        *,
        was_ready: bool,
        is_ready: bool,
        is_refused: bool,
    ) -> None:
        """Queue the annotations that a claim lacks, given the status that is being written.

        A claim that has just become ready gets them at once; others are gathered.
        """
        annotations = entry.annotations or {}
        if not is_ready:
            gathering_s = _GATHERING_S if is_refused else _LONG_WAIT_S
            self._add(entry, state, self._observed(entry, state), gathering_s)
        if sandbox is None:
            return
        key = names.SANDBOX_NAME_ANNOTATION
        name = sandbox.key.name
        # The annotation marks a Sandbox that came from a pool; one of the claim's own has its name.
        noted = state.pending.get(key) or annotations.get(key) or entry.key.name
        # Releases of the reference before v1 named it in a label, which goes with the patch: remove
        # after v1.1.
        if key in (entry.labels or {}) or name != noted:
            self._add(entry, state, {key: name}, 0.0 if is_ready else _GATHERING_S)
        dated = names.CLAIM_FIRST_READY_AT_ANNOTATION
        is_dated = bool(annotations.get(dated))
        if was_ready and is_dated:
            state.first_seen = None
            state.trace = ""
        elif not is_dated and (was_ready or is_ready) and dated not in state.pending:
            # If it was ready before, it is unknown since when.
            since = "unknown" if was_ready else _written(self._server_time.now())
            changes = {dated: since, **self._observed(entry, state)}
            self._add(entry, state, changes, _GATHERING_S if was_ready else 0.0)

    def _observed(self, entry: ClaimEntry, state: ClaimState) -> dict[str, str]:
        """Return the annotations of the controller's first sight that a claim does not have yet."""
        if not self._observes:
            return {}
        carried = entry.annotations or {}
        found = {
            names.CONTROLLER_FIRST_OBSERVED_AT_ANNOTATION: state.first_seen or "",
            names.TRACE_CONTEXT_ANNOTATION: state.trace,
        }
        return {key: value for key, value in found.items() if value and not carried.get(key)}

    def _seen_before(self, stamped: str, created_at: str) -> str:
        """Return when a claim that is seen now was seen first, by this process or one before it.

        Its user may have written the stamp, so it counts only as far as it is between the creation
        and now. Empty if it is not a time.
        """
        now = self._server_time.now()
        try:
            seen = min(no_earlier(stamped, created_at), now) if stamped else now
        except ValueError:
            return ""
        return _written(seen)

    def _add(
        self, entry: ClaimEntry, state: ClaimState, changes: dict[str, str], after_s: float
    ) -> None:
        if changes and self.cache.latest(entry) is not None:
            state.pending.update(changes)
            self.queue.add(entry.key, rank=Rank.SPARE, after_s=after_s)

    def enqueue_all(self, reason: str) -> None:  # noqa: ARG002 -- the claims' controller finds it
        """Accept annotations from now on; the reconciles of claims find what is missing."""
        self.queue.is_paused = False

    async def reconcile(self, item: Item[Key]) -> Result:
        """Write what has been collected for one claim."""
        entry = self.cache.get(item.key)
        if entry is None or entry.is_deleting:
            return Result()
        state = self._states.begin(entry)
        changes = state.pending.copy()
        if changes and not self._undone.is_in_vain(entry.uid, _left(entry, changes)):
            await self.write(entry, changes)
        # Annotations added meanwhile have a turn of their own.
        state.pending = dict(state.pending.items() - changes.items())
        self._states.settle(entry)
        return Result()

    async def write(self, entry: ClaimEntry, changes: Mapping[str, str | None]) -> None:
        """Set or remove annotations of a claim; one that is gone is not an error. One PATCH.

        The label by which releases of the reference before v1 named the Sandbox is removed with the
        first patch: remove after v1.1.
        """
        metadata: dict[str, Any] = {"annotations": changes}
        if names.SANDBOX_NAME_ANNOTATION in (entry.labels or {}):
            metadata["labels"] = {names.SANDBOX_NAME_ANNOTATION: None}
        patch = {"metadata": metadata}
        with suppress(NotFound):
            # Metadata alone would hide what others have written into the status meanwhile.
            written = await self._writer.patch(
                self.cache, entry, patch, as_metadata=False, generation=entry.generation
            )
            carried = written.item.metadata.annotations or {}
            if any(carried.get(key) != value for key, value in changes.items()):
                self._undone.note(entry.uid, _left(written.entry, changes))


def _left(entry: ClaimEntry, changes: Mapping[str, str | None]) -> object:
    """Return what is left to be written of a claim in its state; the dates do not count."""
    return entry.labels, entry.annotations, sorted(changes)


def _written(instant: datetime) -> str:
    """Return an instant with as many digits of fraction as it needs."""
    return format_micro_time(instant).rstrip("Z").rstrip("0").rstrip(".") + "Z"
