"""What a run of the bench reports: figures, their bounds, the form of its JSON, its lines.

A bound is a number or a multiple of another figure of the same run: ratios carry from machine to
machine, so times are bound by them, a bind by the three bare requests it needs (``floor``), a
launch by the bare Pods (``pods``). Costs of a claim or a Sandbox are plain numbers.

A change of a name or a meaning in the JSON raises ``SCHEMA``; what is only added does not.
"""

from __future__ import annotations

import math
import os
import platform
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Final

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from lean_sandbox.version import __version__

SCHEMA: Final = 3
WINDOW_S: Final = 10.0
"""Width of a window of arrivals."""
FLAT_FACTOR: Final = 1.3
"""How much slower the last 10 s of a load may be than its first."""
_NEVER: Final = ("conflicts", "doubly_bound", "caught_by_net")
_DRAINED: Final = 0.1
_STEP: Final = 1.5
_NEAR: Final = 1.15
# Of lines that are no terminal's: none is broken.
_WIDE: Final = 200
Figures = Mapping[str, float | None]


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
    "ready": Figure("became Ready"),
    "p50_ms": Figure("Ready after, median", "ms"),
    "p90_ms": Figure("Ready after, 90th percentile", "ms"),
    "p99_ms": Figure("Ready after, 99th percentile", "ms"),
    "max_ms": Figure("Ready after, the slowest", "ms"),
    "ack_p50_ms": Figure("create answered after, median", "ms"),
    "ack_p99_ms": Figure("create answered after, 99th percentile", "ms"),
    "one_p50_ms": Figure("Ready after, one claim at a time, median", "ms"),
    "first_p50_ms": Figure("median of the first 10 s", "ms"),
    "last_p50_ms": Figure("median of the last 10 s", "ms"),
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
    command: str
    over: str = ""

    @property
    def base(self) -> str:
        """The scenario whose figure the bound is a multiple of."""
        return self.over.partition(".")[0]


class Verdict(Bound, frozen=True, kw_only=True):
    """A bound as a number, beside the value; ``is_met`` is None where one was not measured."""

    value: float | None
    bound: float | None
    is_met: bool | None


_ONE: Final = "lean-sandbox bench one"
_BURST: Final = "lean-sandbox bench burst --count 300 --pool 600"
_FILL: Final = "lean-sandbox bench fill --pool 600"
_SUSTAINED: Final = "lean-sandbox bench sustained --rate 8 --seconds 40 --dwell 3 --pool 80"
_COLD: Final = "lean-sandbox bench cold --sandboxes 2000"
_IDLE: Final = "lean-sandbox bench idle --sandboxes 2000"
_RESTART: Final = "lean-sandbox bench restart --sandboxes 2000"
_MEMORY: Final = "lean-sandbox bench memory"
_SOAK: Final = "lean-sandbox bench soak --seconds 900"

