"""Draws the pictures of docs/companions.md: what idle and autosize save, and their table.

Run as ``python -m tests.bench.companions_pictures`` after a decision of either has changed; it
writes the pictures, and prints the table of the page. A test compares both.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from tests.bench.autosize_replay import DAY_S, Compared, Replay, compared
from tests.bench.claims_picture import ROOT, STYLE

PAGE: Final = ROOT / "docs" / "companions.md"
FOLDER: Final = ROOT / "docs" / "img"
#: The day of idle: Sandboxes, those in use, and the hours of the timeout; tests/companions has it.
SANDBOXES: Final = 100
IN_USE: Final = 10
TIMEOUT_H: Final = 1

_LEFT: Final = 220.0
_WIDTH: Final = 490.0
_PANEL: Final = 110


def _svg(title: str, said: str, height: int, drawn: list[str]) -> str:
    size = f'viewBox="0 0 760 {height}" width="760" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"  <title>{title}</title>",
        f"  <desc>{said}</desc>",
        f"  {STYLE}",
        f"  {_text('bold', 0, 18, title)}",
        *(f"  {line}" for line in drawn),
    ]
    return "\n".join([*lines, "</svg>\n"])


def _text(css: str, x: float, y: float, said: str, anchor: str = "start") -> str:
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{said}</text>'


def _rect(css: str, x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect class="{css}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
    )


def _hours(y: float) -> list[str]:
    """Return the axis of a day."""
    return [
        _text("small", _LEFT + _WIDTH * hour / 24, y, f"{hour}:00", "middle")
        for hour in range(0, 25, 6)
    ]


def draw_idle() -> str:
    """Return the picture of a day with and without the companion idle."""
    without = SANDBOXES * 24
    with_ = IN_USE * 24 + (SANDBOXES - IN_USE) * TIMEOUT_H
    top = 40
    high = 140.0
    base = top + high
    rest = high * IN_USE / SANDBOXES
    first = _WIDTH * TIMEOUT_H / 24
    title = f"A day of {SANDBOXES} Sandboxes, {IN_USE} of them in use: Pods that run"
    drawn = [
        _rect("theirs late", _LEFT, top, _WIDTH, high),
        _rect("ours", _LEFT, top, first, high),
        _rect("ours", _LEFT + first, base - rest, _WIDTH - first, rest),
        _text("small", _LEFT - 8, top + 5, f"{SANDBOXES} Pods", "end"),
        _text("small", _LEFT - 8, base - rest + 5, str(IN_USE), "end"),
        _text("on bold", _LEFT + 60, top + 60, f"without: {without:,} Pod-hours"),
        _text("bold", _LEFT + 60, base - rest - 8, f"with idle, after an hour: {with_} Pod-hours"),
        *_hours(base + 18),
    ]
    return _svg(title, f"{title}: {with_} Pod-hours instead of {without:,}.", 210, drawn)


def _share(one: Replay) -> str:
    return f"{100 * one.cold / one.claims:.1f} %"


def draw_cold(loads: list[Compared]) -> str:
    """Return the picture of the claims that found no ready member."""
    title = "Claims that found no ready member, in a day"
    drawn: list[str] = []
    y = 34.0
    for one in loads:
        drawn.append(_text("name", _LEFT - 12, y + 30, one.load, "end"))
        for css, replay, named in (
            ("ours", one.sized, f"autosize, {one.sized.mean:.1f} members on average"),
            ("theirs", one.same, f"fixed, {one.same.mean:.0f} members"),
            ("theirs late", one.supplied, f"fixed, {one.supplied.mean:.0f} members"),
        ):
            width = 220.0 * replay.cold / replay.claims
            drawn.append(_rect(css, _LEFT, y, max(width, 1.0), 14))
            said = f"{replay.cold:,} of {replay.claims:,} ({_share(replay)}): {named}"
            drawn.append(_text("small", _LEFT + width + 8, y + 11, said))
            y += 18
        y += 16
    said = "; ".join(f"{one.load}: {one.sized.cold} against {one.same.cold}" for one in loads)
    return _svg(title, f"{title}, autosize against a fixed pool of its mean: {said}.", 240, drawn)


def draw_sizes(loads: list[Compared]) -> str:
    """Return the picture of the size of a pool through a day."""
    title = "Free members through a day: autosize, and its mean"
    drawn: list[str] = []
    for number, one in enumerate(loads):
        top = 40 + number * _PANEL
        base = top + _PANEL - 30
        most = max(size for _, size in one.sized.sizes)
        high = (base - top) / most
        path = f"M{_LEFT:.1f} {base:.1f}"
        for (at_s, size), (end_s, _) in pairwise([*one.sized.sizes, (DAY_S, 0)]):
            begin = _LEFT + _WIDTH * at_s / DAY_S
            end = _LEFT + _WIDTH * end_s / DAY_S
            path += f"L{begin:.1f} {base - size * high:.1f}L{end:.1f} {base - size * high:.1f}"
        mean = base - one.sized.mean * high
        drawn += [
            f'<path class="ours" d="{path}L{_LEFT + _WIDTH:.1f} {base:.1f}z"/>',
            f'<path class="floor" d="M{_LEFT:.1f} {mean:.1f}H{_LEFT + _WIDTH:.1f}"/>',
            _text("name", _LEFT - 12, base - 20, one.load, "end"),
            _text("small", _LEFT + _WIDTH + 6, base - most * high + 5, str(most)),
            _text("small", _LEFT + _WIDTH + 6, mean + 4, f"{one.sized.mean:.1f}"),
        ]
    y = 40 + len(loads) * _PANEL - 10
    said = "; ".join(f"{one.load}: {one.sized.mean:.1f}" for one in loads)
    return _svg(title, f"{title}: {said}.", y + 10, [*drawn, *_hours(y)])


def table(loads: list[Compared]) -> str:
    """Return the table of the page."""
    head = (
        "| load, a day | claims | autosize: cold | mean size | fixed, of that size | fixed, of 2 |"
    )
    rows = [
        f"| {one.load} | {one.sized.claims:,} | {one.sized.cold} | {one.sized.mean:.1f}"
        f" | {one.same.cold} (size {one.same.mean:.0f}) | {one.supplied.cold:,} |"
        for one in loads
    ]
    return "\n".join([head, "|---|---|---|---|---|---|", *rows])


def pictures(loads: list[Compared]) -> dict[str, str]:
    """Return the pictures by the name of their file."""
    return {
        "idle.svg": draw_idle(),
        "autosize-cold.svg": draw_cold(loads),
        "autosize-sizes.svg": draw_sizes(loads),
    }


if __name__ == "__main__":
    found = compared()
    for file, picture in pictures(found).items():
        (FOLDER / file).write_text(picture, encoding="utf-8")
    print(table(found))  # noqa: T201 -- its output
