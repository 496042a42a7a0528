"""Variables and volumes that a claim brings along, as far as its template lets it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import claim, template
from tests.support.extensions import bound_name, open_claims, ready_of
from tests.support.volumes import volume
from tests.support.world import World

Json = dict[str, Any]
MAIN: Json = {"name": "main", "image": "busybox"}
SIDE: Json = {"name": "side", "image": "busybox"}
FROM = {"envFrom": [{"configMapRef": {"name": "x"}}]}
OLD = {"name": "OLD", "value": "template"}
NEW = {"name": "NEW", "value": "claim"}


def env_template(policy: str, *containers: Json, **pod_spec: Any) -> Json:
    """Return a template with a policy on variables."""
    given = list(containers) or [{**MAIN, "env": [OLD]}]
    return template(pod_spec={"containers": given, **pod_spec}, envVarsInjectionPolicy=policy)


def env_of(world: World, index: int = 0, kind: str = "containers") -> list[Json]:
    """Return the variables of a container of the claim's Sandbox."""
    found: list[Json] = world.get("c")["spec"]["podTemplate"]["spec"][kind][index].get("env", [])
    return found


@pytest.mark.claim_case(33, 35)
@pytest.mark.parametrize("policy", ["Allowed", "Overrides"])
async def test_a_new_variable_is_appended(policy: str) -> None:
    """Claim case 33: after those of the template."""
    async with open_claims(templates=(env_template(policy),)) as world:
        await world.create(claim(env=[NEW]))
        assert env_of(world) == [OLD, NEW]


