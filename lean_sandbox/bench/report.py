"""What a run of the bench hands on: the form of its JSON.

A change of a name or a meaning here raises ``SCHEMA``; what is only added does not.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import Final

import msgspec

from lean_sandbox.bench.bars import Judged, judge
from lean_sandbox.bench.events import EventReport
from lean_sandbox.bench.figures import Window
from lean_sandbox.bench.memory import MemoryReport
from lean_sandbox.version import __version__

SCHEMA: Final = 1
_LARGE: Final = 10_000


class Sample(msgspec.Struct, frozen=True):
    """The controller's process at a moment at which ``sandboxes`` were Ready."""

    at_s: float
    sandboxes: int
    cpu_s: float | None
    rss_mib: float | None


class ScenarioReport(msgspec.Struct, kw_only=True):
    """One scenario: ``figures`` by the names of ``bars.FIGURES``, None for what was not measured.

    ``requests`` and ``failures`` are the controller's, by ``verb kind`` and ``code verb kind``.
    ``audit_differs`` is how many requests its own count differs by from the embedded server's audit
    log, None where there is no such log.
    """

    name: str
    figures: dict[str, float | None]
    requests: dict[str, int] = {}
    failures: dict[str, int] = {}
    audit_differs: int | None = None
    latencies_ms: list[float] = []
    windows: list[Window] = []
    samples: list[Sample] = []


class Server(msgspec.Struct, frozen=True):
    """What was measured against: ``embedded``, or ``kubeconfig`` with the version it tells."""

    kind: str
    version: str = ""


class Host(msgspec.Struct, frozen=True):
    """The machine."""

    cpus: int
    system: str
    python: str

    @classmethod
    def here(cls) -> Host:
        """Describe this machine."""
        return cls(
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 0,
            platform.platform(terse=True),
            platform.python_version(),
        )


class Report(msgspec.Struct, kw_only=True, omit_defaults=False):
    """A whole run."""

    schema: int = SCHEMA
    version: str = __version__
    host: Host = msgspec.field(default_factory=Host.here)
    server: Server | None = None
    controller: str = ""
    scenarios: list[ScenarioReport] = []
    bars: list[Judged] = []
    notes: list[str] = []
    memory: MemoryReport | None = None
    events: EventReport | None = None

    def judged(self) -> list[Judged]:
        """Hold everything that was measured against the bars; several rates count by the first."""
        figures: dict[str, dict[str, float | None]] = {}
        for scenario in self.scenarios:
            figures.setdefault(scenario.name, scenario.figures)
        if self.memory is not None:
            figures["memory"] = memory_figures(self.memory)
        return judge(figures)

    def named(self, name: str) -> Sequence[ScenarioReport]:
        """Return the reports of one scenario; there are several of different rates."""
        return [scenario for scenario in self.scenarios if scenario.name == name]


def memory_figures(report: MemoryReport) -> dict[str, float | None]:
    """Return the figures of the memory bench that have bars."""
    by_size = {row.sandboxes: round(row.memory.rss_kib / 1024, 1) for row in report.controller}
    largest = max(by_size)
    return {
        "empty_mib": by_size.get(0),
        "each_kib": round(report.each_kib(largest), 2) if largest else None,
        "most_mib": by_size.get(_LARGE),
    }
