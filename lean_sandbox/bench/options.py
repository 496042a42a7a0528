"""The flags of ``lean-sandbox bench``: each is a field of :class:`BenchOptions`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

ALL: Final = "all"
_LEAST_SECONDS: Final = 2.0

_TEXT: Final = """\
Measure the controller: latencies a client sees, requests by kind, CPU, bytes, memory, each beside
its bound. Nothing is needed for it: an embedded API server with a simulated kubelet, the controller
and the load are started as processes of their own. With --kubeconfig or --context the same runs on
that server, in namespaces of its own, which are deleted at the end.

scenarios (default: all, which is all but search and memory and takes some five minutes):
{scenarios}

Figures in multiples (x floor, x pods) are against requests without any controller, made in the same
run: they carry from machine to machine where milliseconds do not.

examples:
  lean-sandbox bench one burst --count 50 --pool 60
  lean-sandbox bench --kubeconfig admin.kubeconfig --json run.json
  lean-sandbox bench burst memory --plots docs/img
  lean-sandbox bench burst --kubeconfig f --against 4711 --against http://127.0.0.1:8080/metrics

exit codes:
  0    measured (with --check: and every bound kept)
  1    something could not be measured, or with --check a bound was missed
  2    wrong usage, or no server to measure on
  130  interrupted; what was made is deleted first
