"""Laws of pruning: smaller copies, untouched originals."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters import (
    LAST_APPLIED,
    Pruner,
    Writer,
    allow_keys,
    drop_annotations,
    drop_finalizers,
    drop_managed_fields,
    drop_spec,
    drop_status,
    keep_annotations,
    keep_labels,
    latest_write,
    prune,
    prune_mapping,
    writers,
)


def document() -> dict[str, Any]:
    """Return an object that has everything the rules know."""
    return {
        "kind": "Pod",
        "metadata": {
            "name": "box",
            "labels": {"app": "web", "tier": "x"},
            "annotations": {"keep": "1", LAST_APPLIED: "{}"},
            "finalizers": ["f"],
            "managedFields": [{"manager": "kubelet"}],
        },
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running"},
    }


def without(path: str) -> dict[str, Any]:
    """Return the document without the field at the dotted path."""
    pruned = document()
    *parents, last = path.split(".")
    inner = pruned
    for parent in parents:
        inner = inner[parent]
    del inner[last]
    return pruned


RULES = [
    (drop_managed_fields, "metadata.managedFields"),
    (drop_finalizers, "metadata.finalizers"),
    (drop_spec, "spec"),
    (drop_status, "status"),
    (keep_labels("app"), "metadata.labels.tier"),
    (keep_labels("other"), "metadata.labels"),
    (keep_annotations(LAST_APPLIED), "metadata.annotations.keep"),
    (drop_annotations("keep", LAST_APPLIED), "metadata.annotations"),
]


@pytest.mark.parametrize(("rule", "path"), RULES)
def test_a_rule_drops_its_field_and_nothing_else(rule: Pruner, path: str) -> None:
    """The result is the object without that field; the argument stays as it was."""
    original = document()
    assert rule(original) == without(path)
    assert original == document()


@pytest.mark.parametrize("rule", [rule for rule, _ in RULES])
@pytest.mark.parametrize("bare", [{}, {"metadata": {}}, {"metadata": None}])
def test_a_rule_leaves_an_object_without_its_field_alone(
    rule: Pruner, bare: dict[str, Any]
) -> None:
    """Nothing to drop is no error, and no field is made up."""
    assert rule(copy.deepcopy(bare)) == bare


def test_dropping_annotations_means_the_copy_kept_by_apply() -> None:
    """Without keys the rule drops the annotation of client-side apply."""
    kept = drop_annotations()(document())["metadata"]["annotations"]
    assert kept == {"keep": "1"}


def test_rules_compose_in_turn() -> None:
    """One rule made of many does what they do one after the other; of none, nothing."""
    rule = prune(drop_spec, drop_status, drop_managed_fields, keep_labels(), keep_annotations())
    assert rule(document()) == {"kind": "Pod", "metadata": {"name": "box", "finalizers": ["f"]}}
    assert prune()(document()) == document()


@given(
    mapping=st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3)),
    keep=st.lists(st.text(max_size=3)),
)
def test_pruning_a_mapping_keeps_exactly_the_chosen_entries(
    mapping: dict[str, str] | None, keep: list[str]
) -> None:
    """Kept is what is both present and chosen; nothing left is None."""
    expected = {key: value for key, value in (mapping or {}).items() if key in keep}
    assert prune_mapping(mapping, keep) == (expected or None)
    assert allow_keys(*keep)(mapping) == (expected or None)


def test_managed_fields_tell_who_wrote_last() -> None:
    """Writers are summarised without field sets; the newest foreign status write is found."""
    found = writers(
        [
            {
                "manager": "me",
                "operation": "Update",
                "time": "2026-01-01T00:00:09Z",
                "subresource": "status",
            },
            {
                "manager": "kubelet",
                "operation": "Update",
                "time": "2026-01-01T00:00:05Z",
                "subresource": "status",
                "fieldsV1": {"f:status": {}},
            },
            {
                "manager": "scheduler",
                "operation": "Update",
                "time": "2026-01-01T00:00:02Z",
                "subresource": "status",
            },
            {"manager": "kubectl", "operation": "Apply", "time": "2026-01-01T00:00:08Z"},
        ]
    )
    kubelet = Writer("kubelet", "Update", "status", "2026-01-01T00:00:05Z")
    assert found[1] == kubelet
    assert latest_write(found, ours={"me"}) == kubelet
    assert latest_write(found) == found[0]
    assert latest_write(found, subresource="") == Writer(
        "kubectl", "Apply", "", "2026-01-01T00:00:08Z"
    )
    assert latest_write(found, subresource="scale") is None


def test_no_managed_fields_are_no_writers() -> None:
    """Objects that were pruned before, or entries without fields, are no error."""
    assert writers(None) == ()
    assert writers([{}]) == (Writer("", "", "", ""),)
