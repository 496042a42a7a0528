"""How the embedded control plane ends watches, forgets versions, and sends bookmarks."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from lean_sandbox.local import store
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.http import watching
from tests.conformance.api import Room, until
from tests.conformance.objects import config, widget
from tests.local.servers import LIVE, MAPS, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_compaction_forgets_older_versions(plane: ControlPlane, room: Room) -> None:
    """A watch gets 410 as an ERROR event, an exact list and a page get 410 with a way on."""
    for name in ("a", "b", "c"):
        await room.widget(name)
    page = (await room.api.get(room.widgets, limit=1)).ok()
    old = page["metadata"]["resourceVersion"]
    await room.widget("d")
    plane.compact()
    (event,) = await room.api.events_to_the_end(room.widgets, resourceVersion=old)
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    exact = {"resourceVersion": old, "resourceVersionMatch": "Exact"}
    (await room.api.get(room.widgets, **exact)).refused(410, "Expired")
    token = page["metadata"]["continue"]
    expired = await room.api.get(room.widgets, limit=1, continue_=token)
    hint = expired.refused(410, "Expired")["metadata"]["continue"]
    rest = (await room.api.get(room.widgets, continue_=hint)).ok()
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "c", "d"]
    now = (await room.api.get(room.widgets)).version
    assert await room.widget_events(resourceVersion=now) == []


async def test_a_short_history_forgets_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many events of a kind are kept; its oldest versions are gone."""
    monkeypatch.setattr(store, "HISTORY", 3)
    async with running() as (_, api):
        start = (await api.get(LIVE)).version
        for index in range(5):
            (await api.post(LIVE, widget(f"w{index}"))).ok()
        (event,) = await api.events_to_the_end(LIVE, resourceVersion=start)
        assert event["object"]["code"] == 410


async def test_dropped_watches_end_without_a_word(plane: ControlPlane, room: Room) -> None:
    """The connection breaks; a watch from the last version goes on without a gap."""
    async with room.api.watch(room.widgets, resourceVersion="") as stream:
        await room.widget("a")
        (event,) = await stream.take(1)
        assert plane.open_watches == 1
        assert plane.drop_watches() == 1
        with pytest.raises(aiohttp.ClientError):
            await stream.next()
    await room.widget("b")
    version = event["object"]["metadata"]["resourceVersion"]
    (after,) = await room.api.events(room.widgets, 1, resourceVersion=version)
    assert after["object"]["metadata"]["name"] == "b"


async def test_a_client_that_leaves_frees_its_watch(plane: ControlPlane, room: Room) -> None:
    """No watch is kept for nobody."""
    async with room.api.watch(room.widgets):
        assert plane.open_watches == 1

    async def is_free() -> bool:
        return plane.open_watches == 0

    await until(is_free)


async def test_a_slow_watcher_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog beyond the limit costs the connection, not the server's memory."""
    monkeypatch.setattr(watching, "BACKLOG", 3)
    async with running() as (plane, api), api.watch(LIVE) as stream:
        for index in range(8):
            plane.store.create(widget(f"w{index}"))
        with pytest.raises(aiohttp.ClientError):
            await stream.rest()


async def test_a_watcher_that_reads_nothing_can_be_cut_off() -> None:
    """Its connection is full, so the server waits to write; the watch ends nevertheless."""
    async with running() as (plane, _):
        token = plane.create_token()
        host, _, port = plane.url.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1)
        lines = (f"GET {LIVE}?watch=1 HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {token}")
        writer.write("\r\n".join([*lines, "", ""]).encode())

        async def is_open() -> bool:
            return plane.open_watches == 1

        async def is_over() -> bool:
            return plane.open_watches == 0

        await until(is_open)
        for index in range(12):
            plane.store.create(widget(f"w{index}", tags=["x" * (1 << 20)]))
            await asyncio.sleep(0)
        plane.drop_watches()
        await until(is_over)
        writer.close()


async def test_bookmarks_come_at_their_interval(room: Room) -> None:
    """They carry the version of the store, also when the kind is quiet."""
    del room
    async with running(bookmark_interval_s=0.05) as (_, api):
        start = (await api.get(LIVE)).version
        quiet = {"resourceVersion": start, "allowWatchBookmarks": "true"}
        async with api.watch(LIVE, **quiet) as stream:
            (await api.post(MAPS, config("elsewhere"))).ok()
            event = await stream.next()
            while event and int(event["object"]["metadata"]["resourceVersion"]) <= int(start):
                event = await stream.next()
        assert event is not None
        assert event["type"] == "BOOKMARK"
        assert event["object"]["kind"] == "Widget"
        assert "spec" not in event["object"]


async def test_a_bookmark_can_be_sent_at_once(plane: ControlPlane, room: Room) -> None:
    """bookmark_now tells every watcher that wants it where the store stands."""
    version = (await room.api.get(room.widgets)).version
    quiet = {"resourceVersion": version, "allowWatchBookmarks": "true"}
    async with room.api.watch(room.widgets, **quiet) as stream:
        await room.config("a")
        newest = plane.bookmark_now()
        event = await stream.next()
    assert event is not None
    assert event["object"]["metadata"]["resourceVersion"] == str(newest)
