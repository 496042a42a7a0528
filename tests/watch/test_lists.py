"""How a store is filled: pages, the same as a stream, and what a second list means."""

from __future__ import annotations

from functools import partial

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from filters import Change
from lean_sandbox.kube.limits import Limits
from lean_sandbox.kube.resources import PODS
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.children import pvc_kind
from lean_sandbox.watch.resources.pod import pod_kind
from lean_sandbox.watch.resources.sandbox import sandbox_kind
from tests.support.clock import FakeClock, on_clock, settle
from tests.support.world import open_world
from tests.watch.hand import Hand
from tests.watch.objects import page, pod, problem, sandbox, sandbox_row
from tests.watch.rig import open_rig, open_sandboxes, until


async def test_the_first_list_is_read_page_by_page() -> None:
    """Each page asks for the next by its token; synced only with the last; all marked initial."""
    async with open_sandboxes(page_size=2) as rig:
        first = await rig.server.next(watch=False)
        assert first.path == "/apis/agents.x-k8s.io/v1beta1/sandboxes"
        assert first.query == {"limit": "2"}
        await first.reply(200, page([sandbox("a", 1), sandbox("b", 2)], 90, "token"))
        second = await rig.server.next(watch=False)
        assert second.query == {"limit": "2", "continue": "token"}
        assert not rig.reflector.synced.is_set()
        assert rig.reflector._decoder.version is None
        await second.reply(200, page([sandbox("c", 3)], 90))
        watch = await rig.server.next(watch=True)
        assert watch.query["resourceVersion"] == "90"
        assert rig.reflector.synced.is_set()
        assert rig.names() == ["a", "b", "c"]
        assert all(delta.initial for delta in rig.deltas)
        assert {change for _, change in rig.news()} == {Change.FIRST_SEEN}
        assert rig.reflector.steps["page"] == 2


async def test_a_list_that_is_under_way_is_not_the_one_that_was_asked_for_since() -> None:
    """What it has shown before may be forgotten by now: it ends, and another one follows."""
    async with open_sandboxes() as rig:
        listing = await rig.server.next(watch=False)
        await listing.reply(200, page([sandbox("a", 1)], 90, "token"))
        second = await rig.server.next(watch=False)
        rig.cache.mark(rig.get("a"), status=None)
        rig.reflector.list_anew()
        await second.reply(200, page([sandbox("b", 2)], 90))
        listing = await rig.server.next()
        assert not listing.is_watch
        assert not rig.reflector.synced.is_set()
        await listing.reply(200, page([sandbox("a", 1), sandbox("b", 2)], 90))
        await rig.server.next(watch=True)
        assert rig.reflector.synced.is_set()
        assert not rig.get("a").needs_fetch


async def test_items_are_pruned_while_they_are_decoded() -> None:
    """What is kept is the small entry: nothing of managedFields or the containers survives."""
    async with open_sandboxes() as rig:
        await rig.listed(sandbox("a", 1))
        entry = rig.get("a")
        assert entry.view is not None
        assert not entry.needs_fetch
        assert "managedFields" not in repr(entry)
        assert "main" not in repr(entry)


async def test_selector_and_namespace_go_to_the_server() -> None:
    """Pods are asked for by their tracking label, in the namespace alone, in list and watch."""
    async with open_rig(pod_kind(), namespaces=("ns",)) as rig:
        listing = await rig.server.next(watch=False)
        assert listing.path == "/api/v1/namespaces/ns/pods"
        assert listing.query["labelSelector"] == "agents.x-k8s.io/sandbox-name-hash"
        await listing.reply(200, page([pod("a", 1)], 5))
        watch = await rig.server.next(watch=True)
        assert watch.path == listing.path
        assert watch.query["labelSelector"] == listing.query["labelSelector"]
        assert watch.query["allowWatchBookmarks"] == "true"
        assert int(watch.query["timeoutSeconds"]) >= 290


