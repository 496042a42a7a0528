"""Days on which the server refuses or goes away: rights lost, tokens expired, restarts."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from lean_sandbox.config.options import Settings
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.support.builders import claim, placed, pool
from tests.support.clock import EPOCH, FakeClock
from tests.support.suspension import suspend
from tests.support.world import CONTROLLER, NS, World, condition, open_world, sandbox

Json = dict[str, Any]
GROUP = "rbac.authorization.k8s.io"
ROLES = f"clusterroles.{GROUP}"
ROLE = "controller"
VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
AGENTS = "agents.x-k8s.io"
EXTENSIONS = "extensions.agents.x-k8s.io"
# What the controller asks for, by resource with its subresource.
RIGHTS: dict[str, str] = {
    "pods": "",
    "services": "",
    "persistentvolumeclaims": "",
    "events": "events.k8s.io",
    "sandboxes": AGENTS,
    "sandboxes/status": AGENTS,
    "sandboxes/finalizers": AGENTS,
    "sandboxclaims": EXTENSIONS,
    "sandboxclaims/status": EXTENSIONS,
    "sandboxtemplates": EXTENSIONS,
    "sandboxwarmpools": EXTENSIONS,
    "sandboxwarmpools/status": EXTENSIONS,
    "networkpolicies": "networking.k8s.io",
}


def rules(*without: tuple[str, str]) -> list[Json]:
    """Return the rules that allow everything but some (verb, resource)."""
    return [
        {
            "apiGroups": [group],
            "resources": [resource],
            "verbs": [verb for verb in VERBS if (verb, resource) not in without],
        }
        for resource, group in RIGHTS.items()
    ]


def narrow(*without: tuple[str, str]) -> Callable[[ControlPlane], None]:
    """Return what gives the controller a role of its own, without some rights."""

    def prepare(plane: ControlPlane) -> None:
        plane.store.delete(f"clusterrolebindings.{GROUP}", "", "controller")
        head = {"apiVersion": f"{GROUP}/v1", "metadata": {"name": ROLE}}
        plane.store.create({**head, "kind": "ClusterRole", "rules": rules(*without)})
        *_, namespace, name = CONTROLLER.split(":")
        subjects = [{"kind": "ServiceAccount", "namespace": namespace, "name": name}]
        reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": ROLE}
        plane.store.create(
            {**head, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": subjects}
        )

    return prepare


def revoke(world: World, *without: tuple[str, str]) -> None:
    """Take some rights away, or with none give them all back."""
    world.plane.store.patch(ROLES, "", ROLE, {"rules": rules(*without)})


def refusals(world: World) -> int:
    """Return how many of the controller's requests were refused."""
    return sum(world.plane.audit.codes(CONTROLLER, at_least=400).values())


# -- permissions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["pods", "services", "sandboxes"])
@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_without_a_right_to_watch_a_kind_the_controller_says_which_and_waits(
    verb: str, named: str
) -> None:
    """At the start: verb, resource and cure are named, also by the probe; it begins by itself."""
    async with open_world(prepare=narrow((verb, named)), is_served=verb == "watch") as world:
        await world.pass_time(10.0)
        (problem,) = world.controller.problems.values()
        assert f"allow verb {verb!r} on resource '{named}" in problem
        if verb == "list":
            assert not world.controller.synced.is_set()
            assert problem in (world.controller.not_ready or "")
        world.forget_requests()
        await world.pass_time(300.0)
        # Pauses of 22.5 s at the end, and what the healthy watches renew.
        refused = world.plane.audit.codes(CONTROLLER, at_least=403)
        assert set(refused) == {f"403 {verb} {named}"}
        assert 10 <= refused.total() <= 20
        revoke(world)
        await world.pass_time(31.0)
        world.plane.store.create(sandbox())
        await world.pass_time(6.0)
        assert world.find("pods") is not None
        assert world.controller.problems == {}
        assert world.controller.not_ready is None


