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


@pytest.mark.claim_case(37)
@pytest.mark.parametrize("policy", ["Disallowed", "", "Other"])
def test_no_policy_no_variables(policy: str) -> None:
    """Claim case 37: the exact text; the container is not even looked for."""
    expected = REJECTED + "environment variable injection is not allowed by the template policy"
    env = [var("A", container="nobody")]
    assert refused(pod(), env, policy) == (ClaimFault.ENV_VARS_REJECTED, expected)


@pytest.mark.claim_case(42)
def test_the_first_container_gets_the_nameless_after_the_named() -> None:
    """Claim case 42: only the first; its named entries come before. The template is as it was."""
    before = pod()
    result = inject_env(before, [var("A"), var("B", container="main")], "Allowed")
    assert [entry["name"] for entry in result["containers"][0]["env"]] == ["B", "A"]
    assert result["containers"][1] == {"name": "side"}
    assert before == pod()


NAMES = st.sampled_from(["A", "B", "C", "D"])


@given(
    st.lists(NAMES, unique=True, max_size=4),
    st.lists(st.builds(EnvVar, NAMES, st.text(max_size=3)), max_size=5),
)
def test_overriding_gives_every_name_once_and_the_claims_value(
    existing: list[str], env: list[EnvVar]
) -> None:
    """Existing order is kept, no name appears twice, the last value of the claim holds."""
    base = pod(*({"name": name, "value": "old"} for name in existing), envFrom=[{}])

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


@pytest.mark.claim_case(45, 49, 50)
@pytest.mark.parametrize(
    ("template", "policy", "fault", "detail"),
    [
        ((), "", ClaimFault.CLAIM_TEMPLATES, "volume claim templates are disallowed by the"),
        ((), "Maybe", ClaimFault.OTHER, 'unknown volume claim templates policy "Maybe"'),
        (
            volumes("a", ""),
            "Disallowed",
            ClaimFault.CLAIM_TEMPLATES,
            "template: invalid volume claim templates: name at index 1 is empty",
        ),
    ],
)
def test_no_volumes_without_a_known_policy_and_a_valid_template(
    template: tuple[VolumeClaimTemplate, ...], policy: str, fault: ClaimFault, detail: str
) -> None:
    """Claim cases 45, 49, 50: a value that the schema does not know is an error worth a retry."""
    start = f"failed to merge volume claim templates: {detail}"
    with pytest.raises(ClaimError, match=f"^{start}") as caught:
        merge_claim_templates(template, volumes("b"), policy)
    assert caught.value.fault is fault


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
