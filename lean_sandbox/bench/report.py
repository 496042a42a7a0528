"""What a run of the bench hands on: the form of its JSON, and its tables.

A change of a name or a meaning here raises ``SCHEMA``; what is only added does not.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from lean_sandbox.bench.figures import FIGURES, Verdict, Window, judge
from lean_sandbox.version import __version__

SCHEMA: Final = 2
REFERENCE_EMPTY_MIB: Final = 44.0
REFERENCE_EACH_KIB: Final = 24.0
"""The reference controller on a real API server: with nothing, and for each healthy Sandbox."""
_ABSENT: Final = "-"
_VERDICTS: Final = {True: "kept", False: "MISSED", None: "not measured"}
_SEARCHED: Final = {
    "rate": "claims/s",
    "claims": "claims",
    "ready": "Ready",
    "p50_ms": "median ms",
    "p99_ms": "99th percentile ms",
    "first_p50_ms": "first 10 s, ms",
    "last_p50_ms": "last 10 s, ms",
    "pool": "pool",
    "first_members": "ready members, first 10 s",
    "last_members": "last 10 s",
    "requests_each": "requests each",
    "cpu_ms_each": "CPU ms each",
    "received_kib_each": "KiB each",
}
_REMEMBERED: Final = {
    "sandboxes": "Sandboxes",
    "rss_mib": "MiB",
    "peak_mib": "peak MiB",
    "lists": "list pages",
    "gets": "GETs",
    "writes": "writes",
    "cpu_ms": "CPU ms",
    "synced_s": "in sync after s",
}
_GIST: Final = frozenset(
    {"p50_ms", "p99_ms", "seconds", "quiet_s", "cpu_ms_per_s", "requests_each"}
)


# -- the form --------------------------------------------------------------------------------------


class ScenarioReport(msgspec.Struct, kw_only=True):
    """One scenario: ``figures`` by the names of ``FIGURES``, None for what was not measured.

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

    def gist(self) -> str:
        """Return what matters most in one line."""
        shown = [
            f"{FIGURES[name].text} {value:g}{_unit(name)}"
            for name, value in self.figures.items()
            if name in _GIST and value is not None
        ]
        return f"{self.name}: {', '.join(shown)}"


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
        has_affinity = hasattr(os, "sched_getaffinity")
        cpus = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 0
        return cls(cpus, platform.platform(terse=True), platform.python_version())


