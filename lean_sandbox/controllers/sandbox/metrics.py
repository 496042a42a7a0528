"""What is counted of the lives of Sandboxes (changes, v1.0.5).

A suspension counts from the first reconcile that sees the mode asked for and not yet published; a
resume likewise, and only from a state in which Suspended was True. Both end with the status write
that publishes their end. What was under way when the process started has no latency.
"""

from __future__ import annotations

from lean_sandbox.clock import Clock
from lean_sandbox.controllers.metrics import UNKNOWN_TEMPLATE, owned_by, template_of
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Counters, Exposition, Histograms, Labels
from lean_sandbox.model import names
from lean_sandbox.model.conditions import find, has_reason, is_true
from lean_sandbox.model.sandbox import SandboxStatus
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.sandbox import SandboxEntry


class SandboxMetrics:
    """Counts suspends, resumes, ends and expiries; remembers only what is under way."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # What is under way: the uid, whether it is a suspension, and since when.
        self._under_way: dict[Key, tuple[str, bool, float]] = {}
        self._suspends = Counters(families.SUSPENDS)
        self._resumes = Counters(families.RESUMES)
        self._finished = Counters(families.FINISHED)
        self._expired = Counters(families.EXPIRED)
        self._suspend_latency = Histograms(families.SUSPEND_LATENCY)
        self._resume_latency = Histograms(families.RESUME_LATENCY)

    def collect(self, into: Exposition) -> None:
        """Add everything as it is now."""
        for counters in (self._suspends, self._resumes, self._finished, self._expired):
            counters.collect(into)
        self._suspend_latency.collect(into)
        self._resume_latency.collect(into)

    def looked(self, entry: SandboxEntry, old: SandboxStatus) -> None:
        """Note which mode a reconcile finds asked for, beside what is published."""
        assert entry.view is not None
        is_suspend = entry.view.is_suspended
        suspended = find(old.conditions, names.SUSPENDED)
        if is_suspend:
            begins = suspended is None or suspended.reason == names.REASON_NOT_SUSPENDED
        else:
            begins = suspended is not None and suspended.status == names.TRUE
        if self._began(entry, is_suspend=is_suspend) is not None:
            return
        self.forget(entry.key)
        if begins:
            self._under_way[entry.key] = (entry.uid, is_suspend, self._clock.monotonic())
            counters = self._suspends if is_suspend else self._resumes
            counters.add(*_labels(entry), "requested")

    def failed(self, entry: SandboxEntry) -> None:
        """Note that a reconcile met errors."""
        assert entry.view is not None
        if entry.view.is_suspended and not _is_true(entry.status, names.SUSPENDED):
            self._suspends.add(*_labels(entry), "error")
        elif self._began(entry, is_suspend=False) is not None:
            self._resumes.add(*_labels(entry), "error")

    def status_written(self, entry: SandboxEntry, old: SandboxStatus, new: SandboxStatus) -> None:
        """Note what a status that was written has ended or begun."""
        labels = _labels(entry)
        if _is_true(new, names.SUSPENDED) and not _is_true(old, names.SUSPENDED):
            self._suspends.add(*labels, "pod_terminated")
            self._end(self._suspend_latency, entry, self._began(entry, is_suspend=True))
        resuming_since = self._began(entry, is_suspend=False)
        if resuming_since is not None and _is_true(new, names.READY):
            self._resumes.add(*labels, "ready")
            self._end(self._resume_latency, entry, resuming_since)
        finished = find(new.conditions, names.FINISHED)
        if finished and finished.status == names.TRUE and not _is_true(old, names.FINISHED):
            self._finished.add(*labels, finished.reason)
        mark = names.READY, names.REASON_SANDBOX_EXPIRED
        if has_reason(new.conditions, *mark) and not has_reason(old.conditions, *mark):
            assert entry.view is not None
            is_deleted = entry.view.is_deleted_at_expiry
            policy = names.SHUTDOWN_POLICY_DELETE if is_deleted else names.SHUTDOWN_POLICY_RETAIN
            self._expired.add(*labels, policy)

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a Sandbox that is gone or going."""
        self._under_way.pop(key, None)

    def _began(self, entry: SandboxEntry, *, is_suspend: bool) -> float | None:
        """Return since when this is under way; a successor of the same name is another."""
        uid, was_suspend, began = self._under_way.get(entry.key, ("", False, 0.0))
        return began if (uid, was_suspend) == (entry.uid, is_suspend) else None

    def _end(self, histograms: Histograms, entry: SandboxEntry, began: float | None) -> None:
        if began is not None:
            self.forget(entry.key)
            # Whole milliseconds, as in all these families; differences of floats fall short.
            took_ms = int((self._clock.monotonic() - began) * 1000.0 + 1e-6)
            histograms.observe(took_ms, *_labels(entry))


def _labels(entry: SandboxEntry) -> Labels:
    return (entry.key.namespace, template_of(entry) or UNKNOWN_TEMPLATE, owned_by(entry))


def _is_true(status: SandboxStatus | None, kind: str) -> bool:
    return status is not None and is_true(status.conditions, kind)
