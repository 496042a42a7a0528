"""The recording of the front page: what it shows of what was recorded."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from tests.docs.recording import COLUMNS, END_S, LONGEST_WAIT_S, ROWS, Shown, as_svg, timed

_SVG = "{http://www.w3.org/2000/svg}"


def test_a_wait_is_cut_and_commands_are_typed() -> None:
    """Lines keep their distance up to a second; what is printed comes after its command."""
    lines = [(0.0, ""), (0.0, "recording-time0"), (0.4, "at once"), (60.4, "late")]
    first, second, third = timed(lines, ["true"])
    assert first == Shown(first.at_s, "$ true", is_typed=True)
    assert (second.text, third.text) == ("at once", "late")
    assert round(second.at_s - first.at_s, 3) == 0.4
    assert third.at_s - second.at_s == LONGEST_WAIT_S


def test_a_long_line_is_folded_and_none_is_lost() -> None:
    """No line is wider than the picture."""
    text = "x" * (2 * COLUMNS + 1)
    shown = timed([(0.0, ""), (0.0, text)], [])
    assert max(len(one.text) for one in shown) == COLUMNS
    assert "".join(one.text for one in shown) == text


def test_the_picture_has_each_line_once_and_scrolls_to_the_last() -> None:
    """It plays to the end, stays there for a while, and begins anew."""
    shown = [Shown(float(number), f"line <{number}>") for number in range(ROWS + 3)]
    picture = ET.fromstring(as_svg(shown))  # noqa: S314 - our own
    texts = [one.text for one in picture.iter(f"{_SVG}text") if one.get("class") != "note"]
    assert texts == [one.text for one in shown]
    (scroll,) = picture.iter(f"{_SVG}animateTransform")
    assert scroll.attrib["begin"] == "0s;play.end"
    assert scroll.attrib["dur"] == f"{shown[-1].at_s + END_S:.2f}s"
    assert len(scroll.attrib["values"].split(";")) == len(scroll.attrib["keyTimes"].split(";")) == 4