class Report(msgspec.Struct, kw_only=True, omit_defaults=False):
    """A whole run."""

    schema: int = SCHEMA
    version: str = __version__
    host: Host = msgspec.field(default_factory=Host.here)
    server: Server | None = None
    controller: str = ""
    scenarios: list[ScenarioReport] = []
    bounds: list[Verdict] = []
    notes: list[str] = []

    def judged(self) -> list[Verdict]:
        """Hold what was measured against the bounds; of several runs of one scenario the first."""
        figures: dict[str, dict[str, float | None]] = {}
        for scenario in self.scenarios:
            figures.setdefault(scenario.name, scenario.figures)
        return judge(figures)

    def named(self, name: str) -> Sequence[ScenarioReport]:
        """Return the reports of one scenario; there are several of different rates or sizes."""
        return [scenario for scenario in self.scenarios if scenario.name == name]

    def encoded(self) -> str:
        """Return the report as JSON for people and programs."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode()


def reference_mib(sandboxes: float) -> float:
    """Return what the reference controller takes over so many Sandboxes."""
    return REFERENCE_EMPTY_MIB + sandboxes * REFERENCE_EACH_KIB / 1024


# -- the screen ------------------------------------------------------------------------------------


class Screen:
    """Says lines and prints tables: drawn on a terminal, plain and aligned elsewhere."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._rich = sys.stdout.isatty() and not quiet

    def say(self, text: str = "") -> None:
        """Print one line."""
        if not self._quiet:
            print(text, flush=True)  # noqa: T201

    def step(self, text: str) -> None:
        """Announce what happens next."""
        self.say(f"\033[1m==> {text}\033[0m" if self._rich else f"==> {text}")

    def progress(self, text: str) -> None:
        """Show what is being waited for."""
        self.say(f"    {text}")

    def table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table; the first column is text, the others are figures."""
        if self._quiet:
            return
        if self._rich:
            self._drawn(title, head, rows)
            return
        widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
        self.say(title)
        for row in (head, ["-" * width for width in widths], *rows):
            cells = zip(row, widths, range(len(row)), strict=True)
            self.say(
                "  ".join(
                    cell.rjust(width) if at else cell.ljust(width) for cell, width, at in cells
                ).rstrip()
            )
        self.say()

    def _drawn(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415

        table = Table(title=title, title_justify="left")
        for at, name in enumerate(head):
            table.add_column(name, justify="left" if at == 0 else "right")
        for row in rows:
            table.add_row(*row)
        Console().print(table)


# -- the tables ------------------------------------------------------------------------------------


def print_report(report: Report, screen: Screen) -> None:
    """Print the figures of each scenario, its requests by kind, and all bounds at the end."""
    screen.say()
    for scenario in report.scenarios:
        if scenario.name not in ("search", "memory"):
            _print_scenario(scenario, screen)
    if tried := report.named("search"):
        _print_search(tried, screen)
    if sizes := report.named("memory"):
        _print_memory(sizes, screen)
    if report.bounds:
        screen.table(
            "Against the bounds",
            ("scenario: figure", "measured", "at most", "which is", ""),
            [_verdict_row(verdict) for verdict in report.bounds],
        )
        missed = [verdict for verdict in report.bounds if verdict.is_met is False]
        for command in dict.fromkeys(verdict.command for verdict in missed):
            screen.say(f"A bound is meant for: {command}")
    if report.server is not None and report.server.kind == "embedded":
        screen.say(
            "The embedded API server is one Python process: times are mostly its own. Requests,"
            " bytes, CPU and memory are the controller's."
        )
    for note in report.notes:
        screen.say(f"Note: {note}.")


def _print_scenario(scenario: ScenarioReport, screen: Screen) -> None:
    figures = scenario.figures
    screen.table(
        scenario.name,
        ("figure", "value", "unit"),
        [(FIGURES[name].text, _number(of), FIGURES[name].unit) for name, of in figures.items()],
    )
    if scenario.requests:
        items = figures.get("claims") or figures.get("sandboxes") or figures.get("pool") or 1
        screen.table(
            f"{scenario.name}: requests of the controller",
            ("request", "all", "each"),
            [(kind, f"{n}", f"{n / items:.2f}") for kind, n in scenario.requests.items()],
        )
    for answer, number in scenario.failures.items():
        screen.say(f"answered {answer}: {number}")
    if scenario.failures:
        screen.say()
    if len(scenario.windows) > 1:
        screen.table(
            f"{scenario.name}: by time of arrival",
            ("from", "claims", "median ms", "99th percentile ms"),
            [
                (f"{one.from_s:g} s", f"{one.claims}", f"{one.p50_ms:g}", f"{one.p99_ms:g}")
                for one in scenario.windows
            ],
        )


def _print_search(tried: Sequence[ScenarioReport], screen: Screen) -> None:
    ordered = sorted(tried, key=lambda one: one.figures["rate"] or 0.0)
    screen.table(
        "search: the rates that were tried",
        tuple(_SEARCHED.values()),
        [tuple(_number(one.figures[name]) for name in _SEARCHED) for one in ordered],
    )
    highest = ordered[0].figures["highest_flat_rate"]
    screen.say(f"The highest rate that stays flat: {_number(highest)} claims/s.")
    screen.say()


def _print_memory(sizes: Sequence[ScenarioReport], screen: Screen) -> None:
    screen.table(
        "Resident memory of `lean-sandbox run`, restarted over healthy Sandboxes with Ready Pods",
        (*_REMEMBERED.values(), "reference MiB"),
        [
            (
                *(_number(one.figures[name]) for name in _REMEMBERED),
                f"{reference_mib(one.figures['sandboxes'] or 0):.0f}",
            )
            for one in sizes
        ],
    )
    screen.say(f"Memory for a Sandbox with its Pod: {_number(sizes[0].figures['each_kib'])} KiB.")
    screen.say(
        f"Reference controller, measured on a real API server: {REFERENCE_EMPTY_MIB:.0f} MiB with"
        f" nothing and {REFERENCE_EACH_KIB:.0f} KiB each."
    )
    screen.say()


def _verdict_row(verdict: Verdict) -> tuple[str, ...]:
    unit = _unit(verdict.figure)
    which = ""
    if verdict.over:
        scenario, _, over = verdict.over.partition(".")
        which = f"{verdict.most:g} x {scenario}: {FIGURES[over].text}"
    return (
        f"{verdict.scenario}: {FIGURES[verdict.figure].text}",
        _number(verdict.value) + (unit if verdict.value is not None else ""),
        _number(verdict.bound) + (unit if verdict.bound is not None else ""),
        which,
        _VERDICTS[verdict.is_met],
    )


def _unit(figure: str) -> str:
    unit = FIGURES[figure].unit
    return f" {unit}" if unit else ""


def _number(value: float | None) -> str:
    if value is None:
        return _ABSENT
    return f"{value:,.2f}".rstrip("0").rstrip(".")
