"""Watches that break: what happened meanwhile is caught up with, whatever broke them."""

from __future__ import annotations

import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.support.clock import FakeClock
from tests.support.names import SANDBOXES
from tests.support.world import NS, open_world, sandbox


async def test_a_launch_goes_on_when_every_watch_is_cut_at_every_step() -> None:
    """Cut after each step: one Pod, one POST, Ready at the end, and one list a kind and a cut.

    Each step takes longer than the status window, for the watches come back only after a pause: so
    waiting, running and ready are told, one write each.
    """
    async with open_world() as world:
        world.forget_requests()
        await world.create(sandbox())
        await world.cut_watches()
        await world.recover()
        await world.bind()
        await world.cut_watches()
        await world.recover()
        await world.run_pod(ready=False)
        await world.cut_watches()
        await world.recover()
        await world.run_pod()
        await world.cut_watches()
        await world.recover()
        assert world.is_ready()
        assert world.asked()["create pods"] == 1
        assert world.writes()["patch sandboxes/status"] <= 3
        lists = {what: count for what, count in world.asked().items() if what.startswith("list ")}
        assert lists == {"list pods": 4, "list sandboxes": 4, "list services": 4}


async def test_what_happens_while_no_watch_is_open_is_seen_when_they_are_back() -> None:
    """A Sandbox made, a Pod started and another deleted in the gap: each is acted upon."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox("lost"))
        await world.create(sandbox("started"))
        await world.cut_watches()
        store = world.plane.store
        store.create(sandbox("made"))
        lost = store.get("pods", NS, "lost")["metadata"]["uid"]
        store.delete("pods", NS, "lost", grace_s=0)
        await world.recover()
        await world.run_pod("started")
        await world.advance(5.0)
        assert world.find("pods", "made") is not None
        assert world.pod("lost")["metadata"]["uid"] != lost
        assert world.is_ready("started")
        assert not world.is_ready("lost")


async def test_a_label_lost_in_a_gap_comes_back_when_a_get_has_seen_the_loss() -> None:
    """The watch would tell it as an end; a list after the gap misses only what is remembered."""
    async with open_world() as world:
        await world.create(sandbox())
        await world.bind()
        world.plane.fail_next("list", "pods", 500, times=2)
        world.plane.store.patch("pods", NS, "sb-1", {"metadata": {"labels": None}})
        world.plane.drop_watches()
        world.plane.compact()
        await world.pass_time(8.0)
        assert world.asked()["get pods"]
        assert world.pod()["metadata"]["labels"]


@pytest.mark.parametrize("is_listing", [False, True])
async def test_a_label_lost_before_a_list_comes_back_when_the_create_is_answered_after_it(
    *, is_listing: bool
) -> None:
    """Or during the list: it did not show the Pod, and no event of it will ever come."""
    async with open_world() as world:
        held = world.plane.hold("create", "pods", answers=True, times=1)
        await world.create(sandbox())
        world.plane.store.patch("pods", NS, "sb-1", {"metadata": {"labels": None}})
        listed = world.plane.hold("list", "pods", times=1) if is_listing else held
        world.plane.drop_watches()
        world.plane.compact()
        await world.pass_time(3.0)
        held.release()
        await world.pass_time(1.0)
        listed.release()
        await world.pass_time(3.0)
        assert world.pod()["metadata"]["labels"]


@pytest.mark.parametrize("page_size", [1, 500])
async def test_versions_compacted_away_lead_to_a_list_that_shows_what_is_gone(
    page_size: int,
) -> None:
    """A Pod and a Sandbox deleted in a gap that the server no longer remembers are missed."""
    settings = Settings(sandbox_status_window=1.0, page_size=page_size)
    async with open_world(settings) as world:
        for name in ("kept", "podless", "gone"):
            await world.ready_sandbox(sandbox(name))
        await world.cut_watches()
        store = world.plane.store
        podless = store.get("pods", NS, "podless")["metadata"]["uid"]
        kept = store.get("pods", NS, "kept")["metadata"]["uid"]
        store.delete("pods", NS, "podless", grace_s=0)
        store.delete(SANDBOXES, NS, "gone")
        await world.plane.settled()
        world.plane.compact()
        world.forget_requests()
        await world.recover()
        await world.advance(5.0)
        assert world.pod("podless")["metadata"]["uid"] != podless
        assert world.pod("kept")["metadata"]["uid"] == kept
        assert world.asked()["list pods"] >= 1
        assert world.asked()["create pods"] == 1
        # A relist alone is no reason to look at anybody.
        assert world.asked()["get sandboxes"] <= 1


async def test_a_pod_replaced_in_a_compacted_gap_is_told_from_its_predecessor() -> None:
    """Same name, another uid: the addresses shown are those of the Pod that is there now."""
    async with open_world() as world:
        await world.ready_sandbox()
        old = world.pod()
        await world.cut_watches()
        store = world.plane.store
        store.delete("pods", NS, "sb-1", grace_s=0)
        metadata = {
            key: old["metadata"][key] for key in ("name", "namespace", "labels", "ownerReferences")
        }
        store.create({**old, "metadata": metadata, "status": {"phase": "Pending"}})
        world.plane.compact()
        await world.recover()
        await world.advance(2.0)
        assert not world.is_ready()
        await world.run_pod(ips=("10.244.0.99",))
        assert world.get()["status"]["podIPs"] == ["10.244.0.99"]


async def test_a_relist_over_healthy_sandboxes_costs_pages_and_nothing_else() -> None:
    """After a 410 the lists are read once; nothing is fetched, nothing is written."""
    async with open_world() as world:
        for number in range(20):
            await world.ready_sandbox(sandbox(f"sb-{number}"))
        await world.cut_watches()
        world.plane.store.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": NS}}
        )
        world.plane.compact()
        world.forget_requests()
        await world.recover()
        await world.advance(60.0)
        assert {what for what in world.asked(events=True) if not what.startswith("list ")} == set()


async def test_watches_that_are_refused_are_asked_for_less_and_less_often() -> None:
    """A server that answers every watch with 500 is asked a few times a minute, then recovers."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.plane.fail_next("watch", "*", 500, times=100_000)
        await world.cut_watches()
        world.forget_requests()
        for _ in range(600):
            await world.clock.advance(1.0)
            await world.until(lambda: not world.controller.activity().streams)
        watches = len(world.plane.audit.select(verb="watch"))
        assert watches <= 3 * 30
        assert set(world.controller.problems) == {"sandboxes", "pods", "services"}
        world.plane.faults.clear()
        world.plane.store.create(sandbox("sb-2"))
        assert await world.recover() <= 60.0
        assert world.find("pods", "sb-2") is not None
        await world.advance(10.0)
        assert not world.controller.problems


