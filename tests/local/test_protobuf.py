"""Whatever bytes a protobuf body has, it is an object or it is refused."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.local.write.encodings import decode_protobuf
from tests.conformance.encoding import encode, field
from tests.conformance.kinds import samples

_WHOLE = [encode(sample.body("some")) for sample in samples()]


@given(st.sampled_from(_WHOLE), st.data())
def test_a_damaged_body_is_refused_or_read(body: bytes, data: st.DataObject) -> None:
    """Bytes are changed, cut and inserted: the only failure is a ValueError."""
    at = data.draw(st.integers(0, len(body)))
    cut = data.draw(st.integers(0, 3))
    damaged = body[:at] + data.draw(st.binary(max_size=4)) + body[at + cut :]
    with contextlib.suppress(ValueError):
        msgspec.json.encode(decode_protobuf(damaged))


def test_nesting_without_end_is_refused() -> None:
    """A schema within a schema, ten thousand times."""
    raw = b""
    for _ in range(10_000):
        raw = field(28, raw)  # JSONSchemaProps.not
    version = field(4, field(1, raw))
    spec = field(2, field(7, version))
    types = field(1, field(1, "apiextensions.k8s.io/v1") + field(2, "CustomResourceDefinition"))
    with pytest.raises(ValueError, match="recursion"):
        decode_protobuf(b"k8s\x00" + types + field(2, spec))


def test_numbers_are_those_that_were_sent() -> None:
    """Negative ones take ten bytes, fractions eight."""
    schema = {"type": "number", "minimum": -2.5, "maximum": 7, "minLength": -3}
    version = {"name": "v1", "schema": {"openAPIV3Schema": schema}}
    sent = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "spec": {"versions": [version]},
    }
    found = decode_protobuf(encode(sent))["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert found == schema
