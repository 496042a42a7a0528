"""The controller that is measured: what it has asked, what that cost, and when it is at rest.

Understood are the counters of this controller (``lean_sandbox_requests_total``: verb, resource,
code) and, for any other, those of client-go (``rest_client_requests_total``: method, code), which
do not tell resources apart. CPU and memory are those of /proc.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from lean_sandbox.bench.workers import TICK_S, Asked, BenchError, Worker, process_usage
from lean_sandbox.clock import Clock
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.kube.transport import Transport

_OURS: Final = "lean_sandbox_requests_total"
_ANY: Final = "rest_client_requests_total"
_CAUGHT: Final = "lean_sandbox_safety_net_total"
_BYTES: Final = "lean_sandbox_client_bytes_total"
_PASSES: Final = "controller_runtime_reconcile_total"
_EVENTS: Final = "lean_sandbox_watch_events_total"
_CHANGES: Final = "lean_sandbox_watch_changes_total"
_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_METHODS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
# Watches are not polls, and the Lease is renewed whatever happens.
_NOT_COUNTED: Final = frozenset({"leases", "leases.coordination.k8s.io"})
_CONFLICT: Final = "409"
_UNKNOWN: Final = "*"
_SCRAPE_S: Final = 15.0
_REST_LIMIT_S: Final = 180.0
# A process that is never at rest for so long is judged by its requests.
_CPU_LIMIT_S: Final = 60.0
_LOOKS: Final = 4
# A controller answers with the same page of metrics for a second.
_FRESH_S: Final = 1.1
# What timers of an idle process come to between two looks: one tick.
_IDLE_CPU_S: Final = 1.5 * TICK_S

Requests = Counter[tuple[str, str, str]]


class Snapshot(msgspec.Struct, frozen=True):
    """Counters of a controller at one moment; None for what could not be read.

    ``requests`` counts by (verb, kind, code), without watches and Leases. Bytes are those from and
    to the API server, ``cpu_s`` and ``rss_kib`` are of the process, ``caught`` counts the wake-ups
    that its safety net made good. ``passes`` count by controller, ``events`` of watches by (kind,
    outcome), ``changes`` that let them pass by (kind, predicate); they are empty where unknown.
    """

    requests: Requests | None = None
    received_bytes: float | None = None
    sent_bytes: float | None = None
    cpu_s: float | None = None
    rss_kib: float | None = None
    caught: float | None = None
    passes: Counter[str] = msgspec.field(default_factory=Counter)
    events: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    changes: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)

    def since(self, before: Snapshot) -> Cost:
        """Return what was counted after ``before``."""
        requests = None
        if self.requests is not None and before.requests is not None:
            requests = self.requests - before.requests
        return Cost(
            requests=requests,
            received_kib=_less(self.received_bytes, before.received_bytes, 1 / 1024),
            sent_kib=_less(self.sent_bytes, before.sent_bytes, 1 / 1024),
            cpu_ms=_less(self.cpu_s, before.cpu_s, 1000),
            rss_mib=None if self.rss_kib is None else round(self.rss_kib / 1024, 1),
            caught=_less(self.caught, before.caught, 1),
            passes=self.passes - before.passes,
            events=self.events - before.events,
            changes=self.changes - before.changes,
        )


class Cost(msgspec.Struct, frozen=True):
    """What was counted between two snapshots; None for what could not be read."""

    requests: Requests | None
    received_kib: float | None = None
    sent_kib: float | None = None
    cpu_ms: float | None = None
    rss_mib: float | None = None
    caught: float | None = None
    passes: Counter[str] = msgspec.field(default_factory=Counter)
    events: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    changes: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)

    def by_kind(self) -> dict[str, int]:
        """Return the requests by ``verb kind``, the most frequent first."""
        kinds: Counter[str] = Counter()
        for (verb, kind, _), number in (self.requests or {}).items():
            kinds[f"{verb} {kind}"] += number
        return dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0])))

    def failures(self) -> dict[str, int]:
        """Return the answers of 400 and above, and those that never came, by ``code verb kind``."""
        return {
            f"{code} {verb} {kind}": number
            for (verb, kind, code), number in sorted((self.requests or {}).items())
            if not code.startswith(("1", "2", "3"))
        }

    @property
    def total(self) -> int | None:
        """All requests."""
        return None if self.requests is None else self.requests.total()

    @property
    def without_events(self) -> int | None:
        """All requests but those about Events; None where kinds cannot be told apart."""
        return self._count(lambda _, kind: kind != "events", needs_kinds=True)

    @property
    def writes(self) -> int | None:
        """Writes, without Events where kinds can be told apart."""
        return self._count(lambda verb, kind: verb in _WRITES and kind != "events")

    @property
    def gets(self) -> int | None:
        """Reads of single objects; None where they cannot be told from lists."""
        return self._count(lambda verb, _: verb == "get", needs_kinds=True)

    @property
    def lists(self) -> int | None:
        """List pages; None where they cannot be told from reads of single objects."""
        return self._count(lambda verb, _: verb == "list", needs_kinds=True)

    @property
    def conflicts(self) -> int | None:
        """Requests answered with 409."""
        if self.requests is None:
            return None
        return sum(n for (_, _, code), n in self.requests.items() if code == _CONFLICT)

    def count(self, verb: str, kind: str) -> int | None:
        """Return the requests of one sort; None where kinds cannot be told apart."""
        return self._count(lambda v, k: (v, k) == (verb, kind), needs_kinds=True)

    def _count(
        self, is_meant: Callable[[str, str], bool], *, needs_kinds: bool = False
    ) -> int | None:
        if self.requests is None:
            return None
        if needs_kinds and any(kind == _UNKNOWN for _, kind, _ in self.requests):
            return None
        return sum(n for (verb, kind, _), n in self.requests.items() if is_meant(verb, kind))


def read_metrics(text: str) -> Snapshot:
    """Read the text a controller's metrics endpoint answers with; what is missing stays None.

    Raises ValueError for a text that is no exposition of metrics.
    """
    ours: Requests = Counter()
    other: Requests = Counter()
    read: dict[str, float] = {}
    passes: Counter[str] = Counter()
    events: Counter[tuple[str, str]] = Counter()
    changes: Counter[tuple[str, str]] = Counter()
    samples = (one for family in text_string_to_metric_families(text) for one in family.samples)
    for name, labels, value, *_ in samples:
        if name == _OURS:
            read[_OURS] = 1
            if labels["verb"] != "watch" and labels["resource"] not in _NOT_COUNTED:
                key = (labels["verb"], shown_kind(labels["resource"]), labels["code"])
                ours[key] += int(value)
        elif name == _ANY:
            read[_ANY] = 1
            verb = _METHODS.get(labels["method"], labels["method"].lower())
            other[verb, _UNKNOWN, labels["code"]] += int(value)
        elif name == _BYTES:
            read[labels["direction"]] = value
        elif name == _CAUGHT:
            read[_CAUGHT] = read.get(_CAUGHT, 0.0) + value
        elif name == _PASSES:
            passes[labels["controller"]] += int(value)
        elif name == _EVENTS:
            events[labels["resource"], labels["outcome"]] += int(value)
        elif name == _CHANGES:
            changes[labels["resource"], labels["predicate"]] += int(value)
        elif name.startswith("process_"):
            read[name] = value
    memory = read.get("process_resident_memory_bytes")
    return Snapshot(
        requests=ours if _OURS in read else other if _ANY in read else None,
        received_bytes=read.get("received"),
        sent_bytes=read.get("sent"),
        cpu_s=read.get("process_cpu_seconds_total"),
        rss_kib=None if memory is None else memory / 1024,
        caught=read.get(_CAUGHT),
        passes=passes,
        events=events,
        changes=changes,
    )


def shown_kind(resource: str) -> str:
    """Return ``plural.group/subresource`` without the group."""
    qualified, slash, subresource = resource.partition("/")
    return qualified.partition(".")[0] + slash + subresource


def _less(after: float | None, before: float | None, factor: float) -> float | None:
    return None if after is None or before is None else (after - before) * factor


# -- the process -----------------------------------------------------------------------------------


class MeasuredController:
    """A running controller: its counters, its process, and when it has come to rest.

    ``api_server`` is the embedded one, whose audit log checks the counts.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        pid: int | None,
        metrics: Transport | None,
        path: str,
        api_server: Worker | None,
    ) -> None:
        self.pid = pid
        self._clock = clock
        self._metrics = metrics
        self._path = path
        self._api_server = api_server

    async def snapshot(self, *, process_first: bool = False) -> Snapshot:
        """Read all counters; what cannot be read is None. Raises BenchError for one that fails.

        The process is read after its metrics or before them: what answering them costs is then not
        between two snapshots of which the later reads the process first.
        """
        usage = process_usage(self.pid) if process_first else None
        found = await self._scrape()
        usage = usage or process_usage(self.pid)
        if usage.cpu_s is None:
            return found
        return msgspec.structs.replace(found, cpu_s=usage.cpu_s, rss_kib=usage.rss_kib)

    async def _scrape(self) -> Snapshot:
        if self._metrics is None:
            return Snapshot()
        try:
            answer = await self._metrics.request("GET", self._path, timeout_s=_SCRAPE_S)
        except ControlPlaneError as error:
            raise BenchError(f"the controller's metrics cannot be read: {error}") from error
        if answer.status != 200:
            raise BenchError(
                f"the controller's metrics at {self._metrics.counted.host}{self._path} are answered"
                f" with {answer.status}; give the address of a plain HTTP endpoint"
            )
        try:
            return read_metrics(answer.body.decode("utf-8", "replace"))
        except ValueError as error:
            raise BenchError(
                f"what {self._metrics.counted.host}{self._path} answers: {error}"
            ) from error

    async def begin(self) -> Snapshot:
        """Begin a stretch: from here on requests count."""
        await self._clock.sleep(_FRESH_S)
        if self._api_server is not None:
            await self._api_server.ask(Asked)
        return await self.snapshot()

    async def end(self, before: Snapshot) -> tuple[Cost, int | None]:
        """End a stretch: its cost, and how far the audit log differs from the counters.

        The difference is the number of requests that only one of the two has seen; None without an
        audit log.
        """
        cost = (await self.snapshot(process_first=True)).since(before)
        if self._api_server is None or cost.requests is None:
            return cost, None
        return cost, await self._compare(self._api_server, before)

    async def _compare(self, api_server: Worker, before: Snapshot) -> int:
        """Compare both counts; again where a request came between the two looks."""
        audited: Counter[str] = Counter()
        differs = 0
        for _ in range(_LOOKS):
            audited.update((await api_server.ask(Asked)).requests)
            counted = (await self.snapshot()).since(before).by_kind()
            kinds = {*audited, *counted}
            differs = sum(abs(audited[kind] - counted.get(kind, 0)) for kind in kinds)
            if not differs:
                break
            await self._clock.sleep(_FRESH_S)
        return differs

    async def until_idle(self, quiet_s: float, after: str) -> None:
        """Wait until the controller has done nothing for ``quiet_s``.

        That is: used next to no CPU, which is looked up without disturbing it; where /proc does not
        tell, or it never rests that much, made no request. Raises BenchError after three minutes.
        """
        if process_usage(self.pid).cpu_s is not None:
            limit_s = _REST_LIMIT_S if self._metrics is None else _CPU_LIMIT_S
            if await self._rests(self._cpu_s, _IDLE_CPU_S, quiet_s, limit_s):
                return
        if self._metrics is not None and await self._rests(
            self._requests, 0, quiet_s, _REST_LIMIT_S
        ):
            return
        raise BenchError(f"waited {_REST_LIMIT_S:g} s for the controller to rest after {after}")

    async def _rests(
        self, count: Callable[[], Awaitable[float]], forgiven: float, quiet_s: float, limit_s: float
    ) -> bool:
        """Wait until a counter has grown by no more than ``forgiven`` for ``quiet_s``."""
        deadline = self._clock.monotonic() + limit_s
        last, since = await count(), self._clock.monotonic()
        while self._clock.monotonic() < deadline:
            await self._clock.sleep(quiet_s / 4)
            found = await count()
            if found - last > forgiven:
                last, since = found, self._clock.monotonic()
            elif self._clock.monotonic() - since >= quiet_s:
                return True
        return False

    async def _cpu_s(self) -> float:
        return process_usage(self.pid).cpu_s or 0.0

    async def _requests(self) -> float:
        return ((await self._scrape()).requests or Counter()).total()


@asynccontextmanager
async def open_controller(
    clock: Clock, *, pid: int | None, metrics_url: str, api_server: Worker | None = None
) -> AsyncIterator[MeasuredController]:
    """Open a running controller by its process id, its metrics, or both.

    Raises ConfigError for an address that is none.
    """
    if not metrics_url:
        yield MeasuredController(clock, pid=pid, metrics=None, path="", api_server=api_server)
        return
    url = urlsplit(metrics_url)
    connection = Connection(f"{url.scheme}://{url.netloc}", source="--against")
    metrics = Transport(connection, clock=clock, user_agent="bench-metrics")
    try:
        yield MeasuredController(
            clock, pid=pid, metrics=metrics, path=url.path or "/metrics", api_server=api_server
        )
    finally:
        await metrics.aclose()
