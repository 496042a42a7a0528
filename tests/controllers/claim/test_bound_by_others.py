"""What another process has bound just before keeps its binding."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.direct import StoredChange
from lean_sandbox.local.http.faults import HeldEvents
from tests.faults.history import History
from tests.support.builders import claim
from tests.support.extensions import (
    bound_name,
    failed_claim_reconciles,
    get_claim,
    member_names,
    open_claims,
    owner_of,
    ready_of,
    status_codes,
)
from tests.support.names import ANNOTATION, CLAIMS, SANDBOXES, TEMPLATES, WARM_POOL
from tests.support.world import NS, World, condition, controlled_by

Json = dict[str, Any]


def bind_elsewhere(world: World, name: str) -> None:
    """Bind claim ``c`` to a Ready member, as another process does."""
    plane = world.plane
    held = get_claim(world)
    owners = {"ownerReferences": [controlled_by(held)], "labels": {WARM_POOL: None}}
    member = plane.store.patch(SANDBOXES, NS, name, {"metadata": owners})
    ready = {**condition(member, "Ready"), "observedGeneration": held["metadata"]["generation"]}
    sandbox = {"name": name, "podIPs": member["status"]["podIPs"]}
    status = {"conditions": [ready], "sandbox": sandbox}
    plane.store.patch(CLAIMS, NS, "c", {"status": status}, subresource="status")


@pytest.mark.claim_case(76)
@pytest.mark.parametrize("had_one", [False, True])
async def test_a_claim_that_somebody_else_has_bound_keeps_that_binding(*, had_one: bool) -> None:
    """Claim case 76: nothing is overwritten, and the member taken in vain goes and is replaced.

    If the claim had a Sandbox before, no annotation has ever named that member.
    """
    members = ("m0", "m1", "m2") if had_one else ("m1", "m2", "m3")
    async with open_claims(*members) as world:
        if had_one:
            await world.create(claim())
            await world.advance(3.0)
            world.forget_requests()
        written: list[Json] = []
        named: list[str] = []

        def first() -> None:
            bind_elsewhere(world, "m2")
            written.append(get_claim(world)["status"])

        def note(change: StoredChange) -> None:
            metadata = (change.after or {}).get("metadata", {})
            named.append(metadata.get("annotations", {}).get(ANNOTATION))

        world.plane.store.follow(note, (CLAIMS,))
        world.meanwhile("patch", "sandboxclaims/status", first)
        if had_one:
            await world.delete(SANDBOXES, "m0")
            await world.advance(0.1)
        else:
            await world.create(claim())
        assert get_claim(world)["status"] == written[0]
        assert status_codes(world) == [409 if had_one else 422]
        assert owner_of(world, "m2") == "SandboxClaim/c"
        await world.advance(3.0)
        assert world.find("sandboxes", "m1") is None
        assert get_claim(world)["metadata"]["annotations"][ANNOTATION] == "m2"
        assert bound_name(world) == "m2"
        assert not had_one or "m1" not in named
        assert len(member_names(world)) == 3


@pytest.mark.claim_case(76)
async def test_a_binding_of_somebody_else_is_kept_while_its_sandbox_has_not_been_seen() -> None:
    """Claim case 76: the claim's event says it first; one GET of the Sandbox that it names."""
    async with open_claims("m1", "m2", "m3") as world:
        history = History(world.plane)

        def first() -> None:
            held.append(world.plane.hold_events("sandboxes"))
            bind_elsewhere(world, "m2")

        held: list[HeldEvents] = []
        # Its answer would tell that the member taken in vain is gone.
        others = world.plane.hold("patch", "sandboxes/status")
        world.meanwhile("patch", "sandboxclaims/status", first)
        await world.create(claim())
        annotations = {"annotations": {ANNOTATION: "m2"}}
        await world.patch(CLAIMS, "c", {"metadata": annotations})
        await world.advance(3.0)
        assert bound_name(world) == "m2"
        held[0].release()
        others.release()
        await world.advance(3.0)
        assert history.violations() == []
        assert bound_name(world) == "m2"
        assert world.find("sandboxes", "m1") is None
        assert len(member_names(world)) == 3


