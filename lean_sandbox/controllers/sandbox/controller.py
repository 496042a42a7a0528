"""The Sandbox controller: its queue, what wakes it, and its passes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.controllers.recording import ObjectEvents, Recorder
from lean_sandbox.controllers.sandbox.act import Act
from lean_sandbox.controllers.sandbox.children import Parts
from lean_sandbox.controllers.sandbox.handed import CreateResponses
from lean_sandbox.controllers.sandbox.metrics import SandboxMetrics
from lean_sandbox.controllers.sandbox.reconcile import SandboxReconciler
from lean_sandbox.controllers.sandbox.throttle import StatusThrottle
from lean_sandbox.controllers.sandbox.wake import (
    Wake,
    owner_key,
    pod_wakes,
    pvc_wakes,
    service_wakes,
)
from lean_sandbox.kube.client import Client
from lean_sandbox.metrics.registry import Exposition
from lean_sandbox.model import names
from lean_sandbox.model.conditions import is_true
from lean_sandbox.model.sandbox import Sandbox, SandboxStatus
from lean_sandbox.runtime.absent import KnownAbsent, Proof
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.runtime.queue import LOW, NORMAL, REFILL, Item, WorkQueue
from lean_sandbox.runtime.tracing import Tracing
from lean_sandbox.runtime.workers import ReconcileResult, Result
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.group import ReflectorGroup
from lean_sandbox.watch.kind import Delta, Key
from lean_sandbox.watch.resources.pod import PodEntry
from lean_sandbox.watch.resources.pvc import PvcEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry
from lean_sandbox.watch.resources.service import ServiceEntry

_ABSENT_ENTRIES = 4096
# How long what nobody waits for lets claims go first at most.
_LONGEST_STAND_BACK_S = 2.0
# How soon a Sandbox is looked at that was ready when another controller changed it.
_LOOK_AFTER_S = 0.1
_ABSENT_TTL_S = 600.0
_PVC_LIST_PATIENCE_S = 5.0
# How long a new Sandbox of an extension waits for the answer to the create that made it: usually it
# is here a moment after the watch, and saves a GET.
_ANSWER_S = 0.1


class SandboxOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller is told from outside; the settings describe each field."""

    workers: int = 100
    cluster_domain: str = "cluster.local"
    status_window_s: float = 2.0
    step_window_s: float = 30.0
    write_behind_s: float = 0.0
    request_timeout_s: float = 15.0


