"""Tables for the demo: drawn on a terminal, plain aligned lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence


class Screen:
    """Says lines and prints tables, with colours when standard output is a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._rich = sys.stdout.isatty() and not quiet

    def say(self, text: str = "") -> None:
        """Print one line."""
        if not self._quiet:
            print(text, flush=True)  # noqa: T201

    def step(self, text: str) -> None:
        """Announce what happens next."""
        self.say(f"\033[1m==> {text}\033[0m" if self._rich else f"==> {text}")

    def progress(self, text: str) -> None:
        """Show what is being waited for."""
        self.say(f"    {text}")

    def table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table; the first column is text, the others are figures."""
        if self._quiet:
            return
        if self._rich:
            self._drawn(title, head, rows)
            return
        widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
        self.say(title)
        self.say(_line(head, widths))
        self.say("  ".join("-" * width for width in widths))
        for row in rows:
            self.say(_line(row, widths))
        self.say()

    def _drawn(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415

        table = Table(title=title, title_justify="left")
        for at, name in enumerate(head):
            table.add_column(name, justify="left" if at == 0 else "right")
        for row in rows:
            table.add_row(*row)
        Console().print(table)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = [
        cell.ljust(width) if at == 0 else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join((first, *others)).rstrip()