@pytest.mark.claim_case(34, 43)
async def test_overrides_replace_in_place_and_the_last_word_counts() -> None:
    """Claim case 34: at the same index; 43: of two of one name the later."""
    held = {"name": "OLD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    made = env_template("Overrides", {**MAIN, "env": [held, {"name": "Z", "value": "z"}]})
    async with open_claims(templates=(made,)) as world:
        first = {"name": "OLD", "value": "1"}
        last = {"name": "OLD", "value": "2"}
        await world.create(claim(env=[first, last]))
        assert env_of(world) == [last, {"name": "Z", "value": "z"}]


@pytest.mark.claim_case(36, 37, 38, 41, 43)
@pytest.mark.parametrize(
    ("made", "env", "reason", "message"),
    [
        (
            env_template("Allowed"),
            [{"name": "OLD", "value": "mine"}],
            "ReconcilerError",
            (
                "Error seen: environment variable override is not allowed by the template policy"
                ' for variable "OLD"'
            ),
        ),
        (
            env_template("Allowed"),
            [NEW, NEW],
            "ReconcilerError",
            (
                "Error seen: environment variable override is not allowed by the template policy"
                ' for variable "NEW"'
            ),
        ),
        (
            env_template("Disallowed"),
            [NEW],
            "EnvVarsInjectionRejected",
            (
                "environment variable injection rejected: environment variable injection is not"
                " allowed by the template policy"
            ),
        ),
        (
            env_template("Allowed", {**MAIN, **FROM}),
            [NEW],
            "EnvVarsInjectionRejected",
            (
                'environment variable injection rejected: container "main" uses EnvFrom sources;'
                " Allowed policy cannot safely prevent overriding EnvFrom-provided variables"
            ),
        ),
        (
            env_template("Overrides"),
            [{**NEW, "containerName": "nobody"}],
            "ReconcilerError",
            (
                'Error seen: target container "nobody" not found in template for environment'
                ' variable "NEW"'
            ),
        ),
    ],
    ids=["clash", "twice", "disallowed", "env-from", "no-such-container"],
)
async def test_what_the_template_forbids_is_told_in_exact_words(
    made: Json, env: list[Json], reason: str, message: str
) -> None:
    """Claim case 36: no Sandbox is made, no member taken."""
    async with open_claims(templates=(made,)) as world:
        await world.create(claim(env=env))
        assert ready_of(world) == ("False", reason, message)
        assert bound_name(world) == ""
        assert world.find("sandboxes", "c") is None


@pytest.mark.claim_case(38, 40, 42)
async def test_variables_go_only_where_they_are_meant_to() -> None:
    """Claim case 42: without a name the first container; 40: an init container by its name.

    38: sources of another container do not matter.
    """
    setup = {"name": "setup", "image": "busybox"}
    made = env_template("Allowed", MAIN, {**SIDE, **FROM}, initContainers=[setup])
    early = {**NEW, "name": "EARLY", "containerName": "setup"}
    async with open_claims(templates=(made,)) as world:
        await world.create(claim(env=[NEW, early]))
        assert env_of(world) == [NEW]
        assert env_of(world, 1) == []
        assert env_of(world, kind="initContainers") == [{"name": "EARLY", "value": "claim"}]


@pytest.mark.claim_case(39)
async def test_sources_matter_only_to_claims_with_variables() -> None:
    """Claim case 39: without env the member is taken."""
    made = env_template("Allowed", {**MAIN, **FROM})
    async with open_claims("m1", templates=(made,)) as world:
        await world.create(claim())
        assert bound_name(world) == "m1"


@pytest.mark.claim_case(16, 46, 48)
@pytest.mark.parametrize(
    ("policy", "wanted", "expected"),
    [
        ("Disallowed", [], [("data", "1Gi")]),
        ("Allowed", [volume("more")], [("data", "1Gi"), ("more", "1Gi")]),
        (
            "Overrides",
            [volume("more"), volume("data", "5Gi")],
            [("data", "5Gi"), ("more", "1Gi")],
        ),
    ],
)
async def test_volumes_are_merged_as_the_policy_says(
    policy: str, wanted: list[Json], expected: list[tuple[str, str]]
) -> None:
    """Claim case 46: the template's first; 48: replaced in place; 16: the template's alone."""
    made = template(volumeClaimTemplates=[volume("data")], volumeClaimTemplatesPolicy=policy)
    async with open_claims(templates=(made,)) as world:
        await world.create(claim(volumeClaimTemplates=wanted))
        found = world.get("c")["spec"]["volumeClaimTemplates"]
        sizes = [
            (one["metadata"]["name"], one["spec"]["resources"]["requests"]["storage"])
            for one in found
        ]
        assert sizes == expected


@pytest.mark.claim_case(45, 47, 49)
@pytest.mark.parametrize(
    ("policy", "wanted", "detail"),
    [
        (
            "Disallowed",
            [volume("more")],
            "volume claim templates are disallowed by the template",
        ),
        (
            "Allowed",
            [volume("data")],
            (
                "overriding volume claim templates is forbidden by the template: cannot override"
                ' template volume "data"'
            ),
        ),
        (
            "Disallowed",
            [volume("")],
            "claim: invalid volume claim templates: name at index 0 is empty",
        ),
        (
            "Overrides",
            [volume("a"), volume("a")],
            'claim: invalid volume claim templates: duplicate name "a"',
        ),
    ],
    ids=["disallowed", "clash", "empty", "twice"],
)
async def test_volumes_that_cannot_be_had_are_told_in_exact_words(
    policy: str, wanted: list[Json], detail: str
) -> None:
    """Claim case 45: VolumeClaimTemplatesError, and no Sandbox."""
    made = template(volumeClaimTemplates=[volume("data")], volumeClaimTemplatesPolicy=policy)
    async with open_claims(templates=(made,)) as world:
        await world.create(claim(volumeClaimTemplates=wanted))
        text = f"failed to merge volume claim templates: {detail}"
        assert ready_of(world) == ("False", "VolumeClaimTemplatesError", text)
        assert world.find("sandboxes", "c") is None


@pytest.mark.claim_case(50)
async def test_a_template_with_bad_volumes_serves_nobody_cold() -> None:
    """Claim case 50: VolumeClaimTemplatesError, though the claim asks for none."""
    made = template(volumeClaimTemplates=[volume("data"), volume("data")])
    async with open_claims(templates=(made,)) as world:
        await world.create(claim())
        text = 'invalid volume claim templates: duplicate name "data"'
        text = f"invalid volume claim templates in template: {text}"
        assert ready_of(world) == ("False", "VolumeClaimTemplatesError", text)


@pytest.mark.parametrize("policy", ["Allowed", "Overrides"])
async def test_a_plain_volume_is_replaced_only_where_overrides_are_allowed(policy: str) -> None:
    """A volume of a claim takes the place of the Pod's volume of its name: that is an override."""
    config = {"name": "cfg", "configMap": {"name": "rules"}}
    made = template(pod_spec={"volumes": [config]}, volumeClaimTemplatesPolicy=policy)
    async with open_claims(templates=(made,)) as world:
        await world.create(claim(volumeClaimTemplates=[volume("cfg")]))
        if policy == "Overrides":
            assert bound_name(world) == "c"
            return
        assert ready_of(world) == (
            "False",
            "VolumeClaimTemplatesError",
            (
                "failed to merge volume claim templates: spec.volumeClaimTemplates:"
                ' "cfg" is a volume of the template\'s Pod, which the template does not let claims'
                " replace: choose another name"
            ),
        )
        assert world.find("sandboxes", "c") is None
        await world.advance(600.0)
        assert not world.writes()["create sandboxes"]