async def test_one_object_that_does_not_decode_is_skipped_alone() -> None:
    """Wrong types or bytes that are no text lose that object, not its page; it is counted."""
    odd = sandbox("odd", 2)
    odd["spec"]["service"] = "perhaps"
    dirty = sandbox("dirty", 3)
    dirty["metadata"]["labels"] = {"x": "DIRTY"}
    async with open_sandboxes() as rig:
        listing = await rig.server.next(watch=False)
        body = msgspec.json.encode(page([sandbox("a", 1), odd, dirty, sandbox("b", 4)], 9))
        with capture_logs() as logs:
            await listing.reply(200, body.replace(b"DIRTY", b"\xff\xfe"))
            await rig.server.next(watch=True)
        assert rig.names() == ["a", "b"]
        assert rig.reflector.steps["undecodable"] == 2
        assert [entry["event"] for entry in logs].count("object_not_understood") == 2
        assert rig.reflector.problem is None


async def test_an_object_that_no_longer_decodes_is_not_taken_for_deleted() -> None:
    """A relist that shows it, in a shape that is not understood, keeps what was known of it."""
    odd = sandbox("a", 20)
    odd["spec"]["service"] = "perhaps"
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1), sandbox("b", 2))
        rig.news()
        await rig.clock.advance(60)
        await watch.lines(problem(410, "Expired"))
        await rig.listed(odd, version=200)
        assert rig.news() == [("b", Change.GONE)]
        assert rig.names() == ["a"]


async def test_a_page_that_is_no_list_is_a_problem_and_is_asked_for_again() -> None:
    """HTML of a proxy, or a list without its head, never ends the reflector."""
    async with open_sandboxes() as rig:
        for body in (b"<html>", b'{"metadata":7,"items":[]}', b'{"items":"\xff"}'):
            listing = await rig.server.next(watch=False)
            await listing.reply(200, body)
            assert "list page of sandboxes" in await rig.failing()
            await rig.clock.advance(60)
        await rig.listed(sandbox("a", 1))
        assert rig.names() == ["a"]


async def test_an_expired_token_starts_the_list_over() -> None:
    """410 between two pages: from the first page again, and nothing is told twice or deleted."""
    async with open_sandboxes() as rig:
        first = await rig.server.next(watch=False)
        await first.reply(200, page([sandbox("a", 1), sandbox("b", 2)], 50, "token"))
        second = await rig.server.next(watch=False)
        await second.refuse(410, "Expired", "the continue token is too old")
        assert "too old" in await rig.failing()
        assert not rig.reflector.synced.is_set()
        await rig.clock.advance(1)
        again = await rig.server.next(watch=False)
        assert "continue" not in again.query
        await again.reply(200, page([sandbox("b", 2), sandbox("c", 60)], 70))
        await rig.server.next(watch=True)
        assert sorted(rig.news()) == [
            ("a", Change.FIRST_SEEN),
            ("a", Change.GONE),
            ("b", Change.FIRST_SEEN),
            ("c", Change.FIRST_SEEN),
        ]


@pytest.mark.parametrize("status", [429, 503])
async def test_a_list_goes_on_with_the_page_that_a_busy_server_refused(status: int) -> None:
    """The pages before it are not asked for again, or a list of hundreds would never end."""
    async with open_sandboxes(page_size=1) as rig:
        first = await rig.server.next(watch=False)
        await first.reply(200, page([sandbox("a", 1)], 50, "one"))
        for _ in range(2):
            refused = await rig.server.next(watch=False)
            assert refused.query == {"limit": "1", "continue": "one"}
            await refused.refuse(status, "Busy", headers={"Retry-After": "7"})
            await rig.failing()
            await rig.clock.advance(6.5)
            await settle()
            assert rig.server.waiting == 0
            await rig.clock.advance(1)
        second = await rig.server.next(watch=False)
        assert second.query == {"limit": "1", "continue": "one"}
        await second.reply(200, page([sandbox("b", 2)], 50))
        watch = await rig.server.next(watch=True)
        assert watch.query["resourceVersion"] == "50"
        assert rig.news() == [("a", Change.FIRST_SEEN), ("b", Change.FIRST_SEEN)]
        assert (rig.reflector.steps["list"], rig.reflector.steps["page"]) == (1, 2)


