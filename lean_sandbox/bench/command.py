"""``lean-sandbox bench``: runs what was asked for and shows it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec

from lean_sandbox.bench.arguments import parse
from lean_sandbox.bench.charts import write_plots
from lean_sandbox.bench.charts_memory import chart_of
from lean_sandbox.bench.options import BenchOptions, UsageError
from lean_sandbox.bench.plot import render
from lean_sandbox.bench.process import BenchError
from lean_sandbox.bench.report import Report
from lean_sandbox.bench.run import measure
from lean_sandbox.bench.tables import print_report
from lean_sandbox.clock import SystemClock
from lean_sandbox.demo.tables import Screen
from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.manager.commands import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE


def main(words: Sequence[str]) -> int:
    """Run the command line of the bench; return the exit code."""
    try:
        options = parse(words)
    except UsageError as error:
        return _said(error, EXIT_USAGE)
    return run_bench(options)


def run_bench(options: BenchOptions) -> int:
    """Measure, print tables or JSON, write files; return the exit code.

    On SIGINT and SIGTERM namespaces and processes are gone before it returns.
    """
    screen = Screen(quiet=options.output == "json")
    try:
        report = anyio.run(_measure, options, screen)
    except BaseExceptionGroup as group:
        first = _first(group)
        return _said(first, EXIT_USAGE if isinstance(first, UsageError) else EXIT_FAILED)
    except UsageError as error:
        return _said(error, EXIT_USAGE)
    except (BenchError, ControlPlaneError, OSError) as error:
        return _said(error, EXIT_FAILED)
    if report is None:
        return _said("interrupted; what was made is deleted", EXIT_INTERRUPTED)
    print_report(report, screen)
    try:
        _write(report, options, screen)
    except OSError as error:
        return _said(error, EXIT_FAILED)
    return exit_code(report, is_check=options.is_check)


def exit_code(report: Report, *, is_check: bool) -> int:
    """Return the exit code of a run; with ``is_check`` a missed bar is a failure."""
    is_missed = any(bar.is_met is False for bar in report.bars)
    return EXIT_FAILED if is_check and is_missed else EXIT_OK


def encoded(report: Report) -> str:
    """Return the report as JSON for people and programs."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


async def _measure(options: BenchOptions, screen: Screen) -> Report | None:
    """Measure; None when a signal ended it."""
    report: Report | None = None
    async with anyio.create_task_group() as group:

        async def end_on_signal() -> None:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async for _ in signals:
                    screen.progress("interrupted: deleting what was made")
                    group.cancel_scope.cancel()
                    return

        group.start_soon(end_on_signal)
        report = await measure(options, SystemClock(), step=screen.step, progress=screen.progress)
        group.cancel_scope.cancel()
    return report


def _write(report: Report, options: BenchOptions, screen: Screen) -> None:
    if options.output == "json":
        print(encoded(report))  # noqa: T201
    if options.json is not None:
        options.json.write_text(encoded(report) + "\n", encoding="utf-8")
        screen.say(f"JSON written to {options.json}")
    if options.plots is not None:
        for file in write_plots(report, options.plots):
            screen.say(f"Plot written to {file}")
    if options.plot is not None and report.memory is not None:
        _plot(options.plot, render(chart_of(report.memory)), screen)


def _plot(file: Path, document: str, screen: Screen) -> None:
    file.write_text(document, encoding="utf-8")
    screen.say(f"Plot written to {file}")


def _first(error: BaseException) -> BaseException:
    """Return the first error that explains a group; one that is not ours is raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, UsageError | BenchError | ControlPlaneError | OSError):
        raise error
    return error


def _said(what: object, code: int) -> int:
    print(f"bench: {what}", file=sys.stderr)  # noqa: T201
    return code
