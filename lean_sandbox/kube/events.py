"""Events (``events.k8s.io/v1``) about what the controllers did, sent in the background.

* Events wait in a bounded queue and are sent one at a time, with the rank SPARE. Namespaces take
  turns; a full queue drops the oldest of the namespace that has the most.
* Repeats (same regarding and related object, type, reason, action) within 6 minutes of the last one
  become a series of the first event, written by one merge patch. Patches of one series are at least
  :data:`SERIES_INTERVAL_S` apart, the first one excepted.
* Failures are counted and forgotten: an event is not worth a retry. A refusal because the namespace
  is being deleted is counted apart, as it is to be expected. After a failure with Retry-After the
  next event waits for that long.
"""

from __future__ import annotations

import os
from typing import Any, Literal

import anyio
import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import ControlPlaneError, NotFound
from lean_sandbox.kube.resources import EVENTS, METADATA_ACCEPT, ObjectReference
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition
from lean_sandbox.model.times import format_micro_time
from lean_sandbox.turns import RANK, Rank, Turns

Severity = Literal["Normal", "Warning"]

#: Repeats that come later begin a new event; the reference recorder uses the same time.
SERIES_WINDOW_S = 360.0
SERIES_INTERVAL_S = 60.0
_OUTCOMES = ("posted", "folded", "patched", "dropped", "failed", "patch_failed", "terminating")
# 1.2 MiB, and 4 MiB of the longest; an event that comes later is late by minutes.
_MOST_WAITING = 1000
_MOST_SERIES = 1000
_NOTE_LIMIT_BYTES = 1024
_FIELD_LIMIT_CHARACTERS = 128
#: 253 for a name, less the dot and 16 digits.
_NAME_LIMIT_CHARACTERS = 236


# Regarding and related object, type, reason, action.
_Key = tuple[ObjectReference, ObjectReference | None, str, str, str]


class _Series(msgspec.Struct, gc=False, eq=False):
    key: _Key
    name: str
    namespace: str
    last_at: float
    # The encoded Event until it is posted.
    body: bytes = b""
    count: int = 1
    next_patch_at: float = 0.0
    observed: str = ""


