"""What a controller has asked of the API server, read from its metrics; differences are costs.

Understood are the counters of this controller (``lean_sandbox_requests_total``: verb, resource,
code) and, for any other, those of client-go (``rest_client_requests_total``: method, code), which
do not tell resources apart.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

_OURS: Final = "lean_sandbox_requests_total"
_ANY: Final = "rest_client_requests_total"
_CAUGHT: Final = "lean_sandbox_safety_net_total"
_RECEIVED: Final = "lean_sandbox_client_bytes_total"
_LINE: Final = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?$")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_METHODS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
# Watches are not polls, and the Lease is renewed whatever happens.
_NOT_COUNTED: Final = frozenset({"leases", "leases.coordination.k8s.io"})
_CONFLICT: Final = "409"
_UNKNOWN: Final = "*"

Requests = Counter[tuple[str, str, str]]


class Snapshot(msgspec.Struct, frozen=True):
    """Counters of a controller at one moment; None for what could not be read.

    ``requests`` counts by (verb, kind, code), without watches and Leases. ``received_bytes`` is
    what came from the API server, ``cpu_s`` and ``rss_kib`` are of the process, ``caught`` counts
    the wake-ups that its safety net made good.
    """

    requests: Requests | None = None
    received_bytes: float | None = None
    cpu_s: float | None = None
    rss_kib: float | None = None
    caught: float | None = None

    def since(self, before: Snapshot) -> Cost:
        """Return what was counted after ``before``."""
        requests = None
        if self.requests is not None and before.requests is not None:
            requests = self.requests - before.requests
        return Cost(
            requests=requests,
            received_kib=_less(self.received_bytes, before.received_bytes, 1 / 1024),
            cpu_ms=_less(self.cpu_s, before.cpu_s, 1000),
            rss_mib=None if self.rss_kib is None else round(self.rss_kib / 1024, 1),
            caught=_less(self.caught, before.caught, 1),
        )


class Cost(msgspec.Struct, frozen=True):
    """What was counted between two snapshots; None for what could not be read."""

    requests: Requests | None
    received_kib: float | None
    cpu_ms: float | None
    rss_mib: float | None
    caught: float | None = None

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
    """Read the text a controller's metrics endpoint answers with; what is missing stays None."""
    ours: Requests = Counter()
    other: Requests = Counter()
    has_ours = has_other = False
    received: float | None = None
    caught: float | None = None
    process: dict[str, float] = {}
    for name, labels, value in _samples(text):
        if name == _OURS:
            has_ours = True
            if labels["verb"] != "watch" and labels["resource"] not in _NOT_COUNTED:
                key = (labels["verb"], shown_kind(labels["resource"]), labels["code"])
                ours[key] += int(value)
        elif name == _ANY:
            has_other = True
            verb = _METHODS.get(labels["method"], labels["method"].lower())
            other[verb, _UNKNOWN, labels["code"]] += int(value)
        elif name == _RECEIVED and labels.get("direction") == "received":
            received = value
        elif name == _CAUGHT:
            caught = (caught or 0.0) + value
        elif name.startswith("process_"):
            process[name] = value
    memory = process.get("process_resident_memory_bytes")
    return Snapshot(
        requests=ours if has_ours else other if has_other else None,
        received_bytes=received,
        cpu_s=process.get("process_cpu_seconds_total"),
        rss_kib=None if memory is None else memory / 1024,
        caught=caught,
    )


def shown_kind(resource: str) -> str:
    """Return ``plural.group/subresource`` without the group."""
    qualified, slash, subresource = resource.partition("/")
    return qualified.partition(".")[0] + slash + subresource


def _samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is not None:
            yield found[1], dict(_LABEL.findall(found[2] or "")), float(found[3])


def _less(after: float | None, before: float | None, factor: float) -> float | None:
    return None if after is None or before is None else (after - before) * factor
