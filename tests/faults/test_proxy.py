"""The network that misbehaves: each fault is one on the wire, and what notices it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import ControlPlaneError, RequestTimeout
from lean_sandbox.kube.resources import PODS
from lean_sandbox.local.controlplane import ControlPlane
from tests.faults.breaks import Break, Grain
from tests.faults.proxy import Proxy, open_proxy
from tests.support.clients import connected, connection_to
from tests.support.clock import ClockLoop, EndlessError, FakeClock, on_clock
from tests.support.names import SANDBOXES
from tests.support.world import NS, World, open_world, sandbox


@asynccontextmanager
async def opened(clock: FakeClock) -> AsyncIterator[tuple[Client, Proxy]]:
    """Give a client whose way to a control plane is a proxy."""
    async with ControlPlane(clock=clock) as plane, open_proxy(plane.url) as proxy:
        direct = plane.url
        plane.url = proxy.url
        async with connected(connection_to(plane), clock=clock) as client:
            plane.url = direct
            yield client, proxy


@asynccontextmanager
async def watching(clock: FakeClock) -> AsyncIterator[tuple[World, Proxy]]:
    """Give a world whose controller sees its server through a proxy."""
    async with (
        ControlPlane(clock=clock) as plane,
        open_proxy(plane.url) as proxy,
        open_world(plane=plane, clock=clock, url=proxy.url) as world,
    ):
        yield world, proxy


async def ask(client: Client) -> bytes:
    """List the Pods of a namespace."""
    return await client.list(PODS, bytes, namespace=NS, timeout_s=10.0)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("how", [Break.RESET, Break.CLOSED])
@on_clock
async def test_a_broken_answer_is_an_error_and_the_next_is_whole(
    clock: FakeClock, how: Break, share: float
) -> None:
    """Wherever it breaks: nothing of it is taken for an answer."""
    async with opened(clock) as (client, proxy):
        proxy.break_answer("list", "pods", how, share)
        with pytest.raises(ControlPlaneError):
            await ask(client)
        assert proxy.done == {how.value: 1}
        assert b"PodList" in await ask(client)


@on_clock
async def test_what_never_answers_is_given_up_at_its_deadline(clock: FakeClock) -> None:
    """A connection that a router has forgotten costs ten seconds of the clock, not more."""
    async with opened(clock) as (client, proxy):
        proxy.break_answer("list", "pods", Break.MUTE, 0.5)
        asking = asyncio.ensure_future(ask(client))
        await clock.advance(9.9)
        assert not asking.done()
        await clock.advance(0.2)
        with pytest.raises(RequestTimeout):
            await asking
        proxy.delay("*", "*", 9.0, 1)
        asking = asyncio.ensure_future(ask(client))
        await clock.advance(9.5)
        assert b"PodList" in await asking


@pytest.mark.parametrize("how", [Break.RESET, Break.CLOSED, Break.MUTE])
@on_clock
async def test_a_kept_connection_that_is_dead_costs_a_request_at_most(
    clock: FakeClock, how: Break
) -> None:
    """One that was closed is not used again; one that is mute is noticed by the deadline."""
    async with opened(clock) as (client, proxy):
        await ask(client)
        proxy.drop_idle(how)
        await clock.advance(0.1)
        asking = asyncio.ensure_future(ask(client))
        await clock.advance(10.1)
        if how is Break.MUTE:
            with pytest.raises(RequestTimeout):
                await asking
            asking = asyncio.ensure_future(ask(client))
        assert b"PodList" in await asking


@on_clock
async def test_of_many_kept_connections_that_are_mute_one_costs_a_deadline(
    clock: FakeClock,
) -> None:
    """What has cut one off has cut off the others: they are not tried in turn."""
    async with opened(clock) as (client, proxy):
        await asyncio.gather(*(ask(client) for _ in range(3)))
        proxy.drop_idle(Break.MUTE)
        assert proxy.done["mute"] == 3
        asking = asyncio.ensure_future(ask(client))
        await clock.advance(10.1)
        with pytest.raises(RequestTimeout):
            await asking
        asking = asyncio.ensure_future(ask(client))
        await clock.advance(0.1)
        assert asking.done()
        assert b"PodList" in await asking


@pytest.mark.parametrize("grain", Grain)
@on_clock
async def test_events_in_any_pieces_are_the_same_events(clock: FakeClock, grain: Grain) -> None:
    """One in many writes, or many in one: Pods are made for all Sandboxes."""
    async with watching(clock) as (world, proxy):
        proxy.grain = grain
        for number in range(3):
            world.plane.store.create(sandbox(f"sb-{number}"))
        await world.settle()
        assert len(world.plane.store.list("pods", NS)) == 3
        assert grain is Grain.WHOLE or proxy.done[grain.value]


@pytest.mark.parametrize("share", [None, 0.5])
@pytest.mark.parametrize("how", [one for one in Break if one is not Break.MUTE])
@on_clock
async def test_a_watch_that_breaks_comes_back_and_misses_nothing(
    clock: FakeClock, how: Break, share: float | None
) -> None:
    """Whatever it says last, between two lines or in the midst of one."""
    async with watching(clock) as (world, proxy):
        proxy.break_watches("sandboxes", how, share)
        world.plane.store.create(sandbox())
        for _ in range(20):
            await clock.advance(0.1)
        assert proxy.done[how.value] == 1
        await world.recover()
        assert world.find("pods") is not None


@pytest.mark.parametrize("has_bookmarks", [True, False])
@on_clock
async def test_a_mute_watch_is_noticed_by_its_deadline(
    clock: FakeClock, *, has_bookmarks: bool
) -> None:
    """Two minutes after the last bookmark, or half a minute after the server should have ended it.

    Nothing else can notice it: the controller is told of nothing, and asks for nothing. Until then
    the proxy counts it as mute, also after the server has ended its part.
    """
    async with watching(clock) as (world, proxy):
        # To settle is to be sent bookmarks.
        await world.advance(60.0 if has_bookmarks else 0.0)
        if not has_bookmarks:
            await world.cut_watches()
            await clock.advance(1.0)
        proxy.break_watches("sandboxes", Break.MUTE)
        world.plane.store.create(sandbox())
        began_s = mute_until_s = clock.monotonic()
        while world.find("pods") is None:
            assert clock.monotonic() - began_s < 380.0
            if proxy.mute_watches:
                mute_until_s = clock.monotonic()
            await clock.advance(1.0)
        took_s = clock.monotonic() - began_s
        assert took_s - 3.0 <= mute_until_s - began_s
        assert (30.0 <= took_s <= 121.0) if has_bookmarks else (320.0 <= took_s <= 380.0)
        assert not proxy.mute_watches


@on_clock
async def test_a_stalled_watch_goes_on_where_it_was(clock: FakeClock) -> None:
    """Nothing is lost by a reader that is slow."""
    async with watching(clock) as (world, proxy):
        proxy.stall("sandboxes")
        world.plane.store.create(sandbox())
        await clock.advance(5.0)
        assert world.find("pods") is None
        proxy.flow()
        await world.settle()
        assert world.find("pods") is not None


def test_what_never_comes_to_rest_is_an_error() -> None:
    """A loop at one moment of the clock ends the test, and does not run for ever."""

    async def steps(clock: FakeClock) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockLoop)
        loop.turns_left = 1000
        while not loop.next_s:  # noqa: ASYNC110 -- that is what is tested
            await asyncio.sleep(0)

    with pytest.raises(EndlessError):
        on_clock(steps)()


@on_clock
async def test_a_sandbox_is_served_while_the_way_breaks_again_and_again(clock: FakeClock) -> None:
    """Every connection is reset each half second for a minute: one Pod, made once."""
    async with watching(clock) as (world, proxy):
        world.plane.store.create(sandbox())
        for _ in range(120):
            proxy.go_away()
            await clock.advance(0.1)
            proxy.is_away = False
            await clock.advance(0.4)
        await world.recover()
        await world.run_pod()
        await world.advance(2.0)
        assert len(world.plane.store.list("pods", NS)) == 1
        assert world.plane.store.get(SANDBOXES, NS, "sb-1")["status"]["podIPs"]
