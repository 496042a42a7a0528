"""``lean-sandbox bench``: runs the measurements and shows them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import anyio
import msgspec

from lean_sandbox.bench.events import EventReport, measure_events
from lean_sandbox.bench.memory import (
    REFERENCE_EACH_KIB,
    REFERENCE_EMPTY_MIB,
    HolderRow,
    MemoryReport,
    measure_memory,
)
from lean_sandbox.bench.plot import Chart, Series, render
from lean_sandbox.bench.process import BenchError
from lean_sandbox.clock import SystemClock
from lean_sandbox.demo.tables import Screen

__all__ = ["chart_of", "print_events", "print_memory", "run_bench"]

_WAYS: Final = {
    "while": "pruned while decoding",
    "after": "decoded, then pruned",
    "never": "not pruned",
}
_COLOURS: Final = {"while": "#0969da", "after": "#bf8700", "never": "#cf222e"}


class _Report(msgspec.Struct, frozen=True, omit_defaults=True):
    memory: MemoryReport | None = None
    events: EventReport | None = None


def run_bench(what: str, output: str, plot: Path | None) -> bool:
    """Run ``memory``, ``events`` or ``all``; print a table or JSON; write the plot if asked.

    The plot shows memory: with ``events`` alone there is none. Returns whether everything could
    be measured.
    """
    screen = Screen(quiet=output == "json")
    if plot is not None and what == "events":
        print("bench: --plot shows memory, which `bench events` does not measure", file=sys.stderr)  # noqa: T201
        return False
    clock = SystemClock()
    memory: MemoryReport | None = None
    events: EventReport | None = None
    try:
        if what in ("memory", "all"):
            screen.step("Memory: a control plane, the controller and holders, in their processes")
            memory = anyio.run(lambda: measure_memory(clock, progress=screen.progress))
            screen.say()
            print_memory(memory, screen)
        if what in ("events", "all"):
            events = measure_events(clock)
            print_events(events, screen)
        if plot is not None and memory is not None:
            plot.write_text(render(chart_of(memory)), encoding="utf-8")
            screen.say(f"Plot written to {plot}")
    except (BenchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)  # noqa: T201
        return False
    if output == "json":
        encoded = msgspec.json.encode(_Report(memory, events))
        print(msgspec.json.format(encoded, indent=2).decode())  # noqa: T201
    return True


def print_memory(report: MemoryReport, screen: Screen) -> None:
    """Print the controller beside the reference, then the ways of holding."""
    screen.table(
        "Resident memory of `lean-sandbox run`, restarted over healthy Sandboxes with Ready Pods",
        (
            "Sandboxes",
            "MiB",
            "peak MiB",
            "KiB each",
            "reference MiB",
            "list pages",
            "GETs",
            "writes",
        ),
        [
            (
                f"{row.sandboxes}",
                f"{row.memory.rss_kib / 1024:.1f}",
                f"{row.memory.peak_kib / 1024:.1f}",
                f"{report.each_kib(row.sandboxes):.2f}" if row.sandboxes else "-",
                f"{_reference_mib(row.sandboxes):.0f}",
                f"{row.asked.lists}",
                f"{row.asked.gets}",
                f"{row.asked.writes}",
            )
            for row in report.controller
        ],
    )
    screen.say(
        f"Reference controller, measured on a real API server: {REFERENCE_EMPTY_MIB:.0f} MiB with"
        f" nothing and {REFERENCE_EACH_KIB:.0f} KiB each."
    )
    screen.say(
        f"One Sandbox is {report.sandbox_bytes} bytes of JSON, its Pod {report.pod_bytes}. GETs and"
        " writes are those of the API server's audit log."
    )
    screen.say()
    screen.table(
        "What pruning is worth: the same objects, listed and held by a process that does only that",
        ("held", "Sandboxes", "MiB", "peak MiB", "KiB each"),
        [
            (
                _WAYS.get(row.way, "nothing"),
                f"{row.sandboxes}",
                f"{row.memory.rss_kib / 1024:.1f}" + (" *" if row.is_scaled else ""),
                "-" if row.is_scaled else f"{row.memory.peak_kib / 1024:.1f}",
                f"{report.held_each_kib(row):.2f}" if row.sandboxes else "-",
            )
            for row in _ordered(report.holders)
        ],
    )
    if any(row.is_scaled for row in report.holders):
        screen.say("* scaled in proportion from the largest number that was held")
        screen.say()


def _ordered(rows: list[HolderRow]) -> list[HolderRow]:
    ways = ["empty", *_WAYS]
    return sorted(rows, key=lambda row: (ways.index(row.way), row.sandboxes))


def _reference_mib(sandboxes: int) -> float:
    return REFERENCE_EMPTY_MIB + sandboxes * REFERENCE_EACH_KIB / 1024


def print_events(report: EventReport, screen: Screen) -> None:
    """Print the steps of one event in each representation, then other ways of decoding."""
    screen.table(
        "Microseconds for one watch event of a Pod",
        (
            "representation",
            "bytes",
            "split",
            "decode+prune",
            "predicate",
            "cache",
            "dropped",
            "passed",
        ),
        [
            (
                row.representation,
                f"{row.line_bytes}",
                *(
                    f"{figure:.1f}"
                    for figure in (
                        row.split_us,
                        row.decode_us,
                        row.predicate_us,
                        row.cache_us,
                        row.dropped_us,
                        row.passed_us,
                    )
                ),
            )
            for row in report.events
        ],
    )
    screen.table(
        "Microseconds to decode one line of the full Pod in other ways",
        ("way", "decode"),
        [(row.way, f"{row.decode_us:.1f}") for row in report.others],
    )


def chart_of(report: MemoryReport) -> Chart:
    """Return the plot: memory against the number of Sandboxes."""
    largest = max(row.sandboxes for row in report.controller)
    empty = [(0.0, row.memory.rss_kib / 1024) for row in report.holders if row.sandboxes == 0]
    holders = [
        Series(
            f"held in a bare process: {text}",
            _COLOURS[way],
            empty
            + [
                (float(row.sandboxes), row.memory.rss_kib / 1024)
                for row in report.holders
                if row.way == way
            ],
        )
        for way, text in reversed(_WAYS.items())
    ]
    controller = Series(
        "lean-sandbox, the whole controller",
        "#1a7f37",
        [(float(row.sandboxes), row.memory.rss_kib / 1024) for row in report.controller],
        is_bold=True,
    )
    reference = Series(
        f"reference controller ({REFERENCE_EMPTY_MIB:.0f} MiB + {REFERENCE_EACH_KIB:.0f} KiB each)",
        "#6e7781",
        [(0.0, REFERENCE_EMPTY_MIB), (float(largest), _reference_mib(largest))],
        is_dashed=True,
    )
    scaled = " Not pruned: the last point is scaled." if _has_scaled(report) else ""
    return Chart(
        title="Resident memory after a restart over healthy Sandboxes",
        subtitle=f"Every Sandbox has its Ready Pod; {_spoken(report)}.",
        x_label="Sandboxes",
        y_label="resident memory (MiB)",
        y_unit="MiB",
        series=[holders[0], reference, holders[1], controller, holders[2]],
        note=(
            f"JSON of one Sandbox: {report.sandbox_bytes} bytes, of its Pod:"
            f" {report.pod_bytes} bytes.{scaled} Made by: lean-sandbox bench memory --plot FILE"
        ),
    )


def _spoken(report: MemoryReport) -> str:
    writes = max(row.asked.writes for row in report.controller)
    gets = max(row.asked.gets for row in report.controller)
    if writes or gets:
        return f"the restart made up to {writes} writes and {gets} GETs"
    return "the restart made no write and no GET"


def _has_scaled(report: MemoryReport) -> bool:
    return any(row.is_scaled for row in report.holders)
