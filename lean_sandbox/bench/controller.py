"""The controller that is measured: what it has asked, what that cost, and when it is at rest.

Understood are the counters of this controller and, for any other, those of client-go, which do not
tell resources apart. CPU and memory are those of /proc.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from lean_sandbox.bench.options import BenchError
from lean_sandbox.bench.workers import TICK_MS, open_client, process_usage
from lean_sandbox.clock import Clock
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.errors import ControlPlaneError

_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_METHODS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
# Watches are not polls, and the Lease is renewed whatever happens.
_NOT_COUNTED: Final = frozenset({"leases", "leases.coordination.k8s.io"})
_UNKNOWN: Final = "*"
_AT_THE_END: Final = ("rss_mib", "held")
# Open files, keys that may be reconciled now, and everything that is remembered of objects.
_HELD: Final = {
    "fds": ("process_open_fds",),
    "queued": ("workqueue_depth",),
    "cached": ("lean_sandbox_cache_objects",),
}
_SCRAPE_S: Final = 15.0
_REST_LIMIT_S: Final = 180.0
# A controller answers with the same page of metrics for a second.
_FRESH_S: Final = 1.1
# What timers of an idle process come to between two looks: one tick.
_IDLE_CPU_MS: Final = 1.5 * TICK_MS

Requests = Counter[tuple[str, str, str]]


class Cost(msgspec.Struct, frozen=True):
    """What a controller has cost so far, or between two moments; None for what could not be read.

    ``requests`` counts by (verb, kind, code), without watches and Leases, ``caught`` the wake-ups
    that the safety net made good, ``passes`` by controller, ``events`` of watches by (kind,
    outcome), ``changes`` that let them pass by (kind, predicate). ``rss_mib``, and what else is
    ``held``, are those of the end.
    """

    requests: Requests | None = None
    received_kib: float | None = None
    sent_kib: float | None = None
    cpu_ms: float | None = None
    rss_mib: float | None = None
    caught: float | None = None
    passes: Counter[tuple[str]] = msgspec.field(default_factory=Counter)
    events: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    changes: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    held: dict[str, float] = msgspec.field(default_factory=dict)

    def since(self, before: Cost) -> Cost:
        """Return what was counted after ``before``."""

        def less(name: str) -> Any:
            after = getattr(self, name)
            then = getattr(before, name)
            return None if after is None or then is None else after - then

        grown = {name: less(name) for name in self.__struct_fields__ if name not in _AT_THE_END}
        return Cost(rss_mib=self.rss_mib, held=self.held, **grown)

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
        return self._count(lambda _verb, _kind, _code: True)

    @property
    def without_events(self) -> int | None:
        """All requests but those about Events; None where kinds cannot be told apart."""
        return self._count(lambda _verb, kind, _code: kind != "events", needs_kinds=True)

    @property
    def writes(self) -> int | None:
        """Writes, without Events where kinds can be told apart."""
        return self._count(lambda verb, kind, _code: verb in _WRITES and kind != "events")

    @property
    def gets(self) -> int | None:
        """Reads of single objects; None where they cannot be told from lists."""
        return self._count(lambda verb, _kind, _code: verb == "get", needs_kinds=True)

    @property
    def lists(self) -> int | None:
        """List pages; None where they cannot be told from reads of single objects."""
        return self._count(lambda verb, _kind, _code: verb == "list", needs_kinds=True)

    @property
    def conflicts(self) -> int | None:
        """Requests answered with 409."""
        return self._count(lambda _verb, _kind, code: code == "409")

    def _count(
        self, is_meant: Callable[[str, str, str], bool], *, needs_kinds: bool = False
    ) -> int | None:
        if self.requests is None:
            return None
        if needs_kinds and any(kind == _UNKNOWN for _, kind, _ in self.requests):
            return None
        return sum(number for key, number in self.requests.items() if is_meant(*key))


def read_metrics(text: str) -> Cost:
    """Read the text of a controller's metrics; what is missing stays None. Raises ValueError."""
    samples: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample)

    def count(name: str, *labels: str) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for sample in samples.get(name, ()):
            found[tuple(sample.labels[label] for label in labels)] += int(sample.value)
        return found

    def add_up(name: str, factor: float, **labels: str) -> float | None:
        found = [s.value for s in samples.get(name, ()) if labels.items() <= s.labels.items()]
        return sum(found) * factor if found else None

    requests: Requests = Counter()
    ours = count("lean_sandbox_requests_total", "verb", "resource", "code")
    for (verb, resource, code), number in ours.items():
        if verb != "watch" and resource not in _NOT_COUNTED:
            # Without the group, with the subresource.
            requests[verb, re.sub(r"\.[^/]*", "", resource), code] += number
    theirs = Counter() if ours else count("rest_client_requests_total", "method", "code")
    for (method, code), number in theirs.items():
        requests[_METHODS.get(method, method.lower()), _UNKNOWN, code] += number
    held = {what: sum(add_up(name, 1) or 0.0 for name in of) for what, of in _HELD.items()}
    held["series"] = float(sum(map(len, samples.values())))
    rss_mib = add_up("process_resident_memory_bytes", 1 / 1024**2)
    return Cost(
        requests=requests if ours or theirs else None,
        received_kib=add_up("lean_sandbox_client_bytes_total", 1 / 1024, direction="received"),
        sent_kib=add_up("lean_sandbox_client_bytes_total", 1 / 1024, direction="sent"),
        cpu_ms=add_up("process_cpu_seconds_total", 1000),
        rss_mib=None if rss_mib is None else round(rss_mib, 1),
        caught=add_up("lean_sandbox_safety_net_total", 1),
        passes=count("controller_runtime_reconcile_total", "controller"),
        events=count("lean_sandbox_watch_events_total", "resource", "outcome"),
        changes=count("lean_sandbox_watch_changes_total", "resource", "predicate"),
        held=held,
    )


