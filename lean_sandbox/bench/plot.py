"""A line chart as SVG: axes with units, a legend, a name at the end of each line. No dependency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from lean_sandbox.bench.plot_legend import Box, free_corner

_WIDTH: Final = 900
_HEIGHT: Final = 520
_LEFT: Final = 80
_RIGHT: Final = 190
_TOP: Final = 76
_BOTTOM: Final = 92
_LABEL_GAP: Final = 17.0
_LEGEND_EDGE: Final = 56
_LETTER: Final = 7.2
_MOST_DOTS: Final = 40
_LEGEND_STEP: Final = 21
_AREA: Final = Box(_LEFT, _TOP, _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM)
_STYLE: Final = "font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
HEAD: Final = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    f' width="{_WIDTH}" height="{_HEIGHT}" role="img" style="{_STYLE}">'
)
"""The beginning of every picture; all are of one size."""
_INK: Final = "#1f2328"
_FAINT: Final = "#d0d7de"


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its points by x, and the label at its end, unless that would say nothing."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]
    is_dashed: bool = False
    is_bold: bool = False
    has_end: bool = True


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn. ``note`` is small print under the axes.

    ``y_highest`` ends the vertical axis there; otherwise it reaches above all points.
    """

    title: str
    subtitle: str
    x_label: str
    y_label: str
    y_unit: str
    series: Sequence[Series]
    note: str = ""
    y_highest: float | None = None


def ticks(highest: float, wanted: int = 6) -> list[float]:
    """Return about ``wanted`` round numbers from 0 to at least ``highest``."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    return [step * number for number in range(math.ceil(highest / step) + 1)]


def shown(value: float) -> str:
    """Return a number with as many decimals as its size makes worth reading."""
    decimals = 0 if value >= 100 or value == round(value) else 1 if value >= 10 else 2
    found = f"{value:,.{decimals}f}"
    return found.rstrip("0").rstrip(".") if "." in found else found


def render(chart: Chart) -> str:
    """Return the chart as an SVG document. Needs at least one point."""
    frame, legend = _laid_out(chart)
    parts = [
        HEAD,
        f"<title>{escape(chart.title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        text(24, 32, chart.title, size=19, weight=600),
        text(24, 54, chart.subtitle, size=13, colour="#57606a"),
        *_axes(chart, frame),
        *(_line(line, frame) for line in chart.series),
        *_end_labels(chart, frame),
        *_legend(chart, legend),
        text(24, _HEIGHT - 12, chart.note, size=11, colour="#57606a"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True)
class _Frame:
    """From the values of the axes to places in the picture."""

    x_ticks: Sequence[float]
    y_ticks: Sequence[float]

    def x(self, value: float) -> float:
        return _LEFT + value / self.x_ticks[-1] * _AREA.width

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - value / self.y_ticks[-1] * _AREA.height


def _laid_out(chart: Chart) -> tuple[_Frame, Box]:
    """Scale the axes and find the legend a corner; where all are taken, make room at the top."""
    points = [point for line in chart.series for point in line.points]
    x_ticks = ticks(max(x for x, _ in points))
    highest = max(y for _, y in points) if chart.y_highest is None else chart.y_highest
    width = _LEGEND_EDGE + _LETTER * max(len(line.name) for line in chart.series)
    height = float(_LEGEND_STEP * len(chart.series) + 4)
    frame = _Frame(x_ticks, ticks(highest))
    drawn = [[(frame.x(x), frame.y(y)) for x, y in line.points] for line in chart.series]
    corner = free_corner(_AREA, width, height, drawn)
    if corner is not None:
        return frame, corner
    room = 1 - (height + 14) / _AREA.height
    return _Frame(x_ticks, ticks(highest / room)), Box(_LEFT + 10, _TOP + 2, width, height)


def _axes(chart: Chart, frame: _Frame) -> list[str]:
    x_ticks, y_ticks = frame.x_ticks, frame.y_ticks
    left, right = frame.x(0), frame.x(x_ticks[-1])
    floor = frame.y(0)
    parts = []
    for value in y_ticks:
        at = frame.y(value)
        parts.append(_rule(left, at, right, at, _INK if value == 0 else _FAINT))
        parts.append(text(left - 8, at + 4, shown(value), size=12, anchor="end"))
    for value in x_ticks:
        at = frame.x(value)
        parts.append(_rule(at, floor, at, floor + 5, _INK))
        parts.append(text(at, floor + 20, shown(value), size=12, anchor="middle"))
    middle = (floor + _TOP) / 2
    parts.append(text((left + right) / 2, floor + 40, chart.x_label, size=13, anchor="middle"))
    parts.append(
        f'<text transform="translate(26 {middle:.1f}) rotate(-90)" font-size="13"'
        f' text-anchor="middle" fill="{_INK}">{escape(chart.y_label)}</text>'
    )
    return parts


def _line(line: Series, frame: _Frame) -> str:
    places = [(frame.x(x), frame.y(y)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{4 if line.is_bold else 3}" fill="{line.colour}"/>'
        for x, y in ([] if line.is_dashed or len(places) > _MOST_DOTS else places)
    )
    return f'<polyline points="{path}" fill="none" {_stroke(line)}/>{dots}'


def _stroke(line: Series) -> str:
    dashes = ' stroke-dasharray="7 5"' if line.is_dashed else ""
    return f'stroke="{line.colour}" stroke-width="{3.5 if line.is_bold else 2}"{dashes}'


def _end_labels(chart: Chart, frame: _Frame) -> list[str]:
    """Write the last value at the end of each line, moved apart where lines end together."""
    ends = sorted(
        ((frame.y(line.points[-1][1]), line) for line in chart.series if line.has_end),
        key=lambda end: -end[0],
    )
    parts = []
    lowest = frame.y(0)
    for at, line in ends:
        place = min(at + 4, lowest)
        lowest = place - _LABEL_GAP
        x, y = line.points[-1]
        parts.append(
            text(
                frame.x(x) + 10,
                place,
                f"{shown(y)} {chart.y_unit}".rstrip(),
                size=13,
                colour=line.colour,
                weight=700 if line.is_bold else 600,
            )
        )
    return parts


def _legend(chart: Chart, box: Box) -> list[str]:
    # White behind the words keeps them legible where grid lines pass.
    place = f'x="{box.left:.1f}" y="{box.top:.1f}" width="{box.width:.1f}" height="{box.height:g}"'
    parts = [f'<rect {place} fill="#ffffff"/>']
    for number, line in enumerate(chart.series):
        at = box.top + 12 + number * _LEGEND_STEP
        parts.append(
            f'<line x1="{box.left + 8:.1f}" y1="{at:.1f}" x2="{box.left + 38:.1f}" y2="{at:.1f}"'
            f" {_stroke(line)}/>"
        )
        weight = 600 if line.is_bold else 400
        parts.append(text(box.left + 46, at + 4, line.name, size=13, weight=weight))
    return parts


def _rule(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        f' stroke="{colour}" stroke-width="1"/>'
    )


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: int,
    colour: str = _INK,
    anchor: str = "start",
    weight: int = 400,
) -> str:
    """Return words at a place of the picture."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}"'
        f' text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'
    )
