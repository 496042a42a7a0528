"""Environment variables and volume claims that claims bring along."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.model.claim import EnvVar
from lean_sandbox.model.claim_additions import inject_env, merge_claim_templates
from lean_sandbox.model.claim_status import ClaimError, ClaimFault
from lean_sandbox.model.sandbox import VolumeClaimTemplate
from tests.model.support import as_json

REJECTED = "environment variable injection rejected: "
MERGE = "failed to merge volume claim templates: "


def var(name: str, value: str = "v", container: str = "") -> EnvVar:
    """Return a claim's variable."""
    return EnvVar(name, value, container)


def pod(*env: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a Pod with an init container and two containers."""
    return {
        "initContainers": [{"name": "init"}],
        "containers": [{"name": "main", "env": list(env), **fields}, {"name": "side"}],
    }


def refused(pod_spec: dict[str, Any], env: list[EnvVar], policy: str) -> tuple[ClaimFault, str]:
    """Return class and text of the refusal."""
    with pytest.raises(ClaimError) as caught:
        inject_env(pod_spec, env, policy)
    return caught.value.fault, caught.value.text


OLD = {"name": "OLD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


@pytest.mark.claim_case(33, 35)
@pytest.mark.parametrize("policy", ["Allowed", "Overrides"])
def test_new_variables_are_appended(policy: str) -> None:
    """Claim cases 33, 35: after the existing ones, in the claim's order."""
    before = pod(OLD)
    result = inject_env(before, [var("B"), var("A", "")], policy)

    assert result["containers"][0]["env"] == [
        OLD,
        {"name": "B", "value": "v"},
        {"name": "A", "value": ""},
    ]
    assert before == pod(OLD)


@pytest.mark.claim_case(37)
@pytest.mark.parametrize("policy", ["Disallowed", "", "Other"])
def test_no_policy_no_variables(policy: str) -> None:
    """Claim case 37: the exact text; the container is not even looked for."""
    expected = REJECTED + "environment variable injection is not allowed by the template policy"
    env = [var("A", container="nobody")]
    assert refused(pod(), env, policy) == (ClaimFault.ENV_VARS_REJECTED, expected)


@pytest.mark.claim_case(38, 39)
def test_env_from_hides_what_would_be_overridden() -> None:
    """Claim cases 38, 39: only the receiving container counts, and only under Allowed."""
    spec = pod(envFrom=[{"configMapRef": {"name": "x"}}])

    assert refused(spec, [var("A")], "Allowed") == (
        ClaimFault.ENV_VARS_REJECTED,
        REJECTED + 'container "main" uses EnvFrom sources; '
        "Allowed policy cannot safely prevent overriding EnvFrom-provided variables",
    )
    inject_env(spec, [var("A", container="side")], "Allowed")
    inject_env(spec, [var("A")], "Overrides")


@pytest.mark.claim_case(41)
def test_an_unknown_container_is_named_with_its_variable() -> None:
    """Claim case 41: the first such entry is told."""
    assert refused(pod(), [var("B"), var("A", container="no")], "Allowed") == (
        ClaimFault.OTHER,
        'target container "no" not found in template for environment variable "A"',
    )


@pytest.mark.claim_case(42)
def test_the_first_container_gets_the_nameless_after_the_named() -> None:
    """Claim case 42: only the first; its named entries come before."""
    result = inject_env(pod(), [var("A"), var("B", container="main")], "Allowed")
    assert [entry["name"] for entry in result["containers"][0]["env"]] == ["B", "A"]
    assert result["containers"][1] == {"name": "side"}


NAMES = st.sampled_from(["A", "B", "C", "D"])


@given(
    st.lists(NAMES, unique=True, max_size=4),
    st.lists(st.builds(EnvVar, NAMES, st.text(max_size=3)), max_size=5),
)
def test_overriding_gives_every_name_once_and_the_claims_value(
    existing: list[str], env: list[EnvVar]
) -> None:
    """Existing order is kept, no name appears twice, the last value of the claim holds."""
    base = pod(*({"name": name, "value": "old"} for name in existing))

    result = inject_env(base, env, "Overrides")["containers"][0]["env"]

    names = [entry["name"] for entry in result]
    assert names[: len(existing)] == existing
    assert len(set(names)) == len(names)
    wanted = dict.fromkeys(existing, "old") | {entry.name: entry.value for entry in env}
    assert {entry["name"]: entry["value"] for entry in result} == wanted


# --- volumeClaimTemplates ------------------------------------------------------------------------


def volumes(*names: str, mark: str = "") -> tuple[VolumeClaimTemplate, ...]:
    """Return volumeClaimTemplates with these names."""
    entries = [{"metadata": {"name": name}, "spec": {"volumeName": mark}} for name in names]
    return msgspec.json.decode(msgspec.json.encode(entries), type=tuple[VolumeClaimTemplate, ...])


def described(entries: tuple[VolumeClaimTemplate, ...]) -> list[tuple[str, str]]:
    """Return names and marks."""
    return [(entry["metadata"]["name"], entry["spec"]["volumeName"]) for entry in as_json(entries)]


def merge_fault(template: Any, claim: Any, policy: str) -> tuple[ClaimFault, str]:
    """Return class and text of the refusal."""
    with pytest.raises(ClaimError) as caught:
        merge_claim_templates(template, claim, policy)
    return caught.value.fault, caught.value.text


@pytest.mark.claim_case(45)
@pytest.mark.parametrize("policy", ["Disallowed", ""])
def test_volumes_are_disallowed_by_default(policy: str) -> None:
    """Claim case 45: the exact text."""
    assert merge_fault((), volumes("a"), policy) == (
        ClaimFault.CLAIM_TEMPLATES,
        MERGE + "volume claim templates are disallowed by the template",
    )


@pytest.mark.claim_case(47)
def test_allowed_does_not_override_volumes() -> None:
    """Claim case 47: the clash is named."""
    assert merge_fault(volumes("a"), volumes("a"), "Allowed") == (
        ClaimFault.CLAIM_TEMPLATES,
        MERGE + "overriding volume claim templates is forbidden by the template: "
        'cannot override template volume "a"',
    )


@pytest.mark.claim_case(49)
@pytest.mark.parametrize("policy", ["Disallowed", "Allowed", "Overrides"])
def test_invalid_lists_of_claims_come_before_the_policy(policy: str) -> None:
    """Claim case 49: an empty or repeated name, also where volumes are disallowed."""
    start = MERGE + "claim: invalid volume claim templates: "
    fault = ClaimFault.CLAIM_TEMPLATES
    assert merge_fault((), volumes(""), policy) == (fault, start + "name at index 0 is empty")
    assert merge_fault((), volumes("data", "data"), policy) == (
        fault,
        start + 'duplicate name "data"',
    )


@pytest.mark.claim_case(50)
def test_an_invalid_template_fails_every_claim() -> None:
    """Claim case 50: also one without volumes of its own, with another text."""
    fault = ClaimFault.CLAIM_TEMPLATES
    assert merge_fault(volumes("a", ""), (), "Disallowed") == (
        fault,
        (
            "invalid volume claim templates in template: invalid volume claim templates: name at "
            "index 1 is empty"
        ),
    )
    assert merge_fault(volumes("a", "a"), volumes("b"), "Allowed") == (
        fault,
        MERGE + 'template: invalid volume claim templates: duplicate name "a"',
    )


@pytest.mark.claim_case(16)
def test_the_templates_own_volumes_need_no_policy() -> None:
    """Claim case 16: they are used as they are even when claims may bring none."""
    assert described(merge_claim_templates(volumes("data"), (), "Disallowed")) == [("data", "")]


def test_an_unknown_policy_is_told() -> None:
    """A value the schema does not know is an error worth a retry."""
    assert merge_fault((), volumes("a"), "Maybe") == (
        ClaimFault.OTHER,
        MERGE + 'unknown volume claim templates policy "Maybe"',
    )


@pytest.mark.parametrize("policy", ["Allowed", "Overrides"])
@pytest.mark.parametrize("name", ["new", "of-template", "of-pod"])
def test_what_a_claim_may_replace_is_up_to_the_policy(policy: str, name: str) -> None:
    """With Allowed it may add names that neither the template nor its Pod has."""
    template = volumes("of-template", "other")

    def merged() -> list[tuple[str, str]]:
        claim = volumes(name, mark="claim")
        return described(merge_claim_templates(template, claim, policy, volumes={"of-pod"}))

    if policy == "Allowed" and name != "new":
        with pytest.raises(ClaimError, match=name):
            merged()
    else:
        own = [entry for entry in described(template) if entry[0] != name]
        changed = [entry for entry in merged() if entry[0] == name]
        assert [entry for entry in merged() if entry[0] != name] == own
        assert changed == described(volumes(name, mark="claim"))
