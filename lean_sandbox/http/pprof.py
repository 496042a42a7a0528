"""Profiles on ``/debug/pprof``; that of the CPU is folded stacks, for flame graph tools."""

from __future__ import annotations

import gc
import math
import signal
import sys
from collections import Counter
from types import FrameType
from typing import Any, Final

import anyio

from lean_sandbox.clock import Clock
from lean_sandbox.http.server import Answer, Handler, Request, not_found, text

_ROOT: Final = "/debug/pprof/"
_LONGEST_S: Final = 60.0
_INTERVAL_S: Final = 0.01


def profiles(clock: Clock, *, everything: bool) -> Handler:
    """Return a handler for ``/debug/``; ``everything`` serves more than the CPU profile."""

    async def handle(request: Request) -> Answer:
        name = request.path.removeprefix(_ROOT)
        if not (everything or name == "profile"):
            return not_found(request)
        match name:
            case "profile":
                return await _profile(clock, request.query.get("seconds", ""))
            case "":
                return text(200, "profile\ncmdline\nheap\nallocs\ngoroutine\n")
            case "cmdline":
                return text(200, "\0".join(sys.orig_argv))
            case "heap" | "allocs":
                return text(200, _objects())
            case "goroutine":
                return text(200, _tasks())
            case "symbol" | "block" | "mutex" | "trace" | "threadcreate":
                return text(404, f"{name} has no meaning in Python; see {_ROOT}\n")
        return not_found(request)

    return handle


async def _profile(clock: Clock, seconds: str) -> Answer:
    try:
        wanted_s = float(seconds) if seconds else 30.0
    except ValueError:
        wanted_s = math.nan
    if not 0.0 < wanted_s <= _LONGEST_S:
        return text(400, f"seconds must be above 0 and at most {_LONGEST_S:g}\n")
    if any(signal.getitimer(signal.ITIMER_PROF)):
        return text(500, "another profile is being taken\n")
    samples: Counter[str] = Counter()

    def sample(_signal: int, frame: FrameType | None) -> None:
        names: list[str] = []
        while frame is not None:
            module = frame.f_globals.get("__name__", "?")
            names.append(f"{module}.{frame.f_code.co_name}")
            frame = frame.f_back
        samples[";".join(reversed(names))] += 1

    before = signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, _INTERVAL_S, _INTERVAL_S)
    try:
        await clock.sleep(wanted_s)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
    return text(200, "".join(f"{stack} {count}\n" for stack, count in samples.most_common()))


def _objects() -> str:
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for held in gc.get_objects():
        kind = f"{type(held).__module__}.{type(held).__qualname__}"
        counts[kind] += 1
        sizes[kind] += sys.getsizeof(held)
    lines = ["     count        bytes type (only what the garbage collector tracks)\n"]
    for kind, size in sizes.most_common(100):
        lines.append(f"{counts[kind]:>10} {size:>12} {kind}\n")
    return "".join(lines)


def _tasks() -> str:
    lines: list[str] = []
    for task in anyio.get_running_tasks():
        lines.append(f"{task.name or task.id}\n")
        waiting: Any = task.coro
        while frame := getattr(waiting, "cr_frame", None):
            lines.append(f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}\n")
            waiting = waiting.cr_await
    return "".join(lines)
