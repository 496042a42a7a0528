"""A wake-up that is lost does not stay lost, and what the net catches is counted."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.model.names import name_hash
from lean_sandbox.model.template import policy_name
from lean_sandbox.model.times import format_rfc3339
from lean_sandbox.runtime import controller as runtime_controller
from tests.support.builders import claim, pool, template
from tests.support.expiry import at
from tests.support.extensions import open_claims
from tests.support.names import CLAIMS, POLICIES, REF_HASH, SANDBOXES, TEMPLATES
from tests.support.suspension import suspend
from tests.support.volumes import volume
from tests.support.world import NS, World, condition, open_world, running_status, sandbox

AT_ONCE = Settings(sandbox_status_window=0.0, sandbox_status_step_window=0.0)


def caught(world: World) -> dict[str, int]:
    """Return what the nets have caught, by controller."""
    return world.whole.activity().caught


def lose_wakes(world: World, kind: str) -> None:
    """Break the controller: nothing hears of this kind any more."""
    watch_caches = [one for one in world.whole.all_caches if one.kind.resource.plural == kind]
    assert watch_caches
    world.net_may_catch = True
    for cache in watch_caches:
        cache.handlers.clear()


@pytest.mark.parametrize("spec", [{}, {"shutdownTime": at(600.0)}])
async def test_a_lost_readiness_is_found_within_ten_seconds(spec: dict[str, Any]) -> None:
    """The event of a Pod reaches nobody; what finds it is counted, though it asks for another."""
    async with open_world(AT_ONCE) as world:
        await world.create(sandbox(spec=spec))
        await world.bind()
        lose_wakes(world, "pods")
        await world.pod_status(**running_status())
        assert condition(world.get(), "Ready")["status"] == "False"
        await world.advance(10.5)
        assert condition(world.get(), "Ready")["status"] == "True"
        assert caught(world) == {"sandbox": 1}


async def test_an_object_that_has_long_been_pending_does_not_delay_the_reconciles_of_others() -> (
    None
):
    """Whenever it is due for the one, the other is reconciled after ten seconds."""
    async with open_world(AT_ONCE) as world:
        await world.create(sandbox())
        await world.advance(3700.0)
        await world.create(sandbox("sb-2"))
        await world.bind("sb-2")
        lose_wakes(world, "pods")
        await world.pod_status("sb-2", **running_status())
        await world.advance(10.5)
        assert condition(world.get("sb-2"), "Ready")["status"] == "True"


async def test_what_is_final_is_not_looked_at() -> None:
    """Ready, suspended, finished and expired Sandboxes cost nothing for a day."""
    async with open_world(AT_ONCE) as world:
        await world.ready_sandbox()
        await world.create(sandbox("asleep", spec={"operatingMode": "Suspended"}))
        await world.ready_sandbox(sandbox("done"))
        await world.pod_status("done", phase="Succeeded")
        over = {"shutdownTime": "2020-01-01T00:00:00Z", "shutdownPolicy": "Retain"}
        await world.create(sandbox("over", spec=over))
        await world.advance(60.0)
        world.forget_requests()
        await world.advance(3600.0)
        assert not world.asked()
        assert not world.reports


async def test_reconciles_of_the_safety_net_become_rare() -> None:
    """A Pod that stays pending is fetched ever less, each 300 seconds at most."""
    async with open_world(AT_ONCE) as world:
        await world.create(sandbox())
        world.forget_requests()
        await world.advance(3600.0)
        looks = world.asked()["get pods"]
        assert world.asked() == {"get pods": looks}
        assert 8 <= looks <= 12
        assert 12 <= len(world.reports) <= 18
        assert caught(world) == {"sandbox": 0}


@pytest.mark.parametrize("left_s", [301.0, 305.0, 350.0, 900.0])
async def test_a_timer_that_comes_while_thousands_wait_for_the_net_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, left_s: float
) -> None:
    """However late a Sandbox is reconciled, its expiry is not taken for a lost wake-up."""
    # As if 4,000 were not final: the first look at each is 400 s away.
    monkeypatch.setattr(runtime_controller, "_SAFETY_NET_PER_S", 1 / 400)
    async with open_world(AT_ONCE) as world:
        at = format_rfc3339(world.clock.now() + timedelta(seconds=left_s))
        await world.create(sandbox(spec={"shutdownTime": at}))
        await world.advance(1000.0)
        assert condition(world.get(), "Ready")["reason"] == "SandboxExpired"
        assert caught(world) == {"sandbox": 0}


async def test_a_change_whose_event_comes_during_a_reconcile_of_the_net_is_not_counted() -> None:
    """The reconcile acts on what it is shown first, but the wake-up for it was not lost."""
    async with open_world(AT_ONCE) as world:
        await world.create(sandbox())
        await world.bind()
        await world.advance(600.0)
        held = world.plane.hold("get", "pods", answers=False, times=1)
        while not held.waiting:
            await world.advance(10.0)
        await world.pod_status(**running_status())
        held.release()
        await world.settle()
        assert condition(world.get(), "Ready")["status"] == "True"
        assert caught(world) == {"sandbox": 0}


async def test_a_pod_that_changed_while_it_was_read_is_read_again() -> None:
    """The Sandbox is Ready as far as is known, and nobody hears of its Pod any more."""
    async with open_world(AT_ONCE) as world:
        await world.ready_sandbox()
        lose_wakes(world, "pods")
        await world.pod_status(**running_status(ips=("10.0.0.9",)))
        held = world.plane.hold("get", "pods", times=1)
        await world.poke()
        assert held.waiting
        await world.pod_status(**running_status(ready=False))
        held.release()
        await world.settle()
        assert condition(world.get(), "Ready")["status"] == "True"
        await world.advance(10.5)
        assert condition(world.get(), "Ready")["status"] == "False"


async def test_a_claim_that_waits_for_somebody_is_not_looked_at() -> None:
    """Its Sandbox is suspended, finished or expired, or it is refused: no reconcile for an hour."""
    over = {"shutdownTime": "2020-01-01T00:00:00Z", "shutdownPolicy": "Retain"}
    templates = (template(), template("served", service=True))
    async with open_claims(replicas=0, templates=templates) as world:
        await world.create(pool("served", template="served"))
        for name in ("asleep", "done", "failed"):
            await world.create(claim(name))
            await world.run_pod(name)
        await suspend(world, "asleep")
        await world.delete("pods", "asleep")
        await world.pod_status("done", phase="Succeeded")
        await world.pod_status("failed", phase="Failed")
        await world.create(claim("over"))
        await world.patch("sandboxes", "over", {"spec": over})
        await world.create(claim("refused", additionalPodMetadata={"labels": {"a b": ""}}))
        await world.create(claim("environment", env=[{"name": "A", "value": "b"}]))
        await world.create(claim("volumes", volumeClaimTemplates=[volume()]))
        await world.create(claim("in.valid", pool="served"))
        await world.advance(60.0)
        claims = world.plane.store.list(CLAIMS, NS)
        assert {one["metadata"]["name"]: condition(one, "Ready")["reason"] for one in claims} == {
            "asleep": "SandboxSuspended",
            "done": "PodSucceeded",
            "failed": "PodFailed",
            "over": "SandboxExpired",
            "refused": "InvalidMetadata",
            "environment": "EnvVarsInjectionRejected",
            "volumes": "VolumeClaimTemplatesError",
            "in.valid": "InvalidConfiguration",
        }
        world.forget_requests()
        before = world.whole.activity().reconciles
        await world.advance(3600.0)
        assert not world.asked()
        assert world.whole.activity().reconciles == before


async def test_a_claim_that_missed_its_sandbox_is_found() -> None:
    """Readiness of the bound Sandbox reaches the claim without its wake-up."""
    async with open_claims("m1", ready=False) as world:
        await world.create(claim())
        await world.advance(3.0)
        name = world.plane.store.get("sandboxclaims.extensions.agents.x-k8s.io", NS, "c")["status"][
            "sandbox"
        ]["name"]
        # A bug: whatever becomes of the Sandbox, nobody tells the claim.
        world.whole.wakes.status.clear()
        world.net_may_catch = True
        await world.run_pod(name)
        await world.advance(15.0)
        stored = world.plane.store.get("sandboxclaims.extensions.agents.x-k8s.io", NS, "c")
        assert condition(stored, "Ready")["status"] == "True"
        assert caught(world)["sandboxclaim"] == 1


async def test_everything_is_compared_every_ten_hours() -> None:
    """What the cache has wrong, although its version is right, is mended by the next list."""
    async with open_world(AT_ONCE) as world:
        await world.ready_sandbox()
        (entry,) = world.whole.caches.sandboxes
        assert entry.status is not None
        before = world.get()["status"]
        # As a bug would leave it: remembered otherwise than it is stored.
        forged = {"status": {"podIPs": ["6.6.6.6"], "nodeName": "elsewhere"}}
        world.plane.store.patch(
            SANDBOXES, NS, "sb-1", forged, subresource="status", manager="lean-sandbox"
        )
        await world.settle()
        await world.advance(10.0 * 3600.0 - 60.0)
        assert world.get()["status"] != before
        # With the half of a tenth that is added at random.
        await world.advance(1800.0 + 60.0)
        assert world.get()["status"] == before


async def test_the_comparison_costs_lists_alone() -> None:
    """Eleven hours over healthy objects: a list for each kind, no GET, no write."""
    async with open_world(AT_ONCE) as world:
        await world.ready_sandbox(sandbox(spec={"service": True}))
        await world.create(sandbox("asleep", spec={"operatingMode": "Suspended"}))
        world.forget_requests()
        await world.advance(11.0 * 3600.0)
        assert world.asked() == {"list sandboxes": 1, "list pods": 1, "list services": 1}


async def test_reconciles_of_the_safety_net_are_ten_a_second_in_all() -> None:
    """Of 150 Sandboxes that wait for a node a hundred are reconciled after ten seconds."""
    async with open_world(AT_ONCE) as world:
        for number in range(150):
            world.plane.store.create(sandbox(f"sb-{number}"))
        await world.settle()
        world.reports.clear()
        looks = []
        for _ in range(15):
            await world.advance(1.0)
            looks.append(sum(one.item.is_safety_net for one in world.reports))
        assert looks[8] == 0
        assert 90 <= looks[9] <= 110
        assert all(later - before <= 12 for before, later in pairwise(looks[9:]))
        assert looks[-1] >= 150 - 20


@pytest.mark.parametrize(
    "final",
    [
        template("other", networkPolicyManagement="Unmanaged"),
        template("other", metadata={"labels": {f"example.com/{at}": "" for at in range(10_000)}}),
    ],
    ids=["unmanaged", "of no use"],
)
async def test_a_template_that_has_no_policy_is_not_looked_at(final: dict[str, Any]) -> None:
    """It asks for none, or no Pod can have its metadata: it is final until it is edited."""
    async with open_claims(replicas=0, templates=(template(), final)) as world:
        await world.advance(60.0)
        assert world.find(POLICIES, policy_name("other")) is None
        before = world.whole.activity().reconciles
        await world.advance(3600.0)
        assert world.whole.activity().reconciles == before


async def test_a_policy_that_went_unseen_while_it_was_made_is_made_again() -> None:
    """Nobody hears of its end; the template is not final without it, and is looked at."""
    async with open_claims(replicas=0) as world:
        lose_wakes(world, "networkpolicies")
        held = world.plane.hold("create", "networkpolicies", answers=True, times=1)
        world.plane.store.create(template("other"))
        await world.until(lambda: held.waiting)
        made = policy_name("other")
        world.plane.store.delete(POLICIES, NS, made, grace_s=0)
        held.release()
        await world.settle()
        assert world.find(POLICIES, made) is None
        await world.advance(10.5)
        assert world.find(POLICIES, made) is not None
        assert caught(world)["sandboxtemplate"] == 1


async def test_a_label_that_went_unseen_while_its_template_was_reconciled_is_given_again() -> None:
    """Nobody hears that it went; the template is not final without it, and is looked at."""
    async with open_claims(replicas=0) as world:
        held = world.plane.hold("create", "networkpolicies", answers=True, times=1)
        world.plane.store.create(template("other"))
        await world.until(lambda: held.waiting)
        lose_wakes(world, "sandboxtemplates")
        taken = {"metadata": {"labels": {REF_HASH: None}}}
        world.plane.store.patch(TEMPLATES, NS, "other", taken)
        held.release()
        await world.settle()
        await world.advance(10.5)
        labels = world.plane.store.get(TEMPLATES, NS, "other")["metadata"]["labels"]
        assert labels[REF_HASH] == name_hash("other")
        assert caught(world)["sandboxtemplate"] == 1
