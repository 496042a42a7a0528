"""A store that is restored from a backup: versions go back, and what is known has to follow."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from filters import Change
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.watch.resources.children import policy_kind
from lean_sandbox.watch.resources.extensions import claim_kind, pool_kind, template_kind
from tests.support.backup import Backup
from tests.support.builders import claim, placed, pool, template
from tests.support.clients import cluster_admin
from tests.support.clock import FakeClock
from tests.support.extensions import (
    bound_name,
    member_names,
    open_claims,
    open_pools,
    ready_of,
    run_all,
)
from tests.support.names import CLAIMS, POOLS, SANDBOXES, TEMPLATES
from tests.support.odd import KINDS
from tests.support.suspension import suspend
from tests.support.world import CONTROLLER, NS, World, condition, open_world, sandbox
from tests.watch.objects import SANDBOX_COLUMNS, page, problem, sandbox_row, table_bookmark
from tests.watch.objects import sandbox as listed
from tests.watch.rig import open_rig, open_sandboxes

TOO_LARGE = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large"}]}


@pytest.mark.parametrize("how", ["event", "bookmark", "refused", "in stream", "silent"])
async def test_a_watch_that_has_gone_back_leads_to_a_list_that_is_believed(how: str) -> None:
    """What is older than the cache replaces it, what the older store does not have is deleted."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(listed("a", 700, generation=7), listed("gone", 90), version=800)
        rig.news()
        if how == "event":
            await rig.clock.advance(60)
            await watch.lines(sandbox_row("MODIFIED", "a", 150, generation=2, first=True))
        elif how == "bookmark":
            await rig.clock.advance(60)
            await watch.lines(table_bookmark(150, SANDBOX_COLUMNS))
        elif how == "in stream":
            await watch.lines(problem(504, "Timeout", **TOO_LARGE))
        elif how == "refused":
            refusal = problem(504, "Timeout", **TOO_LARGE)["object"]
            await watch.reply(504, refusal)
        else:
            await watch.begin()
            await rig.clock.advance(290)
            await watch.end()
            asked = await rig.server.next(watch=False)
            assert asked.query == {"limit": "1"}
            await asked.reply(200, page([listed("a", 100)], 150, "more"))
        await rig.clock.advance(30)
        rig.news()
        await rig.listed(listed("a", 100, generation=1), version=150)
        assert rig.get("a").generation == 1
        assert rig.get("a").version == 100
        assert rig.names() == ["a"]
        assert rig.reflector._decoder.version == "150"
        assert {name for name, _ in rig.news()} == {"a", "gone"}


async def test_after_a_broken_connection_everything_is_compared_whatever_the_version_says() -> None:
    """A server that restarts may be restored, and on a busy one the version soon catches up."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(listed("a", 700, generation=7), version=800)
        watch.cut()
        await rig.failing()
        await rig.clock.advance(1)
        await rig.listed(listed("a", 100, generation=1), listed("back", 90), version=900)
        assert rig.get("a").generation == 1
        assert rig.names() == ["a", "back"]


async def test_a_silent_watch_of_a_server_that_has_not_gone_back_goes_on() -> None:
    """One LIST of one object, and the watch resumes where it was."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(listed("a", 1))
        await watch.begin()
        await rig.clock.advance(290)
        await watch.end()
        asked = await rig.server.next(watch=False)
        await asked.reply(200, page([listed("a", 1)], 400))
        watch = await rig.server.next(watch=True)
        assert watch.query["resourceVersion"] == "100"
        assert rig.reflector.steps["relist"] == 0
        assert rig.reflector.problem is None


