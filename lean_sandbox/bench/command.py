"""``lean-sandbox bench``: runs the scenarios that were asked for and shows what was measured."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import anyio

from lean_sandbox import signals
from lean_sandbox.bench.environment import open_environment
from lean_sandbox.bench.options import ALL, BenchError, BenchOptions, read_flags
from lean_sandbox.bench.pictures import PICTURES, reference_mib, require_matplotlib, write_plots
from lean_sandbox.bench.report import (
    BOUNDS,
    COMMANDS,
    FIGURES,
    Report,
    ScenarioReport,
    Screen,
    Verdict,
)
from lean_sandbox.bench.scenarios import IN_TURNS, SCENARIOS
from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.config.sources import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    UsageError,
    nearest,
)
from lean_sandbox.errors import ConfigError
from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.program import NAME

_VERDICTS: Final = {True: "kept", False: "MISSED", None: "not measured"}
_EXPECTED: Final = (BenchError, ConfigError, ControlPlaneError, OSError)


def parse(words: Sequence[str]) -> BenchOptions:
    """Read the command line. Raises UsageError for what cannot be run, before anything starts."""
    options = read_flags(words, {one.name: one.text for one in SCENARIOS.values()})
    names = wanted(options)
    if options.plots is not None:
        if not PICTURES.keys() & set(names):
            raise UsageError(f"--plots draws {' and '.join(PICTURES)}; neither is to run")
        require_matplotlib()
    return options


def main(words: Sequence[str]) -> int:
    """Run the command line; return the exit code once its namespaces and processes are gone."""
    try:
        options = parse(words)
        screen = Screen(quiet=options.output == "json")
        report = anyio.run(_measure, options, screen)
        if report is None:
            return _said("interrupted; what was made is deleted", EXIT_INTERRUPTED)
        print_bounds(report, screen)
        _write(report, options, screen)
    except (BaseExceptionGroup, *_EXPECTED) as error:
        first = _first(error)
        return _said(first, EXIT_USAGE if isinstance(first, UsageError) else EXIT_FAILED)
    return exit_code(report, is_check=options.is_check)


def exit_code(report: Report, *, is_check: bool) -> int:
    """Return the exit code of a run; with ``is_check`` a missed bound is a failure."""
    is_missed = any(verdict.is_met is False for verdict in report.bounds)
    return EXIT_FAILED if is_check and is_missed else EXIT_OK


async def _measure(options: BenchOptions, screen: Screen) -> Report | None:
    """Measure; None when a signal ended it."""
    async with anyio.create_task_group() as group:

        async def end_on_signal() -> None:
            with anyio.open_signal_receiver(*signals.ending()) as received:
                async for _ in received:
                    screen.progress("interrupted: deleting what was made")
                    group.cancel_scope.cancel()

        group.start_soon(end_on_signal)
        report = await measure(options, SystemClock(), screen)
        group.cancel_scope.cancel()
        return report
    return None


def _write(report: Report, options: BenchOptions, screen: Screen) -> None:
    if options.output == "json":
        print(report.encoded())  # noqa: T201
    if options.json is not None:
        options.json.write_text(report.encoded() + "\n", encoding="utf-8")
        screen.say(f"JSON written to {options.json}")
    if options.plots is not None:
        for file in write_plots(report, options.plots):
            screen.say(f"Plot written to {file}")


def _first(error: BaseException) -> BaseException:
    """Return the first error that explains a group; one that is not ours is raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, _EXPECTED):
        raise error
    return error


def _said(what: object, code: int) -> int:
    print(f"{NAME}: {what}", file=sys.stderr)  # noqa: T201
    return code


# -- the run ---------------------------------------------------------------------------------------


def wanted(options: BenchOptions) -> list[str]:
    """Return the scenarios to run, in their order, with those that bounds are multiples of."""
    unknown = [name for name in options.scenarios if name not in SCENARIOS and name != ALL]
    if unknown:
        near = nearest(unknown[0], (*SCENARIOS, ALL))
        known = f"did you mean {near}?" if near else f"there are {', '.join((*SCENARIOS, ALL))}"
        raise UsageError(f"unknown scenario {unknown[0]!r}; {known}")
    asked = {*options.scenarios} - {ALL}
    needing = {one.name for one in SCENARIOS.values() if options.against and one.needs_own}
    if asked & needing:
        raise UsageError(
            f"{min(asked & needing)} needs to start and stop the controller, which --against cannot"
        )
    if ALL in options.scenarios:
        asked |= {scenario.name for scenario in SCENARIOS.values() if scenario.is_in_all}
    asked |= {bound.base for bound in BOUNDS if bound.over and bound.scenario in asked}
    asked -= needing
    if "burst" in asked and options.burst_pool < options.count:
        raise UsageError(
            f"a pool of {options.burst_pool} cannot serve a burst of {options.count} claims: give"
            " --pool at least as large as --count"
        )
    in_turns = [name for name in IN_TURNS if name in asked] * options.turns
    return in_turns + [name for name in SCENARIOS if name in asked and name not in IN_TURNS]


