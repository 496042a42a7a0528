"""What a run of the bench hands on: the form of its JSON, its tables, and its pictures.

A change of a name or a meaning here raises ``SCHEMA``; what is only added does not.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from lean_sandbox.bench.figures import BOUNDS, FIGURES, Verdict, Window, judge, percentile
from lean_sandbox.bench.options import UsageError
from lean_sandbox.version import __version__

SCHEMA: Final = 2
REFERENCE_EMPTY_MIB: Final = 44.0
REFERENCE_EACH_KIB: Final = 24.0
"""The reference controller on a real API server: with nothing, and for each healthy Sandbox."""
# Of lines that are no terminal's: none is broken.
_WIDE: Final = 200
_VERDICTS: Final = {True: "kept", False: "MISSED", None: "not measured"}
_GIST: Final = frozenset(
    {
        *("rate", "sandboxes", "p50_ms", "p99_ms", "first_p50_ms", "last_p50_ms", "seconds"),
        *("quiet_s", "requests_each", "cpu_ms_per_s", "rss_mib"),
    }
)


# -- the form --------------------------------------------------------------------------------------


class ScenarioReport(msgspec.Struct, kw_only=True):
    """One scenario: ``figures`` by the names of ``FIGURES``, None for what was not measured.

    ``requests`` and ``failures`` are the controller's, by ``verb kind`` and ``code verb kind``.
    ``audit_differs`` is how many requests its own count differs by from the embedded server's audit
    log, None where there is no such log.
    """

    name: str
    figures: dict[str, float | None]
    requests: dict[str, int] = {}
    failures: dict[str, int] = {}
    audit_differs: int | None = None
    latencies_ms: list[float] = []
    windows: list[Window] = []

    def gist(self) -> str:
        """Return what matters most in one line."""
        shown = [
            f"{FIGURES[name].text} {_with_unit(name, value)}"
            for name, value in self.figures.items()
            if name in _GIST and value is not None
        ]
        return f"{self.name}: {', '.join(shown)}"


class Server(msgspec.Struct, frozen=True):
    """What was measured against: ``embedded``, or ``kubeconfig`` with the version it tells."""

    kind: str
    version: str = ""


class Host(msgspec.Struct, frozen=True):
    """The machine."""

    cpus: int
    system: str
    python: str

    @classmethod
    def here(cls) -> Host:
        """Describe this machine."""
        has_affinity = hasattr(os, "sched_getaffinity")
        cpus = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 0
        return cls(cpus, platform.platform(terse=True), platform.python_version())


class Report(msgspec.Struct, kw_only=True, omit_defaults=False):
    """A whole run."""

    schema: int = SCHEMA
    version: str = __version__
    host: Host = msgspec.field(default_factory=Host.here)
    server: Server = Server("embedded")
    controller: str = ""
    scenarios: list[ScenarioReport] = []
    bounds: list[Verdict] = []
    notes: list[str] = []

    def judged(self) -> list[Verdict]:
        """Hold what was measured against the bounds; of several runs of one scenario the first."""
        figures: dict[str, dict[str, float | None]] = {}
        for scenario in self.scenarios:
            figures.setdefault(scenario.name, scenario.figures)
        return judge(figures)

    def named(self, name: str) -> Sequence[ScenarioReport]:
        """Return the reports of one scenario; there are several of different rates or sizes."""
        return [scenario for scenario in self.scenarios if scenario.name == name]

    def encoded(self) -> str:
        """Return the report as JSON for people and programs."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode()


def reference_mib(sandboxes: float) -> float:
    """Return what the reference controller takes over so many Sandboxes."""
    return REFERENCE_EMPTY_MIB + sandboxes * REFERENCE_EACH_KIB / 1024


# -- the screen ------------------------------------------------------------------------------------


class Screen:
    """Says lines and prints tables: drawn on a terminal, plain and aligned elsewhere."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._is_terminal = sys.stdout.isatty()

    def say(self, text: str = "") -> None:
        """Print one line."""
        if not self._quiet:
            print(text, flush=True)  # noqa: T201

    def step(self, text: str) -> None:
        """Announce what happens next."""
        self.say(f"\033[1m==> {text}\033[0m" if self._is_terminal else f"==> {text}")

    def progress(self, text: str) -> None:
        """Show what is being waited for."""
        self.say(f"    {text}")

    def table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table; the first column is text, the others are figures."""
        form = box.HEAVY_HEAD if self._is_terminal else None
        table = Table(box=form, pad_edge=form is not None)
        for at, name in enumerate(head):
            table.add_column(name, justify="right" if at else "left")
        for row in rows:
            table.add_row(*row)
        self.say(title)
        Console(quiet=self._quiet, width=None if form else _WIDE, markup=False).print(table)
        self.say()


# -- the tables ------------------------------------------------------------------------------------


