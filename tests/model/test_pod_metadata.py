"""Keeping the metadata of an existing Pod in step with its template."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.pod import metadata_patch
from lean_sandbox.model.sandbox import PodTemplateMetadata, visible
from tests.model.support import HASH_KEY, merged, owner, pod_meta, sandbox_meta

NOTHING = PodTemplateMetadata()

LABELS = "agents.x-k8s.io/propagated-labels"
ANNOTATIONS = "agents.x-k8s.io/propagated-annotations"
WARM = "agents.x-k8s.io/warm-pool-sandbox"
REF = "agents.x-k8s.io/sandbox-template-ref-hash"
CREATED_BY = "agents.x-k8s.io/created-by"
CLAIM = "agents.x-k8s.io/claim-uid"


def patch_of(
    meta: ObjectMeta, template: PodTemplateMetadata, held: PodTemplateMetadata
) -> dict[str, dict[str, str | None]] | None:
    """Return the patch of a Pod by what of the template's metadata is visible."""
    return metadata_patch(meta, visible(template), held)


def test_empty_entries_of_a_list_are_skipped() -> None:
    """An empty list entry names no key."""
    pod = pod_meta({"a": "1"}, {LABELS: ",a,,"})

    assert patch_of(sandbox_meta(), PodTemplateMetadata({"a": "1"}), pod) == {
        "annotations": {LABELS: "a"}
    }


@pytest.mark.case(75, 78, 79)
@pytest.mark.parametrize("owners", [(), (owner("SandboxWarmPool", "example.com/v1"),)])
def test_without_an_extension_owner_system_labels_go(owners: tuple[object, ...]) -> None:
    """Cases 75, 78, 79: pool and template labels leave the Pod when no extension kind owns."""
    meta = msgspec.structs.replace(sandbox_meta({WARM: "w", REF: "r"}), owner_references=owners)

    assert patch_of(meta, NOTHING, pod_meta()) is None
    assert patch_of(meta, NOTHING, pod_meta({WARM: "w", REF: "r"})) == {
        "labels": {WARM: None, REF: None}
    }


@pytest.mark.case(76)
def test_a_pool_member_shows_its_pool() -> None:
    """Case 76: the Pod of a pool member carries pool and template label."""
    meta = sandbox_meta({WARM: "w", REF: "r"}, owner("SandboxWarmPool"))

    assert patch_of(meta, NOTHING, pod_meta({WARM: "stale"})) == {"labels": {WARM: "w", REF: "r"}}


@pytest.mark.case(77)
def test_a_claimed_member_no_longer_shows_its_pool() -> None:
    """Case 77: with the claim as owner the pool label goes and the template label stays."""
    meta = sandbox_meta({WARM: "w", REF: "r"}, owner("SandboxClaim"))

    assert patch_of(meta, NOTHING, pod_meta({WARM: "w", REF: "r"})) == {
        "labels": {WARM: None, CLAIM: meta.owners[0].uid}
    }


def test_the_uid_of_a_claim_is_that_of_the_owner_alone() -> None:
    """Whatever the Sandbox, its template or the Pod say; it goes with the claim."""
    forged = PodTemplateMetadata({CLAIM: "forged"})
    meta = sandbox_meta({CLAIM: "forged"}, owner("SandboxClaim"))
    assert patch_of(meta, forged, pod_meta({CLAIM: "forged"})) == {
        "labels": {CLAIM: meta.owners[0].uid}
    }
    for other in (owner("SandboxWarmPool"), owner("SandboxClaim", "example.com/v1")):
        meta = sandbox_meta({CLAIM: "forged"}, other)
        assert patch_of(meta, forged, pod_meta({CLAIM: "forged"})) == {"labels": {CLAIM: None}}
        assert patch_of(meta, forged, pod_meta()) is None


def test_an_empty_system_label_is_not_expected() -> None:
    """An empty value on the Sandbox means the label is not expected on the Pod."""
    meta = sandbox_meta({WARM: "", REF: "", CREATED_BY: ""}, owner("SandboxWarmPool"))

    assert patch_of(meta, NOTHING, pod_meta({WARM: "w", REF: "r", CREATED_BY: "x"})) == {
        "labels": {WARM: None, REF: None, CREATED_BY: None}
    }


@pytest.mark.case(80)
def test_created_by_follows_the_sandbox() -> None:
    """Case 80: the normalised creator is on the Pod as long as the Sandbox names one."""
    assert patch_of(sandbox_meta({CREATED_BY: "foo"}), NOTHING, pod_meta()) == {
        "labels": {CREATED_BY: "unknown"}
    }
    assert patch_of(sandbox_meta(), NOTHING, pod_meta({CREATED_BY: "unknown"})) == {
        "labels": {CREATED_BY: None}
    }


@pytest.mark.case(148)
def test_an_empty_value_is_listed_but_not_added() -> None:
    """Case 148: an existing Pod does not get a label of empty value, but the list names it."""
    wanted = PodTemplateMetadata({"a": ""}, {"c": ""})

    assert patch_of(sandbox_meta(), wanted, pod_meta()) == {
        "annotations": {LABELS: "a", ANNOTATIONS: "c"}
    }
    pod = pod_meta({"a": "x"}, {LABELS: "a", ANNOTATIONS: "c", "c": "x"})
    assert patch_of(sandbox_meta(), wanted, pod) == {
        "labels": {"a": ""},
        "annotations": {"c": ""},
    }


KEYS = st.sampled_from(
    ["a", "b", "c", "", HASH_KEY, WARM, REF, CREATED_BY, LABELS, ANNOTATIONS, "agents.x-k8s.io/e"]
)
MAPS = st.dictionaries(KEYS.filter(bool), st.sampled_from(["", "1", "2", "controller"]))
LISTS = st.lists(KEYS, max_size=4).map(",".join)


@given(
    template=st.builds(PodTemplateMetadata, st.none() | MAPS, st.none() | MAPS),
    sandbox_labels=MAPS,
    kind=st.sampled_from(["SandboxClaim", "SandboxWarmPool"]),
    pod_labels=MAPS,
    pod_annotations=MAPS,
    lists=st.dictionaries(st.sampled_from([LABELS, ANNOTATIONS]), LISTS),
)
def test_one_patch_is_enough(
    template: PodTemplateMetadata,
    sandbox_labels: dict[str, str],
    kind: str,
    pod_labels: dict[str, str],
    pod_annotations: dict[str, str],
    lists: dict[str, str],
) -> None:
    """Whatever Pod and template look like, after the patch there is nothing left to do."""
    meta = sandbox_meta(sandbox_labels, owner(kind))
    pod = PodTemplateMetadata(pod_labels, {**pod_annotations, **lists})

    patch = patch_of(meta, template, pod)
    after = merged({"labels": pod.labels, "annotations": pod.annotations}, patch or {})

    assert patch_of(meta, template, msgspec.convert(after, PodTemplateMetadata)) is None