async def test_a_lagging_server_costs_a_list_and_brings_nothing_back() -> None:
    """A bookmark of one that is behind: the list is consistent, so nothing changes by it."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(listed("a", 700, generation=7), version=800)
        rig.news()
        await rig.clock.advance(60)
        await watch.lines(table_bookmark(750, SANDBOX_COLUMNS))
        # What our own request has shown while the list was under way is newer than it.
        listing = await rig.server.next(watch=False)
        rig.learn(listed("ours", 900))
        await listing.reply(200, page([listed("a", 700, generation=7)], 810))
        await rig.server.next(watch=True)
        assert rig.news() == []
        assert rig.names() == ["a", "ours"]
        assert rig.get("a").generation == 7


@pytest.mark.parametrize("name", ["claims", "templates", "pools", "policies"])
async def test_the_same_generation_of_a_restored_store_is_read_afresh(name: str) -> None:
    """After a restore another spec may bear the generation that is remembered."""
    made: dict[str, Any] = {
        "claims": claim_kind,
        "templates": template_kind,
        "pools": pool_kind,
        "policies": policy_kind,
    }

    def body(version: int, **spec: Any) -> dict[str, Any]:
        held = KINDS[name]
        metadata = {**held["metadata"], "resourceVersion": str(version)}
        return {**held, "metadata": metadata, "spec": {**held["spec"], **spec}}

    async with open_rig(made[name]()) as rig:
        watch = await rig.listed(body(700), version=800)
        rig.news()
        await rig.clock.advance(60)
        await watch.lines(problem(410, "Expired"))
        await rig.listed(body(100), version=150)
        assert [change for _, change in rig.news()] == [Change.FIRST_SEEN]
        assert rig.get("odd").version == 100


@pytest.mark.parametrize("away_s", [2.0, 5.0])
@pytest.mark.parametrize("caught_up", [False, True])
async def test_the_controller_follows_a_restored_store(
    tmp_path: Path, away_s: float, *, caught_up: bool
) -> None:
    """Over the wire: Sandboxes made since the backup are forgotten, later ones are served.

    Also where others have written so much by the time the controller is back that no version tells
    of it: what was deleted since is there again, what was changed since is as it was.
    """
    saved = tmp_path / "saved.json"
    backup = tmp_path / "backup.json"
    clock = FakeClock()
    async with AsyncExitStack() as stack:
        first = ControlPlane(LocalSettings(state_file=saved), clock=clock)
        await first.__aenter__()
        world = await stack.enter_async_context(open_world(plane=first, clock=clock))
        await world.ready_sandbox(sandbox("kept"))
        await world.ready_sandbox(sandbox("changed"))
        first.save()
        backup.write_bytes(saved.read_bytes())
        await world.ready_sandbox(sandbox("since"))
        await world.delete("sandboxes", "kept")
        await suspend(world, "changed")
        await world.delete("pods", "changed")
        await world.advance(60.0)
        assert len(world.whole.caches.sandboxes) == 2
        await restart(world, stack, backup, away_s, caught_up=caught_up)
        await world.recover()
        await world.advance(900.0)
        known = sorted(str(entry.key) for entry in world.whole.caches.sandboxes)
        assert known == ["ns/changed", "ns/kept"]
        await world.ready_sandbox(sandbox("later"))
        if "deletionTimestamp" in world.pod("changed")["metadata"]:
            # The Pods may be listed before the Sandboxes, one of which is suspended until then.
            await world.delete("pods", "changed")
            await world.run_pod("changed")
        await world.advance(900.0)
        # Of all Pods that one alone, and once.
        deleted = [entry.name for entry in world.requests("delete", "pods")]
        assert deleted in ([], ["changed"])
        for name in ("later", "kept", "changed"):
            assert condition(world.get(name), "Ready")["status"] == "True"
            assert world.find("pods", name) is not None
        await suspend(world, "changed")
        assert "deletionTimestamp" in world.pod("changed")["metadata"]


async def test_a_pod_whose_deletion_the_restored_store_does_not_know_is_not_terminating(
    tmp_path: Path,
) -> None:
    """What was asked of the server since the backup is forgotten, too."""
    saved = tmp_path / "saved.json"
    backup = tmp_path / "backup.json"
    clock = FakeClock()
    async with AsyncExitStack() as stack:
        first = ControlPlane(LocalSettings(state_file=saved), clock=clock)
        await first.__aenter__()
        world = await stack.enter_async_context(open_world(plane=first, clock=clock))
        await world.ready_sandbox(sandbox("s"))
        first.save()
        backup.write_bytes(saved.read_bytes())
        await suspend(world, "s")
        assert "deletionTimestamp" in world.pod("s")["metadata"]
        await restart(world, stack, backup, 5.0, caught_up=False)
        await world.recover()
        await world.advance(60.0)
        if "deletionTimestamp" in world.pod("s")["metadata"]:
            await world.delete("pods", "s")
            await world.run_pod("s")
        assert condition(world.get("s"), "Ready")["status"] == "True"


async def test_a_pod_that_a_fetch_does_not_show_as_deleted_is_not_terminating() -> None:
    """The store was restored at the very version of the Pod that is known, so no list is news."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox("s"))
        world.plane.fail_next("delete", "pods", 200, body=world.pod("s"))
        for mode in ("Suspended", "Running"):
            await world.patch("sandboxes", "s", {"spec": {"operatingMode": mode}})
        assert condition(world.get("s"), "Ready")["reason"] == "PodTerminating"
        await world.run_pod("s", ready=False)
        await world.run_pod("s")
        assert condition(world.get("s"), "Ready")["status"] == "True"


