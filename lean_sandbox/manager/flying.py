"""From a controller to the recorder of what happens in it, and to what answers about that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lean_sandbox.clock import Clock
from lean_sandbox.http.server import Handler
from lean_sandbox.kube.telemetry import RequestRecord
from lean_sandbox.kube.transport import Transport
from lean_sandbox.manager.flight import CLAIMS, PODS, SANDBOXES, Subject, TraceBuffer
from lean_sandbox.manager.trace_endpoint import lives
from lean_sandbox.watch.store import Key

if TYPE_CHECKING:
    from lean_sandbox.manager.manager import Controller


def record(controller: Controller, transport: Transport, most: int, clock: Clock) -> TraceBuffer:
    """Record what happens to Sandboxes and claims, from a controller that does not run yet."""
    recorder = TraceBuffer(most, clock)
    recorder.follow_events(controller.watch_caches.sandboxes)
    recorder.follow_events(controller.watch_caches.pods)
    recorder.follow_passes("sandbox", SANDBOXES, controller.sandboxes.workers)
    extensions = controller.extensions
    if extensions is not None:
        claims = extensions.claims
        recorder.follow_events(extensions.watch_caches.claims)
        recorder.follow_passes("sandboxclaim", CLAIMS, claims.workers)
        recorder.follow_passes("claim-annotations", CLAIMS, claims.annotator.workers)
    before = transport.observer

    def observe(told: RequestRecord) -> None:
        if before is not None:
            before(told)
        recorder.observe(told)

    transport.observer = observe
    return recorder


def answer(controller: Controller, recorder: TraceBuffer, clock: Clock) -> Handler:
    """Return what answers about the life of an object, its Sandbox and its Pod."""

    def related(subject: Subject) -> Iterable[Subject]:
        plural, key = subject
        if plural == CLAIMS and controller.extensions is not None:
            claim = controller.extensions.caches.claims.get(key)
            if claim is not None and claim.status is not None and claim.status.bound.name:
                yield SANDBOXES, Key(key.namespace, claim.status.bound.name)
        elif plural == SANDBOXES:
            sandbox = controller.caches.sandboxes.get(key)
            if sandbox is not None:
                for pod in controller.caches.pods.owned_by(key.namespace, sandbox.uid):
                    yield PODS, pod.key

    return lives(recorder, clock, related)
