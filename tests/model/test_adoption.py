"""Taking a pool member over."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.model.claim import ClaimFacts
from lean_sandbox.model.claim_additions import bound_sync_patch, desired_pod_metadata
from lean_sandbox.model.claim_sandbox import adoption_patch, needs_template_touch
from lean_sandbox.model.names import name_hash
from lean_sandbox.model.sandbox import PodTemplateMetadata, view_of
from lean_sandbox.model.template import TemplateView
from lean_sandbox.model.warmpool import build_member
from tests.model.extensions import (
    CLAIM_UID,
    CREATED_BY,
    LAUNCH_TYPE,
    POD_TEMPLATE_HASH,
    REF_HASH,
    SAFE,
    TEMPLATE_HASH,
    TEMPLATE_REF,
    TRACE,
    WARM_POOL,
    additional,
    facts,
    known,
    patched,
    pool,
    stored_member,
    template,
)
from tests.model.support import sandbox

H = name_hash("tpl")
OWNER = {
    "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
    "kind": "SandboxClaim",
    "name": "c",
    "uid": "u1",
    "controller": True,
    "blockOwnerDeletion": True,
}


def member(view: TemplateView | None = None, *, eviction: bool = True) -> dict[str, Any]:
    """Return a stored member."""
    return stored_member(build_member(pool(), view or template(), eviction=eviction))


def adopted(
    stored: dict[str, Any],
    claim: ClaimFacts | None = None,
    view: TemplateView | None = None,
    *,
    touches_template: bool = True,
    **facts_known: Any,
) -> dict[str, Any]:
    """Return the member after its adoption."""
    claim = claim or facts()
    inner = stored["spec"]["podTemplate"].get("metadata", {})
    current = PodTemplateMetadata(inner.get("labels"), inner.get("annotations"))
    desired = desired_pod_metadata(view, claim, ref_hash=H, current=current)
    touched = desired if touches_template else None
    return patched(stored, adoption_patch(claim, touched, **known(stored, **facts_known)))


@pytest.mark.claim_case(78)
def test_a_version_is_a_guard_where_the_pool_is_not_the_first_owner() -> None:
    """Claim case 78: the outcome is the same, and any write in between is noticed."""
    before = member()
    before["metadata"]["resourceVersion"] = "41"
    others = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "o"}]
    before["metadata"]["ownerReferences"] = others + before["metadata"]["ownerReferences"]
    operations = adoption_patch(facts(), None, **known(before), version="41")
    after = patched(before, operations)
    assert after["metadata"]["ownerReferences"] == [OWNER]

    before["metadata"]["resourceVersion"] = "42"
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        patched(before, operations)


def test_an_annotation_is_never_set_over_ones_that_may_exist() -> None:
    """Not knowing any annotation, the patch sets none."""
    after = adopted(member(), facts(annotations={TRACE: "{}"}), annotations=None)
    assert after["metadata"]["annotations"] == {TEMPLATE_REF: "tpl"}


@pytest.mark.parametrize("is_applied", [False, True])
def test_the_record_of_fields_ends_unless_somebody_applied(*, is_applied: bool) -> None:
    """The patch empties managedFields, but never what somebody owns by server-side apply."""
    before = member()
    before["metadata"]["managedFields"] = [{"manager": "x"}]
    after = adopted(before, is_applied=is_applied)
    assert after["metadata"]["managedFields"] == ([{"manager": "x"}] if is_applied else [{}])


@pytest.mark.claim_case(71)
def test_an_empty_template_hash_is_filled_and_another_is_kept() -> None:
    """Claim case 71: the old template's hash survives adoption; the bound reconcile rewrites it."""
    before = member()
    before["metadata"]["labels"][REF_HASH] = ""
    assert adopted(before)["metadata"]["labels"][REF_HASH] == H
    del before["metadata"]["labels"][REF_HASH]
    assert REF_HASH not in adopted(before, ref_hash="")["metadata"]["labels"]
    before["metadata"]["labels"][REF_HASH] = "old"
    after = adopted(before)["metadata"]["labels"]
    assert after[REF_HASH] == "old"

    new = template(name="tpl2")
    desired = desired_pod_metadata(new, facts(), ref_hash=new.ref_hash)
    patch = bound_sync_patch(
        desired, PodTemplateMetadata(), claim=facts(), labels=after, ref_hash=new.ref_hash
    )
    assert patch is not None
    assert patch["metadata"] == {"labels": {REF_HASH: name_hash("tpl2")}}


