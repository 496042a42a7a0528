"""The report: its JSON keeps its form, its tables and plots show what is in it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from lean_sandbox.bench.arithmetic import Window
from lean_sandbox.bench.command import exit_code, print_bounds, print_scenarios
from lean_sandbox.bench.pictures import write_plots
from lean_sandbox.bench.report import FIGURES, Report, ScenarioReport, Screen, Server, Verdict
from lean_sandbox.config.sources import EXIT_FAILED, EXIT_OK

_SVG = "{http://www.w3.org/2000/svg}"


_SEVENS: dict[str, float | None] = dict.fromkeys(FIGURES, 7.0)


def made_up() -> Report:
    """Return a report with something of everything."""
    scenarios = [
        ScenarioReport(
            name="floor", figures={"claims": 3, "usable_p50_ms": 20.0}, usable_ms=[10.0, 20.0, 30.0]
        ),
        ScenarioReport(name="pods", figures={"pods": 4, "seconds": 2.0}, ready_ms=[900.0] * 4),
        ScenarioReport(
            name="burst",
            figures={
                "claims": 3,
                "pool": 4,
                "not_usable": 0,
                "usable_p50_ms": 31.0,
                "usable_p99_ms": None,
                "lag_max_ms": 4.0,
                "p50_ms": 29.0,
                "conflicts": 1,
            },
            requests={"patch sandboxes": 3, "get pods": 3, "create events": 9},
            failures={"409 patch sandboxes": 1},
            usable_ms=[25.0, 31.0, 40.0],
            ready_ms=[25.0, 29.0, 36.0],
        ),
        ScenarioReport(
            name="cold",
            figures={"sandboxes": 4, "seconds": 3.0},
            requests={"create pods": 4},
            ready_ms=[1000.0] * 4,
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
        *(
            ScenarioReport(name="memory", figures=_SEVENS | {"sandboxes": size, "rss_mib": mib})
            for size, mib in ((0, 30.0), (1000, 41.0))
        ),
    ]
    report = Report(server=Server("embedded", "v1"), controller="lean-sandbox", scenarios=scenarios)
    report.bounds = report.judged()
    return report


def test_the_json_keeps_its_form() -> None:
    """Programs read it: these names stay, or the number of the schema is raised."""
    printed = json.loads(made_up().encoded())
    assert printed["schema"] == 4
    assert set(printed) == {
        "schema",
        "version",
        "host",
        "server",
        "controller",
        "scenarios",
        "bounds",
        "notes",
    }
    for scenario in printed["scenarios"]:
        assert set(scenario) == {
            "name",
            "figures",
            "requests",
            "failures",
            "usable_ms",
            "ready_ms",
            "windows",
        }
    assert set(printed["bounds"][0]) == {
        "scenario",
        "figure",
        "value",
        "bound",
        "multiple",
        "most",
        "over",
        "is_met",
    }
    assert set(printed["host"]) == {"cpus", "system", "python"}


def test_the_json_can_be_read_back() -> None:
    """What was written decodes to what was measured."""
    report = made_up()
    assert msgspec.json.decode(report.encoded(), type=Report) == report


def test_tables_show_every_scenario_and_every_bound(capsys: pytest.CaptureFixture[str]) -> None:
    """Figures, requests each, failures, windows, verdicts, and the command a miss is meant for."""
    report = made_up()
    screen = Screen()
    print_scenarios(report.scenarios, screen)
    print_bounds(report, screen)
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "usable after, median 31 ms" in lines
    assert "usable after, 99th percentile - ms" in lines
    assert "lag from Ready to usable, the longest 4 ms" in lines
    assert "Ready after, median 29 ms" in lines
    assert "create events 9 3.00" in lines
    assert "answered 409 patch sandboxes: 1" in lines
    assert "10 s 10 15 29" in lines
    assert "burst: usable after, median 31 ms 1.55" in lines
    assert "burst: usable after, 99th percentile - -" in lines
    compared = "burst: usable after, median 31 ms 22 ms 1.1 x floor: usable after, median MISSED"
    assert compared in lines
    compared = "burst: usable after, 99th percentile - - 1.1 x floor: usable after, 99th percentile"
    assert compared in "\n".join(lines)
    assert any(line.endswith("not measured") for line in lines)
    assert any("times are mostly its own" in line for line in lines)
    assert "A bound is meant for: lean-sandbox bench burst --count 300 --pool 600" in lines


def test_a_search_is_one_table_in_the_order_of_the_rates(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each rate is a column; the highest that stayed flat is among the figures."""
    tried = [
        ScenarioReport(name="search", figures=_SEVENS | {"rate": rate, "highest_flat_rate": 8.0})
        for rate in (8.0, 12.0, 10.0)
    ]
    print_scenarios(tried, Screen())
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines.count("search") == 1
    assert "arrivals 8 10 12 claims/s" in lines
    assert "highest rate that stays flat 8 8 8 claims/s" in lines