@pytest.mark.parametrize("away_s", [2.0, 5.0])
@pytest.mark.parametrize("caught_up", [False, True])
async def test_a_claim_of_a_restored_store_is_bound(
    tmp_path: Path, away_s: float, *, caught_up: bool
) -> None:
    """The pool has its members back, those that were taken since the backup as well."""
    saved = tmp_path / "saved.json"
    backup = tmp_path / "backup.json"
    clock = FakeClock()
    async with AsyncExitStack() as stack:
        world = await filled(stack, saved, clock)
        backup.write_bytes(saved.read_bytes())
        was = member_names(world)
        await world.create(claim("lost"))
        assert ready_of(world, "lost")[0] == "True"
        await world.advance(5.0)
        await run_all(world)
        await world.advance(60.0)
        await restart(world, stack, backup, away_s, caught_up=caught_up)
        world.plane.store.create(claim("c"))
        await world.recover()
        await world.advance(30.0)
        assert bound_name(world) in was
        assert ready_of(world)[0] == "True"
        await run_all(world)
        await world.advance(30.0)
        assert len(member_names(world)) == 2
        assert world.find("sandboxclaims.extensions.agents.x-k8s.io", "lost") is None


async def test_a_pool_of_a_restored_store_is_not_filled_over_and_over(tmp_path: Path) -> None:
    """What is made before the Sandboxes are listed is known, though its version is an old one."""
    saved = tmp_path / "saved.json"
    backup = tmp_path / "backup.json"
    clock = FakeClock()
    async with AsyncExitStack() as stack:
        world = await filled(stack, saved, clock)
        backup.write_bytes(saved.read_bytes())
        for number in range(50):
            noise = {"metadata": {"annotations": {"noise": str(number)}}}
            await world.patch("sandboxes", member_names(world)[0], noise)
        # So everything is listed once more, at a version that the backup has not reached.
        await world.cut_watches()
        await world.recover()
        await restart(world, stack, backup, 2.0, caught_up=False)
        world.plane.fail_next("list", "sandboxes", 503, 4)
        world.plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": 4}})
        world.forget_requests()
        await world.recover()
        await world.advance(30.0)
        await run_all(world)
        assert world.asked()["create sandboxes"] == 2
        assert len(member_names(world)) == 4


async def filled(stack: AsyncExitStack, saved: Path, clock: FakeClock) -> World:
    """Open a world with a full pool of two, on a server that has saved its state."""
    first = ControlPlane(LocalSettings(state_file=saved), clock=clock)
    await first.__aenter__()
    first.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
    first.store.create(cluster_admin(CONTROLLER))
    first.store.create(template())
    first.store.create(pool(replicas=2))
    world = await stack.enter_async_context(open_claims(plane=first, clock=clock))
    await run_all(world)
    first.save()
    return world


