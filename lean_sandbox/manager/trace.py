"""The last events, reconciles and requests of a controller, and what shows them afterwards.

A ring: the oldest entry is overwritten. A request belongs to the object whose reconcile makes it;
requests outside of reconciles (watches, Events, the Lease) are not kept. Off unless asked for:
names of objects are shown to everybody who can reach the metrics.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlencode, urlsplit

import msgspec

from filters import Decision, EventType
from lean_sandbox.clock import Clock
from lean_sandbox.http.server import Answer, Request, not_found, text
from lean_sandbox.kube.errors import ConfigError
from lean_sandbox.kube.telemetry import RequestRecord
from lean_sandbox.kube.transport import Transport
from lean_sandbox.log import aligned
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.times import format_micro_time, parse_rfc3339
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.runtime.queue import Item
from lean_sandbox.runtime.workers import ReconcileResult
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Key

if TYPE_CHECKING:
    import ssl

PATH: Final = "/debug/trace"
CLAIMS: Final = "sandboxclaims"
SANDBOXES: Final = "sandboxes"
PODS: Final = "pods"
POOLS: Final = "sandboxwarmpools"
NOUNS: Final = {CLAIMS: "claim", SANDBOXES: "sandbox", PODS: "pod", POOLS: "pool"}
_PLURALS: Final = {noun: plural for plural, noun in NOUNS.items()}
# What the owner reference of a child says of its owner, and the children.
_CHILDREN: Final = {CLAIMS: ("SandboxClaim", SANDBOXES), SANDBOXES: ("Sandbox", PODS)}
# Reasons and errors may quote what users wrote.
_LONGEST_TEXT: Final = 200
_TIMEOUT_S: Final = 10.0
_HEAD: Final = ("     AT MS", "OBJECT", "WHAT", "   TOOK MS", "DETAIL")
_SWITCH_ON: Final = (
    "run it with --trace-entries=10000 (or trace-entries in its config file); it remembers from its"
    " start on"
)

Json = dict[str, Any]
Subject: TypeAlias = tuple[str, Key]
"""An object: the plural of its kind, its key."""


class _Entry(msgspec.Struct, frozen=True, gc=False, tag_field="what"):
    at: float
    plural: str
    key: Key


class EventEntry(_Entry, frozen=True, gc=False, tag="event"):
    """An event of a watch, and what the predicates made of it. ``at`` is monotonic, in seconds."""

    type: str
    passed: bool
    reason: str
    version: str
    # Kind/name of the owner that controls it; empty for none.
    owner: str


class ReconcileEntry(_Entry, frozen=True, gc=False, tag="reconcile"):
    """A reconcile: when it began, how long the object had waited for it, how it ended."""

    controller: str
    reasons: tuple[str, ...]
    waited_s: float
    took_s: float
    outcome: str
    attempts: int
    next_s: float | None
    error: str


class RequestEntry(_Entry, frozen=True, gc=False, tag="request"):
    """A request of a reconcile; ``code`` is 0 when no response came, for ``error``."""

    verb: str
    resource: str
    code: int
    took_s: float
    error: str


Entry: TypeAlias = EventEntry | ReconcileEntry | RequestEntry


class Life(msgspec.Struct, frozen=True):
    """What is kept of an object, or of all of a kind if the key has no name.

    ``now_s`` is the moment ``now`` on the clock of the entries.
    """

    kind: str
    key: Key
    now: str
    now_s: float
    # How many entries the ring takes, how many were kept ever, and when its oldest is from.
    most: int
    recorded: int
    oldest_s: float | None
    entries: list[Entry]


_subject: ContextVar[Subject | None] = ContextVar("subject", default=None)


class TraceBuffer:
    """The ring, what feeds it, and the handler that answers about one object."""

    def __init__(self, most: int, clock: Clock) -> None:
        self._clock = clock
        self._caches: dict[str, Cache[Any]] = {}
        self.entries: deque[Entry] = deque(maxlen=most)
        #: Entries since the start, those overwritten included.
        self.recorded = 0

    def follow(
        self,
        caches: Iterable[Cache[Any]],
        controllers: Iterable[Controller[Any]],
        transport: Transport,
    ) -> None:
        """Keep what happens in these from now on; before they run."""
        for cache in caches:
            if cache.kind.resource.plural in NOUNS:
                self._caches[cache.kind.resource.plural] = cache
                cache.observer = self._event
        for controller in controllers:
            if controller.cache.kind.resource.plural in NOUNS:
                self._follow_reconciles(controller, controller.cache.kind.resource.plural)
        transport.observer = self.observe

    def keep(self, entry: Entry) -> None:
        """Keep an entry; the oldest goes where there is no room."""
        self.recorded += 1
        self.entries.append(entry)

    def _event(
        self, plural: str, event_type: EventType, row: ObjectMeta, decision: Decision
    ) -> None:
        key = Key(row.namespace, row.name)
        held = self._caches[plural].get(key)
        owner = row.controller
        # What the cache holds, and an interned text, cost nothing more.
        kept = held.key if held is not None else key
        reason = sys.intern(decision.reason[:_LONGEST_TEXT])
        controlled_by = sys.intern(f"{owner.kind}/{owner.name}") if owner is not None else ""
        self.keep(
            EventEntry(
                at=self._clock.monotonic(),
                plural=plural,
                key=kept,
                type=str(event_type),
                passed=decision.passed,
                reason=reason,
                version=row.resource_version,
                owner=controlled_by,
            )
        )

    def _follow_reconciles(self, controller: Controller[Any], plural: str) -> None:
        def begun(item: Item[Key]) -> None:
            # Each reconcile is a task with a context of its own: what is set here ends with it.
            _subject.set((plural, item.key))

        def ended(report: ReconcileResult[Key]) -> None:
            item, began = report.item, self._clock.monotonic() - report.took_s
            self.keep(
                ReconcileEntry(
                    at=began,
                    plural=plural,
                    key=item.key,
                    controller=controller.name,
                    reasons=item.reasons,
                    waited_s=max(0.0, began - item.enqueued_at),
                    took_s=report.took_s,
                    outcome=report.outcome.value,
                    attempts=item.attempts,
                    next_s=report.next_s,
                    error="" if report.error is None else str(report.error)[:_LONGEST_TEXT],
                )
            )

        controller.workers.on_begin.append(begun)
        controller.workers.on_end.append(ended)

    def observe(self, record: RequestRecord) -> None:
        """Keep a request, if a reconcile made it; an observer for a transport."""
        subject = _subject.get()
        # A watch that a reconcile was the first to need inherits its context and outlives it.
        if subject is None or record.verb in ("list", "watch"):
            return
        plural, key = subject
        self.keep(
            RequestEntry(
                at=self._clock.monotonic() - record.latency_s,
                plural=plural,
                key=key,
                verb=record.verb,
                resource=record.resource,
                code=record.code,
                took_s=record.latency_s,
                error=record.error,
            )
        )

    def about(self, subject: Subject) -> list[Entry]:
        """Return what is kept of an object and of those it controls, in the order of time."""
        plural, keys = subject[0], {subject[1]}
        family = {plural: keys}
        while plural in _CHILDREN:
            keys = self._owned_by(plural, keys)
            _, plural = _CHILDREN[plural]
            family[plural] = keys
        found = [one for one in self.entries if one.key in family.get(one.plural, ())]
        # A reconcile is kept at its end and stands before what happened in it.
        return sorted(found, key=lambda one: (one.at, type(one) is not ReconcileEntry))

    def _owned_by(self, plural: str, keys: set[Key]) -> set[Key]:
        # Events show children that have ended, the caches those whose events are overwritten.
        kind, child = _CHILDREN[plural]
        owners = {(key.namespace, f"{kind}/{key.name}") for key in keys}
        found = {
            one.key
            for one in self.entries
            if type(one) is EventEntry
            and one.plural == child
            and (one.key.namespace, one.owner) in owners
        }
        cache = self._caches.get(plural)
        for held in filter(None, map(cache.get, keys)) if cache is not None else ():
            owned = self._caches[child].owned_by(held.key.namespace, held.uid)
            found |= {one.key for one in owned}
        return found

    async def handle(self, request: Request) -> Answer:
        """Answer for ``kind``, ``namespace`` and ``name`` of the query; see :class:`Life`."""
        if request.path != PATH:
            return not_found(request)
        query = request.query
        kind, key = query.get("kind", ""), Key(query.get("namespace", ""), query.get("name", ""))
        plural = _PLURALS.get(kind)
        if plural is None or (key.name and not key.namespace):
            known = " or ".join(_PLURALS)
            return text(400, f"say kind ({known}), and namespace and name of an object\n")
        life = Life(
            kind=kind,
            key=key,
            now=format_micro_time(self._clock.now()),
            now_s=self._clock.monotonic(),
            most=self.entries.maxlen or 0,
            recorded=self.recorded,
            oldest_s=self.entries[0].at if self.entries else None,
            entries=self.about((plural, key)) if key.name else self._all(plural, key.namespace),
        )
        return Answer(200, msgspec.json.encode(life), "application/json")

    def _all(self, plural: str, namespace: str) -> list[Entry]:
        return [
            one
            for one in self.entries
            if one.plural == plural and namespace in ("", one.key.namespace)
        ]


# -- the command -----------------------------------------------------------------------------------


def ask(url: str, kind: str, key: Key, *, ca_file: Path | None = None) -> Life:
    """Ask the controller whose metrics are at ``url`` by one GET. Raises ConfigError."""
    import http.client  # noqa: PLC0415 -- for this command only

    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ConfigError(f"--url: {url!r} is no http or https address")
    query = urlencode({"kind": kind, "namespace": key.namespace, "name": key.name})
    try:
        connection = (
            http.client.HTTPConnection(address.netloc, timeout=_TIMEOUT_S)
            if address.scheme == "http"
            else http.client.HTTPSConnection(
                address.netloc, timeout=_TIMEOUT_S, context=_context(ca_file)
            )
        )
        with closing(connection):
            connection.request("GET", f"{PATH}?{query}")
            answer = connection.getresponse()
            body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise ConfigError(
            f"{url} cannot be reached: {getattr(error, 'strerror', '') or error}",
            way_out="--url says where the controller serves /metrics; of one in a cluster,"
            " kubectl port-forward brings the port here",
        ) from error
    if answer.status == 404:
        raise ConfigError(f"{url}: tracing is off there", way_out=_SWITCH_ON)
    if answer.status != 200:
        raise ConfigError(f"{url} answered {answer.status} {answer.reason}")
    try:
        return msgspec.json.decode(body, type=Life)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{url} is no controller of this version: {error}") from error


def _context(ca_file: Path | None) -> ssl.SSLContext:
    from lean_sandbox.kube.connection import trusting  # noqa: PLC0415 -- for https only

    try:
        return trusting(file=ca_file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--ca-file: {ca_file} is no certificate: {error}") from error


def nothing_kept(life: Life) -> str:
    """Say why there is nothing to show of an object."""
    why = ", and it has forgotten nothing since its start: look at name and namespace"
    if life.oldest_s is None:
        why = ": nothing has happened since it started"
    elif life.recorded > life.most:
        reach = f"its last {life.most} entries reach back {life.now_s - life.oldest_s:.0f} s"
        why = f": {reach}; --trace-entries keeps more"
    what = f"{life.kind} {life.key}" if life.key.name else f"any {life.kind}"
    return f"the controller remembers nothing of {what}{why}"


def objects(life: Life) -> str:
    """Return one line for each object: how many entries are kept of it, when the last was."""
    found = {one.key: (0, one.at) for one in life.entries}
    for one in life.entries:
        found[one.key] = (found[one.key][0] + 1, one.at)
    rows = [
        (key.namespace, key.name, str(count), f"{max(0.0, life.now_s - at):.0f} s ago")
        for key, (count, at) in sorted(found.items())
    ]
    return aligned(("NAMESPACE", "NAME", "ENTRIES", "LAST"), *rows)


def table(life: Life) -> str:
    """Return one line for each entry; times count from the first one of the object itself."""
    own = (one.at for one in life.entries if NOUNS[one.plural] == life.kind and one.key == life.key)
    start_s = min(own, default=life.entries[0].at)
    began = parse_rfc3339(life.now) - timedelta(seconds=life.now_s - start_s)
    head = f"{life.kind} {life.key}: {len(life.entries)} entries, 0 is {format_micro_time(began)}\n"
    return head + aligned(_HEAD, *(_row(one, start_s) for one in life.entries))


def _row(entry: Entry, start_s: float) -> tuple[str, str, str, str, str]:
    name = f"{NOUNS[entry.plural]} {entry.key.name}"
    at = _ms(entry.at - start_s)
    match entry:
        case EventEntry():
            verdict = "passed" if entry.passed else "dropped"
            told = re.sub(r"^nothing of \[.*", "nothing that matters changed", entry.reason)
            return at, name, "event", "", f"{entry.type}, {verdict}: {told}"
        case ReconcileEntry():
            return at, name, "reconcile", _ms(entry.took_s), "; ".join(_of_reconcile(entry))
        case RequestEntry():
            result = entry.error if entry.code == 0 else str(entry.code)
            told = f"{entry.verb} {entry.resource} {result}"
            return at, name, "request", _ms(entry.took_s), told


def _of_reconcile(entry: ReconcileEntry) -> Iterator[str]:
    yield f"{entry.controller} {entry.outcome}"
    if entry.reasons:
        yield f"for {', '.join(entry.reasons)}"
    yield f"waited {_ms(entry.waited_s).strip()} ms"
    if entry.attempts:
        yield f"failed {entry.attempts} times before"
    if entry.next_s is not None:
        yield f"again in {entry.next_s:.3f} s"
    if entry.error:
        yield entry.error


def _ms(seconds: float) -> str:
    return f"{seconds * 1000.0:10.3f}"
