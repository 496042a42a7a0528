"""The picture of the front page says what the page on performance says."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.claims_picture import PAGE, PICTURE, ROOT, draw, read

_PAGE = """
| what | lean-sandbox | floor or bare | target | reference |
|---|---|---|---|---|
| 300 claims at once: usable after, median | {} s, {} x floor | 0.55 s | 1.1 x | 8.1 s, {} x |
| 99th percentile | 0.7 s, {} x floor | 0.69 s | 1.1 x | 9.2 s, {} x |
"""


def test_the_picture_is_what_the_command_draws_from_the_page() -> None:
    """Whoever changes a figure runs ``python -m tests.bench.claims_picture``."""
    assert PICTURE.read_text(encoding="utf-8") == draw(read(PAGE.read_text(encoding="utf-8")))


def test_the_front_page_names_the_same_times() -> None:
    """In the first of its figures; the page with all of them has the multiples in words, too."""
    text = PAGE.read_text(encoding="utf-8")
    figures = read(text)
    page = (ROOT / "README.md").read_text(encoding="utf-8").split("## Try")[0]
    (row,) = re.findall(r"^- 300 claims at once.*$", page, flags=re.MULTILINE)
    assert re.findall(r"[\d.]+ s\b", row) == [figures.ours.time, figures.theirs.time]
    (words,) = re.findall(r"!\[(300 claims.*?)\]", text)
    multiples = [float(one) for one in re.findall(r"([\d.]+) times", words)]
    assert multiples == [figures.ours.floors, figures.theirs.floors]


_FLOORS = st.floats(min_value=0.1, max_value=60).map(lambda value: round(value, 1))


@given(_FLOORS, _FLOORS, _FLOORS, _FLOORS)
def test_every_bar_is_as_long_as_its_figure(
    ours: float, ours_late: float, theirs: float, theirs_late: float
) -> None:
    """In multiples of the floor, which has its line, within the picture whatever was measured."""
    page = _PAGE.format(0.5, ours, theirs, ours_late, theirs_late)
    picture = draw(read(page))
    root = ET.fromstring(picture)  # noqa: S314
    lines = [
        one.get("d") or "" for one in root.findall(".//{*}path") if one.get("class") == "floor"
    ]
    (floor,) = (float(re.findall(r"M([\d.]+)", line)[0]) for line in lines)
    bars = [one for one in root.findall(".//{*}rect") if "late" not in (one.get("class") or "")]
    for bar, floors in zip(bars, (ours, theirs), strict=True):
        # Positions are rounded to a tenth.
        rounded = pytest.approx(floors * (floor - 130), abs=0.06 * (floors + 1))
        assert float(bar.get("width", "")) == rounded
        assert 130 + float(bar.get("width", "")) <= 634.1
    assert f"{ours:g} \N{MULTIPLICATION SIGN} (0.5 s)" in picture
    assert f"{theirs_late:g} \N{MULTIPLICATION SIGN} (9.2 s)" in picture


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("# Performance", "no row that begins with: 300 claims at once"),
        (_PAGE.format(0.5, "about 1", 8, 0.9, 12), "how many times the floor it is: '0.5 s, about"),
        (_PAGE.replace("0.55 s", "-").format(0.5, 1, 8, 0.9, 12), "floor of 300 claims is not a"),
        (_PAGE.replace("99th", "90th").format(0.5, 1, 8, 0.9, 12), "not their 99th percentile"),
    ],
)
def test_a_page_that_lacks_a_figure_is_refused_in_words(page: str, said: str) -> None:
    """Rather than drawn with a hole."""
    with pytest.raises(ValueError, match=said):
        read(page)
