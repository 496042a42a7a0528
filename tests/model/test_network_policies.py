"""The NetworkPolicy of a template: what it says and what is done about it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.model.template import (
    TemplateView,
    desired_policy_spec,
    is_policy_as_desired,
    policy_name,
    policy_name_fault,
    policy_refusal,
)
from tests.model.extensions import template

RULE: dict[str, Any] = {
    "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": 8080}]}],
    "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}],
}


def is_settled(view: TemplateView, spec: dict[str, Any] | None = None) -> bool:
    """Return whether a policy of the template with this spec, or its own, is left as it is."""
    return is_policy_as_desired(
        view, msgspec.json.encode(desired_policy_spec(view) if spec is None else spec)
    )


def is_same(rules: dict[str, Any], stored: dict[str, Any]) -> bool:
    """Return whether a policy that stores these rules is what a template with those asks for."""
    view = template(networkPolicy=rules)
    base = {key: desired_policy_spec(view)[key] for key in ("podSelector", "policyTypes")}
    return is_settled(view, {**base, **stored})


@pytest.mark.template_case(16)
def test_defaults_of_the_server_are_no_drift() -> None:
    """Template case 16: a port without protocol settles once the server made it TCP."""
    view = template(networkPolicy=RULE)
    stored = desired_policy_spec(view)
    port = {"port": 8080, "protocol": "TCP"}
    stored["ingress"] = [{"from": [{"podSelector": {}}], "ports": [port]}]

    assert is_settled(view, stored)
    stored["ingress"] = [{"from": [{"podSelector": {}}], "ports": [{**port, "protocol": "UDP"}]}]
    assert not is_settled(view, stored)


@pytest.mark.template_case(28)
def test_the_refusal_names_both_objects() -> None:
    """Template case 28: the policy that is in the way, and the template that wants its name."""
    assert policy_refusal("t") == (
        'refusing to update NetworkPolicy "t-network-policy" '
        'as it is not controlled by SandboxTemplate "t"'
    )


def test_an_empty_selector_is_not_a_missing_one() -> None:
    """In a peer `podSelector: {}` is every Pod, its absence is something else."""
    every: dict[str, Any] = {"ingress": [{"from": [{"podSelector": {}, "namespaceSelector": {}}]}]}
    some: dict[str, Any] = {"ingress": [{"from": [{"namespaceSelector": {}}]}]}
    assert not is_same(every, some)
    assert not is_same({"ingress": [{}]}, {"ingress": []})
    assert is_same({"ingress": [{"from": None, "ports": []}]}, {"ingress": [{}], "egress": []})


SELECTORS = st.fixed_dictionaries(
    {}, optional={"matchLabels": st.sampled_from([{}, {"a": "b"}]), "matchExpressions": st.just([])}
)
PORTS = st.fixed_dictionaries(
    {}, optional={"port": st.integers(1, 3), "protocol": st.sampled_from(["TCP", "UDP"])}
)
RULES = st.fixed_dictionaries(
    {},
    optional={
        "from": st.lists(st.fixed_dictionaries({"podSelector": SELECTORS}), max_size=2),
        "ports": st.lists(PORTS, max_size=2),
    },
)


@given(st.lists(RULES, max_size=3))
def test_every_policy_settles_after_the_server_defaulted_it(rules: list[dict[str, Any]]) -> None:
    """Whatever the rules, what the server stores of them is no drift."""
    stored = {
        "ingress": [
            {
                **rule,
                "ports": [{"protocol": "TCP", **port} for port in rule.get("ports", [])] or None,
            }
            for rule in rules
        ]
    }
    assert is_same({"ingress": rules}, stored)
    assert is_same(stored, {"ingress": rules})


def test_a_template_has_a_policy_whose_name_is_long_enough() -> None:
    """253 characters in all, of which the ending of the policy takes some."""
    most = 253 - len(policy_name(""))
    assert policy_name_fault("t" * most) == ""
    assert f"at most {most}, " in policy_name_fault("t" * (most + 1))