@pytest.mark.parametrize("kind", ["sandboxtemplates", "sandboxclaims", "networkpolicies"])
async def test_sandboxes_are_served_without_the_right_to_list_a_kind_of_the_extensions(
    kind: str,
) -> None:
    """At the start: only the extensions wait, the probe says for what, and they begin with it."""
    settings = Settings(extensions=True, sandbox_status_window=1.0)
    async with open_world(settings, prepare=narrow(("list", kind)), is_served=False) as world:
        await world.pass_time(10.0)
        for body in (placed(), pool(replicas=1), sandbox()):
            world.plane.store.create(body)
        await world.pass_time(5.0)
        assert world.find("pods") is not None
        assert set(world.controller.problems) == {kind}
        assert f"allow verb 'list' on resource '{kind}" in (world.controller.not_ready or "")
        assert len(world.plane.store.list("sandboxes.agents.x-k8s.io", NS)) == 1
        revoke(world)
        await world.pass_time(36.0)
        assert world.controller.not_ready is None
        assert len(world.plane.store.list("sandboxes.agents.x-k8s.io", NS)) == 2


async def test_a_stop_does_not_wait_for_extensions_that_never_began() -> None:
    """Told to end while a kind is missing, the controller ends in good order."""
    settings = Settings(extensions=True, sandbox_status_window=1.0)
    async with open_world(
        settings, prepare=narrow(("list", "sandboxclaims")), is_served=False
    ) as world:
        await world.pass_time(5.0)
        assert world.controller.is_active
        assert not world.controller.synced.is_set()
        world.plane.store.create(sandbox())
        await world.pass_time(1.0)
        assert world.plane.open_watches
        world.controller.stop()
        await world.pass_time(5.0)
        assert not world.plane.open_watches
        assert world.find("pods") is not None


@pytest.mark.parametrize("kind", ["pods", "services", "sandboxtemplates", "networkpolicies"])
async def test_a_watch_that_is_no_longer_allowed_stops_nothing_else(kind: str) -> None:
    """Taken away under the controller: Sandboxes are launched, and the watch comes back."""
    settings = Settings(extensions=True, sandbox_status_window=1.0)
    async with open_world(settings, prepare=narrow()) as world:
        revoke(world, ("watch", kind))
        world.plane.drop_watches()
        await world.pass_time(60.0)
        assert set(world.controller.problems) == {kind}
        assert f"allow verb 'watch' on resource '{kind}" in world.controller.problems[kind]
        world.plane.store.create(sandbox())
        await world.pass_time(1.0)
        assert world.find("pods") is not None
        revoke(world)
        await world.pass_time(36.0)
        await world.run_pod()
        await world.advance(2.0)
        assert world.is_ready()
        assert world.controller.problems == {}


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("get", "sandboxes"),
        ("create", "pods"),
        ("get", "pods"),
        ("create", "services"),
        ("patch", "sandboxes/status"),
    ],
)
async def test_a_request_that_is_not_allowed_is_named_and_repeated_ever_less_often(
    verb: str, resource: str
) -> None:
    """The log names the right; what needs it waits, what does not goes on; it heals by itself."""
    settings = Settings(sandbox_status_window=0.0, sandbox_status_step_window=0.0)
    async with open_world(settings, prepare=narrow()) as world:
        await world.ready_sandbox(sandbox("sb-0"))
        revoke(world, (verb, resource))
        await world.create(sandbox(spec={"service": resource == "services"}))
        await world.advance(1.0)
        with capture_logs() as logs:
            if world.find("pods") is not None:
                await world.run_pod()
            await world.advance(1.0)
        assert not world.is_ready()
        errors = [line["error"] for line in logs if line["event"] == "reconcile_failed"]
        assert any(f'cannot {verb} resource "{resource}"' in error for error in errors)
        if resource in ("pods", "services") and verb == "create":
            told = condition(world.get(), "Ready")
            assert told["reason"] == "ReconcilerError"
            assert f'cannot {verb} resource "{resource}"' in told["message"]
        world.forget_requests()
        await world.advance(600.0)
        assert 1 <= refusals(world) <= 12
        assert world.asked().total() <= 40
        if verb != "get" and resource != "sandboxes/status":
            await suspend(world, "sb-0")
            await world.delete("pods", "sb-0")
            assert condition(world.get("sb-0"), "Suspended")["status"] == "True"
        revoke(world)
        await world.advance(1000.0)
        if not world.is_ready():
            await world.run_pod()
            await world.advance(2.0)
        assert world.is_ready()
        assert len(world.plane.store.list("pods", NS)) <= 2