# --- touching the spec ---------------------------------------------------------------------------


def remembered(stored: dict[str, Any]) -> PodTemplateMetadata:
    """Return the template metadata as the cache remembers it: without reserved keys."""
    return view_of(sandbox(stored["spec"])).template_metadata


@pytest.mark.claim_case(67)
@pytest.mark.parametrize(
    ("view", "eviction", "wanted", "expected"),
    [
        (template(), False, {}, False),
        (template(), True, {}, True),
        (template(metadata={"annotations": {SAFE: "true"}}), True, {}, False),
        (template(metadata={"annotations": {SAFE: "false"}}), True, {}, False),
        (template(metadata={"labels": {"a": "b"}}), False, {}, False),
        (template(), True, additional(None, {SAFE: "true"}), False),
        (template(), False, additional({"sandbox.users.io/l": "v"}), True),
        (template(), False, additional(None, {"a": "b"}), True),
    ],
)
def test_the_spec_is_touched_only_for_what_reaches_the_pod(
    view: TemplateView,
    eviction: bool,  # noqa: FBT001
    wanted: dict[str, Any],
    expected: bool,  # noqa: FBT001
) -> None:
    """Claim case 67: identity alone is no reason; the pool's mark and the claim's wishes are."""
    stored = member(view, eviction=eviction)
    desired = desired_pod_metadata(view, facts(wanted), ref_hash=H)

    assert needs_template_touch(remembered(stored), desired) is expected


def test_a_template_never_seen_is_touched() -> None:
    """Not knowing the member's metadata is no reason to leave it."""
    assert needs_template_touch(None, PodTemplateMetadata())
    assert not needs_template_touch(PodTemplateMetadata(), PodTemplateMetadata({CLAIM_UID: "u1"}))


# --- laws ----------------------------------------------------------------------------------------

KEYS = ["foreign", "other/key", "til~de", CREATED_BY, TRACE, WARM_POOL, TEMPLATE_HASH, LAUNCH_TYPE]
VALUES = st.sampled_from(["", "1", "warm"])
MAPS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6)
POOL_KEYS = {WARM_POOL, TEMPLATE_HASH, POD_TEMPLATE_HASH, CREATED_BY}


@st.composite
def members(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, str] | None]:
    """Draw a member and what of its labels is known."""
    stored = member(eviction=draw(st.booleans()))
    for key in draw(st.sets(st.sampled_from(sorted(POOL_KEYS)))):
        stored["metadata"]["labels"].pop(key, None)
    stored["metadata"]["labels"].update(draw(MAPS))
    stored["metadata"]["annotations"].update(draw(MAPS))
    others = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": f"o{n}", "uid": f"o{n}"}
        for n in range(draw(st.integers(0, 2)))
    ]
    stored["metadata"]["ownerReferences"] += others
    labels = stored["metadata"]["labels"]
    kept = draw(st.sets(st.sampled_from(sorted(labels)))) if labels else set()
    return stored, {key: labels[key] for key in kept} or None


CLAIMS = st.sampled_from(
    [
        facts(),
        facts(labels={CREATED_BY: "go-client"}),
        facts(annotations={TRACE: "{}"}),
        facts(additional({"sandbox.users.io/l": "v"}, {"a": "b"})),
    ]
)


@given(members(), CLAIMS, st.booleans())
def test_any_member_ends_with_one_owner_and_all_foreign_keys(
    drawn: tuple[dict[str, Any], dict[str, str] | None],
    claim: ClaimFacts,
    touches: bool,  # noqa: FBT001
) -> None:
    """However little is known of a member: one owner, no mark of the pool, no foreign key lost."""
    stored, labels = drawn

    after = adopted(stored, claim, template(), touches_template=touches, labels=labels)

    assert after["metadata"]["ownerReferences"] == [OWNER]
    result = after["metadata"]["labels"]
    assert not result.keys() & (POOL_KEYS - {CREATED_BY})
    assert result.get(CREATED_BY, "") == claim.created_by
    assert (result[CLAIM_UID], result[LAUNCH_TYPE]) == ("u1", "warm")
    foreign = stored["metadata"]["labels"].keys() - POOL_KEYS - {LAUNCH_TYPE, REF_HASH}
    assert all(result[key] == stored["metadata"]["labels"][key] for key in foreign)
    before = stored["metadata"]["annotations"]
    trace = {TRACE: claim.trace_context} if claim.trace_context else {}
    assert after["metadata"]["annotations"] == {**before, **trace}
    assert (after["spec"] == stored["spec"]) or touches
