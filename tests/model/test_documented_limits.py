"""The sizes of docs/security.md, with the numbers that stand there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from lean_sandbox.model.comparison import parse_quantity
from lean_sandbox.model.conditions import Condition
from lean_sandbox.model.names import clipped_name, clipped_trace, is_object_name
from lean_sandbox.model.sandbox import view_of
from lean_sandbox.model.wire import is_small, shared_map
from tests.model.support import sandbox

Json = dict[str, Any]


def test_a_quantity_of_128_characters_is_a_number_and_a_longer_one_is_text() -> None:
    """What is longer equals only what is written alike."""
    assert parse_quantity("1." + "0" * 126) == Fraction(1)
    assert parse_quantity("1." + "0" * 127) is None


def test_a_value_of_four_kib_is_shared_and_no_larger_one() -> None:
    """With what the interpreter needs for a text of its own."""
    text = "x" * (4096 - sys.getsizeof(""))
    assert is_small(text)
    assert not is_small(text + "x")


def test_a_value_of_many_empty_parts_is_not_shared() -> None:
    """Each part takes sixteen bytes of the four KiB before it holds anything, however deep."""
    assert is_small(((),) * 256)
    assert not is_small(((),) * 257)
    assert not is_small((((),) * 128, ((),) * 127))


def test_a_value_is_as_large_as_all_that_it_holds() -> None:
    """What fills the four KiB by its parts alone may hold nothing, nor may a part be large."""
    assert not is_small(("x",) * 256)
    assert is_small(Condition("Ready", "True"))
    assert not is_small(Condition("Ready", "True", message="x" * 4096))


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


def pod_of(**metadata: Any) -> Json:
    """Return the spec of a Sandbox whose Pod has some metadata."""
    return {"podTemplate": {"metadata": metadata, "spec": {"containers": []}}}


@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_a_pod_has_a_thousand_labels_or_annotations_and_no_more(kind: str) -> None:
    """With one more it gets none of them, and the field is named."""
    entries = {f"k{at}": "" for at in range(1000)}
    assert not view_of(sandbox(pod_of(**{kind: entries}))).refusal
    refusal = view_of(sandbox(pod_of(**{kind: {**entries, "more": ""}}))).refusal
    assert refusal.startswith(f"spec.podTemplate.metadata.{kind}: 1001 entries")


@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_a_pod_has_256_kib_of_labels_or_annotations_and_no_more(kind: str) -> None:
    """Keys and values together, in bytes: a letter may have more than one."""
    value = "\u00e4" * (128 * 1024 - 1)
    assert not view_of(sandbox(pod_of(**{kind: {"ab": value}}))).refusal
    refusal = view_of(sandbox(pod_of(**{kind: {"abc": value}}))).refusal
    assert refusal.startswith(f"spec.podTemplate.metadata.{kind}: 262145 bytes; all {kind} of a")


def with_ports(number: int) -> Json:
    """Return the spec of a Sandbox with so many ports."""
    ports = [{"containerPort": 1 + at} for at in range(number)]
    return {"podTemplate": {"spec": {"containers": [{"name": "main", "ports": ports}]}}}


def with_volumes(number: int) -> Json:
    """Return the spec of a Sandbox with so many volume claims."""
    volumes = [{"metadata": {"name": f"v{at}"}, "spec": {}} for at in range(number)]
    return {**pod_of(), "volumeClaimTemplates": volumes}


@pytest.mark.parametrize("spec_with", [with_ports, with_volumes])
def test_a_sandbox_has_a_thousand_ports_or_volume_claims_and_no_more(
    spec_with: Callable[[int], Json],
) -> None:
    """With one more it is refused."""
    assert not view_of(sandbox(spec_with(1000))).refusal
    refusal = view_of(sandbox(spec_with(1001))).refusal
    assert "1001 entries; there may be at most 1000" in refusal
