"""What metadata claims may ask for, and what their Sandboxes get."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.model.claim_additions import (
    bound_sync_patch,
    desired_pod_metadata,
    validate_additional_metadata,
)
from lean_sandbox.model.claim_status import ClaimError, ClaimFault
from lean_sandbox.model.names import name_hash
from lean_sandbox.model.pod import merge_patch_of
from lean_sandbox.model.sandbox import PodTemplateMetadata
from tests.model.extensions import (
    CLAIM_UID,
    CREATED_BY,
    REF_HASH,
    SAFE,
    WARM_POOL,
    additional,
    facts,
    template,
)
from tests.model.support import merged

H = name_hash("tpl")
IDENTITY = {CLAIM_UID: "u1", REF_HASH: H}
USERS = "sandbox.users.io"


def fault_of(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    domains: tuple[str, ...] = (USERS,),
) -> str:
    """Return the text of the refusal, empty for none."""
    try:
        validate_additional_metadata(PodTemplateMetadata(labels, annotations), domains)
    except ClaimError as error:
        refusal = error
    else:
        return ""
    assert refusal.fault is ClaimFault.INVALID_METADATA
    assert refusal.message == str(refusal)
    return refusal.text


# --- validation ----------------------------------------------------------------------------------


@pytest.mark.claim_case(21)
def test_a_label_needs_a_domain() -> None:
    """Claim case 21: a plain label could opt into any policy."""
    assert fault_of({"plain": "v"}) == (
        'invalid additionalPodMetadata: failed to validate label "plain": label "plain" must have '
        "a domain prefix (e.g. 'sandbox.users.io/my-label') "
        "to prevent opting into unintended policy domains"
    )


@pytest.mark.claim_case(22)
@pytest.mark.parametrize("value", ["x" * 64, "invalid@value", "-a", "a\n", "a\u00e9"])
def test_a_label_value_has_its_rules(value: str) -> None:
    """Claim case 22: at most 63 of a few characters; empty is fine."""
    key = f"{USERS}/x"
    assert f'label "{key}": invalid label value: "{value}" does not match' in fault_of({key: value})
    assert not fault_of({key: ""})
    assert not fault_of({key: "x" * 63})


@pytest.mark.claim_case(23)
@pytest.mark.parametrize(
    "key",
    [
        f"{USERS}/in@valid",
        f"{USERS}/",
        "/x",
        f"{USERS}/a/b",
        f"{USERS}/" + "x" * 64,
        "Upper.io/x",
        "a" * 254 + "/x",
        "",
        "-x",
        "x\n",
    ],
)
def test_keys_are_qualified_names(key: str) -> None:
    """Claim case 23: of labels and of annotations."""
    start = "invalid additionalPodMetadata: failed to validate"
    assert fault_of({key: "v"}).startswith(f'{start} label "{key}": invalid label key: "{key}": ')
    assert fault_of(None, {key: "v"}).startswith(
        f'{start} annotation "{key}": invalid annotation key: "{key}": '
    )


@pytest.mark.claim_case(24, 29, 30)
@pytest.mark.parametrize(
    ("domain", "is_allowed"),
    [
        ("kubernetes.io", False),
        (USERS, True),
        (f"sub.{USERS}", True),
        (f"evil{USERS}", False),
        ("agents.x-k8s.io", False),
        ("users.io", False),
        ("cluster-autoscaler.kubernetes.io", False),
    ],
)
def test_label_domains_come_from_the_allow_list(domain: str, is_allowed: bool) -> None:  # noqa: FBT001
    """Claim cases 24, 29, 30: an allowed domain and those below it, nothing that looks alike."""
    text = fault_of({f"{domain}/x": "v"})
    assert (not text) is is_allowed
    if text:
        assert text.endswith(f': label domain "{domain}" is not in the allowlist')


@pytest.mark.claim_case(25)
@pytest.mark.parametrize("key", ["app", "APP", "Other"])
@pytest.mark.parametrize("value", ["sandbox-router", "Sandbox-Router", "other"])
def test_nobody_poses_as_the_router(key: str, value: str) -> None:
    """Claim case 25: whatever the case of the letters; the key or the value alone is no pose."""
    poses = key.lower() == "app" and value.lower() == "sandbox-router"
    refusal = f': restricted system label value: "{key}"="{value}" is not allowed in '
    assert (refusal in fault_of({key: value})) is poses


@pytest.mark.claim_case(27, 28, 29)
@pytest.mark.parametrize(
    ("key", "is_allowed"),
    [
        ("plain", True),
        ("x" * 63, True),
        ("kubernetes.io", True),
        ("agents.x-k8s.io", True),
        ("foo.x-k8s.io/a", True),
        ("x-k8s.io/a", True),
        ("podsnapshot.gke.io/ps-name", True),
        ("notkubernetes.io/a", True),
        (SAFE, True),
        ("agents.x-k8s.io/pod-name", False),
        ("extensions.agents.x-k8s.io/a", False),
        ("foo.kubernetes.io/a", False),
        ("k8s.io/a", False),
        ("cluster-autoscaler.kubernetes.io/other", False),
    ],
)
def test_annotations_keep_off_the_system(key: str, is_allowed: bool) -> None:  # noqa: FBT001
    """Claim cases 27, 28, 29: system domains are closed but for one key; a bare name is in none."""
    expected = (
        f'invalid additionalPodMetadata: failed to validate annotation "{key}": '
        f'restricted system domain: "{key}" is not allowed in AdditionalPodMetadata'
    )
    assert fault_of(None, {key: "any @ value"}) == ("" if is_allowed else expected)


def test_labels_are_looked_at_first() -> None:
    """The first fault is told, and labels come before annotations."""
    assert 'label "plain"' in fault_of({"plain": "v"}, {"k8s.io/a": "v"})
    assert not fault_of(None, None)


# --- merging -------------------------------------------------------------------------------------


@pytest.mark.claim_case(15, 27, 29)
def test_template_then_identity_then_claim() -> None:
    """Claim cases 15, 27, 29: what the Pod template of a claim's Sandbox carries."""
    view = template(metadata={"labels": {"t": "1", CREATED_BY: "x"}, "annotations": {"ta": "1"}})
    claim = facts(
        additional({f"{USERS}/l": "v"}, {"plain": "v", SAFE: "false"}),
        labels={CREATED_BY: "go-client"},
    )

    assert desired_pod_metadata(view, claim, ref_hash=H) == PodTemplateMetadata(
        {"t": "1", **IDENTITY, CREATED_BY: "go-client", f"{USERS}/l": "v"},
        {"ta": "1", "plain": "v", SAFE: "false"},
    )
    without = desired_pod_metadata(view, facts(), ref_hash=H)
    assert without == PodTemplateMetadata({"t": "1", **IDENTITY}, {"ta": "1"})
    assert view.pod_metadata.labels == {"t": "1", CREATED_BY: "x"}


