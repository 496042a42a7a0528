"""The two pictures of the bench: the claims of a burst over time, and memory over Sandboxes.

Drawn by matplotlib, which comes with the extra ``bench``; nothing else imports it. The same report
gives the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from lean_sandbox.bench.figures import BOUNDS, percentile
from lean_sandbox.bench.options import UsageError
from lean_sandbox.bench.report import (
    REFERENCE_EACH_KIB,
    REFERENCE_EMPTY_MIB,
    Report,
    reference_mib,
)

_OURS: Final = "#1a7f37"
_FLOOR: Final = "#0969da"
_GREY: Final = "#6e7781"

DRAWN: Final = frozenset({"burst", "memory"})
"""The scenarios that have a picture."""


def require_matplotlib() -> None:
    """Raise UsageError, which names the extra, where matplotlib is not installed."""
    try:
        import matplotlib as mpl  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UsageError(
            "--plots needs matplotlib: install the extra bench, as in pip install '.[bench,local]'"
        ) from error
    # Ids of elements are hashes of their content with this, not random.
    mpl.rcParams["svg.hashsalt"] = "lean-sandbox"
    mpl.rcParams["svg.fonttype"] = "none"


def write_plots(report: Report, folder: Path) -> list[Path]:
    """Draw what the report has figures for; return the files. Raises OSError, UsageError."""
    require_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, file, picture in (
        ("burst", folder / "latency-burst.svg", _burst),
        ("memory", folder / "memory.svg", _memory),
    ):
        if report.named(name):
            _draw(picture, report, file)
            written.append(file)
    return written


def _draw(picture: Callable[[Report, Any], str], report: Report, file: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(8.6, 5.2), layout="constrained")
    axes = figure.subplots()
    note = picture(report, axes)
    axes.grid(visible=True, color="#d0d7de", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(loc="best", frameon=False)
    figure.supxlabel(note, x=0.01, horizontalalignment="left", fontsize=8, color=_GREY)
    figure.savefig(file, format="svg", metadata={"Date": None})


def _burst(report: Report, axes: Any) -> str:
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
    server = report.server
    kind = "embedded API server" if server is None or server.kind == "embedded" else "API server"
    version = server.version if server is not None else ""
    return f"{kind} {version}, {report.host.cpus} CPUs. Made by: lean-sandbox bench burst"


def _memory(report: Report, axes: Any) -> str:
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