BOUNDS: Final[Sequence[Bound]] = (
    Bound("one", "p50_ms", 1.3, _ONE, over="floor.one_p50_ms"),
    Bound("burst", "p50_ms", 1.1, _BURST, over="floor.p50_ms"),
    Bound("burst", "p99_ms", 1.1, _BURST, over="floor.p99_ms"),
    Bound("burst", "requests_each", 13, _BURST),
    Bound("burst", "requests_each_without_events", 10, _BURST),
    Bound("burst", "conflicts", 0, _BURST),
    Bound("burst", "doubly_bound", 0, _BURST),
    Bound("burst", "caught_by_net", 0, _BURST),
    Bound("burst", "cpu_ms_each", 8, _BURST),
    Bound("burst", "received_kib_each", 56, _BURST),
    Bound("fill", "writes_each", 3, _FILL),
    Bound("sustained", "last_p50_ms", FLAT_FACTOR, _SUSTAINED, over="sustained.first_p50_ms"),
    Bound("sustained", "last_p50_ms", 1000, _SUSTAINED),
    Bound("sustained", "left_over", 0, _SUSTAINED),
    Bound("sustained", "caught_by_net", 0, _SUSTAINED),
    Bound("cold", "writes_each", 2.2, _COLD),
    Bound("cold", "caught_by_net", 0, _COLD),
    Bound("cold", "seconds", 1.6, _COLD, over="pods.seconds"),
    Bound("cold", "cpu_ms_each", 4.5, _COLD),
    Bound("cold", "received_kib_each", 24, _COLD),
    Bound("idle", "cpu_ms_per_s", 1.7, _IDLE),
    Bound("restart", "writes", 0, _RESTART),
    Bound("restart", "gets", 0, _RESTART),
    Bound("restart", "quiet_s", 2, _RESTART, over="restart.listing_s"),
    Bound("memory", "empty_mib", 40, _MEMORY),
    Bound("memory", "each_kib", 3, _MEMORY),
    Bound("memory", "most_mib", 75, _MEMORY),
    Bound("soak", "growing", 0, _SOAK),
    Bound("soak", "left_cached", 0, _SOAK),
    Bound("soak", "caught_by_net", 0, _SOAK),
)
"""Every bound, with the command that measures it as it is meant."""


def judge(figures: Mapping[str, Figures], bounds: Sequence[Bound] = BOUNDS) -> list[Verdict]:
    """Hold the figures of the scenarios that ran against their bounds, to a hundredth as shown."""
    verdicts = []
    for bound in bounds:
        if bound.scenario not in figures:
            continue
        value = figures[bound.scenario].get(bound.figure)
        most: float | None = bound.most
        if bound.over:
            base = figures.get(bound.base, {}).get(bound.over.partition(".")[2])
            most = None if base is None else round(bound.most * base, 2)
        is_met = None if value is None or most is None else round(value, 2) <= most
        given = msgspec.structs.asdict(bound)
        verdicts.append(Verdict(**given, value=value, bound=most, is_met=is_met))
    return verdicts


# -- the form --------------------------------------------------------------------------------------


class ScenarioReport(msgspec.Struct, kw_only=True):
    """One scenario: ``figures`` by the names of ``FIGURES``, None for what was not measured.

    ``requests`` and ``failures`` are the controller's, by ``verb kind`` and ``code verb kind``.
    """

    name: str
    figures: dict[str, float | None]
    requests: dict[str, int] = {}
    failures: dict[str, int] = {}
    latencies_ms: list[float] = []
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


# -- arithmetic ------------------------------------------------------------------------------------


class Window(msgspec.Struct, frozen=True):
    """What claims waited that arrived within the window that begins at ``from_s``."""

    from_s: float
    claims: int
    p50_ms: float
    p99_ms: float


def percentile(values: Iterable[float | None], share: float) -> float | None:
    """Return the smallest value that ``share`` percent of those measured do not exceed, if any."""
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return None
    rank = math.ceil(share / 100 * len(ordered))
    return ordered[min(len(ordered), max(1, rank)) - 1]


def per_item(total: float | None, items: float) -> float | None:
    """Return a total for each item, to a hundredth; None where it was not measured."""
    return None if total is None or items <= 0 else round(total / items, 2)


def medians(runs: Sequence[Figures]) -> Figures:
    """Return the median of each figure over several runs; of what must never be, the highest."""
    shares = {name: 100 if name in _NEVER else 50 for name in runs[0]}
    return {name: percentile((one.get(name) for one in runs), shares[name]) for name in shares}