@pytest.mark.claim_case(31)
def test_a_claim_may_repeat_a_template_but_not_contradict_it() -> None:
    """Claim case 31: the same value is fine, another is a conflict worth a retry."""
    key = f"{USERS}/l"
    view = template(metadata={"labels": {key: "v"}, "annotations": {"a": "v"}})

    desired_pod_metadata(view, facts(additional({key: "v"}, {"a": "v"})), ref_hash=H)

    for what, name, wanted in (
        ("label", key, additional({key: "w"})),
        ("annotation", "a", additional(None, {"a": "w"})),
    ):
        with pytest.raises(ClaimError) as caught:
            desired_pod_metadata(view, facts(wanted), ref_hash=H)
        assert caught.value.fault is ClaimFault.OTHER
        assert caught.value.message == (
            f'Error seen: metadata override conflict: {what} "{name}" is defined in template '
            "with another value than the claim requests"
        )


def test_an_operator_who_allows_everything_cannot_give_identity_away() -> None:
    """A claim that asks for another claim's uid meets the conflict check."""
    with pytest.raises(ClaimError, match="metadata override conflict"):
        desired_pod_metadata(template(), facts(additional({CLAIM_UID: "other"})), ref_hash=H)


@pytest.mark.claim_case(67)
@pytest.mark.parametrize(
    ("view", "current", "extra", "expected"),
    [
        # The pool's own mark goes when the template is known...
        (template(), {SAFE: "true"}, {}, None),
        # ...what the template says stays, true or false...
        (template(metadata={"annotations": {SAFE: "false"}}), {SAFE: "false"}, {}, "false"),
        (template(metadata={"annotations": {SAFE: "true"}}), {SAFE: "true"}, {}, "true"),
        # ...without a template only a true is taken for the pool's...
        (None, {SAFE: "false"}, {}, "false"),
        (None, {SAFE: "true"}, {}, None),
        # ...and the claim's own wish is kept.
        (None, {SAFE: "true"}, {SAFE: "true"}, "true"),
        (template(), {SAFE: "true"}, {SAFE: "true"}, "true"),
    ],
)
def test_safe_to_evict_at_adoption(
    view: Any, current: dict[str, str], extra: dict[str, str], expected: str | None
) -> None:
    """Claim case 67: the pool's mark vanishes; the template's and the claim's stay."""
    desired = desired_pod_metadata(
        view,
        facts(additional(None, extra)),
        ref_hash=H,
        current=PodTemplateMetadata({WARM_POOL: "x"}, current),
    )
    assert (desired.annotations or {}).get(SAFE) == expected


