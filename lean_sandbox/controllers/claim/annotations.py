"""The annotations of claims, written in parallel with their status or after it, one patch a claim.

Those of a claim that becomes ready are sent at the same time as the status that says so, unless
other claims are being served: then they wait. A claim that is refused, or not ready for long, gets
the time when it was first seen, to show that the controller has seen it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from lean_sandbox.controllers.common import Shared
from lean_sandbox.kube.errors import NotFound
from lean_sandbox.model import names
from lean_sandbox.model.times import format_micro_time, no_earlier
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.runtime.queue import Item
from lean_sandbox.runtime.workers import Result
from lean_sandbox.turns import Rank
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.extensions import ClaimEntry

# How long the annotations of a claim that is not ready are gathered into one patch.
_GATHERING_S = 1.0
# How long a claim may take to become ready before it is annotated with when it was first seen.
_LONG_WAIT_S = 30.0


class AnnotationWriter(Controller[ClaimEntry]):
    """Collects annotations by claim and writes them when it is their turn.

    They are lost with the process: the next one finds what is missing when it reconciles the claim.
    """

    def __init__(self, shared: Shared) -> None:
        super().__init__("claim-annotations", shared.caches.claims, shared.clock, workers=4)
        self._writer = shared.writer
        self._clock = shared.clock
        # Whether to write when a claim was first seen, and its trace.
        self._observes = not shared.settings.disable_claim_observability_annotations
        # By uid of the claim: annotations pending or in flight, when the claim was first seen, and
        # the trace that was begun for a client that began none.
        self._pending: dict[str, dict[str, str]] = {}
        self._first_seen: dict[str, str] = {}
        self._traces: dict[str, str] = {}

    def saw(self, entry: ClaimEntry) -> None:
        """Remember when a claim that has never been ready was first seen."""
        carried, key = entry.annotations or {}, names.CLAIM_FIRST_READY_AT_ANNOTATION
        if not carried.get(key) and key not in self._pending.get(entry.uid, ()):
            stamped = carried.get(names.CONTROLLER_FIRST_OBSERVED_AT_ANNOTATION, "")
            self._first_seen.setdefault(entry.uid, self._seen_before(stamped, entry.created_at))

    def first_seen(self, uid: str) -> str | None:
        """Return, only once, when a claim that has just become ready was first seen."""
        return self._first_seen.pop(uid, None)

    def was_ready(self, uid: str) -> None:
        """Forget the first sight and the trace of a claim that was ready before."""
        self._first_seen.pop(uid, None)
        self._traces.pop(uid, None)

    def forget(self, uid: str) -> None:
        """Forget a claim that is gone."""
        self.was_ready(uid)
        self._pending.pop(uid, None)

    def trace_of(self, entry: ClaimEntry) -> str:
        """Return the trace context that a claim carries or will carry, empty for none."""
        carried = (entry.annotations or {}).get(names.TRACE_CONTEXT_ANNOTATION, "")
        return carried or self._traces.get(entry.uid, "")

    def begin_trace(self, entry: ClaimEntry, carrier: str) -> None:
        """Note the trace that all reconciles of a claim, and its Sandbox, belong to."""
        self._traces[entry.uid] = carrier

    def noted(self, entry: ClaimEntry) -> str:
        """Return the Sandbox that a claim names or will name, empty for none."""
        key = names.SANDBOX_NAME_ANNOTATION
        pending = self._pending.get(entry.uid, {})
        return pending[key] if key in pending else (entry.annotations or {}).get(key, "")

    def bound(self, entry: ClaimEntry, sandbox: str, *, is_ready: bool) -> None:
        """Note which Sandbox the claim has."""
        after_s = 0.0 if is_ready else _GATHERING_S
        self._add(entry, {names.SANDBOX_NAME_ANNOTATION: sandbox}, after_s)

    def ready(self, entry: ClaimEntry, *, is_known: bool) -> None:
        """Note that the claim is ready for the first time, now or at an unknown time."""
        key = names.CLAIM_FIRST_READY_AT_ANNOTATION
        if key not in self._pending.get(entry.uid, ()):
            changes = {key: self._now() if is_known else "unknown", **self._observed(entry)}
            self._add(entry, changes, 0.0 if is_known else _GATHERING_S)

    def unready(self, entry: ClaimEntry, *, is_refused: bool) -> None:
        """Note that the claim is not ready: it is refused, or takes time."""
        if observed := self._observed(entry):
            self._add(entry, observed, _GATHERING_S if is_refused else _LONG_WAIT_S)

    def _observed(self, entry: ClaimEntry) -> dict[str, str]:
        """Return the annotations of the controller's first sight that a claim does not have yet."""
        if not self._observes:
            return {}
        carried = entry.annotations or {}
        found = {
            names.CONTROLLER_FIRST_OBSERVED_AT_ANNOTATION: self._first_seen.get(entry.uid, ""),
            names.TRACE_CONTEXT_ANNOTATION: self._traces.get(entry.uid, ""),
        }
        return {key: value for key, value in found.items() if value and not carried.get(key)}

    def _seen_before(self, stamped: str, created_at: str) -> str:
        """Return when a claim that is seen now was seen first, by this process or one before it.

        Its user may have written the stamp, so it counts only as far as it is between the creation
        and now. Empty if it is not a time.
        """
        now = self._clock.now()
        try:
            seen = min(no_earlier(stamped, created_at), now) if stamped else now
        except ValueError:
            return ""
        return _written(seen)

    def _now(self) -> str:
        return _written(self._clock.now())

    def _add(self, entry: ClaimEntry, changes: dict[str, str], after_s: float) -> None:
        if self.cache.latest(entry) is None:
            return
        self._pending.setdefault(entry.uid, {}).update(changes)
        self.queue.add(entry.key, rank=Rank.SPARE, after_s=after_s)

    def enqueue_all(self, reason: str) -> None:  # noqa: ARG002 -- the claims' controller finds it
        """Accept annotations from now on; the reconciles of claims find what is missing."""
        self.queue.is_paused = False

    async def reconcile(self, item: Item[Key]) -> Result:
        """Write what has been collected for one claim."""
        entry = self.cache.get(item.key)
        if entry is None or entry.is_deleting or entry.uid not in self._pending:
            return Result()
        changes = self._pending[entry.uid].copy()
        await self.write(entry, changes)
        # Annotations added meanwhile have a turn of their own.
        pending = self._pending.pop(entry.uid, {})
        if later := dict(pending.items() - changes.items()):
            self._pending[entry.uid] = later
        return Result()

    async def write(self, entry: ClaimEntry, changes: Mapping[str, str | None]) -> None:
        """Set or remove annotations of a claim; one that is gone is not an error. One PATCH.

        The label by which old releases named the Sandbox is removed with the first patch.
        """
        metadata: dict[str, Any] = {"annotations": changes}
        if names.SANDBOX_NAME_ANNOTATION in (entry.labels or {}):
            metadata["labels"] = {names.SANDBOX_NAME_ANNOTATION: None}
        patch = {"metadata": metadata}
        with suppress(NotFound):
            # Metadata alone would hide what others have written into the status meanwhile.
            await self._writer.patch(
                self.cache, entry, patch, as_metadata=False, generation=entry.generation
            )


def _written(instant: datetime) -> str:
    """Return an instant with as many digits of fraction as it needs."""
    return format_micro_time(instant).rstrip("Z").rstrip("0").rstrip(".") + "Z"
