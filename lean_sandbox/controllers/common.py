"""Shared by the controllers: dependencies, Events and log lines, undone writes, server time."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec
import structlog
from cachetools import LRUCache

from lean_sandbox.clock import Clock
from lean_sandbox.config.options import Settings
from lean_sandbox.controllers.metrics import Metrics
from lean_sandbox.controllers.resolver import TemplateResolver
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.events import EventRecorder, Severity
from lean_sandbox.kube.resources import ObjectReference, Resource
from lean_sandbox.model.sandbox import Sandbox, SandboxStatus
from lean_sandbox.model.times import parse_http_date, parse_rfc3339
from lean_sandbox.runtime.controller import Signal
from lean_sandbox.runtime.writer import ObjectWriter
from lean_sandbox.watch.group import ReflectorGroup
from lean_sandbox.watch.kind import Entry, Key
from lean_sandbox.watch.resources import Caches
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# Of how many objects an undone write is remembered.
_MOST_UNDONE = 4096
# Dates of objects are whole seconds, and a response takes a while.
_CLOCKS_AGREE_S = 5.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def reference_to(entry: Entry, resource: Resource) -> ObjectReference:
    """Return the reference by which an Event names a cached object."""
    namespace, name = entry.key
    return ObjectReference(resource.api_version, resource.kind, name, namespace, entry.uid)


@cache
def snake_case(reason: str) -> str:
    """Return the name of a log line for the reason of an Event."""
    return re.sub("(?<!^)(?=[A-Z])", "_", reason).lower()


def log_about(
    log: structlog.stdlib.BoundLogger, entry: Entry, type_: Severity, what: str, /, **facts: Any
) -> None:
    """Log one line about an object, at the level that its type has as an Event."""
    write = log.warning if type_ == "Warning" else log.info
    write(snake_case(what), key=str(entry.key), **facts)


class ObjectEvents:
    """Reports on the objects of a controller's kind, in the log and as Events."""

    def __init__(
        self, shared: Shared, resource: Resource, controller: str, *, is_off: bool = False
    ) -> None:
        self._resource = resource
        self._recorder: EventRecorder | None = None
        self._log = _log.bind(controller=controller.removesuffix("-controller"))
        if not is_off:
            instance = f"{controller}-{socket.gethostname()}"
            made = EventRecorder(shared.client, shared.clock, controller, instance)
            self._recorder = shared.recorders[controller] = made

    def emit(
        self,
        entry: Entry,
        type_: Severity,
        reason: str,
        action: str,
        note: str,
        related: ObjectReference | None = None,
    ) -> None:
        """Queue one Event about an object, and log it, whether or not Events are recorded."""
        self.log(entry, type_, reason, note=note)
        if self._recorder is not None:
            regarding = reference_to(entry, self._resource)
            self._recorder.emit(regarding, type_, reason, action, note, related)

    def log(self, entry: Entry, type_: Severity, what: str, /, **facts: Any) -> None:
        """Log one line about an object, at the level that its type has as an Event."""
        log_about(self._log, entry, type_, what, **facts)


class Undone:
    """Remembers what of our writes the server has undone.

    A mutating policy may put back what a patch changes. The same patch of the same state would be
    undone again, so it waits until the object changes, or something else is wanted of it.
    """

    def __init__(self) -> None:
        # By uid, hashes: a state holds what tenants wrote, which may be large.
        self._states: LRUCache[str, int] = LRUCache(_MOST_UNDONE)

    def is_in_vain(self, uid: str, state: object) -> bool:
        """Return whether a patch of an object in this state was undone; ``state`` says it all."""
        return uid in self._states and self._states[uid] == _hash_of(state)

    def note(self, uid: str, state: object) -> None:
        """Note that a patch of an object was undone, which left it in this state."""
        self._states[uid] = _hash_of(state)


def _hash_of(state: object) -> int:
    return hash(msgspec.json.encode(state, order="sorted"))


class ServerTime:
    """The time of the server's clock, from the dates of its answers and of the objects it makes.

    A wall clock that differs from the server's, or is set while we run, could end what has time
    left, have young members replaced, and claims wait for hours. So our monotonic clock counts on
    from the server's dates. Our wall clock counts while no date is known.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The server's time when the monotonic clock was zero.
        self._zero_s: float | None = None

    def now(self) -> datetime:
        """Return the time now, in UTC."""
        return datetime.fromtimestamp(self.now_s(), UTC)

    def now_s(self) -> float:
        """Return the time now, in seconds since the epoch."""
        return self._at_s(self._clock.monotonic())

    def _at_s(self, moment_s: float) -> float:
        if self._zero_s is not None:
            return self._zero_s + moment_s
        return self._clock.now().timestamp() - (self._clock.monotonic() - moment_s)

    def age_s(self, created_at: str) -> float:
        """Return how old an object is, at least 0."""
        return max(0.0, self.now_s() - parse_rfc3339(created_at).timestamp())

    def saw(self, created_at: str) -> None:
        """Correct our time by an object that is there: none is created in the future."""
        created_s = parse_rfc3339(created_at).timestamp()
        if self.now_s() < created_s:
            self._zero_s = created_s - self._clock.monotonic()

    def made_now(self, created_at: str) -> None:
        """Correct our time by an object that the server has just created."""
        self._correct(parse_rfc3339(created_at), self._clock.monotonic())

    def answered(self, date: bytes, moment_s: float) -> None:
        """Correct our time by the HTTP date of an answer, which came at this monotonic time."""
        with suppress(ValueError):
            self._correct(parse_http_date(date.decode("latin-1")), moment_s)

    def _correct(self, date: datetime, moment_s: float) -> None:
        ours_s = self._at_s(moment_s)
        theirs_s = date.timestamp()
        agrees = abs(ours_s - theirs_s) <= _CLOCKS_AGREE_S
        self._zero_s = (ours_s if agrees else theirs_s) - moment_s


class Wakes(msgspec.Struct, frozen=True):
    """How controllers wake each other after a write, since our own writes cause no events.

    * ``launch``: a Sandbox was created, with the response, or changed, and is to be reconciled.
    * ``sandbox``: a Sandbox that was ready was changed, and is to be reconciled in a moment.
    * ``status``: the status of a Sandbox was written, or is known after somebody else wrote it.
    * ``pool``: a pool has lost a member to a claim, has one to replace, or a claim waits for one.
    * ``policy``: the NetworkPolicy of a template is there.
    """

    launch: Signal[Key, Sandbox | None] = msgspec.field(default_factory=Signal)
    sandbox: Signal[Key] = msgspec.field(default_factory=Signal)
    status: Signal[SandboxEntry, SandboxStatus] = msgspec.field(default_factory=Signal)
    pool: Signal[Key] = msgspec.field(default_factory=Signal)
    policy: Signal[Key] = msgspec.field(default_factory=Signal)


class Shared(msgspec.Struct, kw_only=True):
    """The dependencies of all controllers of a process; ``recorders`` are by controller name."""

    client: Client
    writer: ObjectWriter
    caches: Caches
    reflectors: ReflectorGroup
    resolver: TemplateResolver
    settings: Settings
    clock: Clock
    server_time: ServerTime
    metrics: Metrics
    wakes: Wakes
    uniform: Callable[[], float]
    recorders: dict[str, EventRecorder] = {}
