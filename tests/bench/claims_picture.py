"""Draws the picture of the front page, claims.svg, from the figures of docs/performance.md.

Run as ``python -m tests.bench.claims_picture`` after the two rows of the table have changed that
say how long 300 claims at once take until they are usable: the median, and below it the 99th
percentile. Nothing of the picture is written by hand; a test compares it with the page.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "performance.md"
PICTURE: Final = ROOT / "docs" / "img" / "claims.svg"

_LEFT: Final = 130.0
_WIDTH: Final = 504.0
_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_TIME: Final = r"\d[\d.,]* m?s"

#: Light and dark, as the reader's page is.
STYLE: Final = """\
<style>
    text { font: 14px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
    text { fill: #1f2328; }
    .small { font-size: 12px; fill: #59636e; }
    .bold { font-weight: 600; }
    .ours { fill: #1a7f37; }
    .theirs { fill: #6e7781; }
    .late { opacity: .55; }
    .on { fill: #ffffff; }
    .grid { stroke: #d1d9e0; }
    .floor { stroke: #1f2328; stroke-dasharray: 3 3; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .small { fill: #9198a1; }
      .ours { fill: #3fb950; }
      .theirs { fill: #7d8590; }
      .on { fill: #0d1117; }
      .grid { stroke: #3d444d; }
      .floor { stroke: #e6edf3; }
    }
  </style>"""


class Measured(NamedTuple):
    """A time as the page has it, and how many times the floor it is."""

    time: str
    floors: float

    def __str__(self) -> str:
        return f"{self.floors:g} {_TIMES} ({self.time})"


class Figures(NamedTuple):
    """What the picture shows: medians and 99th percentiles, and the median floor of each."""

    ours: Measured
    ours_late: Measured
    theirs: Measured
    theirs_late: Measured
    floor: str
    their_floor: str


def read(page: str) -> Figures:
    """Read the figures of a page. Raises ValueError, which says what is missing."""
    lines = page.splitlines()
    at = next((n for n, line in enumerate(lines) if line.startswith("| 300 claims at once")), None)
    if at is None:
        raise ValueError("the page has no row that begins with: 300 claims at once")
    median, late = ([cell.strip() for cell in line.split("|")] for line in lines[at : at + 2])
    if late[1] != "99th percentile":
        raise ValueError("the row below that of 300 claims at once is not their 99th percentile")
    floor = re.match(_TIME, median[3])
    if floor is None:
        raise ValueError(f"the floor of 300 claims is not a time: {median[3]!r}")
    own = re.search(rf"own floor \(({_TIME})\s+median", page)
    return Figures(
        _measured(median[2]),
        _measured(late[2]),
        _measured(median[5]),
        _measured(late[5]),
        floor[0],
        own[1] if own is not None else floor[0],
    )


def _measured(cell: str) -> Measured:
    found = re.match(rf"({_TIME}), (\d[\d.]*) x", cell)
    if found is None:
        raise ValueError(f"not a time and how many times the floor it is: {cell!r}")
    return Measured(found[1], float(found[2]))


def draw(figures: Figures) -> str:
    """Return the picture as SVG."""
    ours, ours_late, theirs, theirs_late, floor, their_floor = figures
    most = max(1.0, *(one.floors for one in figures[:4]))
    step = 2 * math.ceil(most / 14)
    last = step * math.ceil(most / step)

    def x(floors: float) -> float:
        return round(_LEFT + floors * _WIDTH / last, 1)

    def rect(css: str, y: int, begin: float, end: float, height: int) -> str:
        at = x(begin)
        width = x(end) - x(begin)
        return f'<rect class="{css}" x="{at}" y="{y}" width="{width:.1f}" height="{height}"/>'

    def bar(css: str, y: int, median: Measured, late: Measured) -> list[str]:
        drawn = [rect(css, y, 0, median.floors, 28)]
        if late.floors > median.floors:
            drawn.append(rect(f"{css} late", y + 10, median.floors, late.floors, 8))
        return drawn

    def text(css: str, at: float, y: int, said: str, anchor: str = "start") -> str:
        return f'<text class="{css}" x="{at:.1f}" y="{y}" text-anchor="{anchor}">{said}</text>'

    grid: list[str] = []
    for at in range(0, last + 1, step):
        grid.append(f'<path class="grid" d="M{x(at)} 34V118"/>')
        grid.append(text("small", x(at), 136, f"{at} {_TIMES}", "middle"))
    title = "300 claims at once: time until usable, in multiples of the floor"
    beside = max(x(one) for one in (1, ours.floors, ours_late.floors)) + 10
    own = f'<tspan class="bold">{ours}</tspan>, 99th percentile {ours_late}'
    days = "" if their_floor == floor else f", and {their_floor} on the day of the reference"
    note = (
        f"Floor: the same claims, bound in the same run by four bare requests each: {floor}{days}."
    )
    drawn = [
        "<title>300 claims at once</title>",
        f"<desc>{title}: lean-sandbox {ours}, 99th percentile {ours_late};",
        f"the reference {theirs}, 99th percentile {theirs_late}.</desc>",
        STYLE,
        text("bold", 0, 18, title),
        *grid,
        text("name", 118, 61, "lean-sandbox", "end"),
        *bar("ours", 42, ours, ours_late),
        text("name", 118, 101, "reference", "end"),
        *bar("theirs", 82, theirs, theirs_late),
        f'<path class="floor" d="M{x(1)} 30V118"/>',
        text("name", beside, 61, own),
        text("on bold", x(theirs.floors) - 10, 101, str(theirs), "end"),
        text("small", max(x(theirs.floors), x(theirs_late.floors)) + 8, 100, str(theirs_late)),
        text("small", 0, 164, note),
    ]
    size = 'viewBox="0 0 760 174" width="760" height="174"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return "\n".join([head, *(f"  {line}" for line in drawn), "</svg>\n"])


if __name__ == "__main__":
    PICTURE.write_text(draw(read(PAGE.read_text(encoding="utf-8"))), encoding="utf-8")