@pytest.mark.parametrize("status", [400, 500])
async def test_a_list_whose_token_a_server_may_not_know_starts_over(status: int) -> None:
    """As one that was started over a restored store: the token would be refused for ever."""
    async with open_sandboxes(page_size=1) as rig:
        first = await rig.server.next(watch=False)
        await first.reply(200, page([sandbox("a", 1)], 50, "one"))
        refused = await rig.server.next(watch=False)
        await refused.refuse(status, "Odd")
        await rig.failing()
        await rig.clock.advance(1)
        again = await rig.server.next(watch=False)
        assert "continue" not in again.query
        await again.reply(200, page([sandbox("a", 1)], 60))
        await rig.server.next(watch=True)
        assert rig.names() == ["a"]


async def test_a_list_does_not_wait_behind_what_nobody_waits_for() -> None:
    """As many requests as there may be of refills hang; a kind that is not watched is listed."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1))
        await rig.clock.advance(60)
        async with anyio.create_task_group() as group:
            for _ in range(Limits().max_spare + 1):
                group.start_soon(partial(rig.client.get, PODS, "a", bytes, namespace="ns"))
            for _ in range(Limits().max_spare):
                assert (await rig.server.next(watch=False)).path.endswith("/pods/a")
            await watch.lines(problem(410, "Expired"))
            listing = await rig.server.next(watch=False)
            assert listing.path.endswith("/sandboxes")
            group.cancel_scope.cancel()


async def test_metadata_lists_name_whole_objects_as_the_alternative() -> None:
    """Claims for volumes are listed as metadata; a server that cannot may send them whole."""
    async with open_rig(pvc_kind()) as rig:
        listing = await rig.server.next(watch=False)
        assert "PartialObjectMetadataList" in listing.accept
        assert listing.accept.endswith("application/json")
        await listing.reply(200, page([sandbox("data-a", 3)], 9))
        await rig.server.next(watch=True)
        assert rig.names() == ["data-a"]


async def test_a_relist_tells_what_the_gap_hid_and_nothing_else() -> None:
    """Gone, re-created, changed and new are told; what is as it was is not told again."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(*[sandbox(name, at) for at, name in enumerate("abcd", 1)])
        rig.news()
        await rig.clock.advance(60)
        await watch.lines(problem(410, "Expired"))
        await rig.listed(
            sandbox("a", 1),
            sandbox("b", 120, uid="another"),
            sandbox("c", 121, generation=2),
            sandbox("e", 122),
            sandbox("f", 123, ready="False"),
            version=200,
        )
        assert sorted(rig.news()) == [
            ("b", Change.RECREATED),
            ("c", Change.GENERATION),
            ("d", Change.GONE),
            ("e", Change.FIRST_SEEN),
            ("f", Change.FIRST_SEEN),
        ]
        assert rig.get("b").uid == "another"
        assert not any(delta.initial for delta in rig.deltas)


def test_a_comparison_tells_what_differs_at_the_version_that_is_known() -> None:
    """What is the same is told as well, marked as unchanged and as of a list."""
    hand = Hand(sandbox_kind())
    hand.listed(sandbox("a", 10), sandbox("b", 11))
    hand.cache.begin_list(None, resync=True)
    listed = page([sandbox("a", 10), sandbox("b", 11, generation=7)], 12)
    hand.feed.page(msgspec.json.encode(listed), initial=False)
    hand.cache.end_list(None)
    told = {delta.key.name: (delta.change, delta.initial) for delta in hand.deltas}
    assert told == {"a": (Change.NONE, True), "b": (Change.COLUMNS, False)}
    assert hand.get("b").generation == 7


