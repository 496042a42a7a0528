"""The body that creates a Pod."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lean_sandbox.model.pod import Pod, build_pod, build_pvc, stopped_reason
from lean_sandbox.model.sandbox import (
    Sandbox,
    SandboxSpec,
    VolumeClaimTemplate,
    VolumeClaimTemplateMetadata,
)
from tests.model.support import HASH, HASH_KEY, REFERENCE, as_json, owner, sandbox, sandbox_meta


def pod_of(value: Sandbox) -> dict[str, Any]:
    """Return the body as the server would read it."""
    body = msgspec.json.decode(msgspec.json.encode(build_pod(value)))
    assert isinstance(body, dict)
    return body


@pytest.mark.case(14)
def test_a_plain_sandbox_makes_a_plain_pod() -> None:
    """Case 14: only the tracking label, no annotations, the reference, the containers."""
    assert pod_of(sandbox()) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "sb-1",
            "namespace": "ns",
            "labels": {HASH_KEY: HASH},
            "ownerReferences": [REFERENCE],
        },
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    }


@pytest.mark.case(75, 76, 77, 79, 80, 81)
@pytest.mark.parametrize(
    ("kind", "group", "expected"),
    [
        ("SandboxWarmPool", "extensions.agents.x-k8s.io/v1beta1", {"warm", "template"}),
        ("SandboxWarmPool", "extensions.agents.x-k8s.io/v1alpha1", {"warm", "template"}),
        ("SandboxClaim", "extensions.agents.x-k8s.io/v1beta1", {"template", "owner-uid"}),
        ("SandboxClaim", "example.com/v1", set()),
        ("SandboxWarmPool", "example.com/v1", set()),
        (None, "", set()),
    ],
)
def test_system_labels_follow_the_owner(kind: str | None, group: str, expected: set[str]) -> None:
    """Cases 75-77, 79-81: which labels a Pod inherits depends on the controller of its Sandbox."""
    labels = {
        "agents.x-k8s.io/warm-pool-sandbox": "warm",
        "agents.x-k8s.io/sandbox-template-ref-hash": "template",
        "agents.x-k8s.io/created-by": "foo",
        "agents.x-k8s.io/claim-uid": "c",
        "team": "x",
    }
    owners = [msgspec.to_builtins(owner(kind, group))] if kind else []

    got = pod_of(sandbox(labels=labels, ownerReferences=owners))["metadata"]["labels"]

    assert got.pop(HASH_KEY) == HASH
    assert got.pop("agents.x-k8s.io/created-by") == "unknown"
    assert set(got.values()) == expected


@pytest.mark.case(22)
@pytest.mark.parametrize("templates", [None, []])
def test_without_claims_the_spec_is_not_even_parsed(templates: list[object] | None) -> None:
    """Case 22: without volumeClaimTemplates the spec goes to the Pod byte for byte."""
    raw = b'{ "containers":null, "volumes":[{"name":"a"}],  "x": 1e2}'
    body = b'{"spec": {"podTemplate": {"spec": %s}, "volumeClaimTemplates": %s}}' % (
        raw,
        msgspec.json.encode(templates),
    )

    spec = build_pod(msgspec.json.decode(body, type=Sandbox))["spec"]

    assert bytes(spec) == raw


@pytest.mark.parametrize("spec", [b"null", b"{}", b'{"volumes": null}'])
def test_what_has_no_volumes_gets_those_of_its_claims(spec: bytes) -> None:
    """A spec or a list of volumes that is null is none."""
    body = b'{"podTemplate": {"spec": %s}, "volumeClaimTemplates": [{"metadata": {"name": "v"}}]}'
    asked = msgspec.json.decode(body % spec, type=SandboxSpec)
    made = pod_of(msgspec.structs.replace(sandbox(), spec=asked))
    claim = {"claimName": "v-sb-1"}
    assert made["spec"] == {"volumes": [{"name": "v", "persistentVolumeClaim": claim}]}


@pytest.mark.case(20, 107)
def test_a_volume_claim_is_its_template_with_tracking_and_reference() -> None:
    """Cases 20, 107: the spec as it was sent; no template chooses the tracking label."""
    wanted = {"accessModes": ["ReadWriteOnce"], "new": {"x": 1}}
    asked = {"metadata": {"name": "data", "labels": {"a": "b", HASH_KEY: "x"}}, "spec": wanted}
    template = msgspec.json.decode(msgspec.json.encode(asked), type=VolumeClaimTemplate)
    assert as_json(build_pvc(sandbox_meta(), template)) == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data-sb-1",
            "namespace": "ns",
            "labels": {"a": "b", HASH_KEY: HASH},
            "ownerReferences": [REFERENCE],
        },
        "spec": wanted,
    }


class Name(str):
    """The name of a volume claim, which counts how often it is compared."""

    __slots__ = ()
    __hash__ = str.__hash__
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)


def test_no_volume_is_compared_with_each_claim() -> None:
    """A tenant's hundred thousand volumes and thousand claims would hold up everybody."""
    spec = {"volumes": [{"name": f"v{at}"} for at in range(100)]}
    claims = [VolumeClaimTemplateMetadata(Name(f"c{at}")) for at in range(100)]
    asked = SandboxSpec(
        sandbox({"podTemplate": {"spec": spec}}).spec.podTemplate,
        tuple(VolumeClaimTemplate(metadata) for metadata in claims),
    )
    made = build_pod(msgspec.structs.replace(sandbox(), spec=asked))
    assert len(made["spec"]["volumes"]) == 200
    assert Name.compared < 200


@pytest.mark.parametrize(
    ("inits", "containers", "reason"),
    [
        ([], [], ""),
        ([], [{"running": {}}], ""),
        ([], [{"running": {}}, {"waiting": {"reason": "CrashLoopBackOff"}}], "CrashLoopBackOff"),
        ([{"terminated": {"reason": "Completed"}}], [{"running": {}}], ""),
        (
            [{"terminated": {"reason": "Completed"}}],
            [{"waiting": {"reason": "ImagePullBackOff"}}],
            "ImagePullBackOff",
        ),
        (
            [{"terminated": {"reason": "Error"}}],
            [{"waiting": {"reason": "PodInitializing"}}],
            "Error",
        ),
    ],
)
def test_a_pod_is_told_by_its_first_container_that_does_not_run(
    inits: list[Any], containers: list[Any], reason: str
) -> None:
    """One that runs or has completed does not hide what another waits for."""
    status = {
        "initContainerStatuses": [{"state": state} for state in inits],
        "containerStatuses": [{"state": state} for state in containers],
    }
    assert stopped_reason(msgspec.convert({"status": status}, Pod)) == reason
