"""A claim that its template refuses is served once the template is mended."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import claim, pool, template
from tests.support.extensions import (
    bound_name,
    change_pool,
    change_template,
    claim_reconciles,
    is_ready,
    open_claims,
    ready_of,
    run_members,
)
from tests.support.names import CLAIMS, REF_HASH, TEMPLATES
from tests.support.volumes import volume

Json = dict[str, Any]
DATA = [volume("data")]
MUCH = {f"example.com/{number}": "x" * 60_000 for number in range(3)}
LABEL: Json = {"labels": {"sandbox.users.io/team": "a"}}
# By what refuses the claim: the template, what the claim asks for, the edit that mends it.
REFUSED: dict[str, tuple[Json, Json, Json]] = {
    "variables": (
        template(),
        {"env": [{"name": "A", "value": "1"}]},
        {"envVarsInjectionPolicy": "Allowed"},
    ),
    "container": (
        template(envVarsInjectionPolicy="Allowed"),
        {"env": [{"name": "A", "value": "1", "containerName": "side"}]},
        {"podTemplate": {"spec": {"containers": [{"name": "side", "image": "busybox"}]}}},
    ),
    "volumes": (
        template(),
        {"volumeClaimTemplates": DATA},
        {"volumeClaimTemplatesPolicy": "Allowed"},
    ),
    "name of a volume": (
        template(volumeClaimTemplates=DATA, volumeClaimTemplatesPolicy="Allowed"),
        {"volumeClaimTemplates": DATA},
        {"volumeClaimTemplatesPolicy": "Overrides"},
    ),
    "volumes of the template": (
        template(volumeClaimTemplates=[*DATA, *DATA]),
        {},
        {"volumeClaimTemplates": DATA},
    ),
    "bytes": (
        template(metadata={"annotations": MUCH}),
        {"additionalPodMetadata": {"annotations": {f"{key}9": MUCH[key] for key in MUCH}}},
        {"podTemplate": {"metadata": None}},
    ),
    "another value": (
        template(metadata={"labels": {"sandbox.users.io/team": "b"}}),
        {"additionalPodMetadata": LABEL},
        {"podTemplate": {"metadata": {"labels": LABEL["labels"]}}},
    ),
}
of_each = pytest.mark.parametrize("what", REFUSED)


@of_each
async def test_a_refused_claim_is_served_once_its_template_is_mended(what: str) -> None:
    """At once, however long it has been refused."""
    made, asked, edit = REFUSED[what]
    async with open_claims(templates=(made,)) as world:
        await world.create(claim(**asked))
        await world.advance(1500.0)
        assert ready_of(world)[0] == "False"
        assert bound_name(world) == ""
        await change_template(world, edit)
        assert bound_name(world) == "c"
        await run_members(world, "c")
        assert is_ready(world)


@of_each
async def test_a_refused_claim_is_served_once_its_pool_names_another_template(what: str) -> None:
    """The same edit by another way."""
    made, asked, edit = REFUSED[what]
    other = {**made, "metadata": {**made["metadata"], "name": "other"}}
    async with open_claims(templates=(made, other)) as world:
        await change_template(world, edit, "other")
        await world.create(claim(**asked))
        await world.advance(1500.0)
        assert bound_name(world) == ""
        await change_pool(world, {"sandboxTemplateRef": {"name": "other"}})
        assert bound_name(world) == "c"


@pytest.mark.parametrize("what", ["bytes", "another value"])
async def test_a_bound_claim_that_its_template_contradicts_is_ready_once_that_is_mended(
    what: str,
) -> None:
    """Its Sandbox runs on meanwhile."""
    made, asked, _ = REFUSED[what]
    async with open_claims("m1") as world:
        await world.create(claim(**asked))
        await world.advance(3.0)
        assert is_ready(world)
        await change_template(world, made["spec"])
        await world.patch(CLAIMS, "c", {"spec": {"lifecycle": {"shutdownPolicy": "Delete"}}})
        await world.advance(1500.0)
        assert not is_ready(world)
        await change_template(world, {"podTemplate": {"metadata": None}})
        assert is_ready(world)
        assert bound_name(world) == "m1"


async def test_an_edit_of_a_template_leaves_claims_that_are_served_alone() -> None:
    """Not one reconcile of theirs, and no request."""
    async with open_claims("m1", "m2") as world:
        await world.create(pool("second"))
        await world.create(claim("a"))
        await world.create(claim("b"))
        await world.advance(60.0)
        await run_members(world, *(one for one in ("m1", "m2") if world.find("pods", one)))
        before = claim_reconciles(world)
        await world.patch(TEMPLATES, "tpl", {"spec": {"envVarsInjectionPolicy": "Allowed"}})
        await world.patch(TEMPLATES, "tpl", {"metadata": {"annotations": {"any": "edit"}}})
        await world.advance(60.0)
        assert claim_reconciles(world) == before


async def test_what_is_not_the_spec_of_a_template_wakes_no_refused_claim() -> None:
    """Neither its label, which is put right, nor what others note of it."""
    made, asked, _ = REFUSED["variables"]
    async with open_claims(templates=(made,)) as world:
        await world.create(claim(**asked))
        await world.advance(60.0)
        before = claim_reconciles(world)
        edits: tuple[Json, ...] = ({"labels": {REF_HASH: "x"}}, {"annotations": {"any": "edit"}})
        for edit in edits:
            await world.patch(TEMPLATES, "tpl", {"metadata": edit})
        await world.advance(60.0)
        assert claim_reconciles(world) == before
