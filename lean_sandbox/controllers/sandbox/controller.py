"""The Sandbox controller: which changes have a Sandbox reconciled, and how soon.

Most do at once. A step of a launch (scheduled, pulling, running but not ready) waits for the window
of the launch: the next step usually comes within it and makes a reconcile for this one superfluous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from filters import Change
from lean_sandbox.controllers.common import ObjectEvents, Shared, Undone
from lean_sandbox.controllers.sandbox.reconcile import SandboxReconcile, is_final
from lean_sandbox.controllers.sandbox.requests import SandboxRequests
from lean_sandbox.controllers.sandbox.run import SandboxContext, SandboxState
from lean_sandbox.controllers.sandbox.throttle import StatusThrottle, facts_of
from lean_sandbox.model import names
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.model.times import has_come, time_left_s
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.runtime.queue import Cause, Item
from lean_sandbox.runtime.states import States
from lean_sandbox.runtime.workers import Result
from lean_sandbox.turns import Rank
from lean_sandbox.watch.kind import Delta, Key, Knowledge
from lean_sandbox.watch.resources.children import PvcEntry, ServiceEntry
from lean_sandbox.watch.resources.pod import READY, RUNNING, WAITING, PodEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# Delay of the reconcile of a Sandbox that was ready when another controller changed it.
_REPORT_AFTER_S = 0.1
_URGENT = (
    Change.DELETING
    | Change.OWNERS
    | Change.LABELS
    | Change.ANNOTATIONS
    | Change.FIRST_SEEN
    | Change.RECREATED
)


class SandboxController(Controller[SandboxEntry]):
    """Keeps Sandboxes as their specs say; see :mod:`.reconcile`.

    ``is_awaited``: whether somebody waits for a Sandbox that is a member of a pool, or seems to be
    settled.
    """

    def __init__(
        self,
        shared: Shared,
        *,
        is_awaited: Callable[[SandboxEntry], bool] = lambda _entry: False,
    ) -> None:
        settings = shared.settings
        caches = shared.caches
        workers = settings.sandbox_concurrent_workers
        super().__init__("sandbox", caches.sandboxes, shared.clock, workers=workers)
        throttle = StatusThrottle(
            settings.sandbox_status_window,
            settings.sandbox_status_step_window,
            is_spare=self._is_spare,
        )
        requests = SandboxRequests(shared)
        self.hidden = requests.hidden
        resource = self.cache.kind.resource
        self._context = SandboxContext(
            caches=caches,
            clock=shared.clock,
            events=ObjectEvents(
                shared, resource, "sandbox-controller", is_off=settings.disable_sandbox_events
            ),
            metrics=shared.metrics,
            reflectors=shared.reflectors,
            requests=requests,
            server_time=shared.server_time,
            settings=settings,
            throttle=throttle,
            undone=Undone(),
            wakes=shared.wakes,
        )
        self._states: States[SandboxState] = States(SandboxState)
        self._is_awaited = is_awaited

    def rank_of(self, entry: SandboxEntry, cause: Cause) -> Rank:  # noqa: ARG002 -- whatever it is
        """Return whether a client waits for what a Sandbox lacks.

        Not for a member of a pool that nobody waits for, nor for a Sandbox that is ready as it was
        asked for: only its status may have to be written.
        """
        if entry.is_deleting or self._is_awaited(entry):
            return Rank.CLIENT
        is_settled = entry.is_ready and not self._has_changed(entry)
        return Rank.SPARE if is_settled or _is_member(entry) else Rank.CLIENT

    def _has_changed(self, entry: SandboxEntry) -> bool:
        """Return whether a ready Sandbox has expired, or its spec, Service or Pod has changed."""
        view = entry.view
        caches = self._context.caches
        if (
            view is None
            or entry.needs_fetch
            or has_come(view.shutdown_time, self._context.server_time.now())
        ):
            return True
        service = caches.services.get(entry.key)
        pod = caches.pods.get(entry.pod_key)
        if service.needs_fetch if service is not None else view.service:
            return True
        return pod is None or pod.is_deleting or pod.needs_fetch or pod.hint != READY

    async def reconcile(self, item: Item[Key]) -> Result:
        """Bring one Sandbox to what its spec asks for."""
        entry = self.cache.get(item.key)
        if entry is None or entry.is_deleting:
            # Children go by garbage collection; no status is written about what is being deleted.
            self._forget(item.key)
            return Result()
        # After a list the published status is trusted where a fetch would only confirm it.
        is_start = item.causes == Cause.LISTED
        state = self._states.begin(entry)
        try:
            return await SandboxReconcile(self._context, entry, state, is_start=is_start).run()
        finally:
            self._states.settle(entry)
            self._context.requests.drop_created(item.key)

    def _forget(self, key: Key) -> None:
        """Drop what is remembered of a Sandbox that is gone or going."""
        self._states.pop(key, None)
        self._context.metrics.forget(key)
        self._context.throttle.settled(key)
        self._context.requests.forget(key)

    def _is_spare(self, key: Key) -> bool:
        entry = self.cache.get(key)
        return entry is not None and _is_member(entry)

    def is_final(self, entry: SandboxEntry) -> bool:
        """Return whether a Sandbox is as its spec asks, and its status says so."""
        return is_final(self._context, entry, self._states.of(entry))

    def due_in_s(self, key: Key) -> float | None:
        """Return the seconds until a Sandbox expires."""
        entry = self.cache.get(key)
        if entry is None or entry.view is None:
            return None
        return time_left_s(entry.view.shutdown_time, self._context.server_time.now())

    def mark_stale(self, key: Key) -> None:
        """Mark the Pod as stale, so that it is fetched: the watch may not show a change of it."""
        entry = self.cache.get(key)
        if entry is not None:
            pods = self._context.caches.pods
            for pod in pods.owned_by(key.namespace, entry.uid):
                if not pod.needs_fetch:
                    pods.mark(pod, knowledge=Knowledge.STALE)

    def launch(self, key: Key, whole: Sandbox | None = None) -> None:
        """Reconcile a Sandbox that another controller created, giving ``whole``, or changed."""
        if whole is not None:
            self._context.requests.keep_created(whole)
        self.wake(key, reason="owner")

    def reconcile_soon(self, key: Key) -> None:
        """Reconcile, in a moment, a Sandbox that was ready when another controller changed it."""
        self.wake(key, after_s=_REPORT_AFTER_S, reason="owner")

    def on_sandbox(self, delta: Delta[SandboxEntry]) -> None:
        """Reconcile a Sandbox that changed; one that took the name of another begins anew."""
        self.forget_failures(delta)
        if delta.has_ended:
            # No reconcile may come between the end of the one and the beginning of the other.
            self._forget(delta.key)
        if delta.new is None:
            self.wake(delta.key, reason="sandbox gone")
        elif delta.initial:
            # Its Pod may not be listed yet.
            rank = Rank.SPARE if delta.new.is_ready else Rank.CLIENT
            self.queue.add(delta.key, rank=rank, cause=Cause.LISTED, reason="sandbox")
        else:
            self.wake(delta.key, reason="sandbox")

    def on_pod(self, delta: Delta[PodEntry]) -> None:
        """Reconcile the old and the new owner of a Pod that changed; note what the watch shows."""
        key = delta.key
        keys = _concerned(delta)
        hidden = self.hidden
        # Only for names that a Sandbox expects: nothing would ever forget the others.
        expecting = (one for one in map(self.cache.get, keys) if one and one.pod_key == key)
        if delta.new is None and any(expecting):
            if delta.saw_deletion:
                hidden.ended(key)
            else:
                # A forced deletion, one that no watch has shown, or the loss of its tracking label.
                hidden.lost(key)
        if delta.initial:
            return
        # Before there is a node only the scheduler writes, and no column shows its findings.
        is_news = bool(delta.change & Change.VERSION) and not delta.change & Change.COLUMNS
        may_wait = not delta.change & _URGENT and _is_a_step_up(delta)
        pod = delta.new
        reason = "pod gone"
        facts = frozenset[str]()
        if pod is not None:
            reason = f"pod {pod.hint or 'changed'}"
            facts = facts_of(trouble=pod.trouble, address=pod.hint == RUNNING)
        self._enqueue(keys, reason, may_wait=may_wait, is_news=is_news, facts=facts)

    def on_service(self, delta: Delta[ServiceEntry]) -> None:
        """Reconcile the owners of a Service that changed, or the Sandbox that may adopt it."""
        if not delta.initial:
            self._enqueue(_concerned(delta), "service changed")

    def on_pvc(self, delta: Delta[PvcEntry]) -> None:
        """Reconcile the Sandboxes of a volume claim that is gone, has no owner or another one."""
        is_owned = delta.new is not None and delta.new.owner is not None
        if delta.initial or (is_owned and Change.OWNERS not in delta.change):
            return
        # The name of the claim template, any prefix, stands before that of the Sandbox.
        namespace, name = delta.key
        of_name = [Key(namespace, name[at + 1 :]) for at, char in enumerate(name) if char == "-"]
        self._enqueue([*_concerned(delta), *of_name], "volume claim")

    def _enqueue(
        self,
        keys: list[Key],
        reason: str,
        *,
        may_wait: bool = False,
        is_news: bool = False,
        facts: frozenset[str] = frozenset(),
    ) -> None:
        if self.queue.is_paused:
            # No window begins either: the next leader reconciles everything.
            return
        for key in keys:
            if key not in self.cache:
                continue
            after_s = 0.0
            if may_wait:
                # The window of a step starts when it is first seen.
                now = self._context.clock.monotonic()
                throttle = self._context.throttle
                after_s = throttle.hold_step(key, now, is_news=is_news, facts=facts)
            self.wake(key, after_s=after_s, reason=reason)


def _is_member(entry: SandboxEntry) -> bool:
    return entry.owner_key(names.SANDBOX_WARM_POOL_KIND) is not None


def _concerned(delta: Delta[Any]) -> list[Key]:
    """Return the Sandboxes that controlled an object before a change, or control it now.

    The uid is not compared: the end of a predecessor's Pod must wake the Sandbox that took its
    name. The Sandbox of the object's own name is included if the object is gone or has no
    controller: the name may be free now, or taken.
    """
    found: dict[Key, None] = {}
    for entry in (delta.old, delta.new):
        if entry is None:
            continue
        if (sandbox := entry.owner_key(names.SANDBOX_KIND)) is not None:
            found[sandbox] = None
        if delta.new is None or entry.owner is None:
            found[delta.key] = None
    return list(found)


def _is_a_step_up(delta: Delta[PodEntry]) -> bool:
    if delta.new is None or delta.old is None or delta.old.hint == READY:
        # Every change of a ready Pod is news, even of its address or node alone.
        return False
    # A watch without columns gives no hint: any write may be the one that makes the Pod ready.
    return delta.new.hint in (RUNNING, WAITING)
