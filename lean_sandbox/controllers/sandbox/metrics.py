"""What is counted of the lives of Sandboxes (changes, v1.0.5).

A suspension counts from the first pass that sees the mode asked for and not yet published; a resume
likewise, and only from a state in which Suspended was True. Both end with the status write that
publishes their end. What was under way when the process started has no latency: its beginning was
seen by another process.
"""

from __future__ import annotations

from lean_sandbox.clock import Clock
from lean_sandbox.controllers.metrics import UNKNOWN_TEMPLATE, owned_by, template_of
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Counters, Exposition, Histograms, Labels
from lean_sandbox.model import names
from lean_sandbox.model.conditions import find, is_true
from lean_sandbox.model.sandbox import SandboxStatus
from lean_sandbox.model.sandbox_status import is_marked_expired
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.sandbox import SandboxEntry


class SandboxMetrics:
    """Counts suspends, resumes, ends and expiries; remembers only what is under way."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._suspending = _UnderWay()
        self._resuming = _UnderWay()
        self._suspends = Counters(families.SUSPENDS)
        self._resumes = Counters(families.RESUMES)
        self._finished = Counters(families.FINISHED)
        self._expired = Counters(families.EXPIRED)
        self._suspend_latency = Histograms(families.SUSPEND_LATENCY)
        self._resume_latency = Histograms(families.RESUME_LATENCY)

    def collect(self, into: Exposition) -> None:
        """Add everything as it is now."""
        for each in (
            self._suspends,
            self._resumes,
            self._finished,
            self._expired,
            self._suspend_latency,
            self._resume_latency,
        ):
            each.collect(into)

    def looked(self, entry: SandboxEntry, old: SandboxStatus) -> None:
        """Note at the beginning of a pass which mode is asked for, beside what is published."""
        assert entry.view is not None
        suspended = find(old.conditions, names.SUSPENDED)
        if entry.view.is_suspended:
            self._resuming.end(entry)
            is_news = suspended is None or suspended.reason == names.REASON_NOT_SUSPENDED
            if is_news and self._suspending.begin(entry, self._clock.monotonic()):
                self._suspends.add(*_labels(entry), "requested")
            return
        self._suspending.end(entry)
        if (
            suspended is not None
            and suspended.status == names.TRUE
            and self._resuming.begin(entry, self._clock.monotonic())
        ):
            self._resumes.add(*_labels(entry), "requested")

    def failed(self, entry: SandboxEntry) -> None:
        """Note that a pass met errors."""
        assert entry.view is not None
        if entry.view.is_suspended and not _is_suspended(entry.status):
            self._suspends.add(*_labels(entry), "error")
        elif entry in self._resuming:
            self._resumes.add(*_labels(entry), "error")

    def status_written(self, entry: SandboxEntry, old: SandboxStatus, new: SandboxStatus) -> None:
        """Note what a status that was written has ended or begun."""
        labels = _labels(entry)
        if _is_suspended(new) and not _is_suspended(old):
            self._suspends.add(*labels, "pod_terminated")
            self._observe(self._suspend_latency, self._suspending.end(entry), labels)
        if entry in self._resuming and _is_true(new, names.READY):
            self._resumes.add(*labels, "ready")
            self._observe(self._resume_latency, self._resuming.end(entry), labels)
        finished = find(new.conditions, names.FINISHED)
        if _is_true(new, names.FINISHED) and not _is_true(old, names.FINISHED):
            assert finished is not None
            self._finished.add(*labels, finished.reason)
        if is_marked_expired(new) and not is_marked_expired(old):
            self._expired.add(*labels, _policy(entry))

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a Sandbox that is gone or going."""
        self._suspending.forget(key)
        self._resuming.forget(key)

    def _observe(self, histograms: Histograms, began: float | None, labels: Labels) -> None:
        if began is not None:
            # Whole milliseconds, as in all these families; differences of floats fall short.
            histograms.observe(int((self._clock.monotonic() - began) * 1000.0 + 1e-6), *labels)


class _UnderWay:
    """Since when something is under way, by Sandbox; a successor of the same name is another."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun: dict[Key, tuple[str, float]] = {}

    def __contains__(self, entry: SandboxEntry) -> bool:
        held = self._begun.get(entry.key)
        return held is not None and held[0] == entry.uid

    def begin(self, entry: SandboxEntry, now: float) -> bool:
        """Note a beginning; return false when it is under way already."""
        if entry in self:
            return False
        self._begun[entry.key] = (entry.uid, now)
        return True

    def end(self, entry: SandboxEntry) -> float | None:
        """Return when it began, and forget it; ``None`` when it is not under way."""
        uid, began = self._begun.pop(entry.key, ("", 0.0))
        return began if uid == entry.uid else None

    def forget(self, key: Key) -> None:
        """Forget whatever has this name."""
        self._begun.pop(key, None)


def _labels(entry: SandboxEntry) -> Labels:
    return (entry.key.namespace, template_of(entry) or UNKNOWN_TEMPLATE, owned_by(entry))


def _policy(entry: SandboxEntry) -> str:
    assert entry.view is not None
    is_deleted = entry.view.shutdown_policy == names.SHUTDOWN_POLICY_DELETE
    return names.SHUTDOWN_POLICY_DELETE if is_deleted else names.SHUTDOWN_POLICY_RETAIN


def _is_true(status: SandboxStatus | None, kind: str) -> bool:
    return status is not None and is_true(status.conditions, kind)


def _is_suspended(status: SandboxStatus | None) -> bool:
    return _is_true(status, names.SUSPENDED)
