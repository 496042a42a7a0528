"""The plots of the bench: which lines and bars a report has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lean_sandbox.bench.charts_memory import MADE_BY, OURS, chart_of, restart_cpu
from lean_sandbox.bench.figures import percentile
from lean_sandbox.bench.plot import Chart, Series, render
from lean_sandbox.bench.plot_rows import Row, RowChart, render_rows
from lean_sandbox.bench.report import Report, ScenarioReport

_FLOOR: Final = "#0969da"
_SLOW: Final = "#8250df"
_BOUND: Final = "#6e7781"
_LINES: Final = ("#1a7f37", "#0969da", "#bf8700", "#cf222e", "#8250df", "#bc4c00", "#1b7c83")
_FLOOR_FACTOR: Final = 1.5
_EMPTY_MIB: Final = 40.0
_EACH_KIB: Final = 3.0
_COLD_CPU_MS: Final = 5.0


def write_plots(report: Report, folder: Path) -> list[Path]:
    """Draw everything the report has figures for; return the files. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, document in plots_of(report):
        file = folder / f"{name}.svg"
        file.write_text(document, encoding="utf-8")
        written.append(file)
    return written


def plots_of(report: Report) -> Iterator[tuple[str, str]]:
    """Yield a name and an SVG document for each plot that the report has figures for."""
    where = _where(report)
    for name in ("burst", "cold"):
        for scenario in report.named(name):
            yield f"latency-{name}", render(_latency(scenario, report, where))
    for name in ("one", "fill", "burst", "sustained", "cold"):
        for scenario in report.named(name)[:1]:
            if scenario.requests:
                yield f"requests-{name}", render_rows(_requests(scenario, where))
    for scenario in report.named("cold"):
        yield from _over_sandboxes(scenario, where)
    loads = [*report.named("sustained"), *report.named("search")]
    if any(len(load.windows) > 1 for load in loads):
        yield "load-windows", render(_windows(loads, where))
    if len(loads) > 1:
        yield from _over_load(sorted(loads, key=_rate), where)
    if report.memory is not None:
        yield "memory", render(chart_of(report.memory))
        if any(row.cpu_s for row in report.memory.controller):
            yield "restart-cpu", render(restart_cpu(report.memory))


def _where(report: Report) -> str:
    server = report.server
    if server is None:
        return MADE_BY
    kind = "embedded API server" if server.kind == "embedded" else "API server"
    return f"{kind} {server.version}, {report.host.cpus} CPUs. {MADE_BY}"


def _rate(load: ScenarioReport) -> float:
    return load.figures["rate"] or 0.0


def _latency(scenario: ScenarioReport, report: Report, where: str) -> Chart:
    """Draw what part of the claims, or Sandboxes, was Ready after how long."""
    is_burst = scenario.name == "burst"
    base = next(iter(report.named("floor" if is_burst else "pods")), None)
    series = []
    if base is not None:
        of = "three bare requests a claim" if is_burst else "bare Pods"
        series.append(Series(of, _FLOOR, _shares(base.latencies_ms), has_end=False))
        if is_burst:
            bound = [latency * _FLOOR_FACTOR for latency in base.latencies_ms]
            named = f"bound: {_FLOOR_FACTOR:g} x that"
            series.append(Series(named, _BOUND, _shares(bound), is_dashed=True, has_end=False))
    series.append(
        Series("lean-sandbox", OURS, _shares(scenario.latencies_ms), is_bold=True, has_end=False)
    )
    count = len(scenario.latencies_ms)
    pool = scenario.figures.get("pool")
    what = f"{count} claims at once on a pool of {pool:g}" if pool else f"{count} Sandboxes at once"
    return Chart(
        title=f"{what}: how many were Ready after how long",
        subtitle="Seen by a watching client, from before the create to the event that shows Ready.",
        x_label="milliseconds after the create",
        y_label="share that was Ready (%)",
        y_unit="%",
        series=series,
        note=where,
        y_highest=100.0,
    )


def _shares(latencies_ms: list[float]) -> list[tuple[float, float]]:
    """Return the distribution as (milliseconds, percent) in steps of one percent."""
    points = [(percentile(latencies_ms, share) or 0.0, float(share)) for share in range(1, 101)]
    return [(points[0][0], 0.0), *points] if latencies_ms else [(0.0, 0.0)]


def _requests(scenario: ScenarioReport, where: str) -> RowChart:
    figures = scenario.figures
    if scenario.name == "cold":
        items, of = figures["sandboxes"], "Sandbox"
    elif scenario.name == "fill":
        items, of = figures["pool"], "member"
    else:
        items, of = figures["claims"], "claim"
    count = items or 1.0
    rows = [
        Row(kind, number / count, "#8c959f" if kind.endswith(" events") else _colour(kind))
        for kind, number in scenario.requests.items()
    ]
    total = sum(scenario.requests.values()) / count
    return RowChart(
        title=f"{scenario.name}: requests of the controller for each {of}",
        subtitle=f"{total:.1f} in all, of {count:g}; green writes, blue reads, grey Events.",
        x_label=f"requests for each {of}",
        rows=rows,
        note=where,
    )


