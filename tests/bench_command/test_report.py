"""The report: its JSON keeps its form, its tables and plots show what is in it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.bench.bars import FIGURES, Judged
from lean_sandbox.bench.charts import plots_of, write_plots
from lean_sandbox.bench.command import encoded, exit_code
from lean_sandbox.bench.figures import Window
from lean_sandbox.bench.memory import ControllerRow, MemoryReport
from lean_sandbox.bench.plane import Asked
from lean_sandbox.bench.plot import Chart, Series, render, shown
from lean_sandbox.bench.plot_legend import Box, free_corner
from lean_sandbox.bench.plot_rows import Row, RowChart, render_rows
from lean_sandbox.bench.process import Memory
from lean_sandbox.bench.report import Report, Sample, ScenarioReport, Server
from lean_sandbox.bench.tables import print_report
from lean_sandbox.demo.tables import Screen
from lean_sandbox.manager.commands import EXIT_FAILED, EXIT_OK

_SVG = "{http://www.w3.org/2000/svg}"


def made_up() -> Report:
    """Return a report with something of everything."""
    scenarios = [
        ScenarioReport(
            name="floor", figures={"claims": 3, "p50_ms": 20.0}, latencies_ms=[10.0, 20.0, 30.0]
        ),
        ScenarioReport(name="pods", figures={"pods": 4, "seconds": 2.0}, latencies_ms=[900.0] * 4),
        ScenarioReport(
            name="burst",
            figures={"claims": 3, "pool": 4, "p50_ms": 31.0, "p99_ms": None, "conflicts": 1},
            requests={"patch sandboxes": 3, "get pods": 3, "create events": 9},
            failures={"409 patch sandboxes": 1},
            latencies_ms=[25.0, 31.0, 40.0],
        ),
        ScenarioReport(
            name="cold",
            figures={"sandboxes": 4, "seconds": 3.0},
            requests={"create pods": 4},
            latencies_ms=[1000.0] * 4,
            samples=[Sample(0.0, 0, 0.0, 33.0), Sample(0.5, 4, 0.02, 33.5)],
        ),
        *(
            ScenarioReport(
                name="sustained",
                figures={
                    "rate": rate,
                    "claims": 20,
                    "p50_ms": 14.0,
                    "p99_ms": 30.0,
                    "cpu_ms_each": 9.0,
                    "requests_each": 12.0,
                    "received_kib_each": 41.0,
                },
                requests={"patch sandboxes": 20},
                windows=[Window(0.0, 10, 14.0, 30.0), Window(10.0, 10, 15.0, 29.0)],
            )
            for rate in (2.0, 4.0)
        ),
    ]
    report = Report(server=Server("embedded", "v1"), controller="lean-sandbox", scenarios=scenarios)
    report.bars = report.judged()
    return report


def test_the_json_keeps_its_form() -> None:
    """Programs read it: these names stay, or the number of the schema is raised."""
    printed = json.loads(encoded(made_up()))
    assert printed["schema"] == 1
    assert set(printed) == {
        "schema",
        "version",
        "host",
        "server",
        "controller",
        "scenarios",
        "bars",
        "notes",
        "memory",
        "events",
    }
    for scenario in printed["scenarios"]:
        assert set(scenario) == {
            "name",
            "figures",
            "requests",
            "failures",
            "audit_differs",
            "latencies_ms",
            "windows",
            "samples",
        }
    assert set(printed["bars"][0]) == {
        "scenario",
        "figure",
        "value",
        "bound",
        "most",
        "over",
        "is_met",
        "command",
    }
    assert set(printed["host"]) == {"cpus", "system", "python"}


def test_the_json_can_be_read_back() -> None:
    """What was written decodes to what was measured."""
    report = made_up()
    assert msgspec.json.decode(encoded(report), type=Report) == report


def test_tables_show_every_scenario_and_every_bound(capsys: pytest.CaptureFixture[str]) -> None:
    """Figures, requests each, failures, windows, verdicts, and the command a miss is meant for."""
    print_report(made_up(), Screen())
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "Ready after, median 31 ms" in lines
    assert "Ready after, 99th percentile - ms" in lines
    assert "create events 9 3.00" in lines
    assert "answered 409 patch sandboxes: 1" in lines
    assert "10 s 10 15 29" in lines
    assert "burst: Ready after, median 31 ms 30 ms 1.5 x floor: Ready after, median MISSED" in lines
    assert "burst: Ready after, 99th percentile - - 1.5 x floor: Ready after, 99th percentile" in (
        "\n".join(lines)
    )
    assert any(line.endswith("not measured") for line in lines)
    assert any("times are mostly its own" in line for line in lines)
    assert "A bound is meant for: lean-sandbox bench burst --count 300 --pool 600" in lines


def test_a_search_is_one_table_in_the_order_of_the_rates(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each rate is a line; the highest that stayed flat is said below."""
    sevens: dict[str, float | None] = dict.fromkeys(FIGURES, 7.0)
    tried = [
        ScenarioReport(name="search", figures=sevens | {"rate": rate, "highest_flat_rate": 8.0})
        for rate in (8.0, 12.0, 10.0)
    ]
    print_report(Report(scenarios=tried), Screen())
    out = capsys.readouterr().out
    rates = re.findall(r"^(\d+)  +7 ", out, flags=re.MULTILINE)
    assert rates == ["8", "10", "12"]
    assert "The highest rate that stays flat: 8 claims/s." in out


