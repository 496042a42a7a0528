"""PersistentVolumeClaims."""

from __future__ import annotations

import msgspec
import pytest

from lean_sandbox.model.pod import build_pvc, pvc_name
from lean_sandbox.model.sandbox import VolumeClaimTemplate
from tests.model.support import HASH, HASH_KEY, REFERENCE, sandbox_meta


def claim_template(text: bytes) -> VolumeClaimTemplate:
    """Return a decoded volumeClaimTemplate."""
    return msgspec.json.decode(text, type=VolumeClaimTemplate)


@pytest.mark.case(20)
def test_a_claim_is_its_template_with_tracking_and_reference() -> None:
    """Case 20: the template, the tracking label and the controller reference."""
    template = claim_template(
        b'{"metadata": {"name": "data", "labels": {"a": "b"}, "annotations": {"c": "d",'
        b' "agents.x-k8s.io/x": "y"}}, "spec": {"accessModes": ["ReadWriteOnce"], "new": {"x": 1}}}'
    )

    body = msgspec.json.decode(msgspec.json.encode(build_pvc(sandbox_meta(), template)))

    assert body == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data-sb-1",
            "namespace": "ns",
            "labels": {"a": "b", HASH_KEY: HASH},
            "annotations": {"c": "d", "agents.x-k8s.io/x": "y"},
            "ownerReferences": [REFERENCE],
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "new": {"x": 1}},
    }


@pytest.mark.case(107)
def test_the_tracking_label_overrides_the_template() -> None:
    """Case 107: a template cannot choose the tracking label."""
    template = claim_template(
        b'{"metadata": {"name": "d", "labels": {"agents.x-k8s.io/sandbox-name-hash": "x"}},'
        b' "spec": {}}'
    )

    metadata = build_pvc(sandbox_meta(), template)["metadata"]

    assert metadata["labels"] == {HASH_KEY: HASH}
    assert "annotations" not in metadata


def test_claims_are_named_template_then_sandbox() -> None:
    """The name joins template and Sandbox; a template may also be given by its name alone."""
    assert pvc_name("data", "sb-1") == "data-sb-1"
    assert pvc_name(claim_template(b'{"metadata": {"name": "data"}}').name, "sb-1") == "data-sb-1"
    assert pvc_name(claim_template(b'{"metadata": null}').name, "sb-1") == "-sb-1"