@pytest.mark.parametrize("code", [429, 503])
async def test_a_sandbox_that_a_busy_server_does_not_show_is_asked_for_when_it_says(
    code: int,
) -> None:
    """Retry-After is honoured, also where nothing but the claim's status names the Sandbox."""
    async with open_claims("m1", "m2") as world:
        held = world.plane.hold_events("sandboxes")
        await world.create(claim())
        await world.advance(3.0)
        world.forget_requests()
        world.plane.fail_next("get", "sandboxes", code, retry_after=7)
        bind_elsewhere(world, "m2")
        await world.settle()
        await world.advance(6.9)
        assert world.asked()["get sandboxes"] == 1
        assert bound_name(world) == "m2"
        await world.advance(0.2)
        assert world.asked()["get sandboxes"] > 1
        held.release()
        await world.advance(3.0)


@pytest.mark.claim_case(76)
@pytest.mark.parametrize("is_going", [False, True])
async def test_a_status_that_names_what_the_claim_does_not_have_is_overwritten(
    *, is_going: bool
) -> None:
    """Claim case 76: only a Sandbox that the claim controls counts as a binding, if it stays."""
    async with open_claims("m1", "m2") as world:
        store = world.plane.store

        def name() -> None:
            if is_going:
                bind_elsewhere(world, "m2")
                store.patch(SANDBOXES, NS, "m2", {"metadata": {"finalizers": ["example.com/hold"]}})
                store.delete(SANDBOXES, NS, "m2")
            else:
                wrong = {"status": {"sandbox": {"name": "m2"}}}
                store.patch(CLAIMS, NS, "c", wrong, subresource="status")

        world.meanwhile("patch", "sandboxclaims/status", name)
        await world.create(claim())
        assert bound_name(world) == "m1"
        assert ready_of(world)[0] == "True"
        assert owner_of(world, "m2") == ("SandboxClaim/c" if is_going else "SandboxWarmPool/pool")


@pytest.mark.claim_case(76)
async def test_a_binding_of_somebody_else_is_not_overwritten_by_what_the_claim_lacks() -> None:
    """Claim case 76: nor if it comes just before the claim is told that its pool is missing."""
    async with open_claims("m1") as world:
        world.meanwhile("patch", "sandboxclaims/status", lambda: bind_elsewhere(world, "m1"))
        world.plane.store.create(claim(pool="missing"))
        await world.until(lambda: 422 in status_codes(world))
        await world.moments(300)
        assert (bound_name(world), ready_of(world)[0]) == ("m1", "True")
        await world.advance(5.0)
        assert bound_name(world) == "m1"


@pytest.mark.claim_case(76)
@pytest.mark.parametrize("is_bound", [True, False])
async def test_what_was_decided_on_an_older_claim_is_not_written(*, is_bound: bool) -> None:
    """Claim case 76: another binds it, or it goes, while its spec is read; an event says so."""
    async with open_claims("m1") as world:
        await world.create(claim(env=[{"name": "A", "value": "1"}]))
        assert ready_of(world)[1] == "EnvVarsInjectionRejected"
        held = world.plane.hold("get", "sandboxclaims", answers=True)
        # It is refused for another reason from now on, which is worth a status.
        source = {"name": "main", "image": "busybox", "envFrom": [{"configMapRef": {"name": "x"}}]}
        spec = {"podTemplate": {"spec": {"containers": [source]}}}
        edit = {"spec": {"envVarsInjectionPolicy": "Allowed", **spec}}
        world.plane.store.patch(TEMPLATES, NS, "tpl", edit)
        await world.until(lambda: held.waiting)
        if is_bound:
            bind_elsewhere(world, "m1")
        else:
            world.plane.store.delete(CLAIMS, NS, "c", grace_s=0)
        await world.moments(300)
        held.release()
        await world.moments(300)
        if is_bound:
            assert (bound_name(world), ready_of(world)[0]) == ("m1", "True")
        await world.advance(5.0)
        assert failed_claim_reconciles(world) == is_bound


@pytest.mark.claim_case(88)
async def test_a_stale_view_of_a_claim_writes_nothing_again() -> None:
    """Claim case 88: another process told the same a moment ago: that stands, and no error.

    It is known from then on, although the answer to the annotations hides the event that tells it.
    """
    async with open_claims("m1", "m2") as world:
        told: list[Json] = []

        def first() -> None:
            bind_elsewhere(world, "m1")
            told.append(get_claim(world)["status"])

        world.meanwhile("patch", "sandboxclaims/status", first)
        await world.create(claim())
        assert status_codes(world) == [422]
        assert get_claim(world)["status"] == told[0]
        assert (bound_name(world), failed_claim_reconciles(world)) == ("m1", 0)
        assert owner_of(world, "m2") == "SandboxWarmPool/pool"
        await world.advance(3.0)
        world.forget_requests()
        await world.advance(100.0)
        assert not world.asked()