def test_a_missed_bound_fails_a_run_that_checks_them() -> None:
    """And only such a run; what was not measured is not missed."""
    report = made_up()
    assert exit_code(report, is_check=True) == EXIT_FAILED
    assert exit_code(report, is_check=False) == EXIT_OK
    report.bars = [bar for bar in report.bars if bar.is_met is not False]
    assert any(bar.is_met is None for bar in report.bars)
    assert exit_code(report, is_check=True) == EXIT_OK


def test_memory_is_judged_by_its_largest_size() -> None:
    """KiB each over the empty process; the bound for 10,000 only where so many were held."""
    rows = [
        ControllerRow(size, Memory(kib, kib), 0.1, Asked(0, 3, 0, 0, 3))
        for size, kib in ((0, 40 * 1024), (10_000, 76 * 1024))
    ]
    report = Report(memory=MemoryReport(1, 1, rows, []))
    judged = {bar.figure: (bar.value, bar.is_met) for bar in report.judged()}
    assert judged == {
        "empty_mib": (40.0, True),
        "each_kib": (3.69, False),
        "most_mib": (76.0, False),
    }
    report = Report(memory=MemoryReport(1, 1, rows[:1], []))
    assert {bar.figure for bar in report.judged() if bar.is_met is None} == {"each_kib", "most_mib"}


def test_several_rates_are_judged_by_the_first() -> None:
    """The bars are for one rate; the first one given is meant."""
    report = made_up()
    report.scenarios[-2].figures |= {"last_p50_ms": 5.0, "first_p50_ms": 5.0}
    report.scenarios[-1].figures |= {"last_p50_ms": 5000.0, "first_p50_ms": 5.0}
    judged: list[Judged] = [bar for bar in report.judged() if bar.figure == "last_p50_ms"]
    assert [bar.is_met for bar in judged] == [True, True]


def test_every_kind_of_plot_is_written_and_complete(tmp_path: Path) -> None:
    """Latencies, requests by kind, CPU and memory over Sandboxes, costs over load; with units."""
    files = write_plots(made_up(), tmp_path / "plots")
    assert {file.stem for file in files} == {
        "latency-burst",
        "latency-cold",
        "requests-burst",
        "requests-cold",
        "requests-sustained",
        "sandboxes-memory",
        "sandboxes-cpu",
        "load-windows",
        "load-latency",
        "load-cpu",
        "load-requests",
        "load-received",
    }
    for file in files:
        root = ET.fromstring(file.read_text(encoding="utf-8"))  # noqa: S314
        words = [element.text or "" for element in root.iter(f"{_SVG}text")]
        assert any("Made by: lean-sandbox bench" in word for word in words)
        assert "nan" not in " ".join(words)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        for line in root.iter(f"{_SVG}polyline"):
            for x, y in re.findall(r"([\d.]+),([\d.]+)", line.attrib["points"]):
                assert 0 <= float(x) <= width
                assert 0 <= float(y) <= height


def test_latencies_are_drawn_beside_their_floor_and_the_bound() -> None:
    """Three lines, each with its name, on an axis in milliseconds."""
    drawn = dict(plots_of(made_up()))["latency-burst"]
    for name in ("three bare requests a claim", "bound: 1.5 x that", "lean-sandbox", "millisecond"):
        assert name in drawn
    assert drawn.count("<polyline") == 3


def test_a_report_without_figures_has_no_plots() -> None:
    """Nothing measured draws nothing, and does not fail."""
    assert list(plots_of(Report())) == []


_PLACES = st.tuples(st.floats(min_value=80, max_value=710), st.floats(min_value=76, max_value=428))


@given(st.lists(st.lists(_PLACES, min_size=1, max_size=8), max_size=4))
def test_a_legend_never_covers_a_point(lines: list[list[tuple[float, float]]]) -> None:
    """Where a corner is found it is inside the area and free of every point."""
    area = Box(80, 76, 630, 352)
    box = free_corner(area, 200, 60, lines)
    if box is None:
        return
    assert area.left <= box.left
    assert box.left + box.width <= area.left + area.width
    assert area.top <= box.top
    assert box.top + box.height <= area.top + area.height
    assert not any(box.holds(point) for line in lines for point in line)


def test_a_chart_full_of_lines_gets_room_for_its_legend() -> None:
    """Where all corners are taken the axis grows, and the points stay below the legend."""
    wall = [(float(x), y) for x in range(11) for y in (0.0, 10.0)]
    chart = Chart("t", "s", "x", "y", "u", [Series("name", "#000000", wall)])
    root = ET.fromstring(render(chart))  # noqa: S314
    legend = root.findall(f"{_SVG}rect")[-1].attrib
    (line,) = root.findall(f"{_SVG}polyline")
    highest = min(float(point.split(",")[1]) for point in line.attrib["points"].split())
    assert highest > float(legend["y"]) + float(legend["height"])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.25, "0.25"), (3.0, "3"), (14.26, "14.3"), (1234.5, "1,234"), (100.0, "100")],
)
def test_numbers_are_shown_as_exactly_as_they_are_worth(value: float, text: str) -> None:
    """Whole without a point, small ones with two decimals."""
    assert shown(value) == text


def test_rows_beyond_the_room_are_summed_up() -> None:
    """The picture keeps its height; nothing is left out of the sum."""
    rows = [Row(f"kind {number}", 2.0, "#000000") for number in range(30)]
    drawn = render_rows(RowChart("t", "s", "x", rows))
    root = ET.fromstring(drawn)  # noqa: S314
    words = [element.text or "" for element in root.iter(f"{_SVG}text")]
    assert "17 others" in words
    assert "34" in words
    bottoms = [
        float(rect.attrib["y"]) + float(rect.attrib["height"])
        for rect in root.findall(f"{_SVG}rect")[1:]
    ]
    assert max(bottoms) <= 520
