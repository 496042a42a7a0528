"""Lays out tables line by line: rich's own take six times the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

_GAP: Final = 2
# To which columns of words are cut, the widest first.
_LEAST_WIDTH: Final = 8


class Piece(NamedTuple):
    """A text in one style."""

    text: str
    style: str = ""


class Column(NamedTuple):
    """The title of a column; one that is fixed, such as of numbers, is never cut."""

    title: str
    is_fixed: bool = False
    is_right: bool = False


def number(title: str) -> Column:
    """Return a column of numbers."""
    return Column(title, is_fixed=True, is_right=True)


def grid(
    columns: Sequence[Column], rows: Sequence[Sequence[Sequence[Piece]]], width: int
) -> list[Text]:
    """Return a line of titles, and one for each row, none wider than ``width``."""
    titles = [[Piece(one.title, "dim" if at else "bold")] for at, one in enumerate(columns)]
    lines = [titles, *rows]
    widths = [max(map(_length, column)) for column in zip(*lines, strict=True)]
    excess = sum(widths) + _GAP * (len(widths) - 1) - width
    for at in sorted(range(len(widths)), key=lambda at: -widths[at]):
        if not columns[at].is_fixed:
            cut = max(0, min(excess, widths[at] - _LEAST_WIDTH))
            widths[at] -= cut
            excess -= cut
    return [_line(cells, columns, widths) for cells in lines]


def _length(cell: Sequence[Piece]) -> int:
    return sum(cell_len(piece.text) for piece in cell)


def _line(
    cells: Sequence[Sequence[Piece]], columns: Sequence[Column], widths: Sequence[int]
) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    plain = ""
    for cell, column, width in zip(cells, columns, widths, strict=True):
        length = _length(cell)
        fill = " " * (width - length)
        if column.is_right:
            plain += fill
        for text, style in cell if length <= width else [_cut(cell, width)]:
            if style and text:
                line.append(plain)
                line.append(text, style)
                plain = ""
            else:
                plain += text
        plain += " " * _GAP if column.is_right else fill + " " * _GAP
    line.append(plain)
    line.rstrip()
    return line


def _cut(cell: Sequence[Piece], width: int) -> Piece:
    text = "".join(piece.text for piece in cell)
    return Piece(f"{set_cell_size(text, width - 1).rstrip()}…", cell[0].style)
