"""The plots of the memory bench."""

from __future__ import annotations

from typing import Final

from lean_sandbox.bench.memory import (
    REFERENCE_EACH_KIB,
    REFERENCE_EMPTY_MIB,
    MemoryReport,
    reference_mib,
)
from lean_sandbox.bench.plot import Chart, Series
from lean_sandbox.bench.tables import WAYS_IN_WORDS

MADE_BY: Final = "Made by: lean-sandbox bench"
OURS: Final = "#1a7f37"
"""The colour of this controller."""
_COLOURS: Final = {"while": "#0969da", "after": "#bf8700", "never": "#cf222e"}


def restart_cpu(report: MemoryReport) -> Chart:
    """Return the plot: CPU time of a restart against the number of Sandboxes."""
    return Chart(
        title="CPU time of a restart over healthy Sandboxes",
        subtitle=f"Until the controller rests; {_spoken(report)}.",
        x_label="Sandboxes",
        y_label="CPU time (s)",
        y_unit="s",
        series=[
            Series(
                "lean-sandbox",
                OURS,
                [(float(row.sandboxes), row.cpu_s) for row in report.controller],
                is_bold=True,
            )
        ],
        note=f"{MADE_BY} memory",
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
        for way, text in reversed(WAYS_IN_WORDS.items())
    ]
    controller = Series(
        "lean-sandbox, the whole controller",
        OURS,
        [(float(row.sandboxes), row.memory.rss_kib / 1024) for row in report.controller],
        is_bold=True,
    )
    reference = Series(
        f"reference controller ({REFERENCE_EMPTY_MIB:.0f} MiB + {REFERENCE_EACH_KIB:.0f} KiB each)",
        "#6e7781",
        [(0.0, REFERENCE_EMPTY_MIB), (float(largest), reference_mib(largest))],
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
