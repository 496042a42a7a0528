"""What is counted of claims: the Sandboxes they got, and how long that took (claims, 8.2)."""

from __future__ import annotations

from datetime import datetime

from lean_sandbox.clock import Clock
from lean_sandbox.controllers.metrics import UNKNOWN_TEMPLATE_OF_CLAIM, template_of
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Counters, Exposition, Histograms
from lean_sandbox.model import names
from lean_sandbox.model.times import parse_rfc3339
from lean_sandbox.watch.resources.extensions import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry


class ClaimMetrics:
    """Counts what claims got, and observes when they are ready for the first time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._creations = Counters(families.CLAIM_CREATIONS)
        self._startup = Histograms(families.CLAIM_STARTUP)
        self._controller_startup = Histograms(families.CLAIM_CONTROLLER_STARTUP)
        self._client_startup = Histograms(families.CLAIM_CLIENT_STARTUP)
        self._creation = Histograms(families.CREATION_LATENCY)

    def collect(self, into: Exposition) -> None:
        """Add everything as it is now."""
        for each in (
            self._creations,
            self._startup,
            self._controller_startup,
            self._client_startup,
            self._creation,
        ):
            each.collect(into)

    def bound(self, entry: ClaimEntry, sandbox: SandboxEntry, launch: str) -> None:
        """Count a member that a claim took from its pool, or a Sandbox that was created for it."""
        creator = (entry.labels or {}).get(names.CREATED_BY_LABEL)
        # The pool a member came from is the one its claim asks for; no other is taken.
        pool = entry.view.pool if entry.view is not None else ""
        self._creations.add(
            entry.key.namespace,
            template_of(sandbox) or UNKNOWN_TEMPLATE_OF_CLAIM,
            launch,
            pool if not pool or names.is_object_name(pool) else UNKNOWN_TEMPLATE_OF_CLAIM,
            "ready" if sandbox.is_ready else "not_ready",
            names.normalise_created_by(creator) or names.CREATED_BY_UNKNOWN,
        )

    def first_ready(self, entry: ClaimEntry, sandbox: SandboxEntry, first_observed: str) -> None:
        """Observe how long a claim took, after the status that says Ready was written.

        ``first_observed`` is when the controller saw the claim first; empty when it is not known.
        """
        now = self._clock.now()
        annotations = entry.annotations or {}
        labels = sandbox.labels or {}
        is_warm = labels.get(names.LAUNCH_TYPE_LABEL) == names.LAUNCH_TYPE_WARM
        launch = names.LAUNCH_TYPE_WARM if is_warm else names.LAUNCH_TYPE_COLD
        template = template_of(sandbox) or UNKNOWN_TEMPLATE_OF_CLAIM
        for histograms, began in (
            (self._startup, annotations.get(names.WEBHOOK_FIRST_OBSERVED_AT_ANNOTATION)),
            (self._controller_startup, first_observed),
            (self._client_startup, annotations.get(names.CLIENT_FIRST_REQUESTED_AT_ANNOTATION)),
        ):
            took_ms = _between_ms(began, now)
            if took_ms is not None:
                histograms.observe(took_ms, launch, template)
        took_ms = _creation_ms(sandbox)
        if took_ms is not None:
            self._creation.observe(took_ms, entry.key.namespace, launch, template)


def _between_ms(began: str | None, end: datetime) -> int | None:
    """Return whole milliseconds, ``None`` for no time, none that can be read, or a later one."""
    if not began:
        return None
    try:
        took_s = (end - parse_rfc3339(began)).total_seconds()
    except ValueError:
        return None
    return int(took_s * 1000.0 + 1e-6) if took_s >= 0.0 else None


def _creation_ms(sandbox: SandboxEntry) -> int | None:
    ready = sandbox.ready
    if ready is None or ready.status != names.TRUE:
        return None
    try:
        since = parse_rfc3339(ready.lastTransitionTime)
    except ValueError:
        return None
    return _between_ms(sandbox.created_at, since)