async def test_a_relist_does_not_touch_what_is_newer_than_itself() -> None:
    """What an answer to our own request showed since is not taken for gone, nor ended twice."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1), sandbox("gone", 2))
        await rig.clock.advance(60)
        await watch.lines(problem(410, "Expired"))
        listing = await rig.server.next(watch=False)
        rig.learn(sandbox("ours", 300))
        rig.learn(sandbox("a", 310, uid="reborn"))
        rig.cache.forget(Key("ns", "gone"), "uid-of-gone")
        assert rig.news()[-1] == ("gone", Change.GONE)
        await listing.reply(200, page([sandbox("a", 1)], 200))
        await rig.server.next(watch=True)
        assert rig.news() == []
        assert rig.names() == ["a", "ours"]
        assert rig.get("a").uid == "reborn"


async def test_namespaces_share_a_store_and_a_relist_minds_its_own() -> None:
    """Each namespace lists and watches for itself; what one misses says nothing of the other."""
    async with open_rig(sandbox_kind(), namespaces=("one", "two")) as rig:
        listings = [await rig.server.next(watch=False) for _ in range(2)]
        listings.sort(key=lambda exchange: exchange.path)
        assert "/namespaces/one/" in listings[0].path
        for listing, namespace in zip(listings, ("one", "two"), strict=True):
            await listing.reply(200, page([sandbox("a", 5, namespace=namespace)], 9))
        watches = [await rig.server.next(watch=True) for _ in range(2)]
        watches.sort(key=lambda exchange: exchange.path)
        assert len(rig.cache) == 2
        rig.news()
        await rig.clock.advance(60)
        await watches[0].lines(problem(410, "Expired"))
        relist = await rig.server.next(watch=False)
        await watches[1].lines(
            sandbox_row("MODIFIED", "a", 90, namespace="two", generation=2, first=True)
        )
        await until(lambda: rig.deltas)
        await relist.reply(200, page([], 100))
        await rig.server.next(watch=True)
        await settle()
        assert [(delta.key.namespace, delta.change) for delta in rig.deltas] == [
            ("two", Change.GENERATION),
            ("one", Change.GONE),
        ]


async def test_a_list_without_a_version_is_refused() -> None:
    """There is nothing to resume from, and a watch from anywhere would hide deletes."""
    async with open_sandboxes() as rig:
        await (await rig.server.next()).reply(200, {"metadata": {}, "items": None})
        assert "no version" in await rig.failing()
        assert not rig.reflector.synced.is_set()


@pytest.mark.parametrize("what", [rb'"\ud800"', b"[" * 9999 + b'{"a": "]"}' + b"]" * 9999])
def test_what_no_decoder_takes_costs_its_own_object_alone(what: bytes) -> None:
    """What looks like half a pair, in a text of another tenant on the page, is left as it is."""
    hand = Hand(sandbox_kind())
    odd = {**sandbox("odd", 10), "more": ["WHAT", [[1]], "WHAT"]}
    good = sandbox("good", 11, annotations={"path": "C:\\ud8ab"})
    body = msgspec.json.encode(page([odd, good], 12)).replace(b'"WHAT"', what)
    hand.cache.begin_list(None)
    hand.feed.page(body, initial=True)
    hand.cache.end_list(None)
    assert hand.find("good") is not None
    assert hand.find("odd") is None


async def test_a_server_that_ignores_the_selector_of_a_shard_is_told_of_once_a_list() -> None:
    """With the objects that this list has shown in vain, and not for one that has shown none."""
    async with open_sandboxes(shard_selector="shardRange(object.metadata.namespace)") as rig:
        rig.cache._admits_namespace = lambda name: name == "own"

        async def told(*namespaces: str) -> list[int]:
            asked = [
                sandbox(f"s-{at}", at + 1, namespace=name) for at, name in enumerate(namespaces)
            ]
            with capture_logs() as logs:
                listing = await rig.server.next(watch=False)
                await listing.reply(200, page(asked[:1], 90, "token"))
                second = await rig.server.next(watch=False)
                await second.reply(200, page(asked[1:], 90))
                watch = await rig.server.next(watch=True)
                await watch.lines(problem(410, "Expired"))
                await rig.clock.advance(10.0)
            return [one["dropped"] for one in logs if one["event"] == "shard_selector_ignored"]

        assert await told("other", "own", "other", "third") == [3]
        assert await told("own", "other") == [1]
        assert await told("own", "own") == []


@on_clock
async def test_a_page_of_a_list_is_given_up_after_half_a_minute(clock: FakeClock) -> None:
    """A connection went silent: the page is asked for again, and what follows is seen."""

    def stall(plane: ControlPlane) -> None:
        plane.hold("list", "services", times=1)

    async with open_world(clock=clock, prepare=stall, is_served=False) as world:
        await world.pass_time(29.75)
        assert not world.controller.problems
        await world.pass_time(0.5)
        assert "services" in world.controller.problems
        await world.pass_time(5.0)
        assert len(world.requests("list", "services")) == 2
        assert world.controller.not_ready is None