async def test_what_happens_during_a_refusal_makes_no_pause_longer() -> None:
    """A right is back after half a minute: what needs it is done within as long, however busy."""
    settings = Settings(sandbox_status_window=0.0, sandbox_status_step_window=0.0)
    async with open_world(settings, prepare=narrow(("patch", "sandboxes/status"))) as world:
        await world.create(sandbox())
        await world.run_pod()
        for number in range(30):
            await world.patch("sandboxes", "sb-1", {"spec": {"service": number % 2 == 0}})
            await world.advance(1.0)
        revoke(world)
        await world.advance(35.0)
        assert world.is_ready()


async def test_a_pool_that_may_not_make_members_holds_up_no_sandbox() -> None:
    """The right to create Sandboxes is only the extensions'; the others are served without it."""
    settings = Settings(extensions=True, sandbox_status_window=1.0)
    async with open_world(settings, prepare=narrow(("create", "sandboxes"))) as world:
        await world.create(placed())
        await world.create(pool(replicas=2))
        await world.ready_sandbox()
        await world.advance(60.0)
        assert world.is_ready()
        world.forget_requests()
        await world.advance(600.0)
        # One attempt in four seconds, so that it goes on within five once the right is there.
        assert 1 <= refusals(world) <= 600.0 / 4.0 + 1
        revoke(world)
        await world.advance(5.0)
        assert len(world.plane.store.list("sandboxes.agents.x-k8s.io", NS)) == 3


@pytest.mark.parametrize("ahead_s", [-86_400.0, -400.0, 400.0, 86_400.0])
async def test_with_a_clock_apart_from_the_servers_no_young_member_is_replaced(
    ahead_s: float,
) -> None:
    """The age of a member is told by the clock that dated it: 300 s of grace are 300 s."""
    clock = FakeClock(EPOCH + timedelta(seconds=ahead_s))
    settings = Settings(extensions=True, sandbox_status_window=1.0)
    async with open_world(settings, clock=clock) as world:
        await world.create(placed())
        await world.create(pool(replicas=2))
        await world.advance(299.0)
        assert world.asked()["create sandboxes"] == 2
        assert world.asked()["delete sandboxes"] == 0
        await world.advance(200.0)
        assert world.asked()["delete sandboxes"] == 2


async def test_a_clock_that_is_set_replaces_no_young_member() -> None:
    """By an hour, as NTP or an administrator does: the grace is as long as before."""
    settings = Settings(extensions=True, sandbox_status_window=1.0)
    async with open_world(settings) as world:
        await world.create(placed())
        await world.create(pool(replicas=2))
        await world.advance(12.0)
        world.clock.set_wall(3600.0)
        await world.advance(280.0)
        assert world.asked()["delete sandboxes"] == 0
        await world.advance(200.0)
        assert world.asked()["delete sandboxes"] == 2


@pytest.mark.parametrize("ahead_s", [-3600.0, 0.0])
async def test_a_claim_waits_no_longer_with_a_clock_that_is_late(ahead_s: float) -> None:
    """Two seconds for members that come up are two seconds, then it has a Sandbox of its own."""
    clock = FakeClock(EPOCH + timedelta(seconds=ahead_s))
    settings = Settings(extensions=True)
    async with open_world(settings, clock=clock) as world:
        await world.create(placed())
        await world.create(pool(replicas=1))
        await world.create(claim())
        assert world.find("sandboxes", "c") is None
        await world.advance(2.1)
        assert world.find("sandboxes", "c") is not None


# -- credentials -----------------------------------------------------------------------------------


