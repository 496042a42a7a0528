"""Hashes, reserved keys and the small rules about names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.model.meta import ObjectMeta, as_version
from lean_sandbox.model.names import name_hash, normalise_created_by
from lean_sandbox.model.sandbox import PodTemplateMetadata, visible
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.sandbox import build_sandbox


@pytest.mark.case(11)
@pytest.mark.template_case(44)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "811c9dc5"),
        ("a", "e40c292c"),
        ("my-sandbox", "374de8f5"),
        ("test-template", "69155462"),
        ("pool", "91dd7983"),
        ("sandbox-name", "ab179450"),
        ("test-sandbox", "86489827"),
        ("my-warm-pool", "034dafb4"),
        ("sb-1", "ae84b5b2"),
    ],
)
def test_name_hash_is_32_bit_fnv_1a(name: str, expected: str) -> None:
    """Case 11, Template case 44: the hash of a name is its 32-bit FNV-1a value."""
    assert name_hash(name) == expected


@pytest.mark.case(11)
@given(st.text())
def test_name_hash_is_eight_lower_case_hex_digits(name: str) -> None:
    """Case 11: whatever the name, its hash is 8 characters of 0-9a-f."""
    value = name_hash(name)

    assert len(value) == 8
    assert set(value) <= set("0123456789abcdef")


@pytest.mark.case(12)
@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (None, "sb-1"),
        ({}, "sb-1"),
        ({"agents.x-k8s.io/pod-name": ""}, "sb-1"),
        ({"agents.x-k8s.io/pod-name": "warm-x"}, "warm-x"),
        ({"agents.x-k8s.io/pod-name": "../x"}, "sb-1"),
    ],
)
def test_pod_name_comes_from_a_non_empty_annotation(
    annotations: dict[str, str] | None, expected: str
) -> None:
    """Case 12: no, an empty or an impossible pod-name annotation means the Sandbox name."""
    row = ObjectMeta(name="sb-1", namespace="ns", annotations=annotations)
    entry = build_sandbox(row, None, None)
    assert entry.pod_key == Key("ns", expected)


@pytest.mark.case(13)
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("go-client", "go-client"),
        ("python-client", "python-client"),
        ("controller", "controller"),
        ("foo", "unknown"),
        ("Controller", "unknown"),
        ("", ""),
        (None, ""),
    ],
)
def test_created_by_is_bounded(value: str | None, expected: str) -> None:
    """Case 13: known creators are kept, other ones become unknown, none stays none."""
    assert normalise_created_by(value) == expected


def test_reserved_keys_are_a_plain_prefix_test() -> None:
    """A key is reserved by its prefix alone; a group that merely ends alike is not."""
    reserved = dict.fromkeys(("agents.x-k8s.io/a", "extensions.agents.x-k8s.io/a"), "x")
    free = dict.fromkeys(("api.agents.x-k8s.io/a", "agents.x-k8s.io", "team"), "x")
    shown = visible(PodTemplateMetadata({**reserved, **free}, {**reserved, **free}))
    assert (shown.labels, shown.annotations) == (free, free)


def test_the_trace_context_is_reserved_as_annotation_only() -> None:
    """The trace context may not be put on a Pod as annotation, but is an ordinary label key."""
    trace = {"opentelemetry.io/trace-context": "{}"}
    assert visible(PodTemplateMetadata(trace, trace)) == PodTemplateMetadata(trace, None)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0", 0),
        ("7", 7),
        ("9" * 19, 10**19 - 1),
        ("9" * 20, 0),
        ("", 0),
        ("-1", 0),
        ("+1", 0),
        ("1.0", 0),
        ("\u0663", 0),
        ("1_0", 0),
        (" 1", 0),
    ],
)
def test_a_version_is_a_number_of_at_most_19_digits(text: str, version: int) -> None:
    """Of another server it may be anything: then nothing is compared by it."""
    assert as_version(text) == version
