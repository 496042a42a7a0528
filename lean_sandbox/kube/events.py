"""Events (``events.k8s.io/v1``) about what the controllers did, off the path of the work.

:meth:`EventRecorder.emit` never blocks, never raises and makes no request: it appends to a bounded
queue which :meth:`EventRecorder.run` empties, one request at a time, in the BACKGROUND lane.

* Repeats (same regarding and related object, type, reason, action) within 6 minutes of the last one
  become a series of the first event: ``series.count`` and ``series.lastObservedTime`` by one merge
  patch. Patches of one series are at least :data:`SERIES_INTERVAL_S` apart, the first one excepted.
* A full queue drops the event that waited longest; a series loses nothing but a patch.
* An answer that takes much longer than the quickest one tells of a crowd at the server. The next
  event then waits the longer (:class:`Pace`), so that what others wait for comes first; a queue
  that is closed is emptied without waiting.
* Failures are counted and forgotten: an event is not worth a retry. One refused because its
  namespace is being deleted is counted apart, for it is to be expected.

Rules of the API that are kept here, so that the server does not refuse an event: it lives in the
namespace of its regarding object ("default" for those without one), the note has at most 1024
bytes, reason, action and reporting instance at most 128 characters, a series counts from 2.
"""

from __future__ import annotations

import math
import os
from collections import OrderedDict, deque
from typing import Any, Literal

import anyio
import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import ControlPlaneError, NotFound
from lean_sandbox.kube.limits import Lane
from lean_sandbox.kube.resources import EVENTS, METADATA_ACCEPT, ObjectReference
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition
from lean_sandbox.model.times import format_micro_time

EventType = Literal["Normal", "Warning"]

#: Repeats that come later begin a new event; the reference recorder uses the same time.
SERIES_WINDOW_S = 360.0
SERIES_INTERVAL_S = 60.0
# An answer that takes more than twice the quickest one is late. The next event waits so many times
# longer than it was late: under load an event is posted about every tenth of a second.
_STANDS_BACK = 20.0
_LONGEST_REST_S = 1.0
# What was quick becomes doubtful: by a half in 200 answers.
_DOUBT = 1.002
_OUTCOMES = ("posted", "folded", "patched", "dropped", "failed", "patch_failed", "terminating")
_MOST_WAITING = 4000
_MOST_SERIES = 1000
_NOTE_LIMIT_BYTES = 1024
_FIELD_LIMIT_CHARACTERS = 128
#: 253 for a name, less the dot and 16 digits.
_NAME_LIMIT_CHARACTERS = 236


class Pace:
    """How long to rest between events, by how long the server takes to answer them."""

    def __init__(self) -> None:
        self._quickest_s = math.inf

    def rest_s(self, took_s: float) -> float:
        """Return how long to rest after an answer that took so long; 0 unless it was late."""
        self._quickest_s = min(took_s, self._quickest_s * _DOUBT)
        late_s = max(0.0, took_s - 2.0 * self._quickest_s)
        return min(_STANDS_BACK * late_s, _LONGEST_REST_S)


class _Series(msgspec.Struct, gc=False):
    """One kind of event about one object; the first of it is, or will be, an Event."""

    name: str
    namespace: str
    last_at: float
    count: int = 1
    next_patch_at: float = 0.0
    observed: str = ""


# Regarding and related object, type, reason, action.
_Key = tuple[ObjectReference, ObjectReference | None, str, str, str]