"""


class UsageError(Exception):
    """The command line asks for something that cannot be; the message says what and the way out."""


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(sorted({int(part) for part in text.split(",")}))
    if sizes[0] < 0:
        raise argparse.ArgumentTypeError(f"{text} holds a negative number")
    return sizes


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of seconds")
    return seconds


def _rates(text: str) -> tuple[float, ...]:
    rates = tuple(float(part) for part in text.split(","))
    if not all(0 < rate < float("inf") for rate in rates):
        raise argparse.ArgumentTypeError(f"{text} holds a rate that is not positive")
    return rates


_SERVER: Final = "server and controller"
_LOAD: Final = "load"
_OUTPUT: Final = "output"


def _flag(default: Any, group: str, text: str, *, flag: str = "", **more: Any) -> Any:
    """Return a field that is also a flag; ``more`` is for argparse."""
    return field(default=default, metadata={"group": group, "flag": flag, "help": text, **more})


def _number(default: int, text: str) -> Any:
    return _flag(default, _LOAD, f"{text} (default: {default})", type=_positive, metavar="N")


def _duration(default: float, text: str, flag: str = "") -> Any:
    text = f"{text} (default: {default:g})"
    return _flag(default, _LOAD, text, flag=flag, type=_seconds, metavar="S")


@dataclass(frozen=True)
class BenchOptions:
    """Options of a run; durations in seconds."""

    scenarios: Sequence[str] = (ALL,)
    kubeconfig: str = _flag(
        "", _SERVER, "measure on this server instead of an embedded one", metavar="FILE"
    )
    context: str = _flag("", _SERVER, "context of the kubeconfig", metavar="NAME")
    kubelet: bool = _flag(
        False,  # noqa: FBT003 - the default of a field
        _SERVER,
        "run simulated Nodes and a scheduler for a server where nothing runs Pods",
        action="store_true",
    )
    namespace: str = _flag(
        "lean-sandbox-bench",
        _SERVER,
        "beginning of the namespaces' names (default: lean-sandbox-bench)",
        metavar="NS",
    )
    against: Sequence[str] = _flag(
        (),
        _SERVER,
        "measure a controller that runs already: its process, its metrics, or both by giving this"
        " twice; what neither tells is left out",
        action="extend",
        nargs=1,
        metavar="PID|URL",
    )
    controller_flags: Sequence[str] = _flag(
        (),
        _SERVER,
        "a flag for the controller that is started, such as --controller-flag="
        "--disable-sandbox-events; can be given several times",
        flag="--controller-flag",
        action="extend",
        nargs=1,
        metavar="FLAG",
    )
    count: int = _number(300, "claims of a burst")
    pool: int | None = _flag(
        None,
        _LOAD,
        "members of the pool (default: 600 for a burst, 80 under sustained load)",
        type=_positive,
        metavar="N",
    )
    sandboxes: int = _number(2000, "Sandboxes without a pool, and bare Pods")
    sizes: Sequence[int] = _flag(
        (0, 1000, 10_000),
        _LOAD,
        "Sandboxes that memory is measured over (default: 0,1000,10000)",
        type=_sizes,
        metavar="N[,N...]",
    )
    rates: Sequence[float] = _flag(
        (8.0,),
        _LOAD,
        "claims a second under sustained load, one run for each; where search begins (default: 8)",
        flag="--rate",
        type=_rates,
        metavar="R[,R...]",
    )
    seconds: float = _duration(40.0, "how long claims arrive under sustained load")
    dwell: float = _duration(3.0, "seconds from Ready to the claim's deletion, under that load")
    idle_seconds: float = _duration(30.0, "seconds of idleness", "--idle")
    quiet: float = _duration(3.0, "seconds without a request that count as rest")
    wait: float = _duration(600.0, "seconds that anything is waited for")
    rounds: int = _number(10, "claims of the scenario one, and of the floor one at a time")
    load_in_flight: int = _number(20, "requests of the load at once")
    floor_in_flight: int = _number(16, "binds of the floor under way at once")
    output: str = _flag("table", _OUTPUT, "(default: table)", choices=("table", "json"))
    json: Path | None = _flag(  # noqa: RUF009 - a field
        None, _OUTPUT, "write the JSON here as well", type=Path, metavar="FILE"
    )
    plots: Path | None = _flag(  # noqa: RUF009 - a field
        None,
        _OUTPUT,
        "draw the burst and the memory there as SVG; needs the extra bench",
        type=Path,
        metavar="FOLDER",
    )
    is_check: bool = _flag(
        False,  # noqa: FBT003 - the default of a field
        _OUTPUT,
        "exit with 1 when a bound is missed",
        flag="--check",
        action="store_true",
    )
    # No flags: what makes a rate flat is not for the one who measures to say.
    search_seconds: float = 60.0
    most_rate: float = 200.0

    @property
    def is_embedded(self) -> bool:
        """Whether the run starts a control plane of its own."""
        return not (self.kubeconfig or self.context)

    @property
    def against_pid(self) -> int | None:
        """The process of a controller that runs already, if given."""
        return next((int(word) for word in self.against if word.isdecimal()), None)

    @property
    def against_url(self) -> str:
        """The address of its metrics, if given."""
        return next((word for word in self.against if not word.isdecimal()), "")

    @property
    def burst_pool(self) -> int:
        """Members of the pool of ``burst`` and ``fill``."""
        return 600 if self.pool is None else self.pool

    @property
    def sustained_pool(self) -> int:
        """Members of the pool of ``sustained``."""
        return 80 if self.pool is None else self.pool


def read_flags(words: Sequence[str], scenarios: Mapping[str, str]) -> BenchOptions:
    """Read the flags; ``scenarios`` are what the help says of each.

    Raises UsageError for what no run can mean; exits the process on flags that argparse refuses.
    """
    listed = "\n".join(f"  {name:<9}  {text}" for name, text in scenarios.items())
    parser = argparse.ArgumentParser(
        prog="lean-sandbox bench",
        description=_TEXT.format(scenarios=listed),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "scenarios", nargs="*", default=[ALL], metavar="SCENARIO", help="what to run"
    )
    groups = {name: parser.add_argument_group(name) for name in (_SERVER, _LOAD, _OUTPUT)}
    for one in fields(BenchOptions):
        more = dict(one.metadata)
        if more:
            flag = more.pop("flag") or f"--{one.name.replace('_', '-')}"
            # Flags that can be given several times extend their default.
            default = [] if one.default == () else one.default
            groups[more.pop("group")].add_argument(flag, dest=one.name, default=default, **more)
    options = BenchOptions(**vars(parser.parse_args(words)))
    _check(options)
    return options


def _check(options: BenchOptions) -> None:
    if options.against:
        _check_against(options)
    if options.kubelet and options.is_embedded:
        raise UsageError("--kubelet is for --kubeconfig: the embedded server has its own")
    if options.seconds < _LEAST_SECONDS:
        raise UsageError(f"--seconds must be at least {_LEAST_SECONDS:g}")
    if options.json is not None and not options.json.parent.is_dir():
        raise UsageError(
            f"{options.json} cannot be written: there is no folder {options.json.parent}"
        )


def _check_against(options: BenchOptions) -> None:
    known: set[bool] = set()
    for word in options.against:
        is_pid = word.isdecimal()
        if is_pid in known or not (is_pid or word.startswith(("http://", "https://"))):
            raise UsageError(
                f"--against {word}: give one process id, one http:// address of metrics, or both"
            )
        known.add(is_pid)
    if options.is_embedded:
        raise UsageError(
            "--against needs the --kubeconfig or --context of that controller's server"
        )
    if options.controller_flags:
        raise UsageError("--controller-flag is for a controller that this run starts")
