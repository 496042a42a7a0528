"""Templates as they are decoded and remembered."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lean_sandbox.model.sandbox import PodTemplateMetadata
from lean_sandbox.model.template import SandboxTemplate, blueprint_spec, view_of_template
from tests.model.extensions import MAIN, template, template_object
from tests.model.support import as_json


@pytest.mark.template_case(8, 50)
@pytest.mark.parametrize("value", [None, ""])
def test_empty_policies_read_as_their_defaults(value: str | None) -> None:
    """Template cases 8, 50: objects stored before the defaults existed act as if defaulted."""
    keys = ("networkPolicyManagement", "envVarsInjectionPolicy", "volumeClaimTemplatesPolicy")
    for spec in ({}, dict.fromkeys(keys, value)):
        view = template(**spec)
        assert view.is_managed
        assert (view.env_policy, view.claim_templates_policy) == ("Disallowed", "Disallowed")


@pytest.mark.parametrize("sent", [{}, {"networkPolicy": None}])
def test_no_rules_are_not_empty_rules(sent: dict[str, Any]) -> None:
    """Absent and null mean the default rules, an empty object means rules of one's own."""
    assert template(**sent).network_policy_json is None
    assert template(networkPolicy={}).network_policy_json == b"{}"


def test_null_parts_are_tolerated() -> None:
    """A template of nulls is read like an empty one."""
    for spec in (b"null", b'{"podTemplate":null}', b'{"podTemplate":{"spec":null}}', b"{}"):
        body = b'{"metadata":null,"spec":%s}' % spec
        view = view_of_template(msgspec.json.decode(body, type=SandboxTemplate))
        assert view.blueprint_hash
        assert as_json(blueprint_spec(view, PodTemplateMetadata()))["podTemplate"]["spec"]


def test_rules_that_are_no_object_are_told_by_their_field() -> None:
    """The schema keeps such rules out; what got in is told by name."""
    with pytest.raises(ValueError, match=r"^spec\.networkPolicy: "):
        template(networkPolicy=[])


@pytest.mark.parametrize("service", [None, True, False])
def test_service_keeps_its_three_states(service: bool | None) -> None:  # noqa: FBT001
    """Unset is left out, false is not."""
    spec = as_json(blueprint_spec(template(service=service), PodTemplateMetadata()))
    assert spec.get("service") is service
    assert ("service" in spec) is (service is not None)


def test_a_view_does_not_keep_the_message_alive() -> None:
    """Nothing in the view is a slice of the decoded message."""
    view = view_of_template(template_object({"containers": [MAIN]}, networkPolicy={"egress": []}))
    values = (*msgspec.structs.astuple(view), *msgspec.structs.astuple(view.pod_metadata))
    kinds = {type(value) for value in values} - {PodTemplateMetadata}
    assert kinds <= {str, int, bool, bytes, type(None), dict}