def _colour(kind: str) -> str:
    return _FLOOR if kind.startswith(("get ", "list ")) else OURS


def _over_sandboxes(scenario: ScenarioReport, where: str) -> Iterator[tuple[str, str]]:
    count = float(max(sample.sandboxes for sample in scenario.samples))
    memory = [(float(s.sandboxes), s.rss_mib) for s in scenario.samples if s.rss_mib is not None]
    cpu = [(float(s.sandboxes), s.cpu_s) for s in scenario.samples if s.cpu_s is not None]
    if not count or not memory or not cpu:
        return
    subtitle = f"{count:g} Sandboxes are made at once; the process is looked at twice a second."
    yield (
        "sandboxes-memory",
        render(
            Chart(
                title="Resident memory while Sandboxes are launched",
                subtitle=subtitle,
                x_label="Sandboxes that are Ready",
                y_label="resident memory (MiB)",
                y_unit="MiB",
                series=[
                    Series(
                        f"bound after a restart: {_EMPTY_MIB:g} MiB + {_EACH_KIB:g} KiB each",
                        _BOUND,
                        [(0.0, _EMPTY_MIB), (count, _EMPTY_MIB + count * _EACH_KIB / 1024)],
                        is_dashed=True,
                    ),
                    Series("lean-sandbox", OURS, memory, is_bold=True),
                ],
                note=where,
            )
        ),
    )
    yield (
        "sandboxes-cpu",
        render(
            Chart(
                title="CPU time of the controller while Sandboxes are launched",
                subtitle=subtitle,
                x_label="Sandboxes that are Ready",
                y_label="CPU time (s)",
                y_unit="s",
                series=[
                    Series(
                        f"bound: {_COLD_CPU_MS:g} ms each",
                        _BOUND,
                        [(0.0, 0.0), (count, count * _COLD_CPU_MS / 1000)],
                        is_dashed=True,
                    ),
                    Series("lean-sandbox", OURS, cpu, is_bold=True),
                ],
                note=where,
            )
        ),
    )


def _windows(loads: list[ScenarioReport], where: str) -> Chart:
    series = [
        Series(
            f"{_rate(load):g} claims/s",
            _LINES[number % len(_LINES)],
            [(one.from_s, one.p50_ms) for one in load.windows],
            is_bold=len(loads) == 1,
        )
        for number, load in enumerate(loads)
    ]
    return Chart(
        title="Sustained load: the median latency as time goes on",
        subtitle="Poisson arrivals; each claim is deleted a while after it was Ready.",
        x_label="seconds since the first arrival, in windows of 10",
        y_label="Ready after, median of the window (ms)",
        y_unit="ms",
        series=series,
        note=where,
    )


def _over_load(loads: list[ScenarioReport], where: str) -> Iterator[tuple[str, str]]:
    def chart(title: str, y_label: str, unit: str, series: list[Series]) -> str:
        return render(
            Chart(
                title=title,
                subtitle="Poisson arrivals; each claim is deleted a while after it was Ready.",
                x_label="claims a second",
                y_label=y_label,
                y_unit=unit,
                series=series,
                note=where,
            )
        )

    def line(name: str, figure: str, colour: str, *, is_bold: bool = False) -> Series:
        found = [(_rate(load), load.figures[figure]) for load in loads]
        points = [(rate, value) for rate, value in found if value is not None]
        return Series(name, colour, points, is_bold=is_bold)

    yield (
        "load-latency",
        chart(
            "Latency against load",
            "Ready after (ms)",
            "ms",
            [
                line("99th percentile", "p99_ms", _SLOW),
                line("median", "p50_ms", OURS, is_bold=True),
            ],
        ),
    )
    highest = max(_rate(load) for load in loads)
    for figure, title, y_label, unit, bound in (
        ("cpu_ms_each", "CPU time of the controller", "CPU for each claim (ms)", "ms", 10.0),
        ("requests_each", "Requests of the controller", "requests for each claim", "", 13.0),
        ("received_kib_each", "Bytes received", "received for each claim (KiB)", "KiB", 56.0),
    ):
        measured = line("lean-sandbox", figure, OURS, is_bold=True)
        if measured.points:
            limit = Series(
                f"bound: {bound:g} {unit}".rstrip(),
                _BOUND,
                [(0.0, bound), (highest, bound)],
                is_dashed=True,
            )
            name = f"load-{figure.partition('_')[0]}"
            yield name, chart(f"{title} against load", y_label, unit, [limit, measured])
