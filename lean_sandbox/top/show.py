"""Shows the figures: once, or again and again on a terminal until a signal to end."""

from __future__ import annotations

import io
import os
import sys
from typing import Final

import anyio
from rich.console import Console
from rich.live import Live

from lean_sandbox import signals
from lean_sandbox.clock import Clock
from lean_sandbox.kube.connection import Connection
from lean_sandbox.top.figures import Figures
from lean_sandbox.top.look import Look, Wanted, opened
from lean_sandbox.top.screen import draw

# For a pipe, which has no width of its own.
_PIPE_COLUMNS: Final = 160


def shows_live() -> bool:
    """Return whether the output is a terminal on which lines can be replaced."""
    console = Console()
    return console.is_terminal and not console.is_dumb_terminal


def print_once(figures: Figures) -> None:
    """Print everything."""
    console = _console()
    is_plain = console.options.ascii_only
    console.print(draw(figures, width=console.width, is_plain=is_plain))


def _console() -> Console:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names are ASCII, but messages and the sign of what was cut are not.
        sys.stdout.reconfigure(errors="replace")
    # Zero is what a job has that was started by a terminal without a size.
    is_sized = os.environ.get("COLUMNS", "0") != "0"
    width = None if is_sized or sys.stdout.isatty() else _PIPE_COLUMNS
    return Console(width=width, highlight=False, markup=False, emoji=False)


async def live(connection: Connection, clock: Clock, wanted: Wanted, interval_s: float) -> None:
    """Show everything anew after each interval, until a signal; the terminal is then as before.

    Raises ConfigError, also as a group, before anything is shown.
    """
    with anyio.open_signal_receiver(*signals.ending()) as received:
        async with anyio.create_task_group() as group:

            async def show() -> None:
                async with opened(connection, clock, wanted) as look:
                    await _redraw(look, clock, interval_s)

            group.start_soon(show)
            await anext(received)
            group.cancel_scope.cancel()


async def _redraw(look: Look, clock: Clock, interval_s: float) -> None:
    console = _console()
    with Live(console=console, screen=True, auto_refresh=False) as screen:
        while True:
            size = console.size
            drawn = draw(
                look.figures(),
                width=size.width,
                height=size.height,
                is_plain=console.options.ascii_only,
            )
            screen.update(drawn, refresh=True)
            await clock.sleep(interval_s)
