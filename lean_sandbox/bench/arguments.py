"""The flags of ``lean-sandbox bench``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lean_sandbox.bench.options import ALL, SCENARIOS, BenchOptions, UsageError, check

_TEXT: Final = """\
Measure the controller: latencies a client sees, requests by kind, CPU, bytes, memory, each beside
its bound. Nothing is needed for it: an embedded API server with a simulated kubelet, the controller
and the load are started as processes of their own. With --kubeconfig or --context the same runs on
that server, in namespaces of its own, which are deleted at the end.

scenarios (default: all, which is all but search and takes some five minutes):
{scenarios}

Figures in multiples (x floor, x pods) are against requests without any controller, made in the same
run: they carry from machine to machine where milliseconds do not.

examples:
  lean-sandbox bench one burst --count 50 --pool 60
  lean-sandbox bench --kubeconfig admin.kubeconfig --json run.json --plots plots
  lean-sandbox bench sustained --rate 2,4,8,16 --plots plots
  lean-sandbox bench burst --kubeconfig f --against 4711 --against http://127.0.0.1:8080/metrics

exit codes:
  0    measured (with --check: and every bound kept)
  1    something could not be measured, or with --check a bound was missed
  2    wrong usage, or no server to measure on
  130  interrupted; what was made is deleted first
"""


def parse(words: Sequence[str]) -> BenchOptions:
    """Read the flags. Raises UsageError; exits the process on flags that argparse refuses."""
    given = _parser().parse_args(words)
    default = BenchOptions()
    pid, url = _against(given.against)
    options = BenchOptions(
        scenarios=tuple(given.scenarios) or (ALL,),
        kubeconfig=given.kubeconfig,
        context=given.context,
        against_pid=pid,
        against_url=url,
        controller_flags=tuple(given.controller_flag),
        kubelet=given.kubelet,
        count=given.count,
        pool=given.pool,
        sandboxes=given.sandboxes,
        rates=given.rate,
        seconds=given.seconds,
        dwell=given.dwell,
        idle_seconds=given.idle,
        rounds=given.rounds,
        load_in_flight=given.load_in_flight,
        floor_in_flight=given.floor_in_flight,
        quiet=given.quiet,
        wait=given.wait,
        most_rate=max(default.most_rate, *given.rate),
        namespace=given.namespace,
        is_check=given.check,
        output=given.output,
        json=given.json,
        plots=given.plots,
        plot=given.plot,
    )
    check(options)
    return options


def _parser() -> argparse.ArgumentParser:
    default = BenchOptions()
    width = max(map(len, SCENARIOS))
    listed = "\n".join(f"  {name:<{width}}  {text}" for name, text in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="lean-sandbox bench",
        description=_TEXT.format(scenarios=listed),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="what to run")
    server = parser.add_argument_group("server and controller")
    server.add_argument(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="measure on this server instead of an embedded one",
    )
    server.add_argument("--context", default="", metavar="NAME", help="context of the kubeconfig")
    server.add_argument(
        "--kubelet",
        action="store_true",
        help="run simulated Nodes and a scheduler for a server where nothing runs Pods",
    )
    server.add_argument(
        "--namespace",
        default=default.namespace,
        metavar="NS",
        help=f"beginning of the namespaces' names (default: {default.namespace})",
    )
    server.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="PID|URL",
        help="measure a controller that runs already: its process, its metrics, or both by giving"
        " this twice; what neither tells is left out",
    )
    server.add_argument(
        "--controller-flag",
        action="append",
        default=[],
        metavar="FLAG",
        help="a flag for the controller that is started, such as --controller-flag="
        "--disable-sandbox-events; can be given several times",
    )
    _add_load(parser, default)
    _add_output(parser)
    return parser


def _add_load(parser: argparse.ArgumentParser, default: BenchOptions) -> None:
    load = parser.add_argument_group("load")
    _add_number(load, "--count", default.count, "claims of a burst")
    load.add_argument(
        "--pool",
        type=_positive,
        default=None,
        metavar="N",
        help="members of the pool (default: 600 for a burst, 80 under sustained load)",
    )
    _add_number(load, "--sandboxes", default.sandboxes, "Sandboxes without a pool, and bare Pods")
    load.add_argument(
        "--rate",
        type=_rates,
        default=default.rates,
        metavar="R[,R...]",
        help="claims a second under sustained load, one run for each; where search begins"
        " (default: 8)",
    )
    for flag, seconds, text in (
        ("--seconds", default.seconds, "how long claims arrive"),
        ("--dwell", default.dwell, "seconds from Ready to the claim's deletion"),
        ("--idle", default.idle_seconds, "seconds of idleness"),
        ("--quiet", default.quiet, "seconds without a request that count as rest"),
        ("--wait", default.wait, "seconds that anything is waited for"),
    ):
        load.add_argument(
            flag,
            type=_seconds,
            default=seconds,
            metavar="S",
            help=f"{text} (default: {seconds:g})",
        )
    _add_number(
        load,
        "--rounds",
        default.rounds,
        "claims of the scenario one, and of the floor one at a time",
    )
    _add_number(load, "--load-in-flight", default.load_in_flight, "requests of the load at once")
    _add_number(
        load, "--floor-in-flight", default.floor_in_flight, "binds of the floor under way at once"
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output", choices=("table", "json"), default="table", help="(default: table)"
    )
    output.add_argument(
        "--json", type=Path, default=None, metavar="FILE", help="write the JSON here as well"
    )
    output.add_argument(
        "--plots", type=Path, default=None, metavar="FOLDER", help="write SVG plots there"
    )
    output.add_argument(
        "--plot", type=Path, default=None, metavar="FILE", help="write the plot of memory here"
    )
    output.add_argument("--check", action="store_true", help="exit with 1 when a bound is missed")


def _add_number(group: argparse._ArgumentGroup, flag: str, default: int, text: str) -> None:
    group.add_argument(
        flag, type=_positive, default=default, metavar="N", help=f"{text} (default: {default})"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


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


def _against(given: Sequence[str]) -> tuple[int | None, str]:
    pid: int | None = None
    url = ""
    for word in given:
        if word.isdecimal() and pid is None:
            pid = int(word)
        elif word.startswith(("http://", "https://")) and not url:
            url = word
        else:
            raise UsageError(
                f"--against {word}: give one process id, one http:// address of metrics, or both"
            )
    return pid, url