def print_report(report: Report, screen: Screen) -> None:
    """Print the figures of each scenario, its requests by kind, and all bounds at the end."""
    screen.say()
    for name in dict.fromkeys(one.name for one in report.scenarios):
        _print_runs(report.named(name), screen)
    if report.bounds:
        screen.table(
            "Against the bounds",
            ("scenario: figure", "measured", "at most", "which is", ""),
            [_verdict_row(verdict) for verdict in report.bounds],
        )
        missed = [verdict for verdict in report.bounds if verdict.is_met is False]
        for command in dict.fromkeys(verdict.command for verdict in missed):
            screen.say(f"A bound is meant for: {command}")
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
        items = figures.get("claims") or figures.get("sandboxes") or figures.get("pool") or 1
        screen.table(
            f"{run.name}: requests of the controller",
            ("request", "all", "each"),
            [(kind, f"{n}", f"{n / items:.2f}") for kind, n in run.requests.items()],
        )
    for answer, number in run.failures.items():
        screen.say(f"answered {answer}: {number}")
    if len(run.windows) > 1:
        screen.table(
            f"{run.name}: by time of arrival",
            ("from", "claims", "median ms", "99th percentile ms"),
            [
                (f"{one.from_s:g} s", f"{one.claims}", f"{one.p50_ms:g}", f"{one.p99_ms:g}")
                for one in run.windows
            ],
        )


def _verdict_row(verdict: Verdict) -> tuple[str, ...]:
    which = ""
    if verdict.over:
        scenario, _, over = verdict.over.partition(".")
        which = f"{verdict.most:g} x {scenario}: {FIGURES[over].text}"
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


# -- the pictures ----------------------------------------------------------------------------------

_OURS: Final = "#1a7f37"
_FLOOR: Final = "#0969da"
_GREY: Final = "#6e7781"


def require_matplotlib() -> None:
    """Raise UsageError, which names the extra, where matplotlib is not installed."""
    try:
        import matplotlib as mpl  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UsageError(
            "--plots needs matplotlib: install the extra bench, as in pip install '.[bench,local]'"
        ) from error
    # The same report gives the same file: ids of elements are hashes of their content with this.
    mpl.rcParams["svg.hashsalt"] = "lean-sandbox"
    mpl.rcParams["svg.fonttype"] = "none"


def _draw(draw: Callable[[Report, Any], str], report: Report, file: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(8.6, 5.2), layout="constrained")
    axes = figure.subplots()
    note = draw(report, axes)
    axes.grid(visible=True, color="#d0d7de", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(loc="best", frameon=False)
    figure.supxlabel(note, x=0.01, horizontalalignment="left", fontsize=8, color=_GREY)
    figure.savefig(file, format="svg", metadata={"Date": None})


def _draw_burst(report: Report, axes: Any) -> str:
    """Draw what part of the claims was Ready after how long, beside the floor and the bound."""
    burst = report.named("burst")[0]
    floor = next(iter(report.named("floor")), None)
    if floor is not None:
        factor = next(b.most for b in BOUNDS if (b.scenario, b.figure) == ("burst", "p99_ms"))
        bound = [latency * factor for latency in floor.latencies_ms]
        axes.plot(*_shares(floor.latencies_ms), color=_FLOOR, label="three bare requests a claim")
        axes.plot(*_shares(bound), color=_GREY, linestyle="--", label=f"bound: {factor:g} x that")
    axes.plot(*_shares(burst.latencies_ms), color=_OURS, linewidth=2.5, label="lean-sandbox")
    count, pool = len(burst.latencies_ms), burst.figures.get("pool") or 0
    axes.set_title(f"{count} claims at once on a pool of {pool:g}: Ready after how long")
    axes.set_xlabel("milliseconds from the create to the event that shows Ready")
    axes.set_ylabel("share that was Ready (%)")
    kind = "embedded API server" if report.server.kind == "embedded" else "API server"
    where = f"{kind} {report.server.version}, {report.host.cpus} CPUs"
    return f"{where}. Made by: lean-sandbox bench burst"


def _draw_memory(report: Report, axes: Any) -> str:
    """Draw the memory of a restarted controller against the number of Sandboxes."""
    sizes = report.named("memory")
    measured = [(one.figures["sandboxes"] or 0.0, one.figures["rss_mib"] or 0.0) for one in sizes]
    most = max(sandboxes for sandboxes, _ in measured)
    axes.plot(
        [0, most],
        [REFERENCE_EMPTY_MIB, reference_mib(most)],
        color=_GREY,
        linestyle="--",
        label=f"reference controller ({REFERENCE_EMPTY_MIB:.0f} MiB +"
        f" {REFERENCE_EACH_KIB:.0f} KiB each)",
    )
    axes.plot(
        *zip(*measured, strict=True), color=_OURS, linewidth=2.5, marker="o", label="lean-sandbox"
    )
    for sandboxes, mib in measured:
        axes.annotate(
            f"{mib:.1f} MiB", (sandboxes, mib), textcoords="offset points", xytext=(6, -14)
        )
    axes.set_title("Resident memory after a restart over healthy Sandboxes with Ready Pods")
    axes.set_xlabel("Sandboxes")
    axes.set_ylabel("resident memory (MiB)")
    return "Made by: lean-sandbox bench memory"


def _shares(latencies_ms: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the distribution as milliseconds and percent, in steps of one percent."""
    shares = [float(share) for share in range(1, 101)]
    at = [percentile(latencies_ms, share) or 0.0 for share in shares]
    return [at[0], *at], [0.0, *shares]


PICTURES: Final = {
    "burst": ("latency-burst.svg", _draw_burst),
    "memory": ("memory.svg", _draw_memory),
}
"""The file and the painter of each scenario that has a picture."""


def write_plots(report: Report, folder: Path) -> list[Path]:
    """Draw what the report has figures for; return the files. Raises OSError, UsageError."""
    require_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, (file, draw) in PICTURES.items():
        if report.named(name):
            _draw(draw, report, folder / file)
            files.append(folder / file)
    return files