async def test_a_quiet_watch_of_a_real_server_is_not_taken_for_dead() -> None:
    """A server sends no bookmark for a kind of which nothing ever happened: that is no failure."""
    clock = FakeClock()
    silent = LocalSettings(bookmark_interval_s=1e9)
    async with (
        ControlPlane(silent, clock=clock) as plane,
        open_world(plane=plane, clock=clock) as world,
    ):
        # Settling a world sends bookmarks; these watches never get one.
        await world.cut_watches()
        began_s = clock.monotonic() + 10.0
        await clock.advance(10.0)
        world.forget_requests()
        while clock.monotonic() < began_s + 1200.0:
            await world.until(lambda: world.controller.activity().streams == plane.open_watches)
            assert not any("silent" in why for why in world.controller.problems.values())
            await clock.advance(10.0)
        watches = plane.audit.select(verb="watch")
        # Each lives until the server ends it, after 290 s and up to a tenth more.
        assert len(watches) <= 3 * 5


async def test_a_watch_that_falls_silent_between_bookmarks_is_given_up_and_resumed() -> None:
    """A connection that died without a word is noticed, and what it hid is seen after all."""
    async with open_world() as world:
        await world.ready_sandbox()
        # Bookmarks come; from then on the server says nothing for two minutes.
        await world.advance(60.0)
        world.forget_requests()
        await world.clock.advance(120.0)
        await world.recover()
        assert 3 <= len(world.plane.audit.select(verb="watch")) <= 6
        await world.create(sandbox("sb-2"))
        assert world.find("pods", "sb-2") is not None
