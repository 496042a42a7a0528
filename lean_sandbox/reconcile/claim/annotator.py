"""The annotations of claims, written behind everything a client waits for, one patch a claim."""

from __future__ import annotations

from datetime import UTC

from lean_sandbox.clock import Clock
from lean_sandbox.model import names
from lean_sandbox.reconcile.claim.act import ClaimAct
from lean_sandbox.run.queue import LOW, Item, WorkQueue
from lean_sandbox.run.standback import StandBack
from lean_sandbox.run.workers import Dispatcher, Result
from lean_sandbox.watch.extension_objects import ClaimEntry
from lean_sandbox.watch.store import Key, Store

__all__ = ["BackgroundAnnotator"]

# What becomes known of a claim within this time goes into the same patch.
_GATHERING_S = 1.0
_UNKNOWN = "unknown"
_STAND_BACK_S = 0.1


class BackgroundAnnotator:
    """Collects annotations by claim and writes them when it is their turn.

    They are lost with the process: the next one finds what is missing when it looks at the claim.
    """

    def __init__(
        self,
        claims: Store[ClaimEntry],
        act: ClaimAct,
        *,
        clock: Clock,
        observes: bool,
        stand_back: StandBack[Key],
        workers: int = 4,
    ) -> None:
        self._claims = claims
        self._act = act
        self._clock = clock
        self._observes = observes
        self._stand_back = stand_back
        self._pending: dict[Key, tuple[str, dict[str, str | None]]] = {}
        self._first_seen: dict[str, str] = {}
        # Claims whose first readiness is being written at this moment, by uid.
        self._stamping: set[str] = set()
        self.queue: WorkQueue[Key] = WorkQueue(clock)
        self.dispatcher: Dispatcher[Key] = Dispatcher(
            self.queue, self._pass, count=workers, clock=clock, name="claim-annotations"
        )

    def saw(self, entry: ClaimEntry) -> None:
        """Remember when a claim was first seen."""
        if entry.uid not in self._first_seen and not self._is_stamped(entry):
            self._first_seen[entry.uid] = self._now()

    def forget(self, uid: str) -> None:
        """Forget when a claim was first seen, for it is gone or was ready before."""
        self._first_seen.pop(uid, None)

    def bound(self, entry: ClaimEntry, sandbox: str) -> None:
        """Note which Sandbox the claim has."""
        self._add(entry, {names.SANDBOX_NAME_ANNOTATION: sandbox})

    def ready(self, entry: ClaimEntry, *, is_known: bool) -> str | None:
        """Note that the claim is ready for the first time, now or at an unknown time.

        Returns when the claim was first seen ("": not known), ``None`` if this was noted before.
        """
        if self._is_noted(entry):
            return None
        changes = {names.CLAIM_FIRST_READY_AT_ANNOTATION: self._now() if is_known else _UNKNOWN}
        key = names.CONTROLLER_FIRST_OBSERVED_AT_ANNOTATION
        stamped = (entry.annotations or {}).get(key, "")
        first_seen = self._first_seen.pop(entry.uid, "")
        if first_seen and self._observes and not stamped:
            changes[key] = first_seen
        self._add(entry, changes)
        return stamped or first_seen

    def _is_noted(self, entry: ClaimEntry) -> bool:
        """Tell whether the first readiness of a claim is on its way to the server."""
        uid, changes = self._pending.get(entry.key, ("", {}))
        is_pending = uid == entry.uid and names.CLAIM_FIRST_READY_AT_ANNOTATION in changes
        return is_pending or entry.uid in self._stamping

    @staticmethod
    def _is_stamped(entry: ClaimEntry) -> bool:
        stamped = entry.annotations or {}
        return bool(stamped.get(names.CONTROLLER_FIRST_OBSERVED_AT_ANNOTATION))

    def _now(self) -> str:
        moment = self._clock.now().astimezone(UTC)
        fraction = f"{moment.microsecond:06d}".rstrip("0")
        return f"{moment:%Y-%m-%dT%H:%M:%S}{'.' + fraction if fraction else ''}Z"

    def _add(self, entry: ClaimEntry, changes: dict[str, str]) -> None:
        uid, pending = self._pending.get(entry.key, (entry.uid, {}))
        if uid != entry.uid:
            pending = {}
        self._pending[entry.key] = (entry.uid, {**pending, **changes})
        self.queue.add(entry.key, priority=LOW, after_s=_GATHERING_S)

    async def _pass(self, item: Item[Key]) -> Result:
        if self._stand_back.must_wait(item.key):
            return Result(requeue_after_s=_STAND_BACK_S, priority=LOW)
        uid, changes = self._pending.pop(item.key, ("", {}))
        entry = self._claims.get(item.key)
        if entry is None or entry.uid != uid or entry.is_deleting or not changes:
            return Result()
        if names.CLAIM_FIRST_READY_AT_ANNOTATION in changes:
            self._stamping.add(uid)
        try:
            await self._act.annotate(entry, changes)
        except BaseException:
            held_uid, later = self._pending.get(item.key, (uid, {}))
            if held_uid == uid:
                self._pending[item.key] = (uid, {**changes, **later})
            raise
        finally:
            self._stamping.discard(uid)
        return Result()
