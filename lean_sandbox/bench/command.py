"""``lean-sandbox bench``: runs the scenarios that were asked for and shows what was measured."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

import anyio

from lean_sandbox.bench.controller import Cost
from lean_sandbox.bench.environment import Environment, open_environment
from lean_sandbox.bench.options import ALL, BenchError, BenchOptions, UsageError, read_flags
from lean_sandbox.bench.report import (
    PICTURES,
    Report,
    Screen,
    print_report,
    require_matplotlib,
    write_plots,
)
from lean_sandbox.bench.scenarios import SCENARIOS, Beside, launch
from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.config.sources import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from lean_sandbox.kube.errors import ControlPlaneError

_EXPECTED = (UsageError, BenchError, ControlPlaneError, OSError)


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
    print(f"bench: {what}", file=sys.stderr)  # noqa: T201
    return code


# -- the run ---------------------------------------------------------------------------------------


def wanted(options: BenchOptions) -> list[str]:
    """Return the scenarios to run, in their order, with those that bounds are multiples of."""
    unknown = [name for name in options.scenarios if name not in SCENARIOS and name != ALL]
    if unknown:
        known = ", ".join((*SCENARIOS, ALL))
        raise UsageError(f"unknown scenario {unknown[0]!r}; there are {known}")
    asked = {name for name in options.scenarios if name != ALL}
    starting = {one.name for one in SCENARIOS.values() if one.starts_controller}
    if options.against and asked & starting:
        raise UsageError(
            f"{min(asked & starting)} needs to start and stop the controller, which --against"
            " cannot do"
        )
    if ALL in options.scenarios:
        asked |= {scenario.name for scenario in SCENARIOS.values() if scenario.is_in_all}
    asked |= {other for name in asked for other in SCENARIOS[name].with_}
    if options.against:
        asked -= starting
    if "burst" in asked and options.burst_pool < options.count:
        raise UsageError(
            f"a pool of {options.burst_pool} cannot serve a burst of {options.count} claims: give"
            " --pool at least as large as --count"
        )
    ordered = sorted(SCENARIOS.values(), key=lambda scenario: scenario.beside.value)
    return [scenario.name for scenario in ordered if scenario.name in asked]


async def measure(options: BenchOptions, clock: Clock, screen: Screen) -> Report:
    """Run what the options ask for and return the report, bounds judged."""
    names = wanted(options)
    async with open_environment(options, clock, screen) as env:
        env.report.controller = _described(options)
        await _run(env, names)
    env.report.bounds = env.report.judged()
    return env.report


def _described(options: BenchOptions) -> str:
    if not options.against:
        return " ".join(("lean-sandbox", *options.controller_flags))
    pid = "" if options.against_pid is None else f"pid {options.against_pid}"
    return " ".join(part for part in (pid, options.against_url) if part)


async def _run(env: Environment, names: list[str]) -> None:
    """Run the scenarios in their order; one controller serves all those that need one."""
    # A burst fills its pool first and reports what that cost.
    scenarios = [SCENARIOS[name] for name in names if not (name == "fill" and "burst" in names)]
    kinds = {scenario.beside for scenario in scenarios}

    async def run(kind: Beside) -> None:
        for scenario in scenarios:
            if scenario.beside is kind:
                env.screen.step(f"{scenario.name}: {scenario.text}")
                await scenario.run(env)

    await run(Beside.NOTHING)
    async with AsyncExitStack() as kept:
        if kinds & {Beside.CONTROLLER, Beside.SANDBOXES, Beside.RESTARTS}:
            async with env.controller():
                env.report.notes += _gaps(env.options, await env.measured.snapshot())
                await run(Beside.CONTROLLER)
                if kinds & {Beside.SANDBOXES, Beside.RESTARTS}:
                    env.over = await kept.enter_async_context(env.namespace("cold"))
                    if "cold" not in names:
                        await launch(env, env.over, env.options.sandboxes)
                await run(Beside.SANDBOXES)
        await run(Beside.RESTARTS)
    await run(Beside.OWN)


def _gaps(options: BenchOptions, found: Cost) -> list[str]:
    """Say once what will be missing in every table."""
    notes = []
    if options.against:
        notes.append(
            "no floor: a running controller would bind its claims; figures in multiples of it are"
            " left out"
        )
    for value, text in (
        (found.requests, "no requests: no metrics are given that tell them"),
        (found.received_kib, "no received bytes: its metrics do not tell them"),
        (found.cpu_ms, "no CPU: neither /proc nor metrics tell it"),
        (found.rss_mib, "no memory: neither /proc nor metrics tell it"),
    ):
        if value is None:
            notes.append(text)
    return notes
