"""Shared by the companions: what each of them gets, how it reports, and how it reads a wish."""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog
from cachetools import LRUCache

from lean_sandbox.clock import Clock
from lean_sandbox.companions.caches import CompanionCaches
from lean_sandbox.companions.kinds import Wishes
from lean_sandbox.config.options import Settings
from lean_sandbox.controllers.common import ServerTime, log_about, reference_to
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import Conflict
from lean_sandbox.kube.events import EventRecorder, Severity
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.runtime.queue import Cause, Item
from lean_sandbox.runtime.workers import Result
from lean_sandbox.runtime.writer import ObjectWriter
from lean_sandbox.turns import Rank
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Entry, Key

#: The controller that Events of companions name.
REPORTER: Final = "lean-sandbox-companions"
INVALID: Final = "InvalidAnnotation"
_WORKERS: Final = 4
_MOST_TOLD: Final = 4096
# What an Event repeats of a value that a tenant wrote.
_SHOWN: Final = 100
_WHOLE: Final = re.compile(r"[0-9]{1,9}", re.ASCII)

E = TypeVar("E", bound=Entry)
W = TypeVar("W", bound=Entry)
T = TypeVar("T")

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Reports:
    """Tells what a companion did, as an Event, a log line and a count."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._counts: Counter[tuple[str, str]] = Counter()
        # What was last said to be wrong of each annotation of an object, by its uid.
        self._wrong: LRUCache[tuple[str, str], str] = LRUCache(_MOST_TOLD)

    def report(
        self,
        companion: str,
        cache: Cache[W],
        entry: W,
        reason: str,
        note: str,
        *,
        type_: Severity = "Normal",
    ) -> None:
        """Report about one object."""
        self._counts[companion, reason] += 1
        log_about(log, entry, type_, reason, companion=companion, note=note)
        about = reference_to(entry, cache.kind.resource)
        self._recorder.emit(about, type_, reason, companion.capitalize(), note)

    def wrong(self, companion: str, cache: Cache[W], entry: W, annotation: str, fault: str) -> None:
        """Report an annotation that cannot be used, once for as long as it stays as it is."""
        if self._wrong.get((entry.uid, annotation)) != fault:
            self._wrong[entry.uid, annotation] = fault
            note = f"{annotation}: {fault}"
            self.report(companion, cache, entry, INVALID, note, type_="Warning")

    def collect(self, into: Exposition, companion: str) -> None:
        """Add the counts of one companion."""
        counted = [(key, float(n)) for key, n in self._counts.items() if key[0] == companion]
        into.add(families.COMPANION_REPORTS, counted)


class Kit(msgspec.Struct, frozen=True, kw_only=True):
    """What every companion gets."""

    writer: ObjectWriter
    caches: CompanionCaches
    settings: Settings
    server_time: ServerTime
    reports: Reports
    clock: Clock


class Companion(Controller[E], Generic[E]):
    """A controller that does what a user asks for by annotations, by what a user may do."""

    def __init__(self, name: str, kit: Kit, cache: Cache[E]) -> None:
        super().__init__(name, cache, kit.clock, workers=_WORKERS)
        self._kit = kit

    def rank_of(self, entry: E, cause: Cause) -> Rank:  # noqa: ARG002 -- nobody waits for it
        """Return SPARE: nobody waits for a companion."""
        return Rank.SPARE

    async def reconcile(self, item: Item[Key]) -> Result:
        """Do what is to be done about one object.

        Where somebody else has written it meanwhile, that is decided anew a moment later.
        """
        try:
            return await self.act(item.key)
        except Conflict:
            return Result(requeue_after_s=0.0)

    async def act(self, key: Key) -> Result:
        """Do what is to be done about one object; an error is retried."""
        raise NotImplementedError

    async def write(self, entry: E, body: dict[str, Any]) -> Any:
        """Merge a patch into an object of this companion, if nobody has written to it since.

        One PATCH; returns the object as it is then. Raises Conflict if somebody has, NotFound if
        the object is gone.
        """
        version = await self._kit.writer.guard(self.cache, entry)
        metadata = {**body.get("metadata", {}), "resourceVersion": version}
        guarded = {**body, "metadata": metadata}
        written = await self._kit.writer.patch(self.cache, entry, guarded, as_metadata=False)
        return written.item

    def report(
        self, cache: Cache[W], entry: W, reason: str, note: str, *, type_: Severity = "Normal"
    ) -> None:
        """Report about one object."""
        self._kit.reports.report(self.name, cache, entry, reason, note, type_=type_)

    def wish(
        self, cache: Cache[Any], entry: Wishes | None, annotation: str, read: Callable[[str], T]
    ) -> T | None:
        """Return what an annotation asks for; None without it, and for a value that is wrong.

        The latter is reported on the object that has it.
        """
        if entry is None or (text := entry.annotations.get(annotation)) is None:
            return None
        try:
            return read(text)
        except ValueError as error:
            fault = f'"{text[:_SHOWN]}" {error}'
            self._kit.reports.wrong(self.name, cache, entry, annotation, fault)
            return None

    def nearest_wish(
        self,
        bearers: Iterable[tuple[Cache[Any], Wishes | None]],
        annotation: str,
        read: Callable[[str], T],
        default: T | None = None,
    ) -> T | None:
        """Return what the first bearer of an annotation asks for, or ``default`` without one.

        None if its value is wrong, as of :meth:`wish`: a farther bearer does not stand in for it.
        """
        for cache, entry in bearers:
            if entry is not None and annotation in entry.annotations:
                return self.wish(cache, entry, annotation, read)
        return default

    def collect(self, into: Exposition) -> None:
        """Add the series of this companion."""
        super().collect(into)
        self._kit.reports.collect(into, self.name)


def whole_number(least: int) -> Callable[[str], int]:
    """Return what reads a whole number, of at least ``least``; it raises ValueError."""

    def read(text: str) -> int:
        if _WHOLE.fullmatch(text) is None or int(text) < least:
            raise ValueError(f"is not a whole number from {least} to 999999999")
        return int(text)

    return read


def recorder_of(client: Client, clock: Clock) -> EventRecorder:
    """Return the recorder of all companions of a process."""
    return EventRecorder(client, clock, REPORTER, f"{REPORTER}-{socket.gethostname()}")
