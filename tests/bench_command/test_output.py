"""What the bench prints and draws."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from lean_sandbox.bench.charts_memory import chart_of
from lean_sandbox.bench.command import main
from lean_sandbox.bench.events import measure_events
from lean_sandbox.bench.memory import ControllerRow, HolderRow, MemoryReport
from lean_sandbox.bench.plane import Asked
from lean_sandbox.bench.plot import render, ticks
from lean_sandbox.bench.process import Memory
from lean_sandbox.bench.tables import print_memory
from lean_sandbox.clock import SystemClock
from lean_sandbox.demo.tables import Screen
from lean_sandbox.manager.commands import EXIT_OK, EXIT_USAGE

_SVG = "{http://www.w3.org/2000/svg}"


def report() -> MemoryReport:
    """Return made-up figures: 1024 KiB of growth for each thousand."""
    asked = Asked(gets=0, lists=3, writes=0, failures=0, open_watches=3)
    return MemoryReport(
        2700,
        5900,
        [
            ControllerRow(0, Memory(38 * 1024, 38 * 1024), 0.5, asked),
            ControllerRow(1000, Memory(41 * 1024, 45 * 1024), 0.6, asked),
        ],
        [
            HolderRow("empty", 0, Memory(20 * 1024, 20 * 1024)),
            HolderRow("while", 1000, Memory(22 * 1024, 22 * 1024)),
            HolderRow("after", 1000, Memory(30 * 1024, 32 * 1024)),
            HolderRow("never", 1000, Memory(60 * 1024, 60 * 1024), is_scaled=True),
        ],
    )


def test_the_table_puts_the_figures_beside_the_reference(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """KiB each is the growth over nothing; the reference's figures and the scaling are named."""
    print_memory(report(), Screen())
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    assert ["1000", "41.0", "45.0", "3.07", "67", "3", "0", "0"] in lines
    assert ["not", "pruned", "1000", "60.0", "*", "-", "40.96"] in lines
    assert "44 MiB" in out
    assert "24 KiB" in out
    assert "scaled" in out


def test_the_plot_is_a_well_formed_picture_with_all_that_is_needed_to_read_it() -> None:
    """Axes with units, a legend entry and an end label for each line, everything inside."""
    root = ET.fromstring(render(chart_of(report())))  # noqa: S314
    assert root.tag == f"{_SVG}svg"
    words = [element.text or "" for element in root.iter(f"{_SVG}text")]
    assert "Sandboxes" in words
    assert "resident memory (MiB)" in words
    assert len(root.findall(f"{_SVG}polyline")) == 5
    for name in (
        "not pruned",
        "decoded, then pruned",
        "pruned while decoding",
        "reference",
        "lean-sandbox, the whole controller",
    ):
        assert sum(name in word for word in words) == 1, name
    assert sum(word.endswith(" MiB") for word in words) == 5
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for line in root.findall(f"{_SVG}polyline"):
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_labels_of_lines_that_end_together_do_not_cover_each_other() -> None:
    """Values a pixel apart are written apart."""
    root = ET.fromstring(render(chart_of(report())))  # noqa: S314
    ends = sorted(
        float(element.attrib["y"])
        for element in root.iter(f"{_SVG}text")
        if (element.text or "").endswith(" MiB")
    )
    assert all(later - sooner >= 16 for sooner, later in pairwise(ends))


@pytest.mark.parametrize(
    ("highest", "last"),
    [(0.0, 1.0), (1.0, 1.0), (97.3, 100.0), (447.6, 500.0), (10_000.0, 10_000.0)],
)
def test_ticks_are_round_and_reach_the_highest_value(highest: float, last: float) -> None:
    """From zero to the first round number that is high enough."""
    found = ticks(highest)
    assert found[0] == 0
    assert found[-1] == pytest.approx(last)
    assert 2 <= len(found) <= 9


def test_every_representation_and_other_decoder_is_measured() -> None:
    """All steps cost something, and dropping is cheaper than passing."""
    found = measure_events(SystemClock(), objects=5)
    assert [row.representation for row in found.events] == ["table", "metadata", "full"]
    for row in found.events:
        assert row.line_bytes > 1000
        assert 0 < row.dropped_us < row.passed_us
    assert len(found.others) == 4
    assert all(row.decode_us > 0 for row in found.others)


def test_the_command_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    """With --output json nothing but the report is printed."""
    assert main(["events", "--output", "json"]) == EXIT_OK
    printed = json.loads(capsys.readouterr().out)
    assert printed["memory"] is None
    assert printed["scenarios"] == []
    assert {row["representation"] for row in printed["events"]["events"]} == {
        "table",
        "metadata",
        "full",
    }


def test_a_plot_without_memory_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says what the plot would show."""
    assert main(["events", "--plot", str(tmp_path / "plot.svg")]) == EXIT_USAGE
    assert "memory" in capsys.readouterr().err
    assert not (tmp_path / "plot.svg").exists()
