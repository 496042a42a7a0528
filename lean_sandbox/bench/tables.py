"""The tables of the bench."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lean_sandbox.bench.bars import FIGURES, Judged
from lean_sandbox.bench.events import EventReport
from lean_sandbox.bench.memory import (
    REFERENCE_EACH_KIB,
    REFERENCE_EMPTY_MIB,
    HolderRow,
    MemoryReport,
    reference_mib,
)
from lean_sandbox.bench.report import Report, ScenarioReport
from lean_sandbox.demo.tables import Screen

WAYS_IN_WORDS: Final = {
    "while": "pruned while decoding",
    "after": "decoded, then pruned",
    "never": "not pruned",
}
_ABSENT: Final = "-"
_SEARCHED: Final = {
    "claims": "claims",
    "ready": "Ready",
    "p50_ms": "median ms",
    "p99_ms": "99th percentile ms",
    "first_p50_ms": "first 10 s, ms",
    "last_p50_ms": "last 10 s, ms",
    "requests_each": "requests each",
    "cpu_ms_each": "CPU ms each",
    "received_kib_each": "KiB each",
}
_VERDICTS: Final = {True: "kept", False: "MISSED", None: "not measured"}


def print_report(report: Report, screen: Screen) -> None:
    """Print the figures of each scenario, its requests by kind, and all bars at the end."""
    screen.say()
    for scenario in report.scenarios:
        if scenario.name != "search":
            print_scenario(scenario, screen)
    if report.named("search"):
        print_search(report.named("search"), screen)
    if report.memory is not None:
        print_memory(report.memory, screen)
    if report.events is not None:
        print_events(report.events, screen)
    if report.bars:
        screen.table(
            "Against the bounds",
            ("scenario: figure", "measured", "at most", "which is", ""),
            [_bar_row(judged) for judged in report.bars],
        )
        missed = [judged for judged in report.bars if judged.is_met is False]
        for command in dict.fromkeys(judged.command for judged in missed):
            screen.say(f"A bound is meant for: {command}")
    if report.server is not None and report.server.kind == "embedded":
        screen.say(
            "The embedded API server is one Python process: times are mostly its own. Requests,"
            " bytes, CPU and memory are the controller's."
        )
    for note in report.notes:
        screen.say(f"Note: {note}.")


def print_scenario(scenario: ScenarioReport, screen: Screen) -> None:
    """Print one scenario's figures, then the controller's requests by kind."""
    screen.table(
        scenario.name,
        ("figure", "value", "unit"),
        [
            (FIGURES[name].text, _number(value), FIGURES[name].unit)
            for name, value in scenario.figures.items()
        ],
    )
    if scenario.requests:
        items = scenario.figures.get("claims") or scenario.figures.get("sandboxes")
        items = items or scenario.figures.get("pool") or 1
        screen.table(
            f"{scenario.name}: requests of the controller",
            ("request", "all", "each"),
            [
                (kind, f"{number}", f"{number / items:.2f}")
                for kind, number in scenario.requests.items()
            ],
        )
    for answer, number in scenario.failures.items():
        screen.say(f"answered {answer}: {number}")
    if scenario.failures:
        screen.say()
    if len(scenario.windows) > 1:
        screen.table(
            f"{scenario.name}: by time of arrival",
            ("from", "claims", "median ms", "99th percentile ms"),
            [
                (f"{one.from_s:g} s", f"{one.claims}", f"{one.p50_ms:g}", f"{one.p99_ms:g}")
                for one in scenario.windows
            ],
        )


def print_search(tried: Sequence[ScenarioReport], screen: Screen) -> None:
    """Print what each rate that was tried came to, in the order of the rates."""
    ordered = sorted(tried, key=lambda one: one.figures["rate"] or 0.0)
    screen.table(
        "search: the rates that were tried",
        ("claims/s", *(_SEARCHED.values())),
        [
            (_number(one.figures["rate"]), *(_number(one.figures[name]) for name in _SEARCHED))
            for one in ordered
        ],
    )
    highest = ordered[0].figures["highest_flat_rate"]
    screen.say(f"The highest rate that stays flat: {_number(highest)} claims/s.")
    screen.say()


def _bar_row(judged: Judged) -> tuple[str, ...]:
    figure = FIGURES[judged.figure]
    unit = f" {figure.unit}" if figure.unit else ""
    if judged.over:
        scenario, _, over = judged.over.partition(".")
        which = f"{judged.most:g} x {scenario}: {FIGURES[over].text}"
    else:
        which = ""
    return (
        f"{judged.scenario}: {figure.text}",
        _number(judged.value) + (unit if judged.value is not None else ""),
        _number(judged.bound) + (unit if judged.bound is not None else ""),
        which,
        _VERDICTS[judged.is_met],
    )


def _number(value: float | None) -> str:
    if value is None:
        return _ABSENT
    return f"{value:,.2f}".rstrip("0").rstrip(".")


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
                f"{reference_mib(row.sandboxes):.0f}",
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
                WAYS_IN_WORDS.get(row.way, "nothing"),
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
    ways = ["empty", *WAYS_IN_WORDS]
    return sorted(rows, key=lambda row: (ways.index(row.way), row.sandboxes))


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