def windows(latencies: Iterable[tuple[float, float]]) -> list[Window]:
    """Sort (arrival in s, latency in ms) pairs into windows of arrival; empty ones are left out."""
    found: dict[float, list[float]] = defaultdict(list)
    for arrived_s, latency_ms in latencies:
        found[arrived_s // WINDOW_S * WINDOW_S].append(latency_ms)
    return [
        Window(from_s, len(ms), percentile(ms, 50) or 0.0, percentile(ms, 99) or 0.0)
        for from_s, ms in sorted(found.items())
    ]


def medians_of_ends(
    pairs: Sequence[tuple[float, float]], seconds: float
) -> tuple[float | None, float | None]:
    """Return the medians of (moment, value) ``pairs`` of the first and the last 10 s, if any.

    Of less than 20 seconds they are those of the first and the last half.
    """
    width_s = min(WINDOW_S, seconds / 2)
    return (
        percentile((value for at, value in pairs if at < width_s), 50),
        percentile((value for at, value in pairs if at >= seconds - width_s), 50),
    )


STEADY: Final[Mapping[str, tuple[float, float]]] = {
    # An allocator keeps pages that are nearly free, and interned texts come in blocks.
    "rss_mib": (1.02, 1.0),
    # Connections of a crowd stay open for a while.
    "fds": (1.0, 4.0),
    "queued": (1.5, 5.0),
    # How many objects are alive at a look is a matter of chance.
    "cached": (1.25, 20.0),
    # A code or a reason that has not been seen before makes a series, or those of a histogram.
    "series": (1.01, 20.0),
}
"""By how much, as a factor and beyond it, a measure may be larger without having grown."""


def growth(samples: Sequence[tuple[float, Mapping[str, float]]], seconds: float) -> Figures:
    """Compare the means of the last and the middle third of (moment, what is held) ``samples``."""
    figures: dict[str, float] = {}
    grown = 0
    for name, (factor, beyond) in STEADY.items():
        thirds = [[held[name] for at, held in samples if at * 3 // seconds == n] for n in (1, 2)]
        middle, last = (round(fmean(values), 1) for values in thirds)
        grown += last > middle * factor + beyond
        figures |= {f"{name}_middle": middle, f"{name}_last": last}
    return {"growing": grown, **figures}


def arrivals(rate: float, seconds: float, *, seed: int = 7) -> list[float]:
    """Return times of Poisson arrivals within ``seconds``, at least one; a seed repeats them."""
    chance = random.Random(seed)  # noqa: S311 - load, not secrets
    found: list[float] = []
    at = chance.expovariate(rate)
    while at < seconds:
        found.append(at)
        at += chance.expovariate(rate)
    return found or [0.0]


def next_rate(tried: Sequence[tuple[float, bool]], *, most: float) -> float | None:
    """Return the rate to try after those that were ``tried``, with whether flat; None when done.

    Rates grow by half until one is not flat or ``most`` is reached, shrink by half until one is;
    then the gap between the two is halved until it is within 15 percent.
    """
    not_flat = min((rate for rate, is_flat in tried if not is_flat), default=None)
    flat = max(
        (rate for rate, is_flat in tried if is_flat and (not_flat is None or rate < not_flat)),
        default=None,
    )
    if flat is None:
        # Below one claim in two seconds there is nothing to be called a load.
        return None if not_flat is None or not_flat <= 0.5 else round(not_flat / 2, 2)
    if not_flat is None:
        return None if flat >= most else min(most, round(flat * _STEP, 2))
    return None if not_flat / flat <= _NEAR else round(math.sqrt(flat * not_flat), 2)


def is_flat(figures: Figures) -> bool:
    """Return whether a load was carried to its end as at its beginning.

    Every claim became Ready, the median of the last 10 s is at most 1.3 times that of the first,
    the pool has as many ready members as at first but for a tenth, and nothing is left over.
    """
    first, last = figures["first_p50_ms"], figures["last_p50_ms"]
    members, members_last = figures["first_members"], figures["last_members"]
    if first is None or last is None or members is None or members_last is None:
        return False
    return (
        figures["ready"] == figures["claims"]
        and last <= FLAT_FACTOR * first
        and members_last >= members - _DRAINED * (figures["pool"] or 0.0)
        and figures["left_over"] == 0
    )