class EventRecorder:
    """Records events for one controller; :meth:`run` belongs into a task group."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        reporting_controller: str,
        instance: str,
    ) -> None:
        self._client = client
        self._clock = clock
        self._controller = reporting_controller
        self._instance = instance[:_FIELD_LIMIT_CHARACTERS]
        # The key, the namespace and the encoded Event.
        self._queue: deque[tuple[_Key, str, bytes]] = deque()
        self._pace = Pace()
        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        self._due: dict[_Key, _Series] = {}
        self._wake = anyio.Event()
        self._closing = anyio.Event()
        #: What became of the events; those that wait are in none. ``patched`` counts requests.
        self.counts = dict.fromkeys(_OUTCOMES, 0)

    def emit(
        self,
        regarding: ObjectReference,
        type_: EventType,
        reason: str,
        action: str,
        note: str,
        related: ObjectReference | None = None,
    ) -> None:
        """Queue one event. Makes no request and never raises."""
        if self._closing.is_set():
            self.counts["dropped"] += 1
            return
        now = self._clock.monotonic()
        # The version of the object is not part of what happened to it.
        key = (_identity(regarding), related and _identity(related), type_, reason, action)
        series = self._series.get(key)
        if series is not None and now - series.last_at < SERIES_WINDOW_S:
            self.counts["folded"] += 1
            series.count += 1
            series.last_at = now
            series.observed = format_micro_time(self._clock.now())
            self._due[key] = series
        else:
            if len(self._queue) >= _MOST_WAITING:
                self._forget(self._queue.popleft()[0])
                self.counts["dropped"] += 1
            self._forget(key)
            name = f"{regarding.name[:_NAME_LIMIT_CHARACTERS]}.{os.urandom(8).hex()}"
            series = self._series[key] = _Series(name, regarding.namespace or "default", now)
            if len(self._series) > _MOST_SERIES:
                self._forget(next(iter(self._series)))
            body = self._body(series, regarding, related, type_, reason, action, note)
            self._queue.append((key, series.namespace, msgspec.json.encode(body)))
        self._wake.set()

    async def run(self) -> None:
        """Post what is queued until :meth:`close` and then what is left of it."""
        while True:
            if self._queue:
                began = self._clock.monotonic()
                await self._post(*self._queue.popleft())
                rest_s = self._pace.rest_s(self._clock.monotonic() - began)
                if rest_s > 0.0:
                    await self._clock.wait(self._closing, rest_s)
                continue
            key_due, delay_s = self._next_patch()
            if key_due is not None and (delay_s <= 0 or self._closing.is_set()):
                await self._patch(key_due)
                continue
            if self._closing.is_set():
                return
            self._wake = anyio.Event()
            await self._clock.wait(self._wake, delay_s if key_due is not None else None)

    def close(self) -> None:
        """Take no more events and let :meth:`run` return once the queue is empty."""
        self._closing.set()
        self._wake.set()

    def collect(self, into: Exposition, controller: str) -> None:
        """Add what became of the events, under the name of their controller."""
        into.add(
            families.RECORDED,
            [((controller, outcome), number) for outcome, number in self.counts.items()],
        )

    def _forget(self, key: _Key) -> None:
        self._series.pop(key, None)
        self._due.pop(key, None)

    def _next_patch(self) -> tuple[_Key | None, float]:
        if not self._due:
            return None, 0.0
        key = min(self._due, key=lambda each: self._due[each].next_patch_at)
        return key, self._due[key].next_patch_at - self._clock.monotonic()

    def _body(
        self,
        series: _Series,
        regarding: ObjectReference,
        related: ObjectReference | None,
        type_: EventType,
        reason: str,
        action: str,
        note: str,
    ) -> dict[str, Any]:
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": series.name, "namespace": series.namespace},
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
        return body

    async def _post(self, key: _Key, namespace: str, body: bytes) -> None:
        try:
            await self._client.create(
                EVENTS,
                namespace,
                body,
                bytes,
                lane=Lane.BACKGROUND,
                accept=METADATA_ACCEPT,
            )
        except ControlPlaneError as problem:
            if problem.namespace_terminating:
                self.counts["terminating"] += 1
            else:
                self.counts["failed"] += 1
            self._forget(key)
            return
        self.counts["posted"] += 1

    async def _patch(self, key: _Key) -> None:
        series = self._due.pop(key)
        series.next_patch_at = self._clock.monotonic() + SERIES_INTERVAL_S
        body = {"series": {"count": series.count, "lastObservedTime": series.observed}}
        try:
            await self._client.patch(
                EVENTS,
                series.namespace,
                series.name,
                body,
                bytes,
                lane=Lane.BACKGROUND,
                accept=METADATA_ACCEPT,
            )
        except ControlPlaneError as problem:
            self.counts["patch_failed"] += 1
            if isinstance(problem, NotFound):
                # Events live for an hour or so: the next one of the kind is a new event.
                self._forget(key)
            return
        self.counts["patched"] += 1


def _identity(reference: ObjectReference) -> ObjectReference:
    if not reference.resourceVersion:
        return reference
    return msgspec.structs.replace(reference, resourceVersion="")
