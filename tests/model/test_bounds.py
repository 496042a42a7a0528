"""The sizes of docs/security.md, with the numbers that stand there."""

from __future__ import annotations

import sys
from fractions import Fraction

from lean_sandbox.model.comparison import parse_quantity
from lean_sandbox.model.names import clipped_name, clipped_trace, is_object_name
from lean_sandbox.model.wire import is_small, shared_map


def test_a_quantity_of_128_characters_is_a_number_and_a_longer_one_is_text() -> None:
    """What is longer equals only what is written alike."""
    assert parse_quantity("1." + "0" * 126) == Fraction(1)
    assert parse_quantity("1." + "0" * 127) is None


def test_a_value_of_four_kib_is_shared_and_no_larger_one() -> None:
    """With what the interpreter needs for a text of its own."""
    text = "x" * (4096 - sys.getsizeof(""))
    assert is_small(text)
    assert not is_small(text + "x")


def test_five_hundred_and_twelve_maps_are_shared() -> None:
    """The one not used for longest goes; whoever holds it keeps it."""
    first = shared_map({"number": "first"})
    for number in range(511):
        shared_map({"number": str(number)})
    assert shared_map({"number": "first"}) is first
    for number in range(512):
        shared_map({"number": str(number)})
    assert shared_map({"number": "first"}) is not first


def test_a_name_of_253_characters_is_one_and_a_longer_one_is_not() -> None:
    """As for the API server: nothing longer becomes part of a request."""
    label = "a" * 63
    name = ".".join([label] * 3 + ["b" * 61])
    assert len(name) == 253
    assert is_object_name(name)
    assert not is_object_name(name + "b")


def test_of_an_annotation_253_characters_of_a_name_and_16_kib_of_a_trace_are_read() -> None:
    """A name that is cut is none; a trace that is cut is at most ignored."""
    assert clipped_name("n" * 253) == "n" * 253
    assert not is_object_name(clipped_name("n" * 254))
    assert len(clipped_trace("t" * 20_000)) == 16 * 1024