def token_file(plane: ControlPlane, folder: Path, token: Path, lifetime_s: int) -> Path:
    """Write a kubeconfig that reads the controller's token from a file."""
    plane.kubeconfig(folder / "config", CONTROLLER)
    content = yaml.safe_load((folder / "config").read_text())
    content["users"] = [{**content["users"][0], "user": {"tokenFile": str(token)}}]
    (folder / "config").write_text(json.dumps(content))
    renew(plane, token, lifetime_s)
    return folder / "config"


def renew(plane: ControlPlane, token: Path, lifetime_s: int) -> None:
    """Put a fresh token into the file, as a kubelet does."""
    token.write_text(plane.create_token(CONTROLLER, lifetime_s=lifetime_s))


async def test_a_token_that_is_renewed_in_time_is_never_noticed(tmp_path: Path) -> None:
    """For a day, with a token that lives an hour: nothing is refused, nothing is missed."""
    token = tmp_path / "token"
    async with open_world(
        kubeconfig=lambda plane, folder: token_file(plane, folder, token, 3600)
    ) as world:
        server = world.server_clock
        await world.ready_sandbox()
        for _ in range(6):
            await server.advance(2880.0)
            renew(world.plane, token, 3600)
            await world.advance(2880.0)
        await world.poke()
        assert not refusals(world)
        assert world.is_ready()


async def test_an_expired_token_is_named_and_the_renewed_one_is_used_at_once(
    tmp_path: Path,
) -> None:
    """401: the file is read again after each; with a good token the work goes on where it was."""
    token = tmp_path / "token"
    async with open_world(
        kubeconfig=lambda plane, folder: token_file(plane, folder, token, 3600)
    ) as world:
        server = world.server_clock
        await world.ready_sandbox()
        await server.advance(4000.0)
        world.plane.drop_watches()
        world.plane.store.create(sandbox("sb-2"))
        await world.pass_time(120.0)
        assert set(world.controller.problems) == {"sandboxes", "pods", "services"}
        for problem in world.controller.problems.values():
            assert "401 Unauthorized" in problem
            assert "check that the token" in problem
        world.forget_requests()
        await world.pass_time(300.0)
        # Three watches with pauses of 22.5 s, nothing twice: the file had nothing newer.
        assert refusals(world) <= 3 * 14
        renew(world.plane, token, 3600)
        await world.recover(within_s=31.0)
        await world.advance(6.0)
        await world.run_pod("sb-2")
        await world.advance(2.0)
        assert world.is_ready()
        assert world.is_ready("sb-2")
        assert world.controller.problems == {}


# -- the server ------------------------------------------------------------------------------------


@pytest.mark.parametrize("away_s", [0.0, 45.0])
async def test_a_server_that_is_restarted_is_come_back_to(tmp_path: Path, away_s: float) -> None:
    """Connections cut, refused for a while, then 503: no Pod twice, and what came is caught up."""
    clock = FakeClock()

    state = tmp_path / "state"
    first = ControlPlane(LocalSettings(state_file=state), clock=clock)
    await first.__aenter__()
    port = int(first.url.rpartition(":")[2])
    async with open_world(plane=first) as world:
        await world.ready_sandbox()
        # Cut before there is anything to tell: the new one is seen only after the restart.
        first.drop_watches()
        first.store.create(sandbox("sb-2"))
        await first.__aexit__(None, None, None)
        await world.pass_time(0.0)
        await world.clock.advance(away_s)
        again = LocalSettings(state_file=state, port=port)
        async with ControlPlane(again, clock=clock) as second:
            second.create_token(CONTROLLER)
            for verb in ("list", "watch", "get", "create", "patch"):
                second.fail_next(verb, "*", 503, times=2, retry_after=1)
            world.plane = second
            await world.recover(within_s=90.0)
            await world.advance(30.0)
            await world.run_pod("sb-2")
            await world.advance(5.0)
            assert world.is_ready()
            assert world.is_ready("sb-2")
            assert len(second.store.list("pods", NS)) == 2
            assert second.audit.counts(CONTROLLER)["create pods"] <= 6
            assert world.controller.problems == {}
            world.forget_requests()
            await world.advance(60.0)
            assert not world.asked()
