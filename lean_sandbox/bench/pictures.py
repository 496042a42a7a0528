"""The pictures of the bench: a burst beside its floor, and memory beside the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from lean_sandbox.bench.report import BOUNDS, Report
from lean_sandbox.config.sources import UsageError

REFERENCE_EMPTY_MIB: Final = 44.0
REFERENCE_EACH_KIB: Final = 24.0
"""The reference controller on a real API server: with nothing, and for each healthy Sandbox."""
_OURS: Final = {"color": "#1a7f37", "linewidth": 2.5, "label": "lean-sandbox"}
_FLOOR: Final = "#0969da"
_GREY: Final = "#6e7781"


def reference_mib(sandboxes: float) -> float:
    """Return what the reference controller takes over so many Sandboxes."""
    return REFERENCE_EMPTY_MIB + sandboxes * REFERENCE_EACH_KIB / 1024


def require_matplotlib() -> None:
    """Raise UsageError, which names the extra, where matplotlib is not installed."""
    try:
        import matplotlib as mpl  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UsageError(
            "--plots needs matplotlib: install the extra bench, as in pip install '.[bench,local]'"
        ) from error
    # The same report gives the same file: ids of elements are hashes of their content with this.
    mpl.rc("svg", hashsalt="lean-sandbox", fonttype="none")
    # To be read on a light page and on a dark one.
    mpl.rc("savefig", transparent=True)
    mpl.rc("axes", edgecolor=_GREY, labelcolor=_GREY)
    mpl.rc("text", color=_GREY)
    mpl.rc("xtick", color=_GREY)
    mpl.rc("ytick", color=_GREY)


def _draw_burst(report: Report, axes: Any) -> None:
    """Draw what part of the claims was usable after how long, beside the floor and the bound."""
    floor, burst = (
        [latency for run in report.named(name) for latency in run.usable_ms]
        for name in ("floor", "burst")
    )
    factor = next(b.most for b in BOUNDS if (b.scenario, b.figure) == ("burst", "usable_p99_ms"))
    if floor:
        bound = [latency * factor for latency in floor]
        axes.ecdf(floor, color=_FLOOR, label="four bare requests a claim")
        axes.ecdf(bound, color=_GREY, linestyle="--", label=f"bound: {factor:g} x that")
    axes.ecdf(burst, **_OURS)
    count, pool = (report.named("burst")[0].figures.get(name) or 0 for name in ("claims", "pool"))
    axes.set_title(f"{count:g} claims at once on a pool of {pool:g}: usable after how long")
    axes.set_xlabel("milliseconds from the create until Ready with a Pod that does not look free")
    axes.set_ylabel("share that was usable")


def _draw_memory(report: Report, axes: Any) -> None:
    """Draw the memory of a restarted controller against the number of Sandboxes."""
    runs = [one.figures for one in report.named("memory")]
    sizes = [run["sandboxes"] or 0.0 for run in runs]
    measured = [run["rss_mib"] or 0.0 for run in runs]
    reference = f"{REFERENCE_EMPTY_MIB:.0f} MiB + {REFERENCE_EACH_KIB:.0f} KiB each"
    label = f"reference controller ({reference})"
    axes.plot(sizes, [*map(reference_mib, sizes)], color=_GREY, linestyle="--", label=label)
    axes.plot(sizes, measured, marker="o", **_OURS)
    for at in zip(sizes, measured, strict=True):
        axes.annotate(f"{at[1]:.1f} MiB", at, textcoords="offset points", xytext=(6, -14))
    axes.set_title("Resident memory after a restart over healthy Sandboxes with Ready Pods")
    axes.set_xlabel("Sandboxes")
    axes.set_ylabel("resident memory (MiB)")


PICTURES: Final = {
    "burst": ("latency-burst.svg", _draw_burst),
    "memory": ("memory.svg", _draw_memory),
}
"""The file and the painter of each scenario that has a picture."""


def write_plots(report: Report, folder: Path) -> list[Path]:
    """Draw what the report has figures for; return the files. Raises OSError, UsageError."""
    require_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, (file, draw) in PICTURES.items():
        runs = report.named(name)
        if not runs or (name == "burst" and not any(one.usable_ms for one in runs)):
            continue
        figure = Figure(figsize=(8.6, 5.2), layout="constrained")
        axes = figure.subplots()
        draw(report, axes)
        axes.grid(visible=True, alpha=0.4)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False)
        server = f"{report.server.kind} {report.server.version}"
        cpus = report.host.cpus
        note = f"Server: {server}, {cpus} CPUs. Made by: lean-sandbox bench {name}"
        figure.supxlabel(note, x=0.01, horizontalalignment="left", fontsize=8, color=_GREY)
        figure.savefig(folder / file, format="svg", metadata={"Date": None})
        files.append(folder / file)
    return files