@dataclass(frozen=True)
class MeasuredController:
    """A running controller, of which the process, the metrics, or both are known."""

    clock: Clock
    quiet_s: float
    pid: int | None
    url: str

    async def snapshot(self, *, process_first: bool = False) -> Cost:
        """Read all counters; what cannot be read is None. Raises BenchError.

        What the answer itself costs is not between two snapshots of which the later reads the
        process first.
        """
        usage = process_usage(self.pid) if process_first else None
        found = await self._scrape()
        usage = usage or process_usage(self.pid)
        if usage.cpu_ms is None:
            return found
        return msgspec.structs.replace(found, cpu_ms=usage.cpu_ms, rss_mib=usage.rss_mib)

    async def _scrape(self) -> Cost:
        if not self.url:
            return Cost()
        where = f"the controller's metrics at {self.url}"
        url = urlsplit(self.url)
        server = Connection(f"{url.scheme}://{url.netloc}", source="--against")
        path = url.path or "/metrics"
        try:
            async with open_client(server, self.clock, agent="bench-metrics") as client:
                answer = await client.transport.request("GET", path, timeout_s=_SCRAPE_S)
            if answer.status == 200:
                return read_metrics(answer.body.decode("utf-8", "replace"))
        except (ControlPlaneError, ValueError) as error:
            raise BenchError(f"{where} cannot be read: {error}") from error
        raise BenchError(
            f"{where} are answered with {answer.status}; give the address of a plain HTTP endpoint"
        )

    async def begin(self) -> Cost:
        """Begin a stretch: from here on requests count."""
        await self.clock.sleep(_FRESH_S)
        return await self.snapshot()

    async def end(self, before: Cost) -> Cost:
        """End a stretch; return its cost."""
        return (await self.snapshot(process_first=True)).since(before)

    async def until_idle(self, after: str) -> None:
        """Wait until the controller has used next to no CPU for a while.

        Where /proc does not tell, or the CPU never rests: until it has made no request. Raises
        BenchError after three minutes of each.
        """
        has_cpu = process_usage(self.pid).cpu_ms is not None
        if has_cpu and await self._rests(by_cpu=True):
            return
        if self.url and await self._rests(by_cpu=False):
            return
        raise BenchError(f"waited {_REST_LIMIT_S:g} s for the controller to rest after {after}")

    async def _rests(self, *, by_cpu: bool) -> bool:
        """Wait until the CPU, or the number of requests, has not grown for the time of rest."""
        deadline = self.clock.monotonic() + _REST_LIMIT_S
        last = 0.0
        since = self.clock.monotonic()
        while self.clock.monotonic() < deadline:
            cpu_ms = process_usage(self.pid).cpu_ms if by_cpu else None
            used = (await self._scrape()).total or 0 if cpu_ms is None else cpu_ms
            if used - last > (_IDLE_CPU_MS if by_cpu else 0):
                last = used
                since = self.clock.monotonic()
            elif self.clock.monotonic() - since >= self.quiet_s:
                return True
            await self.clock.sleep(self.quiet_s / 4)
        return False
