"""The flags of ``lean-sandbox bench``: each is a field of :class:`BenchOptions`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from lean_sandbox.config.sources import UsageError

ALL: Final = "all"
_LEAST_SECONDS: Final = 2.0
_MOST: Final = 1_000_000

_TEXT: Final = """\
Measure the controller: how long until a client can use its claim, requests by
kind, CPU, bytes, memory, each beside its bound. A claim is usable when its
client has seen it Ready and its Pod no longer looks like a member of the pool,
which routers leave out and autoscalers may evict.

Nothing is needed for it: an embedded API server with a simulated kubelet, the
controller and the load are started as processes of their own. With
--kubeconfig or --context the same runs on that server, in namespaces of its
own, which are deleted at the end.

scenarios (default: all, which leaves out search, soak and memory, and takes
some five minutes):
{scenarios}

Figures in multiples (x floor, x pods) are against requests without any
controller, made in the same run: they carry from machine to machine where
milliseconds do not.

examples:
  lean-sandbox bench one burst --count 50 --pool 60
  lean-sandbox bench --kubeconfig admin.kubeconfig --json run.json
  lean-sandbox bench burst memory --plots docs/img
  lean-sandbox bench burst --kubeconfig f --against 4711

exit codes:
  0    measured (with --check: and every bound kept)
  1    something could not be measured, or with --check a bound was missed
  2    wrong usage, or no server to measure on
  130  interrupted; what was made is deleted first
"""


class BenchError(Exception):
    """The measurement could not be made; the message says why."""


def _above(least: int, form: Callable[[str], float]) -> Callable[[str], float]:
    """Return what reads a number above ``least`` and at most ``_MOST``."""

    def read(text: str) -> float:
        number = form(text)
        if not least < number <= _MOST:
            raise argparse.ArgumentTypeError(f"{text} is not above {least} and at most {_MOST}")
        return number

    return read


def _listed(one: Callable[[str], float]) -> Callable[[str], tuple[float, ...]]:
    """Return what reads numbers between commas."""
    return lambda text: tuple(one(part) for part in text.split(","))


def _flag(default: Any, text: str, *, flag: str = "", topic: str = "", **more: Any) -> Any:
    """Return a field that is a flag, and the first under ``topic``; ``more`` is for argparse."""
    if default and not isinstance(default, bool):
        parts = default if isinstance(default, tuple) else (default,)
        shown = ",".join(str(part).removesuffix(".0") for part in parts)
        text = f"{text} (default: {shown})"
    return field(default=default, metadata={"flag": flag, "topic": topic, "help": text, **more})


def _count(default: int | None, text: str, **more: Any) -> Any:
    return _flag(default, text, type=_above(0, int), metavar="N", **more)


def _duration(default: float, text: str, **more: Any) -> Any:
    return _flag(default, text, type=_above(0, float), metavar="S", **more)


def _path(text: str, metavar: str) -> Any:
    return _flag(None, text, type=Path, metavar=metavar)


def _switch(text: str, **more: Any) -> Any:
    return _flag(default=False, text=text, action="store_true", **more)


def _several(text: str, **more: Any) -> Any:
    return _flag((), text, action="extend", nargs=1, **more)


@dataclass(frozen=True)
class BenchOptions:
    """Options of a run; durations in seconds."""

    scenarios: Sequence[str] = (ALL,)
    kubeconfig: str = _flag(
        "",
        "measure on this server instead of an embedded one",
        metavar="FILE",
        topic="server and controller",
    )
    context: str = _flag("", "context of the kubeconfig", metavar="NAME")
    kubelet: bool = _switch("simulate Nodes and a scheduler where nothing runs Pods")
    namespace: str = _flag("lean-sandbox-bench", "beginning of the namespaces' names", metavar="NS")
    against: Sequence[str] = _several(
        "measure a controller that runs already: its process, its metrics, or both by giving this"
        " twice; what neither tells is left out",
        metavar="PID|URL",
    )
    controller_flags: Sequence[str] = _several(
        "a flag for the controller that is started; can be given several times",
        flag="--controller-flag",
        metavar="FLAG",
    )
    count: int = _count(300, "claims of a burst", topic="load")
    pool: int | None = _count(None, "members of the pool (default: 600, sustained: 80)")
    sandboxes: int = _count(2000, "Sandboxes without a pool, and bare Pods")
    sizes: Sequence[int] = _flag(
        (0, 1000, 10_000),
        "Sandboxes that memory is measured over",
        type=_listed(_above(-1, int)),
        metavar="N[,N...]",
    )
    rates: Sequence[float] = _flag(
        (8.0,),
        "claims a second under sustained load, one run for each; where search begins",
        flag="--rate",
        type=_listed(_above(0, float)),
        metavar="R[,R...]",
    )
    seconds: float = _duration(
        40.0, "how long claims arrive under sustained load, and how long a soak takes"
    )
    dwell: float = _duration(3.0, "seconds from Ready to the claim's deletion, under that load")
    idle_seconds: float = _duration(30.0, "seconds of idleness", flag="--idle")
    quiet: float = _duration(3.0, "seconds without a request that count as rest")
    wait: float = _duration(600.0, "seconds that anything is waited for")
    turns: int = _count(1, "times that floor, one and burst are measured, in turns, for medians")
    rounds: int = _count(10, "claims of the scenario one, and of the floor one at a time")
    load_in_flight: int = _count(20, "requests of the load at once")
    floor_in_flight: int = _count(16, "binds of the floor under way at once")
    output: str = _flag(
        "table",
        "form of the report",
        flag="-o --output",
        choices=("table", "json"),
        topic="output",
    )
    json: Path | None = _path("write the JSON here as well", "FILE")  # noqa: RUF009 - a field
    plots: Path | None = _path(  # noqa: RUF009 - a field
        "draw the burst and the memory there as SVG; needs the extra bench", "FOLDER"
    )
    is_check: bool = _switch("exit with 1 when a bound is missed", flag="--check")
    # No flags: what makes a rate flat, or a claim usable, is not for the one who measures to say.
    search_seconds: float = 60.0
    most_rate: float = 200.0
    usable_wait: float = 150.0

    @property
    def is_embedded(self) -> bool:
        """Whether the run starts a control plane of its own."""
        return not (self.kubeconfig or self.context)

    @property
    def advice(self) -> str:
        """What may be missing where Pods never become Ready."""
        if self.is_embedded or self.kubelet:
            return ""
        return "; does anything run Pods on this server? --kubelet starts a simulated kubelet"

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
        return self.pool or 600

    @property
    def sustained_pool(self) -> int:
        """Members of the pool of ``sustained``."""
        return self.pool or 80


def read_flags(words: Sequence[str], scenarios: Mapping[str, str]) -> BenchOptions:
    """Read the flags; ``scenarios`` are what the help says of each. Raises UsageError."""
    listed = "\n".join(f"  {name:<9}  {text}" for name, text in scenarios.items())
    parser = argparse.ArgumentParser(
        prog="lean-sandbox bench",
        description=_TEXT.format(scenarios=listed),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_flags(parser)
    options = BenchOptions(**vars(parser.parse_args(words)))
    _check(options)
    return options


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add every flag of a run to a parser."""
    parser.add_argument(
        "scenarios", nargs="*", default=[ALL], metavar="SCENARIO", help="what to run: see above"
    )
    group = parser.add_argument_group()
    for one in fields(BenchOptions):
        if not one.metadata:
            continue
        more = dict(one.metadata)
        names = more.pop("flag") or f"--{one.name.replace('_', '-')}"
        if topic := more.pop("topic"):
            group = parser.add_argument_group(topic)
        # Flags that can be given several times extend their default.
        default = [] if one.default == () else one.default
        group.add_argument(*names.split(), dest=one.name, default=default, **more)


