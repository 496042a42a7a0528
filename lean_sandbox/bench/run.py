"""A run: the scenarios in their order, first those without a controller, then those with one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

from lean_sandbox.bench.bars import FIGURES
from lean_sandbox.bench.baseline import run_floor
from lean_sandbox.bench.claims import run_burst, run_fill, run_one, run_search, run_sustained
from lean_sandbox.bench.events import measure_events
from lean_sandbox.bench.launches import launch, run_cold, run_idle, run_pods, run_restart
from lean_sandbox.bench.memory import measure_memory
from lean_sandbox.bench.options import BenchOptions
from lean_sandbox.bench.report import Report, ScenarioReport
from lean_sandbox.bench.stage import Stage, open_stage
from lean_sandbox.bench.subject import Subject
from lean_sandbox.clock import Clock

Say = Callable[[str], None]
_GIST = frozenset({"p50_ms", "p99_ms", "seconds", "quiet_s", "cpu_ms_per_s", "requests_each"})
_OVER_SANDBOXES = frozenset({"cold", "idle", "restart"})
_WITHOUT_CONTROLLER = frozenset({"pods", "floor"})


async def measure(options: BenchOptions, clock: Clock, *, step: Say, progress: Say) -> Report:
    """Run what the options ask for and return the report, bars judged.

    Raises UsageError for a server that cannot be used, BenchError for a wait that was in vain or a
    process that failed, ControlPlaneError for a refused request (in a group).
    """
    report = Report()
    wanted = options.wanted()
    if options.needs_server:
        async with open_stage(options, clock, progress) as stage:
            report.server = stage.server
            report.controller = _described(options)
            await _Run(stage, report, wanted, step, progress).play()
    if "memory" in wanted:
        step("memory: a control plane, the controller and holders, in their processes")
        report.memory = await measure_memory(clock, sizes=options.memory_sizes, progress=progress)
    if "events" in wanted:
        step("events: what one watch event costs, in process")
        report.events = measure_events(clock)
    report.bars = report.judged()
    return report


def _described(options: BenchOptions) -> str:
    if not options.is_against:
        return " ".join(("lean-sandbox", *options.controller_flags))
    pid = "" if options.against_pid is None else f"pid {options.against_pid}"
    return " ".join(part for part in (pid, options.against_url) if part)


class _Run:
    """The scenarios that share a server."""

    def __init__(
        self, stage: Stage, report: Report, wanted: list[str], step: Say, progress: Say
    ) -> None:
        self._stage = stage
        self._report = report
        self._wanted = frozenset(wanted)
        self._step = step
        self._progress = progress

    async def play(self) -> None:
        """Play everything in its order."""
        stage, options = self._stage, self._stage.options
        if "floor" in self._wanted:
            self._step(f"floor: {options.count} claims by three bare requests each")
            self._add(await run_floor(stage))
        if "pods" in self._wanted:
            self._step(f"pods: {options.sandboxes} bare Pods")
            self._add(await run_pods(stage))
        if not self._wanted - _WITHOUT_CONTROLLER - {"memory", "events"}:
            return
        async with AsyncExitStack() as kept:
            async with stage.controller() as subject:
                await self._note_gaps(subject)
                await self._claims(subject)
                if self._wanted & _OVER_SANDBOXES:
                    over = await kept.enter_async_context(stage.namespace("cold"))
                    await self._sandboxes(subject, over)
            if "restart" in self._wanted and not options.is_against:
                self._step(f"restart: over {options.sandboxes} Sandboxes")
                self._add(await run_restart(stage))

    async def _claims(self, subject: Subject) -> None:
        stage, options = self._stage, self._stage.options
        if "one" in self._wanted:
            self._step(f"one: {options.rounds} claims, each on an idle controller, pool of 2")
            self._add(await run_one(stage, subject))
        if "burst" in self._wanted:
            self._step(
                f"fill and burst: {options.count} claims at once, pool of {options.burst_pool}"
            )
            self._add(*await run_burst(stage, subject))
        elif "fill" in self._wanted:
            self._step(f"fill: a pool of {options.burst_pool}")
            self._add(await run_fill(stage, subject))
        if "sustained" in self._wanted:
            for rate in options.rates:
                self._step(f"sustained: {rate:g} claims/s for {options.seconds:g} s")
                self._add(await run_sustained(stage, subject, rate))
        if "search" in self._wanted:
            self._step("search: the highest rate that stays flat")
            self._add(*await run_search(stage, subject, self._progress))

    async def _sandboxes(self, subject: Subject, namespace: str) -> None:
        stage, options = self._stage, self._stage.options
        if "cold" in self._wanted:
            self._step(f"cold: {options.sandboxes} Sandboxes at once")
            self._add(await run_cold(stage, subject, namespace))
        else:
            self._step(f"making {options.sandboxes} Sandboxes")
            await launch(stage, namespace)
        if "idle" in self._wanted:
            self._step(f"idle: {options.idle_seconds:g} s over {options.sandboxes} Sandboxes")
            self._add(await run_idle(stage, subject))

    def _add(self, *found: ScenarioReport) -> None:
        self._report.scenarios += found
        for report in found:
            if report.name != "search":
                self._progress(short(report))
            notes = self._report.notes
            if report.audit_differs:
                notes.append(
                    f"{report.name}: the controller's own count and the server's audit log differ"
                    f" by {report.audit_differs} requests"
                )
            wanted, ready = report.figures.get("claims"), report.figures.get("ready")
            if wanted is not None and ready is not None and ready < wanted:
                notes.append(
                    f"{report.name}: {wanted - ready:g} of {wanted:g} claims were never Ready, and"
                    " are in no percentile"
                )

    async def _note_gaps(self, subject: Subject) -> None:
        """Say once what will be missing in every table."""
        notes, found = self._report.notes, await subject.snapshot()
        if self._stage.options.is_against:
            notes.append(
                "no floor: a running controller would bind its claims; figures in multiples of it"
                " are left out"
            )
        for value, text in (
            (found.requests, "no requests: no metrics are given that tell them"),
            (found.received_bytes, "no received bytes: its metrics do not tell them"),
            (found.cpu_s, "no CPU: neither /proc nor metrics tell it"),
            (found.rss_kib, "no memory: neither /proc nor metrics tell it"),
        ):
            if value is None:
                notes.append(text)


def short(report: ScenarioReport) -> str:
    """Say the gist of a scenario in one line."""
    shown = [
        f"{FIGURES[name].text} {value:g}{FIGURES[name].unit and ' ' + FIGURES[name].unit}"
        for name, value in report.figures.items()
        if name in _GIST and value is not None
    ]
    return f"{report.name}: {', '.join(shown)}"
