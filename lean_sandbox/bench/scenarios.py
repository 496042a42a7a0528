"""The scenarios: one list, and a run through those that were asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from enum import Enum, auto
from typing import Final

import msgspec

from lean_sandbox.bench.claims import (
    run_burst,
    run_fill,
    run_floor,
    run_one,
    run_search,
    run_sustained,
)
from lean_sandbox.bench.controller import Snapshot
from lean_sandbox.bench.environment import Environment, open_environment
from lean_sandbox.bench.launches import (
    launch,
    run_cold,
    run_idle,
    run_memory,
    run_pods,
    run_restart,
)
from lean_sandbox.bench.options import ALL, BenchOptions, UsageError
from lean_sandbox.bench.report import Report, ScenarioReport, Screen
from lean_sandbox.clock import Clock


class Beside(Enum):
    """What a scenario runs beside; scenarios run in this order."""

    NOTHING = auto()
    CONTROLLER = auto()
    SANDBOXES = auto()
    """A controller, and the Sandboxes that the scenarios of this kind share."""
    RESTARTS = auto()
    """The same Sandboxes, after that controller has ended."""
    OWN = auto()


class Scenario(msgspec.Struct, frozen=True):
    """A scenario: what is said of it, and what has to be there.

    ``with_`` are those measured in the same run, because bounds are multiples of their figures.
    """

    name: str
    text: str
    run: Callable[[Environment], Awaitable[list[ScenarioReport]]]
    beside: Beside = Beside.CONTROLLER
    with_: tuple[str, ...] = ()
    is_in_all: bool = True


SCENARIOS: Final = (
    Scenario("one", "one claim on an idle controller, pool of 2", run_one, with_=("floor",)),
    Scenario(
        "burst",
        "--count claims at once on a filled pool of --pool",
        run_burst,
        with_=("floor", "fill"),
    ),
    Scenario("fill", "filling a pool of --pool", run_fill),
    Scenario(
        "cold",
        "--sandboxes Sandboxes at once, without a pool",
        run_cold,
        Beside.SANDBOXES,
        with_=("pods",),
    ),
    Scenario(
        "sustained",
        "--rate claims a second for --seconds, each deleted --dwell after it was Ready",
        run_sustained,
    ),
    Scenario(
        "search",
        "the highest rate of arrivals that stays flat: for 60 s, on a pool of 10 s of arrivals",
        run_search,
        is_in_all=False,
    ),
    Scenario(
        "idle", "CPU over --sandboxes Sandboxes while nothing happens", run_idle, Beside.SANDBOXES
    ),
    Scenario("restart", "a start over --sandboxes Sandboxes", run_restart, Beside.RESTARTS),
    Scenario(
        "memory",
        "resident memory after starts over --sizes Sandboxes",
        run_memory,
        Beside.OWN,
        is_in_all=False,
    ),
    Scenario(
        "pods",
        "the Pods of --sandboxes Sandboxes, bare: what they take without a controller",
        run_pods,
        Beside.NOTHING,
    ),
    Scenario(
        "floor",
        "--count claims bound by the three requests a bind needs, without a controller",
        run_floor,
        Beside.NOTHING,
    ),
)
BY_NAME: Final = {scenario.name: scenario for scenario in SCENARIOS}
_STARTS_CONTROLLER: Final = frozenset({"floor", "restart", "memory"})


def listed() -> str:
    """Return a line for each scenario, for the help."""
    width = max(map(len, BY_NAME))
    return "\n".join(f"  {one.name:<{width}}  {one.text}" for one in SCENARIOS)


def wanted(options: BenchOptions) -> list[str]:
    """Return the scenarios to run, in their order, with those that bounds are multiples of.

    Raises UsageError for what cannot be run.
    """
    unknown = [name for name in options.scenarios if name not in BY_NAME and name != ALL]
    if unknown:
        known = ", ".join((*BY_NAME, ALL))
        raise UsageError(f"unknown scenario {unknown[0]!r}; there are {known}")
    asked = {name for name in options.scenarios if name != ALL}
    if options.against and asked & _STARTS_CONTROLLER:
        name = min(asked & _STARTS_CONTROLLER)
        raise UsageError(
            f"{name} needs to start and stop the controller, which --against cannot do"
        )
    if ALL in options.scenarios:
        asked |= {scenario.name for scenario in SCENARIOS if scenario.is_in_all}
    asked |= {other for name in asked for other in BY_NAME[name].with_}
    if options.against:
        asked -= _STARTS_CONTROLLER
    if "burst" in asked and options.burst_pool < options.count:
        raise UsageError(
            f"a pool of {options.burst_pool} cannot serve a burst of {options.count} claims: give"
            " --pool at least as large as --count"
        )
    ordered = sorted(SCENARIOS, key=lambda scenario: scenario.beside.value)
    return [scenario.name for scenario in ordered if scenario.name in asked]


async def measure(options: BenchOptions, clock: Clock, screen: Screen) -> Report:
    """Run what the options ask for and return the report, bounds judged.

    Raises UsageError for a server that cannot be used, BenchError for a wait that was in vain or a
    process that failed, ControlPlaneError for a refused request (in a group).
    """
    names = wanted(options)
    report = Report()
    async with open_environment(options, clock, screen) as env:
        report.server = env.server
        report.controller = _described(options)
        await _run(env, names, report)
    report.bounds = report.judged()
    return report


def _described(options: BenchOptions) -> str:
    if not options.against:
        return " ".join(("lean-sandbox", *options.controller_flags))
    pid = "" if options.against_pid is None else f"pid {options.against_pid}"
    return " ".join(part for part in (pid, options.against_url) if part)


async def _run(env: Environment, names: list[str], report: Report) -> None:
    """Run the scenarios in their order; one controller serves all those that need one."""
    # A burst fills its pool first and reports what that cost.
    scenarios = [BY_NAME[name] for name in names if not (name == "fill" and "burst" in names)]
    kinds = {scenario.beside for scenario in scenarios}

    async def run(kind: Beside) -> None:
        for scenario in scenarios:
            if scenario.beside is kind:
                env.screen.step(f"{scenario.name}: {_told(scenario.text, env.options)}")
                _add(env, report, await scenario.run(env))

    await run(Beside.NOTHING)
    async with AsyncExitStack() as kept:
        if kinds & {Beside.CONTROLLER, Beside.SANDBOXES, Beside.RESTARTS}:
            async with env.controller() as controller:
                report.notes += _gaps(env.options, await controller.snapshot())
                await run(Beside.CONTROLLER)
                if kinds & {Beside.SANDBOXES, Beside.RESTARTS}:
                    env.over = await kept.enter_async_context(env.namespace("cold"))
                    if "cold" not in names:
                        env.screen.step(f"making {env.options.sandboxes} Sandboxes")
                        await launch(env, env.over, env.options.sandboxes)
                await run(Beside.SANDBOXES)
        await run(Beside.RESTARTS)
    await run(Beside.OWN)


def _told(text: str, options: BenchOptions) -> str:
    """Put the values in the place of the flags that a scenario's text names."""
    values = {
        "--count": str(options.count),
        "--pool": str(options.burst_pool),
        "--sandboxes": str(options.sandboxes),
        "--sizes": ", ".join(map(str, options.sizes)),
        "--rate": ", ".join(f"{rate:g}" for rate in options.rates),
        "--seconds,": f"{options.seconds:g} s,",
        "--dwell": f"{options.dwell:g} s",
    }
    return " ".join(values.get(word, word) for word in text.split())


def _add(env: Environment, report: Report, found: list[ScenarioReport]) -> None:
    report.scenarios += found
    for one in found:
        if one.name not in ("search", "memory"):
            env.screen.progress(one.gist())
        if one.audit_differs:
            report.notes.append(
                f"{one.name}: the controller's own count and the server's audit log differ by"
                f" {one.audit_differs} requests"
            )
        claims, ready = one.figures.get("claims"), one.figures.get("ready")
        if claims is not None and ready is not None and ready < claims:
            report.notes.append(
                f"{one.name}: {claims - ready:g} of {claims:g} claims were never Ready, and are in"
                " no percentile"
            )


def _gaps(options: BenchOptions, found: Snapshot) -> list[str]:
    """Say once what will be missing in every table."""
    notes = []
    if options.against:
        notes.append(
            "no floor: a running controller would bind its claims; figures in multiples of it are"
            " left out"
        )
    for value, text in (
        (found.requests, "no requests: no metrics are given that tell them"),
        (found.received_bytes, "no received bytes: its metrics do not tell them"),
        (found.cpu_s, "no CPU: neither /proc nor metrics tell it"),
        (found.rss_kib, "no memory: neither /proc nor metrics tell it"),
    ):
        if value is None:
            notes.append(text)
    return notes