def test_without_a_template_the_member_keeps_its_metadata() -> None:
    """What cannot be resolved is taken from the member, marks of the pool included."""
    current = PodTemplateMetadata(
        {WARM_POOL: "x", "own": "1", CREATED_BY: "controller"}, {"a": "b"}
    )
    desired = desired_pod_metadata(None, facts(), ref_hash="", current=current)
    assert desired == PodTemplateMetadata({WARM_POOL: "x", "own": "1", CLAIM_UID: "u1"}, {"a": "b"})


# --- bound Sandboxes -----------------------------------------------------------------------------


@pytest.mark.claim_case(9, 69, 71)
def test_the_sandboxes_own_labels_follow() -> None:
    """Claim cases 9, 69, 71: a missing or old template hash and created-by are put right."""
    claim = facts(labels={CREATED_BY: "go-client"})
    desired = desired_pod_metadata(template(), claim, ref_hash=H)

    def own(labels: dict[str, str] | None, who: Any = claim) -> Any:
        return bound_sync_patch(desired, desired, claim=who, labels=labels, ref_hash=H)

    assert own(None) == {"metadata": {"labels": {REF_HASH: H, CREATED_BY: "go-client"}}}
    old = {REF_HASH: "old", CREATED_BY: "go-client"}
    assert own(old) == {"metadata": {"labels": {REF_HASH: H}}}
    gone = {"metadata": {"labels": {CREATED_BY: None}}}
    assert own({REF_HASH: H, CREATED_BY: "controller"}, facts()) == gone
    assert own({REF_HASH: H, CREATED_BY: ""}, facts()) == gone
    assert own({REF_HASH: H}, facts()) is None


def test_removed_wishes_are_removed() -> None:
    """A key the claim no longer asks for disappears; the snapshot tools wait for that."""
    key = "podsnapshot.gke.io/ps-name"
    before = desired_pod_metadata(template(), facts(additional(None, {key: "s"})), ref_hash=H)
    after = desired_pod_metadata(template(), facts(), ref_hash=H)
    assert merge_patch_of(before, after) == {"annotations": {key: None}}


MAPS = st.none() | st.dictionaries(
    st.sampled_from(["a", "b", "c", CLAIM_UID, WARM_POOL, SAFE]),
    st.sampled_from(["", "1", "2"]),
    max_size=5,
)


@given(MAPS, MAPS, MAPS, MAPS)
def test_the_patch_turns_any_metadata_into_any_other(
    a: dict[str, str] | None,
    b: dict[str, str] | None,
    c: dict[str, str] | None,
    d: dict[str, str] | None,
) -> None:
    """Applied to the current metadata the patch gives the desired one, exactly."""
    current = PodTemplateMetadata(a, b)
    desired = PodTemplateMetadata(c, d)

    after = merged({"labels": a or {}, "annotations": b or {}}, merge_patch_of(current, desired))

    assert after == {"labels": c or {}, "annotations": d or {}}


@given(MAPS, MAPS)
def test_merging_twice_changes_nothing_more(
    labels: dict[str, str] | None, annotations: dict[str, str] | None
) -> None:
    """The desired metadata, taken as the current one, is its own desired metadata."""
    wanted = facts(additional({f"{USERS}/l": "v"}, {"claim": "v"}))
    current = PodTemplateMetadata(labels, annotations)
    once = desired_pod_metadata(None, wanted, ref_hash=H, current=current)
    assert desired_pod_metadata(None, wanted, ref_hash=H, current=once) == once