async def measure(options: BenchOptions, clock: Clock, screen: Screen) -> Report:
    """Run what the options ask for and return the report, bounds judged."""
    names = wanted(options)
    async with open_environment(options, clock, screen) as env:
        report = env.report
        report.controller = " ".join(options.against or ("lean-sandbox", *options.controller_flags))
        for name in names:
            screen.step(f"{name}: {SCENARIOS[name].text}")
            before = len(report.scenarios)
            await SCENARIOS[name].run(env)
            # At once: a run that is interrupted has shown what it measured.
            print_scenarios(report.scenarios[before:], screen)
    report.notes += _gaps(options, report)
    report.bounds = report.judged()
    return report


def _gaps(options: BenchOptions, report: Report) -> list[str]:
    """Say once what is missing in every table."""
    notes = ["no floor: a running controller would bind its claims"] if options.against else []
    return notes + [
        f"no {FIGURES[name].text}: neither /proc nor metrics tell it"
        for name in ("requests_each", "received_kib_each", "cpu_ms_each", "rss_mib")
        if any(one.figures.get(name, 0) is None for one in report.scenarios)
    ]


# -- the tables ------------------------------------------------------------------------------------


def print_scenarios(found: Sequence[ScenarioReport], screen: Screen) -> None:
    """Print the figures of each scenario, and its requests by kind."""
    screen.say()
    for name in dict.fromkeys(one.name for one in found):
        _print_runs([one for one in found if one.name == name], screen)


def print_bounds(report: Report, screen: Screen) -> None:
    """Print how the figures of a run compare with their bounds, and what is to be known of it."""
    headline = [one for one in report.bounds if one.base == "floor"]
    if headline:
        screen.table(
            "Usable after, beside a client that makes the four requests alone",
            ("scenario: figure", "measured", "x floor"),
            [(*_verdict_row(one)[:2], _number(one.multiple)) for one in headline],
        )
    if report.bounds:
        screen.table(
            "Against the bounds",
            ("scenario: figure", "measured", "at most", "which is", ""),
            [_verdict_row(verdict) for verdict in report.bounds],
        )
        for name in dict.fromkeys(one.scenario for one in report.bounds if one.is_met is False):
            screen.say(f"A bound is meant for: {COMMANDS[name]}")
    if report.server.kind == "embedded":
        screen.say(
            "The embedded API server is one Python process: times are mostly its own. Requests,"
            " bytes, CPU and memory are the controller's."
        )
    for note in report.notes:
        screen.say(f"Note: {note}.")


def _print_runs(found: Sequence[ScenarioReport], screen: Screen) -> None:
    """Print the figures of a scenario, with a column for each rate or size, then its requests."""
    runs = sorted(found, key=lambda one: one.figures.get("rate") or 0.0)
    name = runs[0].name
    rows = [
        (
            FIGURES[figure].text,
            *(_number(one.figures[figure]) for one in runs),
            FIGURES[figure].unit,
        )
        for figure in runs[0].figures
    ]
    if name == "memory":
        reference = (f"{reference_mib(one.figures['sandboxes'] or 0):.0f}" for one in runs)
        rows.append(("of the reference controller, on a real API server", *reference, "MiB"))
    screen.table(name, ("figure", *("value" for _ in runs), "unit"), rows)
    for run in runs:
        _print_requests(run, screen)


def _print_requests(run: ScenarioReport, screen: Screen) -> None:
    figures = run.figures
    if run.requests:
        names = ("claims", "sandboxes", "pool", "lives")
        items = next((found for name in names if (found := figures.get(name))), 1)
        screen.table(
            f"{run.name}: requests of the controller",
            ("request", "all", "each"),
            [(kind, f"{n}", f"{n / items:.2f}") for kind, n in run.requests.items()],
        )
    for answer, number in run.failures.items():
        screen.say(f"answered {answer}: {number}")
    if len(run.windows) > 1:
        screen.table(
            f"{run.name}: usable after, by time of arrival",
            ("from", "claims", "median ms", "99th percentile ms"),
            [
                (f"{one.from_s:g} s", f"{one.claims}", f"{one.p50_ms:g}", f"{one.p99_ms:g}")
                for one in run.windows
            ],
        )


def _verdict_row(verdict: Verdict) -> tuple[str, ...]:
    which = ""
    if verdict.over:
        over = verdict.over.partition(".")[2]
        which = f"{verdict.most:g} x {verdict.base}: {FIGURES[over].text}"
    return (
        f"{verdict.scenario}: {FIGURES[verdict.figure].text}",
        _with_unit(verdict.figure, verdict.value),
        _with_unit(verdict.figure, verdict.bound),
        which,
        _VERDICTS[verdict.is_met],
    )


def _with_unit(figure: str, value: float | None) -> str:
    unit = FIGURES[figure].unit
    return f"{_number(value)} {unit}" if unit and value is not None else _number(value)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}".rstrip("0").rstrip(".")
