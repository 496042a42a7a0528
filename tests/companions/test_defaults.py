"""defaults: claims without a lifecycle get that of their pool, once; unbound ones end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.companions.defaults import ClaimDefaults, Give, Remove, Wait, plan, read_defaults
from lean_sandbox.companions.kinds import CompanionClaimEntry
from lean_sandbox.local.kinds import Kind
from lean_sandbox.watch.kind import Key
from tests.companions.support import PREFIX, annotate, notes, reports, warned_of
from tests.support.builders import claim
from tests.support.clock import FakeClock
from tests.support.extensions import get_claim, open_claims, settings
from tests.support.names import CLAIMS, POOLS
from tests.support.webhooks import add_webhook
from tests.support.world import World, open_world

Json = dict[str, Any]
APPLIED = PREFIX + "claim-defaults-applied"


@asynccontextmanager
async def open_defaults(
    wanted: Json | str | None, *members: str, replicas: int | None = None
) -> AsyncIterator[World]:
    """Open a world with a pool that has defaults for its claims; one clock for all."""
    async with open_claims(
        *members, companions=("defaults",), replicas=replicas, clock=FakeClock(), one_time=True
    ) as world:
        if wanted is not None:
            text = wanted if isinstance(wanted, str) else json.dumps(wanted)
            await annotate(world, POOLS, "pool", claim_defaults=text)
        world.forget_requests()
        yield world


async def test_a_claim_without_a_lifecycle_gets_that_of_its_pool() -> None:
    """Policy and time to live as they are, a lifetime as the time at which it ends."""
    wanted = {"shutdownPolicy": "Delete", "ttlSecondsAfterFinished": 60, "lifetimeSeconds": 3600}
    async with open_defaults(wanted, "m-1") as world:
        await world.create(claim())
        await world.advance(2.0)
        assert get_claim(world)["spec"]["lifecycle"] == {
            "shutdownPolicy": "Delete",
            "ttlSecondsAfterFinished": 60,
            "shutdownTime": "2026-01-02T04:04:07Z",
        }
        assert APPLIED in notes(get_claim(world))
        (told,) = reports(world)
        assert told[:2] == ("SandboxClaim", "ClaimDefaultsApplied")
        await world.advance(3700.0)
        assert world.find(CLAIMS, "c") is None


async def test_it_costs_one_patch_of_the_claim() -> None:
    """Beside what the controller writes about any warm claim."""
    async with open_defaults(None, "m-1", "m-2") as world:
        await world.create(claim("plain"))
        await world.advance(5.0)
        plain = world.asked()
        await annotate(world, POOLS, "pool", claim_defaults='{"shutdownPolicy": "Delete"}')
        await world.advance(5.0)
        world.forget_requests()
        await world.create(claim())
        await world.advance(5.0)
        # The controller acknowledges the new generation in the status.
        more = {"patch sandboxclaims": 1, "patch sandboxclaims/status": 1}
        assert world.asked() - plain == Counter(more)


@pytest.mark.parametrize("lifecycle", [{}, {"shutdownPolicy": "Retain"}])
async def test_a_claim_that_names_a_lifecycle_keeps_it(lifecycle: Json) -> None:
    """Even an empty one says that nothing is wanted."""
    async with open_defaults({"shutdownPolicy": "Delete", "unboundSeconds": 5}, "m-1") as world:
        await world.create(claim(lifecycle=lifecycle))
        await world.advance(60.0)
        assert get_claim(world)["spec"]["lifecycle"].get("shutdownPolicy", "Retain") == "Retain"
        assert not reports(world)


async def test_defaults_are_given_once() -> None:
    """Whoever takes the lifecycle off, or changes the defaults, is not overruled, nor later."""
    async with open_defaults({"shutdownPolicy": "Delete"}, "m-1") as world:
        await world.create(claim())
        await world.advance(2.0)
        await world.patch(CLAIMS, "c", {"spec": {"lifecycle": None}})
        await annotate(world, POOLS, "pool", claim_defaults='{"lifetimeSeconds": 60}')
        await world.advance(120.0)
        assert "lifecycle" not in get_claim(world)["spec"]
        given_ = settings(companions=("defaults",))
        async with open_world(given_, plane=world.plane, clock=world.clock) as after:
            await after.advance(120.0)
            assert "lifecycle" not in get_claim(after)["spec"]


async def test_a_policy_that_takes_off_all_of_it_makes_no_loop() -> None:
    """One PATCH a claim, even where lifecycle and mark are gone at once."""
    async with open_defaults({"shutdownPolicy": "Delete"}, "m-1") as world:
        await world.create(claim())
        await world.advance(2.0)
        gone = {"metadata": {"annotations": {APPLIED: None}}, "spec": {"lifecycle": None}}
        await world.patch(CLAIMS, "c", gone)
        await world.advance(600.0)
        assert "lifecycle" not in get_claim(world)["spec"]
        assert len([one for one in reports(world) if one[1] == "ClaimDefaultsApplied"]) == 1


@pytest.mark.parametrize("kept", [None, {"shutdownPolicy": "Retain"}])
async def test_a_policy_that_does_not_let_them_be_is_told(kept: Json | None) -> None:
    """The Event is a Warning, and names what is lost."""
    wanted = {"shutdownPolicy": "Delete", "ttlSecondsAfterFinished": 60}
    async with open_defaults(wanted, "m-1") as world:

        def change(kind: Kind, obj: Json) -> None:
            if kind.plural == "sandboxclaims" and "lifecycle" in obj["spec"]:
                obj["spec"]["lifecycle"] = kept

        add_webhook(world.plane, change)
        await world.create(claim())
        await world.advance(600.0)
        ((_, reason, told),) = reports(world)
        assert reason == "ClaimDefaultsChanged"
        assert "changed shutdownPolicy Delete, ttlSecondsAfterFinished 60" in told
        assert warned_of(world) == [reason]


async def test_claims_of_other_pools_are_left_alone() -> None:
    """Also those whose pool is missing."""
    async with open_defaults({"unboundSeconds": 30}) as world:
        await world.create(claim(pool="missing"))
        await world.advance(60.0)
        assert world.find(CLAIMS, "c") is not None


async def test_what_goes_while_a_claim_waits_is_not_looked_for() -> None:
    """Its pool, whose wish goes with it, or the claim itself."""
    async with open_defaults({"unboundSeconds": 30}) as world:
        world.plane.fail_next("create", "sandboxes", 403, times=10**6)
        await world.create(claim("a"))
        await world.create(claim("b"))
        await world.advance(20.0)
        await world.delete(CLAIMS, "a")
        await world.delete(POOLS, "pool")
        await world.advance(60.0)
        assert world.find(CLAIMS, "b") is not None
        assert not reports(world)


async def test_a_claim_that_is_refused_a_sandbox_is_deleted_in_time() -> None:
    """The claim waits, as its Sandbox is refused; then it goes."""
    async with open_defaults({"unboundSeconds": 30}) as world:
        world.plane.fail_next("create", "sandboxes", 403, times=10**6)
        await world.create(claim())
        await world.advance(28.0)
        assert world.find(CLAIMS, "c") is not None
        await world.advance(3.0)
        assert world.find(CLAIMS, "c") is None
        (told,) = reports(world)
        assert told[:2] == ("SandboxWarmPool", "UnboundClaimDeleted")
        assert "30 s" in told[2]


async def test_a_claim_that_is_bound_before_the_delete_is_not_deleted() -> None:
    """The DELETE names the version at which the claim had no Sandbox."""
    async with open_defaults({"unboundSeconds": 30}) as world:
        world.plane.fail_next("create", "sandboxes", 403, times=10**6)
        await world.create(claim())
        await world.advance(20.0)

        def bind() -> None:
            status = {"status": {"sandbox": {"name": "c"}}}
            world.plane.store.patch(CLAIMS, "ns", "c", status, subresource="status")

        world.meanwhile("delete", "sandboxclaims", bind)
        await world.advance(11.0)
        assert world.find(CLAIMS, "c") is not None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "JSON"),
        ("yes", "JSON"),
        ("[]", "JSON"),
        ('{"shutdownPolicy": "delete"}', "shutdownPolicy"),
        ('{"lifetimeSeconds": 0}', "lifetimeSeconds"),
        ('{"ttlSecondsAfterFinished": -1}', "ttlSecondsAfterFinished"),
        ('{"unboundSeconds": "60"}', "unboundSeconds"),
        ('{"ttlSeconds": 60}', "ttlSeconds"),
        ('{"lifetimeSeconds": 99999999999}', "lifetimeSeconds"),
        ("[" * 900, "JSON"),
    ],
)
async def test_wrong_defaults_are_told_once_on_the_pool_and_do_nothing(
    text: str, named: str
) -> None:
    """The Event names the field; claims are served without them."""
    async with open_defaults(text, "m-1", "m-2") as world:
        await world.create(claim("a"))
        await world.create(claim("b"))
        await world.advance(60.0)
        assert "lifecycle" not in get_claim(world, "a")["spec"]
        ((kind, reason, note),) = reports(world)
        assert (kind, reason) == ("SandboxWarmPool", "InvalidAnnotation")
        assert PREFIX + "claim-defaults" in note
        assert named in note


async def test_a_pool_that_gets_defaults_gives_them_to_the_claims_it_has() -> None:
    """Those that have a Sandbox and no lifecycle; a lifetime counts from then on."""
    async with open_defaults(None, "m-1") as world:
        await world.create(claim())
        await world.advance(600.0)
        await annotate(world, POOLS, "pool", claim_defaults='{"lifetimeSeconds": 60}')
        await world.advance(1.0)
        assert get_claim(world)["spec"]["lifecycle"]["shutdownTime"] == "2026-01-02T03:15:07Z"


NUMBERS = st.none() | st.integers(1, 2**31 - 1)
EVERY = st.builds(
    ClaimDefaults,
    shutdownPolicy=st.sampled_from([None, "Retain", "Delete", "DeleteForeground"]),
    ttlSecondsAfterFinished=NUMBERS,
    lifetimeSeconds=NUMBERS,
    unboundSeconds=NUMBERS,
)


@given(
    defaults=EVERY,
    age_s=st.floats(0.0, 1e10),
    sandbox=st.sampled_from(["", "c"]),
    facts=st.sampled_from([{}, {"has_lifecycle": True}]),
)
def test_no_claim_is_deleted_that_has_a_sandbox_or_names_a_lifecycle(
    defaults: ClaimDefaults, age_s: float, sandbox: str, facts: Json
) -> None:
    """Nor before its time; and only one with a Sandbox gets a lifecycle."""
    entry = CompanionClaimEntry(Key("ns", "c"), "uid", 1, sandbox=sandbox, **facts)
    step = plan(entry, defaults, age_s)
    if isinstance(step, Remove):
        assert not sandbox
        assert not facts
        assert defaults.unboundSeconds is not None
        assert age_s >= defaults.unboundSeconds
    if isinstance(step, Give):
        assert sandbox
        assert not facts
    if isinstance(step, Wait) and step.for_s is not None:
        assert step.for_s > 0.0


@given(defaults=EVERY)
def test_what_is_written_is_read_back(defaults: ClaimDefaults) -> None:
    """JSON of any of the fields."""
    said = {name: getattr(defaults, name) for name in defaults.__struct_fields__}
    text = json.dumps({name: value for name, value in said.items() if value is not None})
    assert read_defaults(text) == defaults