def test_a_missed_bound_fails_a_run_that_checks_them() -> None:
    """And only such a run; what was not measured is not missed."""
    report = made_up()
    assert exit_code(report, is_check=True) == EXIT_FAILED
    assert exit_code(report, is_check=False) == EXIT_OK
    report.bounds = [one for one in report.bounds if one.is_met is not False]
    assert any(one.is_met is None for one in report.bounds)
    assert exit_code(report, is_check=True) == EXIT_OK


def test_memory_is_one_table_beside_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    """A column for each size, with what the reference takes over as many."""
    print_scenarios(made_up().scenarios, Screen())
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines.count("memory") == 1
    assert "Sandboxes 0 1,000" in lines
    assert "resident memory 30 41 MiB" in lines
    assert "of the reference controller, on a real API server 44 67 MiB" in lines


def test_several_rates_are_judged_by_the_first() -> None:
    """The bounds are for one rate; the first one given is meant."""
    report = made_up()
    report.named("sustained")[0].figures |= {"last_usable_p50_ms": 5.0, "first_usable_p50_ms": 5.0}
    report.named("sustained")[1].figures |= {
        "last_usable_p50_ms": 5000.0,
        "first_usable_p50_ms": 5.0,
    }
    judged: list[Verdict] = [one for one in report.judged() if one.figure == "last_usable_p50_ms"]
    assert [one.is_met for one in judged] == [True, True]


def test_several_runs_are_judged_by_their_medians() -> None:
    """But what must never happen did, if it did in one of them."""
    figures = ((30.0, 0), (20.0, 1), (21.0, 0))
    runs = [
        *(ScenarioReport(name="floor", figures={"usable_p50_ms": ms}) for ms in (20.0, 10.0, 40.0)),
        *(
            ScenarioReport(name="burst", figures={"usable_p50_ms": a, "conflicts": b})
            for a, b in figures
        ),
    ]
    judged = {one.figure: one for one in Report(scenarios=runs).judged()}
    assert (judged["usable_p50_ms"].value, judged["usable_p50_ms"].bound) == (21.0, 22.0)
    assert (judged["conflicts"].value, judged["conflicts"].is_met) == (1, False)


def test_both_pictures_are_drawn_with_all_that_is_needed_to_read_them(tmp_path: Path) -> None:
    """Axes with units, a legend for each line, who made it; the same report, the same file."""
    files = write_plots(made_up(), tmp_path / "plots")
    assert [file.name for file in files] == ["latency-burst.svg", "memory.svg"]
    for file in files:
        assert ET.fromstring(file.read_text(encoding="utf-8")).tag == f"{_SVG}svg"  # noqa: S314
    burst, memory = (file.read_text(encoding="utf-8") for file in files)
    for words in (
        "four bare requests a claim",
        "bound: 1.1 x that",
        "3 claims at once on a pool of 4",
        "milliseconds",
        "Made by: lean-sandbox bench burst",
    ):
        assert words in burst
    for words in ("reference controller (44 MiB + 24 KiB each)", "41.0 MiB", "Sandboxes", "(MiB)"):
        assert words in memory
    # A page shows them on its own ground, light or dark.
    assert "#ffffff" not in burst + memory
    assert "#000000" not in burst + memory
    again = write_plots(made_up(), tmp_path / "again")
    assert [file.read_text(encoding="utf-8") for file in again] == [burst, memory]


def test_a_report_without_figures_has_no_pictures(tmp_path: Path) -> None:
    """Nothing measured draws nothing, and does not fail: neither do claims that nobody can use."""
    assert write_plots(Report(), tmp_path) == []
    burst = ScenarioReport(name="burst", figures={"claims": 1, "pool": 1}, ready_ms=[1.0])
    assert write_plots(Report(scenarios=[burst]), tmp_path) == []
