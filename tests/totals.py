"""What a run has gone through, told once at its end: how often a controller died, and the like."""

from __future__ import annotations

import pytest

ATTACKS = "attacks"
CRASH_POINTS = "crash_points"
EDITS_BEHIND = "edits_behind"

_TOLD = {
    ATTACKS: "attacks: {} that tests show to be held",
    CRASH_POINTS: "crash points: {} deaths of a controller",
    EDITS_BEHIND: "edits that a write of ours hides: {}",
}
"""What tests count with ``record_property``, and the line that tells the sum."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Sum what the tests of this run have counted, those of all workers."""
    reports = [report for some in terminalreporter.stats.values() for report in some]
    for name, line in _TOLD.items():
        total = sum(
            value
            for report in reports
            if getattr(report, "when", "") == "call"
            for key, value in report.user_properties
            if key == name
        )
        if total:
            terminalreporter.write_line(line.format(total))