async def restart(
    world: World, stack: AsyncExitStack, backup: Path, away_s: float, *, caught_up: bool
) -> None:
    """End the server and start one over the backup, where it was, perhaps with versions as high."""
    port = int(world.plane.url.rpartition(":")[2])
    await world.plane.__aexit__(None, None, None)
    await world.pass_time(away_s)
    settings = LocalSettings(state_file=backup, port=port)
    plane = world.plane = await stack.enter_async_context(ControlPlane(settings, clock=world.clock))
    if caught_up:
        metadata = {"name": "other", "namespace": "ns"}
        plane.store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        for number in range(200):
            plane.store.patch("configmaps", "ns", "other", {"data": {"number": str(number)}})


async def test_a_response_older_than_what_was_known_before_is_believed() -> None:
    """The store was restored and the watch does not know it yet: nobody asks in a loop."""
    async with open_pools() as world:
        for body in (placed(), pool(), claim()):
            await world.create(body)
        before = world.plane.store.get(CLAIMS, NS, "c")
        before["metadata"] |= {"resourceVersion": "2", "deletionTimestamp": "2026-01-01T00:00:00Z"}
        world.plane.fail_next("get", "sandboxclaims", 200, 100_000, body=before)
        world.plane.store.delete(SANDBOXES, NS, "c")
        await world.pass_time(5.0)
        assert 1 <= world.asked()["get sandboxclaims"] <= 3
        assert world.asked()["create sandboxes"] == 1


async def test_a_service_older_than_what_was_known_before_is_believed() -> None:
    """Its spec is fetched whole, by another way, and not in a loop either."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox(spec={"service": True}))
        before = world.plane.store.get("services", NS, "sb-1")
        before["metadata"]["resourceVersion"] = "2"
        world.plane.fail_next("get", "services", 200, 100_000, body=before)
        world.forget_requests()
        changed = {"spec": {"selector": {"app": "other"}}}
        world.plane.store.patch("services", NS, "sb-1", changed)
        await world.pass_time(5.0)
        assert 1 <= world.asked()["get services"] <= 3


async def test_what_had_ended_before_the_store_was_restored_is_there_again() -> None:
    """An answer that shows it is believed, though its end was seen: nothing is made in a loop."""
    async with open_pools() as world:
        world.plane.store.create(template())
        backup = Backup(world.plane)
        await world.settle()
        await world.delete(TEMPLATES, "tpl")
        await world.create(template())
        world.plane.fail_next("list", "sandboxtemplates", 503, 4)
        world.forget_requests()
        backup.restore(world.plane)
        await world.recover()
        assert world.asked()["create networkpolicies"] <= 2


async def test_a_claim_that_had_ended_before_the_store_was_restored_has_its_sandbox() -> None:
    """An answer shows the Sandbox alive whose end was seen before it was asked for."""
    async with open_claims("m-1") as world:
        await world.create(claim())
        assert bound_name(world, "c") == "m-1"
        backup = Backup(world.plane)
        await world.delete(CLAIMS, "c")
        assert world.find("sandboxes", "m-1") is None
        world.plane.fail_next("list", "sandboxes", 503, 4)
        backup.restore(world.plane)
        await world.recover()
        await world.advance(30.0)
        assert bound_name(world, "c") == "m-1"
        assert world.find("sandboxes", "c") is None


async def test_what_the_restored_store_has_as_it_is_cached_is_read_afresh_too() -> None:
    """Nothing cached is newer than the list, but the watch had come further: a DELETE is undone."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(listed("a", 100), version=800)
        rig.cache.mark(rig.get("a"), is_deleting=True)
        await rig.clock.advance(60)
        await watch.lines(table_bookmark(150, SANDBOX_COLUMNS))
        await rig.clock.advance(30)
        rig.news()
        await rig.listed(listed("a", 100), version=150)
        assert rig.news() == [("a", Change.FIRST_SEEN)]
        assert not rig.get("a").is_deleting
