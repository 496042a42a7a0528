"""Rules of a template that are not in force are an Event about the template, which says why."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controllers.policies import NAME, RULES, policy, spec_of, theirs
from tests.support.builders import claim, placed, pool
from tests.support.extensions import bound_name, change_template, members, open_pools, rest
from tests.support.names import POLICIES
from tests.support.world import NS, World

Json = dict[str, Any]
WRONG: Json = {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/33"}}]}]}
FIELD = "spec.egress[0].to[0].ipBlock.cidr"


def told(world: World) -> list[str]:
    """Return the notes of the Events about templates, which are all warnings of one reason."""
    found = [one for one in world.events() if one["regarding"]["kind"] == "SandboxTemplate"]
    assert all(one["regarding"]["name"] == "tpl" for one in found)
    assert {(one["type"], one["reason"]) for one in found} <= {
        ("Warning", "NetworkPolicyNotApplied")
    }
    return [one["note"] for one in found]


async def test_rules_that_the_server_refuses_name_their_field() -> None:
    """Nothing starts, and once they are mended all goes on at once."""
    async with open_pools(placed(networkPolicy=WRONG), pool(replicas=2)) as world:
        await world.create(claim())
        await world.advance(600.0)
        (note,) = told(world)
        assert FIELD in note
        assert f'NetworkPolicy "{NAME}"' in note
        assert not world.plane.store.list("pods", NS)
        await change_template(world, {"networkPolicy": RULES})
        await rest(world)
        assert bound_name(world)
        assert len(members(world)) == 2


async def test_an_edit_that_the_server_refuses_leaves_the_former_rules_and_says_so() -> None:
    """Whoever meant to shut something learns that it is still open."""
    async with open_pools(placed(networkPolicy=RULES)) as world:
        await rest(world)
        before = spec_of(world)
        await change_template(world, {"networkPolicy": {**WRONG, "ingress": None}})
        await world.advance(600.0)
        assert spec_of(world) == before
        (note,) = told(world)
        assert FIELD in note


@pytest.mark.parametrize("verb", ["create", "patch", "delete", "label"])
@pytest.mark.parametrize("code", [400, 403, 422, 500])
async def test_whatever_refuses_a_policy_is_told(verb: str, code: int) -> None:
    """An admission policy, a webhook that does not answer, or the want of a right.

    Without the template's label there is no policy either.
    """
    async with open_pools() as world:
        is_new = verb in ("create", "label")
        if not is_new:
            await world.create(placed())
        asked = ("patch", "sandboxtemplates") if verb == "label" else (verb, "networkpolicies")
        world.plane.fail_next(*asked, code, times=1000)
        if is_new:
            await world.create(placed())
        spec: Json = {"networkPolicy": RULES}
        await change_template(
            world, {"networkPolicyManagement": "Unmanaged"} if verb == "delete" else spec
        )
        await world.advance(60.0)
        (note,) = told(world)
        assert "injected failure" in note


@pytest.mark.parametrize("code", [409, 429, 503])
async def test_what_passes_by_itself_is_not_told(code: int) -> None:
    """Somebody else wrote first, or the server is busy."""
    async with open_pools() as world:
        world.plane.fail_next("create", "networkpolicies", code, times=3)
        await world.create(placed())
        await world.advance(60.0)
        assert policy(world) is not None
        assert not told(world)


async def test_a_policy_of_somebody_else_is_told() -> None:
    """The rules of the template are not in force while it is there."""
    async with open_pools(theirs()) as world:
        await world.create(placed())
        await world.advance(600.0)
        (note,) = told(world)
        assert note == (
            f'refusing to update NetworkPolicy "{NAME}" as it is not controlled by '
            'SandboxTemplate "tpl"'
        )
        # One Event, which is repeated as often as the policy is looked at.
        assert world.asked(events=True)["create events"] == 1
        assert world.asked(events=True)["patch events"] <= 20
        await world.delete(POLICIES, NAME)
        assert policy(world) is not None
