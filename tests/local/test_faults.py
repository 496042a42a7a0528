"""Laws of lost answers and held messages: what was carried out, and who learns of it when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp
import pytest

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.http.faults import Loss
from tests.conformance.api import Room, until
from tests.conformance.objects import config

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def until_true(holds: Callable[[], object]) -> None:
    """Wait until something holds."""

    async def check() -> bool:
        return bool(holds())

    await until(check)


async def test_an_answer_that_fails_afterwards_was_carried_out(
    plane: ControlPlane, room: Room
) -> None:
    """With ``after`` the write is stored, and its client sees the failure alone."""
    plane.fail_next("create", "configmaps", 503, after=True)
    (await room.api.post(room.maps, config("a"))).refused(503, "ServiceUnavailable")
    assert (await room.api.get(f"{room.maps}/a")).status == 200
    plane.fail_next("create", "configmaps", 503)
    (await room.api.post(room.maps, config("b"))).refused(503, "ServiceUnavailable")
    assert (await room.api.get(f"{room.maps}/b")).status == 404
    assert plane.faults.is_idle


@pytest.mark.parametrize("after", [True, False])
async def test_a_broken_connection_tells_nothing(
    plane: ControlPlane, room: Room, *, after: bool
) -> None:
    """The client sees a reset whether or not the write was carried out."""
    plane.fail_next("create", "configmaps", Loss.RESET, after=after)
    with pytest.raises(aiohttp.ClientError):
        await room.api.post(room.maps, config("a"))
    assert (await room.api.get(f"{room.maps}/a")).status == (200 if after else 404)


async def test_silence_lasts_until_the_client_gives_up(plane: ControlPlane, room: Room) -> None:
    """The write is stored and shown as waiting; nothing is left of it once the client has left."""
    plane.fail_next("create", "configmaps", Loss.SILENCE, after=True)
    asking = asyncio.ensure_future(room.api.post(room.maps, config("a")))
    await until_true(lambda: plane.faults.waiting)
    assert (await room.api.get(f"{room.maps}/a")).status == 200
    (entry,) = plane.faults.waiting
    assert entry.what == "create configmaps"
    assert entry in plane.pending
    asking.cancel()
    await until_true(lambda: not plane.pending)
    assert not plane.faults.waiting


async def test_a_held_answer_is_older_than_what_happens_while_it_is_held(
    plane: ControlPlane, room: Room
) -> None:
    """A GET is answered with the state of its arrival, the next one at once with the newest."""
    await room.config("a", k="old")
    held = plane.hold("get", "configmaps", times=1)
    asking = asyncio.ensure_future(room.api.get(f"{room.maps}/a"))
    await until_true(lambda: held.waiting)
    await room.api.patch(f"{room.maps}/a", {"data": {"k": "new"}})
    assert (await room.api.get(f"{room.maps}/a")).ok()["data"] == {"k": "new"}
    held.release()
    assert (await asking).ok()["data"] == {"k": "old"}
    plane.faults.clear()
    assert plane.faults.is_idle


async def test_a_held_request_is_carried_out_when_it_is_let_go(
    plane: ControlPlane, room: Room
) -> None:
    """Without ``answers`` nothing has happened yet while it waits; several wait in one hold."""
    held = plane.hold("create", "configmaps", answers=False)
    asking = [asyncio.ensure_future(room.api.post(room.maps, config(name))) for name in ("a", "b")]
    await until_true(lambda: len(held.waiting) == 2)
    for name in ("a", "b"):
        assert (await room.api.get(f"{room.maps}/{name}")).status == 404
    held.release()
    for answer in asking:
        assert (await answer).status == 201
    assert (await room.api.post(room.maps, config("c"))).status == 201
    plane.faults.clear()


async def test_clearing_lets_everything_go(plane: ControlPlane, room: Room) -> None:
    """Whatever is held goes on when the faults are cleared."""
    plane.hold("get", "configmaps")
    plane.hold_events("configmaps")
    newest = str(plane.store.version)
    async with room.api.watch(room.maps, resourceVersion=newest) as stream:
        asking = asyncio.ensure_future(room.api.get(f"{room.maps}/a"))
        await until_true(lambda: plane.faults.waiting)
        await room.config("a")
        assert plane.faults.held_kinds == {"configmaps"}
        plane.faults.clear()
        assert (await asking).status == 404
        assert (await stream.take(1))[0]["object"]["metadata"]["name"] == "a"
    assert plane.faults.is_idle


async def test_held_events_go_one_by_one_or_all_at_once(plane: ControlPlane, room: Room) -> None:
    """Answers overtake them; what was let go has come, in order, and nothing else."""
    newest = str(plane.store.version)
    async with room.api.watch(room.maps, resourceVersion=newest) as stream:
        await room.config("first")
        await stream.take(1)
        held = plane.hold_events("configmaps")
        for name in ("a", "b", "c"):
            await room.config(name)
        plane.bookmark_now()
        coming = asyncio.ensure_future(stream.take(1))
        await room.api.get(f"{room.maps}/a")
        assert not coming.done()
        held.release(1)
        assert (await coming)[0]["object"]["metadata"]["name"] == "a"
        rest = asyncio.ensure_future(stream.take(2))
        await room.api.get(f"{room.maps}/a")
        assert not rest.done()
        held.release()
        assert [one["object"]["metadata"]["name"] for one in await rest] == ["b", "c"]


async def test_a_watch_that_opens_while_events_are_held_shows_nothing_either(
    plane: ControlPlane, room: Room
) -> None:
    """Its first events are those of the state it was opened at, once they are let go."""
    made = await room.config("a", k="old")
    held = plane.hold_events("configmaps")
    version = made["metadata"]["resourceVersion"]
    async with room.api.watch(room.maps, resourceVersion=version) as stream:
        coming = asyncio.ensure_future(stream.take(1))
        await room.api.patch(f"{room.maps}/a", {"data": {"k": "new"}})
        assert not coming.done()
        held.release()
        assert (await coming)[0]["object"]["data"] == {"k": "new"}


async def test_a_watch_can_be_cut_while_its_events_are_held(
    plane: ControlPlane, room: Room
) -> None:
    """A broken connection does not wait; the next watch brings what the first has not."""
    made = await room.config("a")
    version = made["metadata"]["resourceVersion"]
    held = plane.hold_events("configmaps")
    async with room.api.watch(room.maps, resourceVersion=version) as stream:
        await room.config("b")
        plane.drop_watches()
        with pytest.raises(aiohttp.ClientError):
            await stream.take(1)
    held.release()
    async with room.api.watch(room.maps, resourceVersion=version) as stream:
        assert (await stream.take(1))[0]["object"]["metadata"]["name"] == "b"
