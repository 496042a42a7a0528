"""What the controller must reach: one table of bounds, and how a run stands against it.

A bound is either a number or a multiple of another figure of the same run. Ratios carry from
machine to machine, so times are bound by them: a bind by the three bare requests it needs
(``floor``), a launch by the bare Pods (``pods``). Costs of a claim or a Sandbox are plain numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

Figures = Mapping[str, float | None]


class Figure(msgspec.Struct, frozen=True):
    """How a figure is spoken of."""

    text: str
    unit: str = ""


class Bar(msgspec.Struct, frozen=True):
    """At most ``most``, or at most ``most`` times the figure ``over`` (``scenario.figure``)."""

    scenario: str
    figure: str
    most: float
    command: str
    over: str = ""


class Judged(msgspec.Struct, frozen=True):
    """A bar beside what was measured. ``is_met`` is None where something was not measured."""

    scenario: str
    figure: str
    value: float | None
    bound: float | None
    most: float
    over: str
    is_met: bool | None
    command: str


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
    "seconds": Figure("until all were Ready", "s"),
    "requests_each": Figure("requests each", ""),
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
}
"""Every figure that a scenario may report."""

_ONE: Final = "lean-sandbox bench one"
_BURST: Final = "lean-sandbox bench burst --count 300 --pool 600"
_FILL: Final = "lean-sandbox bench fill --pool 600"
_SUSTAINED: Final = "lean-sandbox bench sustained --rate 8 --seconds 40 --dwell 3 --pool 80"
_COLD: Final = "lean-sandbox bench cold --sandboxes 2000"
_IDLE: Final = "lean-sandbox bench idle --sandboxes 2000"
_RESTART: Final = "lean-sandbox bench restart --sandboxes 2000"
_MEMORY: Final = "lean-sandbox bench memory"

BARS: Final[Sequence[Bar]] = (
    Bar("one", "p50_ms", 1.3, _ONE, over="floor.one_p50_ms"),
    Bar("burst", "p50_ms", 1.5, _BURST, over="floor.p50_ms"),
    Bar("burst", "p99_ms", 1.5, _BURST, over="floor.p99_ms"),
    Bar("burst", "requests_each", 13, _BURST),
    Bar("burst", "requests_each_without_events", 10, _BURST),
    Bar("burst", "conflicts", 0, _BURST),
    Bar("burst", "doubly_bound", 0, _BURST),
    Bar("burst", "caught_by_net", 0, _BURST),
    Bar("burst", "cpu_ms_each", 10, _BURST),
    Bar("burst", "received_kib_each", 56, _BURST),
    Bar("fill", "writes_each", 3, _FILL),
    Bar("sustained", "last_p50_ms", 1.3, _SUSTAINED, over="sustained.first_p50_ms"),
    Bar("sustained", "last_p50_ms", 1000, _SUSTAINED),
    Bar("sustained", "left_over", 0, _SUSTAINED),
    Bar("sustained", "caught_by_net", 0, _SUSTAINED),
    Bar("cold", "writes_each", 2.2, _COLD),
    Bar("cold", "caught_by_net", 0, _COLD),
    Bar("cold", "seconds", 1.6, _COLD, over="pods.seconds"),
    Bar("cold", "cpu_ms_each", 5, _COLD),
    Bar("cold", "received_kib_each", 24, _COLD),
    Bar("idle", "cpu_ms_per_s", 1.7, _IDLE),
    Bar("restart", "writes", 0, _RESTART),
    Bar("restart", "gets", 0, _RESTART),
    Bar("restart", "quiet_s", 2, _RESTART, over="restart.listing_s"),
    Bar("memory", "empty_mib", 40, _MEMORY),
    Bar("memory", "each_kib", 3, _MEMORY),
    Bar("memory", "most_mib", 75, _MEMORY),
)
"""Every bound, with the command that measures it as it is meant."""


def judge(figures: Mapping[str, Figures], bars: Sequence[Bar] = BARS) -> list[Judged]:
    """Hold the figures of the scenarios that ran against their bars, in the order of the bars."""
    return [_judged(bar, figures) for bar in bars if bar.scenario in figures]


def judged_value(value: float) -> float:
    """Return a figure as it is compared: to a hundredth, so that what is shown is what counts."""
    return round(value, 2)


def _judged(bar: Bar, figures: Mapping[str, Figures]) -> Judged:
    value = figures[bar.scenario].get(bar.figure)
    bound: float | None = bar.most
    if bar.over:
        scenario, _, figure = bar.over.partition(".")
        base = figures.get(scenario, {}).get(figure)
        bound = None if base is None else judged_value(bar.most * base)
    is_met = None if value is None or bound is None else judged_value(value) <= bound
    return Judged(
        scenario=bar.scenario,
        figure=bar.figure,
        value=value,
        bound=bound,
        most=bar.most,
        over=bar.over,
        is_met=is_met,
        command=bar.command,
    )
