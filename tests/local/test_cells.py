"""Whatever a stored object lacks, and whatever a column asks for, a table can be shown."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.local.read.represent import cells_of, columns_of, parse_path
from tests.conformance.kinds import Sample, samples

_NOW = datetime(2030, 1, 1, tzinfo=UTC)
_PIECES = [
    ".a",
    ".b",
    "..",
    "[0]",
    "[*]",
    "[1:2]",
    "[",
    "]",
    "[?(@.a",
    "==1",
    ")]",
    "['a']",
    ",",
    " ",
]


def _thinned(value: Any, data: st.DataObject) -> Any:
    """Return a value without some of its members."""
    if isinstance(value, dict):
        kept = data.draw(st.sets(st.sampled_from(sorted(value)))) if value else set()
        return {key: _thinned(value[key], data) for key in kept}
    if isinstance(value, list):
        return [_thinned(item, data) for item in value]
    return value


@given(st.sampled_from(samples()), st.data())
def test_cells_are_as_many_as_columns_whatever_is_absent(
    sample: Sample, data: st.DataObject
) -> None:
    """A kind whose checks let something pass is shown nevertheless."""
    body = sample.body("some", "here")
    obj = _thinned(body, data)
    obj["metadata"] = {"name": "some", **obj.get("metadata", {})}
    cells = cells_of(sample.kind, obj, _NOW)
    assert len(cells) == len(msgspec.json.decode(columns_of(sample.kind)))


@given(st.lists(st.sampled_from(_PIECES), max_size=6), st.data())
def test_a_path_finds_something_or_nothing_or_is_none(
    pieces: list[str], data: st.DataObject
) -> None:
    """The only failure of a path is that it cannot be read."""
    leaves = st.sampled_from([1, "x", None, True])
    values = st.recursive(
        leaves,
        lambda below: (
            st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("ab"), below, max_size=2)
        ),
    )
    with contextlib.suppress(ValueError):
        assert isinstance(parse_path("." + "".join(pieces))(data.draw(values)), list)