class EventRecorder:
    """Records events for one controller; :meth:`run` belongs in a task group."""

    def __init__(
        self, client: Client, clock: Clock, reporting_controller: str, instance: str
    ) -> None:
        self._client = client
        self._clock = clock
        self._controller = reporting_controller
        self._instance = instance[:_FIELD_LIMIT_CHARACTERS]
        self._queue: Turns[_Series] = Turns()
        self._series: dict[_Key, _Series] = {}
        self._due: dict[_Key, _Series] = {}
        self._wake = anyio.Event()
        self._closing = anyio.Event()
        self._is_posting = False
        # How long to rest before the next request.
        self._rest_s = 0.0
        #: Set once nothing more will be posted.
        self.ended = anyio.Event()
        #: Events by outcome; those that wait are not counted yet. ``patched`` counts requests.
        self.counts = dict.fromkeys(_OUTCOMES, 0)

    def emit(
        self,
        regarding: ObjectReference,
        type_: Severity,
        reason: str,
        action: str,
        note: str,
        related: ObjectReference | None = None,
    ) -> None:
        """Queue one event. Makes no request, never blocks and never raises."""
        if self._closing.is_set():
            self.counts["dropped"] += 1
            return
        now = self._clock.monotonic()
        key = (regarding, related, type_, reason, action)
        series = self._series.get(key)
        if series is not None and now - series.last_at < SERIES_WINDOW_S:
            self._fold(series, now)
            return
        self._make_room()
        self._forget(key)
        # No part of a name ends with a hyphen, or is empty.
        stem = regarding.name[:_NAME_LIMIT_CHARACTERS].rstrip("-.")
        name = f"{stem}.{os.urandom(8).hex()}"
        series = self._series[key] = _Series(key, name, regarding.namespace or "default", now)
        if len(self._series) > _MOST_SERIES:
            self._forget(next(iter(self._series)))
        body: dict[str, Any] = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": series.namespace},
            "eventTime": format_micro_time(self._clock.now()),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "type": type_,
            "reason": reason[:_FIELD_LIMIT_CHARACTERS],
            "action": action[:_FIELD_LIMIT_CHARACTERS],
            "note": note.encode()[:_NOTE_LIMIT_BYTES].decode("utf-8", "ignore"),
            "regarding": regarding,
        }
        if related is not None:
            body["related"] = related
        series.body = msgspec.json.encode(body)
        self._queue.join(series.namespace, series)
        self._wake.set()

    def _fold(self, series: _Series, now: float) -> None:
        self.counts["folded"] += 1
        series.count += 1
        series.last_at = now
        series.observed = format_micro_time(self._clock.now())
        self._due[series.key] = series
        self._wake.set()

    def _make_room(self) -> None:
        if len(self._queue) >= _MOST_WAITING:
            namespace, oldest = self._queue.first_of_most()
            self._queue.leave(namespace, oldest)
            self._forget(oldest.key)
            self.counts["dropped"] += 1

    async def run(self) -> None:
        """Post what is queued until :meth:`close` and then what is left of it."""
        RANK.set(Rank.SPARE)
        while True:
            if self._rest_s > 0.0:
                await self._clock.wait(self._closing, self._rest_s)
                self._rest_s = 0.0
            if (first := self._queue.first()) is not None:
                self._queue.take(*first)
                await self._post(first[1])
                continue
            left_s: float | None = None
            if self._due:
                due = min(self._due.values(), key=lambda each: each.next_patch_at)
                left_s = due.next_patch_at - self._clock.monotonic()
                if left_s <= 0 or self._closing.is_set():
                    await self._patch(due)
                    continue
            if self._closing.is_set():
                self.ended.set()
                return
            self._wake = anyio.Event()
            await self._clock.wait(self._wake, left_s)

    @property
    def is_busy(self) -> bool:
        """Whether an event waits to be posted, or for the answer to its post."""
        return self._is_posting or self._queue.first() is not None

    def close(self) -> None:
        """Take no more events and let :meth:`run` return once the queue is empty."""
        self._closing.set()
        self._wake.set()

    def collect(self, into: Exposition, controller: str) -> None:
        """Add the counts of events by outcome, under the name of their controller."""
        into.add(
            families.RECORDED,
            [((controller, outcome), number) for outcome, number in self.counts.items()],
        )

    def _forget(self, key: _Key) -> None:
        self._series.pop(key, None)
        self._due.pop(key, None)

    async def _post(self, series: _Series) -> None:
        outcome = "posted"
        body = series.body
        series.body = b""
        self._is_posting = True
        try:
            await self._client.create(
                EVENTS, body, bytes, namespace=series.namespace, accept=METADATA_ACCEPT
            )
        except ControlPlaneError as problem:
            outcome = "terminating" if problem.namespace_terminating else "failed"
            self._forget(series.key)
            self._rest_s = problem.retry_after_s or 0.0
        self._is_posting = False
        self.counts[outcome] += 1

    async def _patch(self, series: _Series) -> None:
        del self._due[series.key]
        series.next_patch_at = self._clock.monotonic() + SERIES_INTERVAL_S
        body = {"series": {"count": series.count, "lastObservedTime": series.observed}}
        outcome = "patched"
        try:
            await self._client.patch(
                EVENTS, series.name, body, bytes, namespace=series.namespace, accept=METADATA_ACCEPT
            )
        except ControlPlaneError as problem:
            outcome = "patch_failed"
            self._rest_s = problem.retry_after_s or 0.0
            if isinstance(problem, NotFound):
                # Events live for about an hour: the next repeat becomes a new event.
                self._forget(series.key)
        self.counts[outcome] += 1
