"""What comes over the wire: nulls, unknown fields, bookmarks; ownership; the kept view."""

from __future__ import annotations

import msgspec
import pytest

from lean_sandbox.model.conditions import Condition
from lean_sandbox.model.meta import (
    ObjectMeta,
    OwnerReference,
    controller_reference,
    is_controlled_by,
    sandbox_reference,
    with_controller_reference,
)
from lean_sandbox.model.pod import Pod
from lean_sandbox.model.sandbox import Sandbox, SandboxStatus, SandboxView, view_of
from lean_sandbox.model.service import Service, ServicePort
from tests.model.support import UID, owner, sandbox, template


@pytest.mark.parametrize("kind", [Sandbox, Pod, Service])
def test_null_parts_read_as_empty(kind: type[Sandbox | Pod | Service]) -> None:
    """A null struct is the same as an absent one, as in a bookmark."""
    value = msgspec.json.decode(b'{"metadata": null, "spec": null, "status": null}', type=kind)
    bookmark = msgspec.json.decode(b'{"metadata": {"resourceVersion": "42"}}', type=kind)

    assert value == kind()
    assert bookmark == kind(metadata=ObjectMeta(resource_version="42"))


def test_null_maps_and_lists_read_as_empty() -> None:
    """Null maps stay None, null lists become empty tuples: nothing downstream needs to ask."""
    meta = msgspec.json.decode(
        b'{"labels": null, "annotations": null, "finalizers": null, "ownerReferences": null,'
        b' "creationTimestamp": null, "managedFields": null}',
        type=ObjectMeta,
    )
    pod = msgspec.json.decode(
        b'{"spec": {"nodeName": null, "containers": null}, "status": {"phase": null,'
        b' "podIPs": null, "conditions": [{"type": "Ready", "status": "True", "reason": null,'
        b' "message": null, "lastProbeTime": null}]}}',
        type=Pod,
    )
    service = msgspec.json.decode(
        b'{"spec": {"clusterIP": null, "selector": null, "ports": null}}', type=Service
    )

    assert (meta.labels, meta.annotations, meta.owners) == (None, None, ())
    assert (pod.spec.nodeName, pod.status.phase, pod.status.podIPs) == ("", "", ())
    assert pod.status.conditions[0].reason == pod.status.conditions[0].message == ""
    assert service == Service()


def test_a_sandbox_full_of_nulls_reads_as_an_empty_one() -> None:
    """Every part of a Sandbox may be null on the wire."""
    value = msgspec.json.decode(
        b'{"spec": {"podTemplate": {"metadata": null, "spec": null}, "volumeClaimTemplates": null,'
        b' "service": null, "shutdownTime": null, "shutdownPolicy": null, "operatingMode": null},'
        b' "status": {"conditions": null, "podIPs": null, "selector": null, "nodeName": null,'
        b' "service": null, "serviceFQDN": null}}',
        type=Sandbox,
    )

    assert value.status == SandboxStatus()
    assert value.spec.shutdownPolicy == "Retain"
    assert view_of(value) == SandboxView()
    assert view_of(sandbox()) == SandboxView(generation=1)


def test_an_unknown_operating_mode_means_running() -> None:
    """Only the exact value Suspended suspends; only the exact value Delete deletes."""
    assert view_of(sandbox({"operatingMode": "Suspended"})).is_suspended
    assert not view_of(sandbox({"operatingMode": ""})).is_suspended
    assert not view_of(sandbox({"operatingMode": "suspended"})).is_suspended
    assert view_of(sandbox({"shutdownPolicy": "Delete"})).is_deleted_at_expiry
    assert not view_of(sandbox({"shutdownPolicy": ""})).is_deleted_at_expiry


def test_present_but_empty_claim_templates_differ_from_absent_ones() -> None:
    """The immutability rule of the API tells an empty list from none, so decoding must too."""
    assert sandbox().spec.volumeClaimTemplates is None
    assert sandbox({"volumeClaimTemplates": []}).spec.volumeClaimTemplates == ()


