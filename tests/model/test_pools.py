"""Pools: their members as they are made, and their status."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.model.conditions import whole_status
from lean_sandbox.model.names import name_hash
from lean_sandbox.model.template import TemplateView
from lean_sandbox.model.warmpool import SandboxWarmPoolStatus, build_member
from tests.model.extensions import (
    CREATED_BY,
    LAUNCH_TYPE,
    MAIN,
    POD_TEMPLATE_HASH,
    POOL_UID,
    REF_HASH,
    SAFE,
    TEMPLATE_HASH,
    TEMPLATE_REF,
    WARM_POOL,
    pool,
    template,
)
from tests.model.support import as_json, merged


def made(view: TemplateView | None = None, *, eviction: bool = True) -> dict[str, Any]:
    """Return a member's body as the server would read it."""
    body: dict[str, Any] = as_json(build_member(pool(), view or template(), eviction=eviction))
    return body


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.pool_case(2)
@pytest.mark.parametrize("spec", [{}, {"replicas": None}])
def test_absent_replicas_are_one(spec: dict[str, Any]) -> None:
    """Pool case 2: objects that were never defaulted want one member; zero is zero."""
    assert pool(spec).replicas == 1
    assert pool({"replicas": 0}).replicas == 0


@pytest.mark.pool_case(6, 76, 77)
@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (None, False),
        ({}, False),
        ({"type": ""}, False),
        ({"type": None}, False),
        ({"type": "OnReplenish"}, False),
        ({"type": "Rolling"}, False),
        ({"type": "Recreate"}, True),
    ],
)
def test_only_recreate_recreates(
    strategy: dict[str, Any] | None,
    expected: bool,  # noqa: FBT001
) -> None:
    """Pool cases 6, 76, 77: everything else acts like OnReplenish."""
    assert pool({"updateStrategy": strategy}).is_recreate is expected


# --- members -------------------------------------------------------------------------------------


@pytest.mark.pool_case(10)
def test_a_member_word_for_word() -> None:
    """Pool case 10: generated name, six labels, one annotation, one owner, no mode."""
    view = template()
    stamps = {
        WARM_POOL: "91dd7983",
        REF_HASH: name_hash("tpl"),
        POD_TEMPLATE_HASH: view.pod_template_hash,
        TEMPLATE_HASH: view.blueprint_hash,
    }
    assert made(view) == {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {
            "generateName": "pool-",
            "namespace": "default",
            "labels": {**stamps, LAUNCH_TYPE: "warm", CREATED_BY: "controller"},
            "annotations": {TEMPLATE_REF: "tpl"},
            "ownerReferences": [
                {
                    "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
                    "kind": "SandboxWarmPool",
                    "name": "pool",
                    "uid": POOL_UID,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "podTemplate": {
                "metadata": {"labels": stamps, "annotations": {SAFE: "true"}},
                "spec": {
                    "containers": [MAIN],
                    "automountServiceAccountToken": False,
                    "dnsPolicy": "None",
                    "dnsConfig": {"nameservers": ["8.8.8.8", "1.1.1.1"]},
                },
            }
        },
    }


@pytest.mark.pool_case(11)
@pytest.mark.template_case(32)
def test_template_metadata_is_kept_under_the_stamps() -> None:
    """Pool case 11, Template case 32: own keys stay, forged ones are overwritten."""
    view = template(metadata={"labels": {"a": "b", REF_HASH: "other"}, "annotations": {"c": "d"}})
    metadata = made(view)["spec"]["podTemplate"]["metadata"]
    assert metadata["labels"]["a"] == "b"
    assert metadata["labels"][REF_HASH] == name_hash("tpl")
    assert len(metadata["labels"]) == 5
    assert metadata["annotations"] == {"c": "d", SAFE: "true"}
    assert view.pod_metadata.labels == {"a": "b", REF_HASH: "other"}


# --- status --------------------------------------------------------------------------------------


STATUSES = st.builds(
    SandboxWarmPoolStatus,
    replicas=st.integers(0, 2),
    readyReplicas=st.integers(0, 2),
    selector=st.sampled_from(["", "s"]),
    observedGeneration=st.integers(0, 2),
)


@pytest.mark.pool_case(23, 24)
@given(STATUSES, STATUSES)
def test_a_patch_leads_from_any_status_to_any_other(
    stored: SandboxWarmPoolStatus, new: SandboxWarmPoolStatus
) -> None:
    """Pool cases 23, 24: applied to whatever is stored it gives the new one; no zero is stored."""
    after = merged(as_json(stored), whole_status(new))
    assert after == as_json(new)
    assert 0 not in after.values()
