"""Where the legend of a chart can stand without covering a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

Point = tuple[float, float]

_MARGIN: Final = 6.0
# Pixels between two looks along a line; no legend is so small that a line slips through.
_STRIDE: Final = 4.0


class Box(NamedTuple):
    """A rectangle of the picture; y grows downwards."""

    left: float
    top: float
    width: float
    height: float

    def holds(self, point: Point) -> bool:
        """Return whether a point lies in the box or close to it."""
        x, y = point
        return (
            self.left - _MARGIN <= x <= self.left + self.width + _MARGIN
            and self.top - _MARGIN <= y <= self.top + self.height + _MARGIN
        )


def free_corner(
    area: Box, width: float, height: float, lines: Sequence[Sequence[Point]]
) -> Box | None:
    """Return the first corner of the area where no line passes, None when there is none.

    Tried are top left, top right, bottom right, bottom left.
    """
    left, right = area.left + 10, area.left + area.width - width - 4
    top, bottom = area.top + 2, area.top + area.height - height - 8
    for x, y in ((left, top), (right, top), (right, bottom), (left, bottom)):
        box = Box(x, y, width, height)
        if not any(box.holds(point) for line in lines for point in _along(line)):
            return box
    return None


def _along(line: Sequence[Point]) -> Iterator[Point]:
    yield line[0]
    for (x1, y1), (x2, y2) in pairwise(line):
        steps = int(max(abs(x2 - x1), abs(y2 - y1)) / _STRIDE) + 1
        for step in range(1, steps + 1):
            share = step / steps
            yield x1 + (x2 - x1) * share, y1 + (y2 - y1) * share
