"""``lean-sandbox bench``: runs what was asked for and shows it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

import anyio

from lean_sandbox.bench.options import BenchOptions, UsageError, read_flags
from lean_sandbox.bench.report import Report, Screen, print_report
from lean_sandbox.bench.scenarios import listed, measure, wanted
from lean_sandbox.bench.workers import BenchError
from lean_sandbox.clock import SystemClock
from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.manager.commands import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE


def parse(words: Sequence[str]) -> BenchOptions:
    """Read the command line. Raises UsageError for what cannot be run, before anything starts."""
    options = read_flags(words, listed())
    names = wanted(options)
    if options.plots is not None:
        from lean_sandbox.bench.plots import DRAWN, require_matplotlib  # noqa: PLC0415

        if not DRAWN & set(names):
            raise UsageError(f"--plots draws {' and '.join(sorted(DRAWN))}; neither is to run")
        require_matplotlib()
    return options


def main(words: Sequence[str]) -> int:
    """Run the command line of the bench; return the exit code.

    On SIGINT and SIGTERM namespaces and processes are gone before it returns.
    """
    try:
        options = parse(words)
        screen = Screen(quiet=options.output == "json")
        report = anyio.run(_measure, options, screen)
        if report is None:
            return _said("interrupted; what was made is deleted", EXIT_INTERRUPTED)
        print_report(report, screen)
        _write(report, options, screen)
    except BaseExceptionGroup as group:
        first = _first(group)
        return _said(first, EXIT_USAGE if isinstance(first, UsageError) else EXIT_FAILED)
    except UsageError as error:
        return _said(error, EXIT_USAGE)
    except (BenchError, ControlPlaneError, OSError) as error:
        return _said(error, EXIT_FAILED)
    return exit_code(report, is_check=options.is_check)


def exit_code(report: Report, *, is_check: bool) -> int:
    """Return the exit code of a run; with ``is_check`` a missed bound is a failure."""
    is_missed = any(verdict.is_met is False for verdict in report.bounds)
    return EXIT_FAILED if is_check and is_missed else EXIT_OK


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
        report = await measure(options, SystemClock(), screen)
        group.cancel_scope.cancel()
    return report


def _write(report: Report, options: BenchOptions, screen: Screen) -> None:
    if options.output == "json":
        print(report.encoded())  # noqa: T201
    if options.json is not None:
        options.json.write_text(report.encoded() + "\n", encoding="utf-8")
        screen.say(f"JSON written to {options.json}")
    if options.plots is not None:
        from lean_sandbox.bench.plots import write_plots  # noqa: PLC0415

        for file in write_plots(report, options.plots):
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
