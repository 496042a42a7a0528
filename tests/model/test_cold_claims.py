"""The Sandbox that a claim gets when no pool member serves it."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.model.claim import ClaimFacts, SandboxClaimSpec
from lean_sandbox.model.claim_additions import desired_pod_metadata
from lean_sandbox.model.claim_sandbox import build_cold_sandbox, launch_type_patch
from lean_sandbox.model.claim_status import ClaimError, ClaimFault
from lean_sandbox.model.names import name_hash
from lean_sandbox.model.template import TemplateView
from tests.model.extensions import (
    CLAIM_UID,
    CREATED_BY,
    LAUNCH_TYPE,
    MAIN,
    REF_HASH,
    SAFE,
    TEMPLATE_REF,
    TRACE,
    additional,
    claim_spec,
    facts,
    template,
)
from tests.model.support import as_json

H = name_hash("tpl")


def cold(
    view: TemplateView | None = None, claim: ClaimFacts | None = None, **spec: Any
) -> dict[str, Any]:
    """Return the body as the server would read it."""
    body = build_cold_sandbox(claim or facts(), claim_spec(**spec), view or template())
    result: dict[str, Any] = as_json(body)
    return result


@pytest.mark.claim_case(1)
def test_a_plain_claim_makes_a_plain_sandbox() -> None:
    """Claim case 1: name, labels, annotation, one owner; no policy, no mode, no eviction mark."""
    assert as_json(build_cold_sandbox(facts(), SandboxClaimSpec(), template())) == {
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
    assert cold() == as_json(build_cold_sandbox(facts(), SandboxClaimSpec(), template()))


@pytest.mark.claim_case(14, 15)
def test_trace_and_origin_are_passed_on() -> None:
    """Claim cases 14, 15: unchanged; without them the keys are absent on both levels."""
    claim = facts(labels={CREATED_BY: "go-client"}, annotations={TRACE: '{"traceparent":"00-x"}'})

    body = cold(claim=claim)

    assert body["metadata"]["annotations"][TRACE] == '{"traceparent":"00-x"}'
    assert body["metadata"]["labels"][CREATED_BY] == "go-client"
    assert body["spec"]["podTemplate"]["metadata"]["labels"][CREATED_BY] == "go-client"
    view = template(metadata={"labels": {CREATED_BY: "x"}})
    assert CREATED_BY not in cold(view)["metadata"]["labels"]
    assert CREATED_BY not in cold(view)["spec"]["podTemplate"]["metadata"]["labels"]


@pytest.mark.template_case(32)
def test_a_template_cannot_forge_its_hash() -> None:
    """Template case 32: the Sandbox carries the right hash in both places."""
    body = cold(template(metadata={"labels": {REF_HASH: "other"}}))
    assert body["metadata"]["labels"][REF_HASH] == H
    assert body["spec"]["podTemplate"]["metadata"]["labels"][REF_HASH] == H


@pytest.mark.claim_case(16, 46)
def test_volumes_and_service_are_taken_over() -> None:
    """Claim cases 16, 46: the template's list as it is, the claim's behind it when allowed."""
    data = {"metadata": {"name": "data", "labels": {"a": "b"}}, "spec": {"volumeName": "x"}}
    more = {"metadata": {"name": "more"}, "spec": {"volumeName": "y"}}
    view = template(service=True, volumeClaimTemplates=[data])

    assert cold(view)["spec"]["volumeClaimTemplates"] == [data]
    assert cold(view)["spec"]["service"] is True
    open_view = template(volumeClaimTemplates=[data], volumeClaimTemplatesPolicy="Allowed")
    merged = cold(open_view, volumeClaimTemplates=[more])["spec"]
    assert merged["volumeClaimTemplates"] == [data, more]
    assert "service" not in merged


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


@pytest.mark.claim_case(31, 37, 45, 50)
def test_checks_come_in_their_order() -> None:
    """Claim cases 31, 37, 45, 50: volumes, then metadata, then variables."""
    view = template(metadata={"labels": {"sandbox.users.io/l": "t"}})
    volumes = [{"metadata": {"name": "v"}, "spec": {}}]
    env = [{"name": "A", "value": "b"}]
    clash = facts(additional({"sandbox.users.io/l": "c"}))

    def fault(claim: ClaimFacts, **spec: Any) -> ClaimFault:
        with pytest.raises(ClaimError) as caught:
            build_cold_sandbox(claim, claim_spec(**spec), view)
        return caught.value.fault

    everything: dict[str, Any] = {"volumeClaimTemplates": volumes, "env": env}
    assert fault(clash, **everything) is ClaimFault.CLAIM_TEMPLATES
    assert fault(clash, env=env) is ClaimFault.OTHER
    assert fault(facts(), env=env) is ClaimFault.ENV_VARS_REJECTED
    broken = template(volumeClaimTemplates=[*volumes, *volumes])
    with pytest.raises(ClaimError, match="invalid volume claim templates in template"):
        build_cold_sandbox(facts(), SandboxClaimSpec(), broken)


@pytest.mark.claim_case(27, 29)
def test_additional_metadata_reaches_the_pod_template() -> None:
    """Claim cases 27, 29: and nothing marks a cold Pod as safe to evict by itself."""
    body = cold(claim=facts(additional({"sandbox.users.io/l": "v"}, {SAFE: "false", "a": "b"})))
    metadata = body["spec"]["podTemplate"]["metadata"]
    assert metadata["labels"] == {CLAIM_UID: "u1", REF_HASH: H, "sandbox.users.io/l": "v"}
    assert metadata["annotations"] == {SAFE: "false", "a": "b"}
    assert "annotations" not in cold()["spec"]["podTemplate"]["metadata"]


@pytest.mark.claim_case(1, 17)
def test_a_fresh_sandbox_needs_no_sync() -> None:
    """Claim cases 1, 17: what is created is what the bound reconcile wants."""
    claim = facts(additional({"sandbox.users.io/l": "v"}), labels={CREATED_BY: "go-client"})
    view = template(metadata={"labels": {"t": "1"}, "annotations": {"a": "b"}})
    body = cold(view, claim)
    desired = desired_pod_metadata(view, claim, ref_hash=H)
    assert body["spec"]["podTemplate"]["metadata"] == as_json(desired)


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
