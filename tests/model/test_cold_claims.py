"""The Sandbox that a claim gets when no pool member serves it."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.model.claim_sandbox import build_cold_sandbox, launch_type_patch
from lean_sandbox.model.names import name_hash
from lean_sandbox.model.template import TemplateView
from tests.model.extensions import (
    CLAIM_UID,
    LAUNCH_TYPE,
    MAIN,
    REF_HASH,
    TEMPLATE_REF,
    claim_spec,
    facts,
    template,
)
from tests.model.support import as_json

H = name_hash("tpl")


def cold(view: TemplateView | None = None, **spec: Any) -> dict[str, Any]:
    """Return the body as the server would read it."""
    body = build_cold_sandbox(facts(), claim_spec(**spec), view or template())
    result: dict[str, Any] = as_json(body)
    return result


@pytest.mark.claim_case(1)
def test_a_plain_claim_makes_a_plain_sandbox() -> None:
    """Claim case 1: name, labels, annotation, one owner; no policy, no mode, no eviction mark."""
    assert cold() == {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {
            "name": "c",
            "namespace": "default",
            "labels": {CLAIM_UID: "u1", LAUNCH_TYPE: "cold", REF_HASH: H},
            "annotations": {TEMPLATE_REF: "tpl"},
            "ownerReferences": [
                {
                    "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
                    "kind": "SandboxClaim",
                    "name": "c",
                    "uid": "u1",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "podTemplate": {
                "metadata": {"labels": {CLAIM_UID: "u1", REF_HASH: H}},
                "spec": {
                    "containers": [MAIN],
                    "automountServiceAccountToken": False,
                    "dnsPolicy": "None",
                    "dnsConfig": {"nameservers": ["8.8.8.8", "1.1.1.1"]},
                },
            }
        },
    }


@pytest.mark.claim_case(33)
@pytest.mark.template_case(41)
def test_variables_go_into_a_secured_pod() -> None:
    """Claim case 33, Template case 41: defaults and injection do not get into each other's way."""
    view = template(envVarsInjectionPolicy="Overrides")
    spec = cold(view, env=[{"name": "A", "value": "b"}])["spec"]["podTemplate"]["spec"]
    assert spec["containers"] == [{**MAIN, "env": [{"name": "A", "value": "b"}]}]
    assert spec["automountServiceAccountToken"] is False
    # The template's own copy is as it was.
    plain = cold(view)["spec"]["podTemplate"]["spec"]
    assert plain["containers"] == [MAIN]


@pytest.mark.claim_case(9)
@pytest.mark.parametrize(
    ("status_name", "assigned_name", "expected"),
    [("c", "", "cold"), ("m1", "", "warm"), ("m1", "m1", "warm"), ("c", "c", "warm")],
)
def test_a_lost_launch_type_is_told_from_the_names(
    status_name: str, assigned_name: str, expected: str
) -> None:
    """Claim case 9: assigned or named otherwise than the claim is warm; a value never changes."""
    patch = launch_type_patch(None, status_name, assigned=assigned_name, claim="c")
    assert patch == {"metadata": {"labels": {LAUNCH_TYPE: expected}}}
    held = {LAUNCH_TYPE: ""}
    assert launch_type_patch(held, status_name, assigned=assigned_name, claim="c") is None
