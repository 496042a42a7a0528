"""Claims of a pool that re-creates stale members: whom they take, and what finding out costs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import claim, template
from tests.support.extensions import (
    BIND,
    bound_name,
    change_pool,
    change_template,
    get_claim,
    get_object,
    member_names,
    open_claims,
    owner_of,
    ready_of,
    writes_in_order,
)
from tests.support.names import POOLS, TEMPLATE_HASH, TEMPLATES
from tests.support.world import World

Json = dict[str, Any]
RECREATE: Json = {"updateStrategy": {"type": "Recreate"}}
NEWER: Json = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "newer"}]}}}


async def stamp(world: World, value: str | None, *names: str) -> None:
    """Give members the stamp of another implementation, or none."""
    for name in names:
        await world.patch("sandboxes", name, {"metadata": {"labels": {TEMPLATE_HASH: value}}})
    await world.advance(2.0)
    world.forget_requests()


@pytest.mark.claim_case(65)
async def test_a_member_with_the_templates_own_stamp_costs_no_get() -> None:
    """Claim case 65: the binding is what it always is."""
    async with open_claims("m1", "m2", pool_spec=RECREATE) as world:
        world.plane.store.create(claim())
        await world.settle()
        assert writes_in_order(world)[:3] == BIND
        assert bound_name(world) == "m1"
        assert world.asked()["get sandboxes"] == 0


@pytest.mark.claim_case(65)
@pytest.mark.parametrize("value", ["deadbeef", None])
async def test_a_member_with_a_foreign_stamp_and_the_same_spec_is_taken(value: str | None) -> None:
    """Claim case 65: as after a change of implementation: nobody starts cold beside a full pool.

    Equal stamps cost one GET.
    """
    names = ("m1", "m2", "m3")
    async with open_claims(*names, pool_spec=RECREATE) as world:
        await stamp(world, value, *names)
        for name in ("c1", "c2", "c3"):
            await world.create(claim(name))
        assert {bound_name(world, name) for name in ("c1", "c2", "c3")} == set(names)
        assert world.asked()["get sandboxes"] <= (1 if value else 3) + 3


@pytest.mark.claim_case(65)
@pytest.mark.parametrize("value", ["deadbeef", None])
async def test_a_member_with_a_foreign_stamp_and_another_spec_is_not_taken(
    value: str | None,
) -> None:
    """Claim case 65: the stamp does not tell; the spec does, and the claim starts cold."""
    async with open_claims("m1", "m2", pool_spec=RECREATE) as world:
        await stamp(world, value, "m1", "m2")
        # The pool wants them gone, and cannot.
        world.plane.fail_next("delete", "sandboxes", 500, times=1000)
        await world.patch(TEMPLATES, "tpl", {"spec": NEWER})
        await world.create(claim())
        assert bound_name(world) == "c"
        assert member_names(world)[:2] == ["m1", "m2"]
        image = world.get("c")["spec"]["podTemplate"]["spec"]["containers"][0]["image"]
        assert image == "newer"


@pytest.mark.claim_case(65)
async def test_a_member_that_cannot_be_compared_is_an_error_and_stays_free() -> None:
    """Claim case 65: 500 on the GET: ReconcilerError; the next reconcile takes it."""
    async with open_claims("m1", pool_spec=RECREATE) as world:
        # Its pool cannot compare it before.
        world.plane.fail_next("get", "sandboxes", 500, times=1000)
        await stamp(world, None, "m1")
        await world.create(claim())
        assert ready_of(world)[1] == "ReconcilerError"
        assert owner_of(world, "m1") == "SandboxWarmPool/pool"
        world.plane.faults.clear()
        await world.advance(1.0)
        assert bound_name(world) == "m1"


@pytest.mark.claim_case(66)
async def test_without_the_template_nobody_is_taken_and_nobody_is_lost() -> None:
    """Claim case 66: TemplateNotFound from the cold path; with the template back m1 is taken."""
    async with open_claims("m1", pool_spec=RECREATE) as world:
        await world.delete(TEMPLATES, "tpl")
        await world.create(claim())
        assert ready_of(world) == (
            "False",
            "TemplateNotFound",
            'SandboxTemplate "tpl" not found',
        )
        assert get_claim(world)["status"]["sandbox"] == {}
        assert owner_of(world, "m1") == "SandboxWarmPool/pool"
        await world.create(template())
        assert bound_name(world) == "m1"
        assert world.find("sandboxes", "c") is None


@pytest.mark.parametrize("kind", [TEMPLATES, POOLS])
async def test_a_member_that_was_found_stale_is_handed_out_once_it_is_good_again(kind: str) -> None:
    """Its template is as it was, before its pool could replace it, or its pool keeps such."""
    async with open_claims("m1", pool_spec=RECREATE) as world:
        spec = get_object(world, TEMPLATES, "tpl")["spec"]
        world.plane.fail_next("delete", "sandboxes", 500, times=1000)
        await world.patch(TEMPLATES, "tpl", {"spec": NEWER})
        await world.create(claim("c1"))
        assert bound_name(world, "c1") == "c1"
        if kind == TEMPLATES:
            await change_template(world, {"podTemplate": {"spec": spec["podTemplate"]["spec"]}})
        else:
            await change_pool(world, {"updateStrategy": {"type": "OnReplenish"}})
        await world.create(claim("c2"))
        assert bound_name(world, "c2") == "m1"