def _check(options: BenchOptions) -> None:
    known: set[bool] = set()
    for word in options.against:
        is_pid = word.isdecimal()
        if is_pid in known or not (is_pid or word.startswith(("http://", "https://"))):
            raise UsageError(
                f"--against {word}: give one process id, one http:// address of metrics, or both"
            )
        known.add(is_pid)
    if options.against and options.is_embedded:
        raise UsageError("--against needs the --kubeconfig or --context of its server")
    if options.against and options.controller_flags:
        raise UsageError("--controller-flag is for a controller that this run starts")
    if options.kubelet and options.is_embedded:
        raise UsageError("--kubelet is for --kubeconfig: the embedded server has its own")
    if options.seconds < _LEAST_SECONDS:
        raise UsageError(f"--seconds must be at least {_LEAST_SECONDS:g}")
    _check_places(options.json, options.plots)


def _check_places(file: Path | None, pictures: Path | None) -> None:
    if file is not None:
        problem = ""
        if not file.parent.is_dir():
            problem = f"there is no folder {file.parent}"
        elif file.is_dir():
            problem = "it is a folder"
        elif not os.access(file if file.exists() else file.parent, os.W_OK):
            problem = "you may not write there"
        if problem:
            raise UsageError(f"--json: {file} cannot be written: {problem}")
    if pictures is not None and pictures.exists() and not pictures.is_dir():
        raise UsageError(f"--plots: {pictures} is not a folder")