class SandboxController(Controller[SandboxEntry]):
    """Keeps Sandboxes as their specs say; see :mod:`.reconcile`."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        informers: ReflectorGroup,
        *,
        clock: Clock,
        options: SandboxOptions,
        recorder: Recorder | None = None,
        tracing: Tracing | None = None,
        on_pass: Callable[[ReconcileResult[Key]], None] | None = None,
    ) -> None:
        super().__init__(
            "sandbox",
            caches.sandboxes,
            clock,
            workers=options.workers,
            on_result=on_pass,
        )
        self._client = client
        self._caches = caches
        self._informers = informers
        self._clock = clock
        self._options = options
        self._tracing = tracing
        self.on_status: Callable[[SandboxEntry, SandboxStatus, SandboxStatus], None] | None = None
        self._claims: WorkQueue[Key] | None = None
        self._is_awaited: Callable[[Key], bool] = lambda _pool: False
        self._events = ObjectEvents(recorder, names.CORE_API_VERSION, names.SANDBOX_KIND)
        self.metrics = SandboxMetrics(clock)
        self.absent = KnownAbsent(_ABSENT_ENTRIES, _ABSENT_TTL_S, clock)
        self._handed = CreateResponses()
        self._launches = StatusThrottle(
            options.status_window_s, options.step_window_s, is_spare=self._is_spare
        )
        act = Act(
            client,
            caches,
            self.queue,
            self.absent,
            self._handed,
            timeout_s=options.request_timeout_s,
        )
        self._parts = Parts(
            caches=caches,
            act=act,
            absent=self.absent,
            events=self._events,
            throttle=self._launches,
            clock=self._clock,
            pvcs_ready=self._pvcs_ready,
            write_behind_s=options.write_behind_s,
            tracing=self._tracing,
        )
        self._reconciler = SandboxReconciler(
            self._parts,
            self.metrics,
            cluster_domain=options.cluster_domain,
            on_gone=self._forget,
            on_status=self._status_written,
        )
        caches.sandboxes.subscribe(self.on_sandbox)
        caches.pods.subscribe(self.on_pod)
        caches.services.subscribe(self.on_service)
        caches.pvcs.subscribe(self.on_pvc)

    def _forget(self, key: Key) -> None:
        self._handed.forget(key)
        self.absent.drop("pods", key.namespace, key.name)

    def collect(self, into: Exposition) -> None:
        """Add the series of Sandboxes, and what known absences have saved."""
        super().collect(into)
        self.metrics.collect(into)
        self.absent.collect(into)

    def _status_written(self, entry: SandboxEntry, old: SandboxStatus, new: SandboxStatus) -> None:
        if self.on_status is not None:
            self.on_status(entry, old, new)

    def stand_back(self, claims: WorkQueue[Key], is_awaited: Callable[[Key], bool]) -> None:
        """Let claims go first; ``is_awaited`` tells whether claims wait for members of a pool."""
        self._claims = claims
        self._is_awaited = is_awaited
        self.queue.gate(self._must_wait, behind=claims, longest_s=_LONGEST_STAND_BACK_S)

    def _must_wait(self, key: Key) -> bool:
        """Tell whether nobody waits for a Sandbox, and claims are being served."""
        if self._claims is None or not self._claims.is_busy:
            return False
        entry = self._caches.sandboxes.get(key)
        if entry is None or entry.owner is None or entry.owner.group != names.EXTENSIONS_GROUP:
            return False
        # A claim's Sandbox that is ready already has only its housekeeping left.
        is_ready = entry.status is not None and is_true(entry.status.conditions, names.READY)
        is_member = entry.owner.kind == names.SANDBOX_WARM_POOL_KIND
        if not is_member and not is_ready:
            return False
        # What the claims wait for may be this very member to come up.
        return not (is_member and self._is_awaited(Key(key.namespace, entry.owner.name)))

    async def reconcile(self, item: Item[Key]) -> Result:
        """Bring one Sandbox to what its spec asks for."""
        # After a list the published status is believed where a look would only confirm it.
        is_start = item.priority == LOW and not item.is_safety_net
        return await self._reconciler.reconcile(item.key, is_start=is_start)

    def _is_spare(self, key: Key) -> bool:
        """Tell whether a Sandbox is a pool's, so that nobody waits for it."""
        entry = self._caches.sandboxes.get(key)
        owner = entry.owner if entry is not None else None
        return owner is not None and owner.is_a(
            names.SANDBOX_WARM_POOL_KIND, names.EXTENSIONS_GROUP
        )

    def is_final(self, key: Key) -> bool:
        """Tell whether a Sandbox is as its spec asks and says so."""
        return self._reconciler.is_final(key)

    def due_in_s(self, key: Key) -> float | None:
        """Return after how long a Sandbox expires."""
        return self._reconciler.due_in_s(key)

    def doubt(self, key: Key) -> None:
        """Have the next pass fetch the Pod: the watch may hide what has happened to it."""
        entry = self._caches.sandboxes.get(key)
        if entry is not None:
            for pod in self._caches.pods.owned_by(key.namespace, entry.uid):
                pod.is_stale = True

    async def _pvcs_ready(self) -> str | None:
        """Start watching claims when the first Sandbox needs them: most clusters never do.

        Returns why they are not known yet, after a patience that covers a list in its normal time.
        """
        self._informers.start(self._caches.pvcs)
        plural = self._caches.pvcs.kind.resource.plural
        return await self._informers.synced_within(plural, _PVC_LIST_PATIENCE_S)

    # -- what wakes ------------------------------------------------------------------------------

    def launch(self, key: Key, whole: Sandbox | None = None) -> None:
        """Look at a Sandbox that another controller made or changed.

        ``whole`` is what the server answered to the create; it saves the first pass its GET.
        """
        if whole is not None:
            self._handed.keep(whole)
        self.queue.add(key, priority=REFILL, reason="owner")

    def look_after(self, key: Key) -> None:
        """Look, in a moment, at a Sandbox that was ready when another controller changed it."""
        self.queue.add(key, priority=REFILL, after_s=_LOOK_AFTER_S, reason="owner")

    def on_sandbox(self, notice: Delta[SandboxEntry]) -> None:
        """Wake a Sandbox that changed."""
        if notice.is_new:
            self._client.ending.forget(notice.key.namespace)
        self.queue.add(
            notice.key,
            priority=LOW if notice.initial else NORMAL,
            after_s=_ANSWER_S if self._may_be_handed_over(notice) else 0.0,
            reason="sandbox gone" if notice.new is None else "sandbox",
        )

    def _may_be_handed_over(self, notice: Delta[SandboxEntry]) -> bool:
        """Tell whether the answer to a create of our own may be under way."""
        entry = notice.new
        if self._claims is None or entry is None or notice.old is not None or notice.initial:
            return False
        is_ours = entry.owner is not None and entry.owner.group == names.EXTENSIONS_GROUP
        return is_ours and entry.needs_look

    def on_pod(self, notice: Delta[PodEntry]) -> None:
        """Wake the Sandbox of a Pod that changed, and remember what is proven about the name."""
        key = notice.key
        if notice.new is not None:
            self.absent.forget("pods", key.namespace, key.name)
        elif not self._is_expected(key, notice.old):
            # No Sandbox would ask for a Pod of this name, nor forget what is noted of it.
            pass
        elif notice.saw_deletion or (notice.old is not None and notice.old.is_deleting):
            self.absent.remember("pods", key.namespace, key.name, Proof.SYNCED_WATCH)
        else:
            # Its end, forced; or only the end of its tracking label.
            self._parts.doubtful.add(key)
        if not notice.initial:
            self._wake(pod_wakes(notice))

    def _is_expected(self, key: Key, pod: PodEntry | None) -> bool:
        """Tell whether there is a Sandbox that expects its Pod under this name."""
        owner = owner_key(key.namespace, pod.owner) if pod is not None else None
        candidates = (self._caches.sandboxes.get(one) for one in (key, owner) if one is not None)
        return any(entry is not None and entry.pod_key == key for entry in candidates)

    def on_service(self, notice: Delta[ServiceEntry]) -> None:
        """Wake the Sandbox of a Service that changed."""
        if not notice.initial:
            self._wake(service_wakes(notice))

    def on_pvc(self, notice: Delta[PvcEntry]) -> None:
        """Wake the Sandbox of a claim for a volume that went."""
        self._wake(pvc_wakes(notice))

    def _may_wait_s(self, wake: Wake) -> float:
        """Return how long a look may wait; the window of a step starts when it is first seen."""
        if not wake.may_wait:
            return 0.0
        now = self._clock.monotonic()
        return self._launches.remaining_s(wake.key, now, is_news=wake.is_news)

    def _wake(self, wakes: list[Wake]) -> None:
        if self.queue.is_held:
            # Nor do windows begin: who leads next looks at everything.
            return
        for wake in wakes:
            if wake.key not in self._caches.sandboxes:
                continue
            self.queue.add(
                wake.key,
                after_s=self._may_wait_s(wake),
                reason=wake.reason,
            )
