"""Companions without a controller of ours, as beside the reference's: by their own rights alone."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from structlog.testing import capture_logs

from lean_sandbox.config.options import COMPANIONS, Settings
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.manager.preflight import lease_of
from lean_sandbox.model.shard import Shard
from tests.companions.metrics_api import METRICS_API
from tests.companions.support import PREFIX, reports
from tests.manifests.files import grants, objects
from tests.manifests.roles import COMPANIONS as ROLE
from tests.manifests.roles import GROUP, asked
from tests.support.builders import claim, member, pool, template
from tests.support.clock import FakeClock
from tests.support.extensions import settings
from tests.support.names import CLAIMS, POOLS, SANDBOXES
from tests.support.world import (
    CONTROLLER,
    NS,
    World,
    controlled_by,
    open_world,
    pod_body,
    running_status,
    sandbox,
    tracking,
    write_pod_status,
)

Json = dict[str, Any]
POLICY = "agents.x-k8s.io/pod-failure-policy"
# Sent only where a store was restored or the versions of a server are no numbers.
SELDOM = {
    ("extensions.agents.x-k8s.io", "sandboxclaims", "get"),
    ("extensions.agents.x-k8s.io", "sandboxwarmpools", "get"),
}


def bind(plane: ControlPlane) -> None:
    """Take the rights of a controller away and give those of the component."""
    plane.store.delete(f"clusterrolebindings.{GROUP}", "", "controller")
    for body in objects("components/companions"):
        plane.store.create(body)


def make(plane: ControlPlane, *, failed: bool) -> None:
    """Make a Sandbox and its Pod as some controller does."""
    owner = plane.store.create(sandbox(metadata={"annotations": {POLICY: "Recreate"}}))
    plane.store.create(pod_body(owners=(controlled_by(owner),), labels=tracking()))
    status = {"phase": "Failed"} if failed else running_status()
    write_pod_status(plane, "sb-1", status)


async def test_every_companion_works_with_the_rights_of_the_component_alone() -> None:
    """No request is refused, and every right is used but for what is seldom needed."""
    clock = FakeClock()
    given = settings(companions=COMPANIONS)

    def prepare(plane: ControlPlane) -> None:
        bind(plane)
        plane.store.create(METRICS_API)
        make(plane, failed=True)

    async with open_world(
        given, clock=clock, one_time=True, prepare=prepare, companions_only=True
    ) as world:
        await world.advance(15.0)
        assert world.find("pods") is None
        assert [reason for _, reason, _ in reports(world)] == ["PodRecreated"]
        # A second Event of the same kind within minutes is a patch of the first.
        make_again(world)
        defaults = {f"{PREFIX}claim-defaults": '{"shutdownPolicy": "Delete", "unboundSeconds": 9}'}
        owner = pool()
        owner["metadata"]["annotations"] = {**defaults, f"{PREFIX}max-replicas": "9"}
        world.plane.store.create(owner)
        world.plane.store.create(claim("waits"))
        world.plane.store.create(claim("bound"))
        bound = {"status": {"sandbox": {"name": "sb-1"}}}
        world.plane.store.patch(CLAIMS, NS, "bound", bound, subresource="status")
        idle = {"metadata": {"annotations": {"agents.x-k8s.io/idle-timeout-seconds": "60"}}}
        world.plane.store.patch(SANDBOXES, NS, "sb-1", idle)
        make_old_member(world.plane)
        await world.advance(120.0)
        assert world.find(CLAIMS, "waits") is None
        assert world.find("sandboxes", "old") is None
        assert world.plane.store.get(POOLS, NS, "pool")["spec"]["replicas"] > 0
        assert world.plane.store.get(CLAIMS, NS, "bound")["spec"]["lifecycle"] == {
            "shutdownPolicy": "Delete"
        }
        used = asked(world.plane.audit.select(user=CONTROLLER))
        assert used <= set(grants(ROLE["rules"]))
        assert set(grants(ROLE["rules"])) - used == SELDOM


def make_old_member(plane: ControlPlane) -> None:
    """Make a pool that asks to be renewed, and a member of another template."""
    owner = pool("rolling", replicas=1)
    owner["metadata"]["annotations"] = {f"{PREFIX}rolling-update": "1"}
    stored = plane.store.create(owner)
    plane.store.create(template(image="busybox:2"))
    plane.store.create(member(stored, template(), "old"))


def make_again(world: World) -> None:
    """Make the next Pod, which fails as well."""
    owner = world.get()
    world.plane.store.create(pod_body(owners=(controlled_by(owner),), labels=tracking()))
    write_pod_status(world.plane, "sb-1", {"phase": "Failed"})


@pytest.mark.parametrize("companion", COMPANIONS)
async def test_a_companion_asks_for_nothing_while_there_is_nothing_to_do(companion: str) -> None:
    """An hour over a healthy Sandbox: its watches, and no other request."""
    given = settings(companions=(companion,))
    async with open_world(
        given,
        clock=FakeClock(),
        one_time=True,
        prepare=lambda plane: make(plane, failed=False),
        companions_only=True,
    ) as world:
        world.forget_requests()
        await world.advance(3600.0)
        assert not world.asked(events=True)


async def test_a_controller_without_companions_watches_nothing_for_them() -> None:
    """Off, they cost no request."""
    async with open_world(settings()) as world:
        assert all("companions" not in name for name in world.controller.seen_versions())
        assert world.plane.audit.counts(CONTROLLER)["list pods"] == 1


async def test_a_kind_that_may_not_be_watched_holds_up_no_controller() -> None:
    """With the rights of the controller alone, Sandboxes are served; readiness names the kind."""
    given = settings(companions=("recreate",), extensions=False)

    def refuse(plane: ControlPlane) -> None:
        def is_of_companions(target: Any) -> bool:
            return "status.phase" in str(target.query.get("fieldSelector", ""))

        for verb in ("list", "watch"):
            plane.fail_next(verb, "pods", 403, times=10**6, match=is_of_companions)

    async with open_world(given, prepare=refuse, is_served=False) as world:
        await world.pass_time(2.0)
        world.plane.store.create(sandbox())
        await world.pass_time(2.0)
        assert world.find("pods") is not None
        assert "companions/pods" in str(world.controller.not_ready)


async def test_companions_of_a_shard_leave_the_namespaces_of_others_alone() -> None:
    """A Sandbox is served by the companions of one shard, and by no others."""
    for index in (0, 1):
        shard = Shard(index, 2)
        async with open_world(
            settings(companions=("recreate",), shard=shard),
            clock=FakeClock(),
            one_time=True,
            prepare=lambda plane: make(plane, failed=True),
            companions_only=True,
        ) as world:
            await world.advance(15.0)
            assert (world.find("pods") is None) == shard.admits(NS)


def test_their_modules_are_loaded_for_those_who_want_them() -> None:
    """A controller without companions pays no memory for them."""
    program = (
        "import sys, lean_sandbox.manager.server\n"
        "assert not [name for name in sys.modules if name.startswith('lean_sandbox.companions')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)  # noqa: S603 -- stands here


def test_their_lease_is_their_own() -> None:
    """They work while another controller holds the Lease of controllers."""
    own = lease_of(Settings(), companions_only=True)
    assert own == "companions.lean-sandbox"
    assert own != lease_of(Settings())
    roles = [one for one in objects("overlays/companions") if one["kind"] == "Role"]
    named = [rule.get("resourceNames") for one in roles for rule in one["rules"]]
    assert [own] in named


async def test_the_log_counts_the_sandboxes_that_companions_see() -> None:
    """Also where no controller of ours watches any."""
    with capture_logs() as logged:
        async with open_world(
            settings(companions=("idle",)),
            prepare=lambda plane: make(plane, failed=False),
            companions_only=True,
        ):
            pass
    (synced,) = [one for one in logged if one["event"] == "caches_synced"]
    assert synced["sandboxes"] == 1
