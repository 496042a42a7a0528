"""What a run of the bench can be told, and what it refuses before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SCENARIOS: Final = {
    "one": "one claim on an idle controller, pool of 2",
    "burst": "--count claims at once on a filled pool of --pool",
    "fill": "filling a pool of --pool",
    "cold": "--sandboxes Sandboxes at once, without a pool",
    "sustained": "--rate claims a second for --seconds, each deleted --dwell after it was Ready",
    "search": "the highest rate of arrivals that stays flat",
    "idle": "CPU over --sandboxes Sandboxes while nothing happens",
    "restart": "a start over --sandboxes Sandboxes",
    "pods": "the Pods of --sandboxes Sandboxes, bare: what they take without a controller",
    "floor": "--count claims bound by the three requests a bind needs, without a controller",
    "memory": "resident memory over 0 to 10,000 Sandboxes (always on embedded servers)",
    "events": "CPU of one watch event, in process",
}
ALL: Final = "all"
_NOT_IN_ALL: Final = frozenset({"search"})
_LOCAL: Final = frozenset({"memory", "events"})
# What the bars of a scenario are multiples of is measured in the same run.
_BESIDE: Final = {"one": "floor", "burst": "floor", "cold": "pods"}
_SUSTAINED_POOL: Final = 80
_BURST_POOL: Final = 600
_LEAST_SECONDS: Final = 2.0


class UsageError(Exception):
    """The command line asks for something that cannot be; the message says what and the way out."""


@dataclass(frozen=True)
class BenchOptions:
    """Options of a run; durations in seconds."""

    scenarios: tuple[str, ...] = (ALL,)
    kubeconfig: str = ""
    context: str = ""
    against_pid: int | None = None
    against_url: str = ""
    controller_flags: tuple[str, ...] = ()
    kubelet: bool = False
    count: int = 300
    pool: int | None = None
    sandboxes: int = 2000
    rates: tuple[float, ...] = (8.0,)
    seconds: float = 40.0
    dwell: float = 3.0
    idle_seconds: float = 30.0
    rounds: int = 10
    load_in_flight: int = 20
    floor_in_flight: int = 16
    quiet: float = 3.0
    wait: float = 600.0
    most_rate: float = 200.0
    namespace: str = "lean-sandbox-bench"
    is_check: bool = False
    output: str = "table"
    json: Path | None = None
    plots: Path | None = None
    plot: Path | None = None
    memory_sizes: tuple[int, ...] = field(default=(0, 1000, 5000, 10_000))

    @property
    def is_embedded(self) -> bool:
        """Whether the run starts a control plane of its own."""
        return not (self.kubeconfig or self.context)

    @property
    def is_against(self) -> bool:
        """Whether a controller is measured that runs already."""
        return self.against_pid is not None or bool(self.against_url)

    @property
    def burst_pool(self) -> int:
        """Members of the pool of ``burst`` and ``fill``."""
        return _BURST_POOL if self.pool is None else self.pool

    @property
    def sustained_pool(self) -> int:
        """Members of the pool of ``sustained`` and ``search``."""
        return _SUSTAINED_POOL if self.pool is None else self.pool

    def wanted(self) -> list[str]:
        """Return the scenarios to run, with those that bars are multiples of, in their order."""
        asked = set(self.scenarios)
        if ALL in asked:
            asked = (asked | set(SCENARIOS)) - {ALL} - (_NOT_IN_ALL - asked)
        beside = set() if self.is_against else {_BESIDE[name] for name in asked if name in _BESIDE}
        if "burst" in asked:
            # A burst needs the pool filled first; what that cost is known for nothing.
            beside.add("fill")
        if "cold" in asked:
            beside.add("pods")
        return [name for name in SCENARIOS if name in asked | beside]

    @property
    def needs_server(self) -> bool:
        """Whether any scenario needs a control plane of this run."""
        return any(name not in _LOCAL for name in self.wanted())


def check(options: BenchOptions) -> None:
    """Raise UsageError for what cannot be run."""
    unknown = [name for name in options.scenarios if name not in SCENARIOS and name != ALL]
    if unknown:
        known = ", ".join((*SCENARIOS, ALL))
        raise UsageError(f"unknown scenario {unknown[0]!r}; there are {known}")
    wanted = options.wanted()
    if "burst" in wanted and options.burst_pool < options.count:
        raise UsageError(
            f"a pool of {options.burst_pool} cannot serve a burst of {options.count} claims: give"
            " --pool at least as large as --count"
        )
    if options.is_against:
        _check_against(options)
    if options.kubelet and options.is_embedded:
        raise UsageError("--kubelet is for --kubeconfig: the embedded server has its own")
    if options.seconds < _LEAST_SECONDS:
        raise UsageError(f"--seconds must be at least {_LEAST_SECONDS:g}")
    for file in (options.json, options.plot):
        if file is not None and not file.parent.is_dir():
            raise UsageError(f"{file} cannot be written: there is no folder {file.parent}")
    if options.plot is not None and "memory" not in wanted:
        raise UsageError("--plot shows memory, which none of these scenarios measures")


def _check_against(options: BenchOptions) -> None:
    if options.is_embedded:
        raise UsageError(
            "--against needs the --kubeconfig or --context of that controller's server"
        )
    if options.controller_flags:
        raise UsageError("--controller-flag is for a controller that this run starts")
    own: Sequence[str] = [
        name for name in options.scenarios if name in ("floor", "restart") and name != ALL
    ]
    if own:
        raise UsageError(
            f"{own[0]} needs to start and stop the controller, which --against cannot do"
        )
