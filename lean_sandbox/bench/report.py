"""What a run of the bench reports: figures, their bounds, the form of its JSON, its lines.

A bound is a number or a multiple of another figure of the same run: ratios carry from machine to
machine, so times are bound by them, a bind by the four bare requests it needs (``floor``), a launch
by the bare Pods (``pods``). Costs of a claim or a Sandbox are plain numbers.

What a client waits for is a claim that it can use: one that is Ready, and whose Pod no longer looks
free. So times of claims are bound until they are usable; those until Ready are shown beside them.

A change of a name or a meaning in the JSON raises ``SCHEMA``; what is only added does not.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from lean_sandbox.bench.arithmetic import FLAT_FACTOR, Figures, Window, medians, per_item
from lean_sandbox.version import __version__

SCHEMA: Final = 4
# Of lines that are no terminal's: none is broken.
_WIDE: Final = 200


# -- names -----------------------------------------------------------------------------------------


class Figure(msgspec.Struct, frozen=True):
    """How a figure is spoken of."""

    text: str
    unit: str = ""


FIGURES: Final[Mapping[str, Figure]] = {
    "claims": Figure("claims"),
    "pool": Figure("members of the pool"),
    "sandboxes": Figure("Sandboxes"),
    "pods": Figure("Pods"),
    "rate": Figure("arrivals", "claims/s"),
    "not_usable": Figure("never usable"),
    "usable_p50_ms": Figure("usable after, median", "ms"),
    "usable_p90_ms": Figure("usable after, 90th percentile", "ms"),
    "usable_p99_ms": Figure("usable after, 99th percentile", "ms"),
    "lag_p50_ms": Figure("lag from Ready to usable, median", "ms"),
    "lag_max_ms": Figure("lag from Ready to usable, the longest", "ms"),
    "ready": Figure("became Ready"),
    "p50_ms": Figure("Ready after, median", "ms"),
    "p90_ms": Figure("Ready after, 90th percentile", "ms"),
    "p99_ms": Figure("Ready after, 99th percentile", "ms"),
    "max_ms": Figure("Ready after, the slowest", "ms"),
    "ack_p50_ms": Figure("create answered after, median", "ms"),
    "ack_p99_ms": Figure("create answered after, 99th percentile", "ms"),
    "one_usable_p50_ms": Figure("usable after, one claim at a time, median", "ms"),
    "first_usable_p50_ms": Figure("usable after, median of the first 10 s", "ms"),
    "last_usable_p50_ms": Figure("usable after, median of the last 10 s", "ms"),
    "first_members": Figure("ready members of the pool, median of the first 10 s"),
    "last_members": Figure("ready members of the pool, median of the last 10 s"),
    "seconds": Figure("until all were Ready", "s"),
    "requests_each": Figure("requests each"),
    "requests_each_without_events": Figure("requests each, without Events"),
    "writes_each": Figure("writes each, without Events"),
    "conflicts": Figure("answers 409"),
    "caught_by_net": Figure("wake-ups lost, made good by the safety net"),
    "replacements": Figure("replacements created"),
    "doubly_bound": Figure("Sandboxes bound twice"),
    "cpu_ms_each": Figure("CPU each", "ms"),
    "cpu_ms_per_s": Figure("CPU a second", "ms"),
    "received_kib_each": Figure("received each", "KiB"),
    "rss_mib": Figure("resident memory", "MiB"),
    "peak_mib": Figure("resident memory at its highest", "MiB"),
    "left_over": Figure("Sandboxes and Pods left over"),
    "requests": Figure("requests"),
    "writes": Figure("writes"),
    "gets": Figure("GETs"),
    "lists": Figure("list pages"),
    "received_kib": Figure("received", "KiB"),
    "cpu_ms": Figure("CPU", "ms"),
    "listing_s": Figure("the same pages listed bare, a connection for each as curl has", "s"),
    "started_s": Figure("process up after", "s"),
    "synced_s": Figure("in sync after", "s"),
    "quiet_s": Figure("quiet after", "s"),
    "highest_flat_rate": Figure("highest rate that stays flat", "claims/s"),
    "empty_mib": Figure("resident memory with nothing", "MiB"),
    "each_kib": Figure("memory for a Sandbox with its Pod", "KiB"),
    "most_mib": Figure("resident memory over 10,000 Sandboxes", "MiB"),
    "lives": Figure("namespaces that came and went"),
    "growing": Figure("measures that were still growing in the last third"),
    **{
        f"{name}_{third}": Figure(f"{text}, mean of the {third} third")
        for name, text in {
            "rss_mib": "resident memory in MiB",
            "fds": "open files",
            "queued": "keys that may be reconciled",
            "cached": "objects remembered",
            "series": "series of metrics",
        }.items()
        for third in ("middle", "last")
    },
    "left_cached": Figure("objects remembered though all are gone"),
}
"""Every figure that a scenario may report."""


# -- bounds ----------------------------------------------------------------------------------------


class Bound(msgspec.Struct, frozen=True):
    """At most ``most``, or at most ``most`` times the figure ``over`` (``scenario.figure``)."""

    scenario: str
    figure: str
    most: float
    over: str = ""

    @property
    def base(self) -> str:
        """The scenario whose figure the bound is a multiple of."""
        return self.over.partition(".")[0]


class Verdict(Bound, frozen=True, kw_only=True):
    """A bound as a number, beside the value, and the value in multiples of the figure ``over``.

    ``is_met`` is None where one was not measured.
    """

    value: float | None
    bound: float | None
    multiple: float | None
    is_met: bool | None


COMMANDS: Final = {
    "one": "lean-sandbox bench one",
    "burst": "lean-sandbox bench burst --count 300 --pool 600",
    "fill": "lean-sandbox bench fill --pool 600",
    "sustained": "lean-sandbox bench sustained --rate 8 --seconds 40 --dwell 3 --pool 80",
    "cold": "lean-sandbox bench cold --sandboxes 2000",
    "idle": "lean-sandbox bench idle --sandboxes 2000",
    "restart": "lean-sandbox bench restart --sandboxes 2000",
    "memory": "lean-sandbox bench memory",
    "soak": "lean-sandbox bench soak --seconds 900",
}
"""What measures the bounds of each scenario as they are meant."""

BOUNDS: Final[Sequence[Bound]] = (
    Bound("one", "usable_p50_ms", 1.3, over="floor.one_usable_p50_ms"),
    Bound("burst", "usable_p50_ms", 1.1, over="floor.usable_p50_ms"),
    Bound("burst", "usable_p99_ms", 1.1, over="floor.usable_p99_ms"),
    Bound("one", "not_usable", 0),
    Bound("burst", "not_usable", 0),
    Bound("burst", "requests_each", 13),
    Bound("burst", "requests_each_without_events", 10),
    Bound("burst", "conflicts", 0),
    Bound("burst", "doubly_bound", 0),
    Bound("burst", "caught_by_net", 0),
    Bound("burst", "cpu_ms_each", 8),
    Bound("burst", "received_kib_each", 56),
    Bound("fill", "writes_each", 3),
    Bound("sustained", "last_usable_p50_ms", FLAT_FACTOR, over="sustained.first_usable_p50_ms"),
    Bound("sustained", "last_usable_p50_ms", 1000),
    Bound("sustained", "not_usable", 0),
    Bound("sustained", "left_over", 0),
    Bound("sustained", "caught_by_net", 0),
    Bound("cold", "writes_each", 2.2),
    Bound("cold", "caught_by_net", 0),
    Bound("cold", "seconds", 1.6, over="pods.seconds"),
    Bound("cold", "cpu_ms_each", 4.5),
    Bound("cold", "received_kib_each", 24),
    Bound("idle", "cpu_ms_per_s", 1.7),
    Bound("restart", "writes", 0),
    Bound("restart", "gets", 0),
    Bound("restart", "quiet_s", 2, over="restart.listing_s"),
    Bound("memory", "empty_mib", 40),
    Bound("memory", "each_kib", 3),
    Bound("memory", "most_mib", 75),
    Bound("soak", "growing", 0),
    Bound("soak", "left_cached", 0),
    Bound("soak", "caught_by_net", 0),
)
"""Every bound of every scenario."""


def judge(figures: Mapping[str, Figures], bounds: Sequence[Bound] = BOUNDS) -> list[Verdict]:
    """Hold the figures of the scenarios that ran against their bounds, to a hundredth as shown."""
    verdicts = []
    for bound in bounds:
        if bound.scenario not in figures:
            continue
        value = figures[bound.scenario].get(bound.figure)
        base = figures.get(bound.base, {}).get(bound.over.partition(".")[2]) if bound.over else 1.0
        most = None if base is None else round(bound.most * base, 2)
        is_met = None if value is None or most is None else round(value, 2) <= most
        multiple = per_item(value, base or 0.0) if bound.over else None
        given = msgspec.structs.asdict(bound)
        verdicts.append(Verdict(**given, value=value, bound=most, multiple=multiple, is_met=is_met))
    return verdicts


# -- the form --------------------------------------------------------------------------------------


class ScenarioReport(msgspec.Struct, kw_only=True):
    """One scenario: ``figures`` by the names of ``FIGURES``, None for what was not measured.

    ``requests`` and ``failures`` are the controller's, by ``verb kind`` and ``code verb kind``.
    ``usable_ms`` and ``ready_ms`` are how long each object took, ``windows`` are of the former.
    """

    name: str
    figures: dict[str, float | None]
    requests: dict[str, int] = {}
    failures: dict[str, int] = {}
    usable_ms: list[float] = []
    ready_ms: list[float] = []
    windows: list[Window] = []


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
        knows_own = hasattr(os, "sched_getaffinity")
        cpus = len(os.sched_getaffinity(0)) if knows_own else os.cpu_count() or 0
        return cls(cpus, platform.platform(terse=True), platform.python_version())


class Report(msgspec.Struct, kw_only=True, omit_defaults=False):
    """A whole run."""

    schema: int = SCHEMA
    version: str = __version__
    host: Host = msgspec.field(default_factory=Host.here)
    server: Server = Server("embedded")
    controller: str = ""
    scenarios: list[ScenarioReport] = []
    bounds: list[Verdict] = []
    notes: list[str] = []

    def judged(self) -> list[Verdict]:
        """Hold what was measured against the bounds; of several rates the first one."""
        figures: dict[str, Figures] = {}
        for name in dict.fromkeys(scenario.name for scenario in self.scenarios):
            runs = [scenario.figures for scenario in self.named(name)]
            figures[name] = medians([one for one in runs if one.get("rate") == runs[0].get("rate")])
        return judge(figures)

    def named(self, name: str) -> Sequence[ScenarioReport]:
        """Return the reports of one scenario; there are several of different rates or sizes."""
        return [scenario for scenario in self.scenarios if scenario.name == name]

    def encoded(self) -> str:
        """Return the report as JSON for people and programs."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode()


class Screen:
    """Says lines and prints tables: drawn on a terminal, plain and aligned elsewhere."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._is_terminal = sys.stdout.isatty()

    def say(self, text: str = "") -> None:
        """Print one line."""
        if not self._quiet:
            print(text, flush=True)  # noqa: T201

    def step(self, text: str) -> None:
        """Announce what happens next."""
        self.say(f"\033[1m==> {text}\033[0m" if self._is_terminal else f"==> {text}")

    def progress(self, text: str) -> None:
        """Show what is being waited for."""
        self.say(f"    {text}")

    def table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table; the first column is text, the others are figures."""
        form = box.HEAVY_HEAD if self._is_terminal else None
        table = Table(box=form, pad_edge=form is not None)
        for at, name in enumerate(head):
            table.add_column(name, justify="right" if at else "left")
        for row in rows:
            table.add_row(*row)
        self.say(title)
        Console(quiet=self._quiet, width=None if form else _WIDE, markup=False).print(table)
        self.say()