def test_defaults_are_left_out_when_encoded() -> None:
    """An encoded value carries no empty fields, but a condition keeps those its schema requires."""
    assert msgspec.json.encode(Sandbox()) == b"{}"
    assert msgspec.to_builtins(Condition("Ready", "True")) == {
        "type": "Ready",
        "status": "True",
        "reason": "",
        "message": "",
        "lastTransitionTime": "",
    }


def test_the_first_controller_reference_decides() -> None:
    """References that are no controller do not own; the first controller does."""
    plain = OwnerReference("apps/v1", "Deployment", "d", "1")
    first = controller_reference("ReplicaSet", "r", "2", "apps/v1")
    second = controller_reference("Sandbox", "sb-1", UID, "agents.x-k8s.io/v1beta1")

    assert ObjectMeta(owner_references=(plain,)).controller is None
    assert ObjectMeta(owner_references=(plain, first, second)).controller == first


@pytest.mark.parametrize(
    "references",
    [
        (),
        (OwnerReference("agents.x-k8s.io/v1beta1", "Sandbox", "sb-1", UID),),
        (owner("SandboxClaim"),),
        (controller_reference("Sandbox", "sb-1", "old-uid", "agents.x-k8s.io/v1beta1"),),
    ],
)
def test_ownership_is_by_uid_of_the_controller(
    references: tuple[OwnerReference, ...],
) -> None:
    """No controller is no owner, and neither is another uid of the same kind and name."""
    assert not is_controlled_by(ObjectMeta(owner_references=references).controller, UID)


@pytest.mark.case(65)
def test_a_reference_of_another_version_with_our_uid_is_ours() -> None:
    """Case 65: the API version of a reference does not matter for ownership."""
    reference = controller_reference("Sandbox", "sb-1", UID, "agents.x-k8s.io/v1alpha1")

    assert is_controlled_by(ObjectMeta(owner_references=(reference,)).controller, UID)
    assert reference.group == "agents.x-k8s.io"


def test_core_references_have_the_empty_group() -> None:
    """An apiVersion without a slash belongs to the core group."""
    assert OwnerReference("v1", "Pod", "p", "1").group == ""


def test_our_reference_replaces_the_one_to_the_same_target() -> None:
    """A reference to the same group, kind and name is replaced in place; other ones are kept."""
    mine = sandbox_reference("sb-1", UID)
    plain = OwnerReference("apps/v1", "Deployment", "d", "1")
    stale = OwnerReference("agents.x-k8s.io/v1alpha1", "Sandbox", "sb-1", "old")

    assert with_controller_reference((), mine) == (mine,)
    assert with_controller_reference((plain,), mine) == (plain, mine)
    assert with_controller_reference((stale, plain), mine) == (mine, plain)


def test_the_view_keeps_what_decisions_need() -> None:
    """The view of a Sandbox has every decided field and no reserved template key."""
    spec = {
        "podTemplate": template(
            {"a": "b", "agents.x-k8s.io/claim-uid": "1"},
            {"opentelemetry.io/trace-context": "{}"},
            {"containers": [{"name": "m", "ports": [{"containerPort": 8080}]}]},
        ),
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
        "service": False,
        "shutdownTime": "1970-01-01T00:00:01.5Z",
        "shutdownPolicy": "Delete",
        "operatingMode": "Suspended",
    }

    view = view_of(sandbox(spec, generation=7))

    assert view.generation == 7
    assert view.is_suspended
    assert view.service is False
    assert view.shutdown_time == 1.5
    assert view.is_deleted_at_expiry
    assert view.template_metadata.labels == {"a": "b"}
    assert view.template_metadata.annotations is None
    assert view.ports == (ServicePort("p-8080-tcp", "TCP", 8080, 8080),)
    assert view.claim_templates == ("data",)


def test_sandboxes_of_one_template_share_their_views() -> None:
    """Maps and ports of equal templates are one object in memory for all Sandboxes."""
    spec = {
        "podTemplate": template(
            {"a": "b"}, {"c": "d"}, {"containers": [{"ports": [{"containerPort": 1}]}]}
        )
    }

    one = view_of(sandbox(spec))
    two = view_of(sandbox(spec))

    assert one.template_metadata.labels is two.template_metadata.labels
    assert one.template_metadata.annotations is two.template_metadata.annotations
    assert one.ports is two.ports
