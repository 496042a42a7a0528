"""A chart of horizontal bars as SVG: one row for each name, its value at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from lean_sandbox.bench.plot import HEAD, shown, text, ticks

_LEFT: Final = 250
_RIGHT: Final = 820
_TOP: Final = 76
_BOTTOM: Final = 440
_WIDTH: Final = 900
_HEIGHT: Final = 520
_MOST_ROWS: Final = 14
_STEP: Final = 28.0
_INK: Final = "#1f2328"
_FAINT: Final = "#d0d7de"
_SOFT: Final = "#57606a"


@dataclass(frozen=True, slots=True)
class Row:
    """One bar."""

    name: str
    value: float
    colour: str


@dataclass(frozen=True, slots=True)
class RowChart:
    """What is drawn, the first row at the top. Rows beyond the room there is are summed up."""

    title: str
    subtitle: str
    x_label: str
    rows: Sequence[Row]
    note: str = ""


def render_rows(chart: RowChart) -> str:
    """Return the chart as an SVG document. Needs at least one row."""
    rows = _fitting(chart.rows)
    marks = ticks(max(row.value for row in rows))
    step = min(_STEP, (_BOTTOM - _TOP) / len(rows))
    scale = (_RIGHT - _LEFT) / marks[-1]
    floor = _TOP + step * len(rows) + 6
    parts = [
        HEAD,
        f"<title>{escape(chart.title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        text(24, 32, chart.title, size=19, weight=600),
        text(24, 54, chart.subtitle, size=13, colour=_SOFT),
    ]
    for mark in marks:
        x = _LEFT + mark * scale
        parts.append(
            f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{floor:.1f}"'
            f' stroke="{_INK if mark == 0 else _FAINT}" stroke-width="1"/>'
        )
        parts.append(text(x, floor + 18, shown(mark), size=12, anchor="middle"))
    for number, row in enumerate(rows):
        y = _TOP + step * number + 4
        width = row.value * scale
        parts.append(
            f'<rect x="{_LEFT}" y="{y:.1f}" width="{width:.1f}" height="{step - 8:.1f}"'
            f' fill="{row.colour}"/>'
        )
        middle = y + (step - 8) / 2 + 4
        parts.append(text(_LEFT - 8, middle, row.name, size=13, anchor="end"))
        parts.append(text(_LEFT + width + 6, middle, shown(row.value), size=13, weight=600))
    parts.append(text((_LEFT + _RIGHT) / 2, floor + 40, chart.x_label, size=13, anchor="middle"))
    parts.append(text(24, _HEIGHT - 12, chart.note, size=11, colour=_SOFT))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _fitting(rows: Sequence[Row]) -> list[Row]:
    if len(rows) <= _MOST_ROWS:
        return list(rows)
    kept, others = rows[: _MOST_ROWS - 1], rows[_MOST_ROWS - 1 :]
    return [*kept, Row(f"{len(others)} others", sum(row.value for row in others), "#8c959f")]
