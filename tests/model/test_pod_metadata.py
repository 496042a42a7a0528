"""Keeping the metadata of an existing Pod in step with its template."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.pod import metadata_patch
from lean_sandbox.model.sandbox import PodTemplateMetadata, visible
from tests.model.support import (
    HASH,
    HASH_KEY,
    merged,
    owner,
    pod_meta,
    sandbox_meta,
    template_metadata,
)

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


@pytest.mark.case(59, 145)
def test_a_lost_tracking_label_is_restored() -> None:
    """Cases 59, 145: the tracking label is put back, also over a foreign value."""
    for labels in ({}, {HASH_KEY: "other"}):
        pod = pod_meta(labels, is_tracked=False)
        assert patch_of(sandbox_meta(), NOTHING, pod) == {"labels": {HASH_KEY: HASH}}


@pytest.mark.case(69)
def test_an_emptied_list_becomes_the_empty_string() -> None:
    """Case 69: the list of the last label is emptied, not removed, and then stays quiet."""
    pod = pod_meta({"a": "1"}, {LABELS: "a"})

    assert patch_of(sandbox_meta(), NOTHING, pod) == {
        "labels": {"a": None},
        "annotations": {LABELS: ""},
    }
    assert patch_of(sandbox_meta(), NOTHING, pod_meta({}, {LABELS: ""})) is None


@pytest.mark.case(72)
def test_reserved_template_keys_never_reach_an_existing_pod() -> None:
    """Case 72: reserved keys of the template are ignored on update as they are on create."""
    reserved = template_metadata(
        {HASH_KEY: "evil", "extensions.agents.x-k8s.io/x": "y"},
        {"agents.x-k8s.io/pod-name": "p", "opentelemetry.io/trace-context": "{}"},
    )

    assert patch_of(sandbox_meta(), reserved, pod_meta()) is None


@pytest.mark.case(73)
def test_reserved_keys_an_old_controller_recorded_are_scrubbed() -> None:
    """Case 73: recorded reserved keys leave the Pod and the lists."""
    pod = pod_meta(
        {"a": "1", "agents.x-k8s.io/evil": "e"},
        {
            "c": "1",
            "agents.x-k8s.io/pod-name": "p",
            "opentelemetry.io/trace-context": "{}",
            LABELS: "a,agents.x-k8s.io/evil",
            ANNOTATIONS: "c,agents.x-k8s.io/pod-name,opentelemetry.io/trace-context",
        },
    )

    assert patch_of(sandbox_meta(), template_metadata({"a": "1"}, {"c": "1"}), pod) == {
        "labels": {"agents.x-k8s.io/evil": None},
        "annotations": {
            "agents.x-k8s.io/pod-name": None,
            "opentelemetry.io/trace-context": None,
            LABELS: "a",
            ANNOTATIONS: "c",
        },
    }


@pytest.mark.case(74)
def test_a_recorded_name_hash_is_kept() -> None:
    """Case 74: the tracking label survives being listed; so do the lists themselves."""
    pod = pod_meta(
        {"a": "1"}, {"c": "1", LABELS: f"a,{HASH_KEY}", ANNOTATIONS: f"c,{LABELS},{ANNOTATIONS}"}
    )

    assert patch_of(sandbox_meta(), template_metadata({"a": "1"}, {"c": "1"}), pod) == {
        "annotations": {LABELS: "a", ANNOTATIONS: "c"}
    }


def test_empty_entries_of_a_list_are_skipped() -> None:
    """An empty list entry names no key."""
    pod = pod_meta({"a": "1"}, {LABELS: ",a,,"})

    assert patch_of(sandbox_meta(), template_metadata({"a": "1"}), pod) == {
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


@pytest.mark.case(81)
def test_labels_of_the_sandbox_itself_stay_there() -> None:
    """Case 81: a label of the Sandbox's own metadata is not copied."""
    assert patch_of(sandbox_meta({"team": "x"}), NOTHING, pod_meta()) is None


@pytest.mark.case(82)
def test_a_removed_autoscaler_annotation_is_removed() -> None:
    """Case 82: safe-to-evict is an ordinary managed key."""
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict"

    assert patch_of(
        sandbox_meta(), template_metadata(), pod_meta({}, {key: "true", ANNOTATIONS: key})
    ) == {"annotations": {key: None, ANNOTATIONS: ""}}


@pytest.mark.case(148)
def test_an_empty_value_is_listed_but_not_added() -> None:
    """Case 148: an existing Pod does not get a label of empty value, but the list names it."""
    wanted = template_metadata({"a": ""}, {"c": ""})

    assert patch_of(sandbox_meta(), wanted, pod_meta()) == {
        "annotations": {LABELS: "a", ANNOTATIONS: "c"}
    }
    pod = pod_meta({"a": "x"}, {LABELS: "a", ANNOTATIONS: "c", "c": "x"})
    assert patch_of(sandbox_meta(), wanted, pod) == {
        "labels": {"a": ""},
        "annotations": {"c": ""},
    }


@pytest.mark.case(139)
def test_the_patch_needs_no_more_than_the_kept_metadata() -> None:
    """Case 139: a Pod without managedFields and finalizers gives the same patch as the full one."""
    full = b"""{"labels": {"a": "1"}, "annotations": {"agents.x-k8s.io/propagated-labels": "a"},
        "finalizers": ["f"], "managedFields": [{"manager": "m"}]}"""
    decoded = msgspec.json.decode(full, type=ObjectMeta)
    held = PodTemplateMetadata(decoded.labels, decoded.annotations)
    pruned = PodTemplateMetadata({"a": "1"}, {LABELS: "a"})

    from_full = patch_of(sandbox_meta(), NOTHING, held)

    assert from_full == patch_of(sandbox_meta(), NOTHING, pruned)


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
