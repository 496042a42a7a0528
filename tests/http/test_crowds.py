"""Crowds of connections: no peer keeps another from being answered."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from lean_sandbox.http.arrivals import silent
from lean_sandbox.http.server import Answer, Request, _Connection, bind
from tests.http.listeners import (
    FLAG,
    GET,
    SILENT,
    close_all,
    connect_at_once,
    echo,
    rest_of,
    serve,
    settle,
)
from tests.support.patience import PATIENCE_S


@pytest.mark.parametrize(("speak", "chosen"), [("", 0), ("ab", 2), ("bc", 0), ("abc", 0)])
def test_who_has_said_nothing_makes_room_before_who_has(speak: str, chosen: int) -> None:
    """The oldest of those, or of all if each has spoken."""
    with ExitStack() as stack:
        here, there = [], []
        for name in "abc":
            pair = [stack.enter_context(one) for one in socket.socketpair()]
            here.append(pair[0])
            there.append(pair[1])
            if name in speak:
                pair[1].send(b"x")
        assert silent(here) == chosen


async def test_a_crowd_of_idle_peers_keeps_nobody_out() -> None:
    """Beyond sixty-four the connection that was idle for longest makes room."""
    async with serve() as served:
        idle = []
        for _ in range(64):
            idle.append(await served.connect())
            await served.until(lambda: served.idle() == len(idle))
        assert not served.counted()
        assert (await served.say(b"GET /b HTTP/1.0\r\n\r\n")).endswith(b"/b {}")
        assert await rest_of(idle[0]) == b""
        for stream in idle[1:]:
            await stream.send(GET)
            assert await stream.receive()
        for stream in idle:
            await stream.aclose()
    assert served.counted()["metrics", "crowded"] == 1


@pytest.mark.parametrize("data", [SILENT, GET * 3, b"GET /a HTT"], ids=["body", "unread", "head"])
async def test_no_crowd_is_larger_than_the_limit(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections in any state make room, the oldest first, and the next request is answered."""
    monkeypatch.setattr("lean_sandbox.http.server._MOST_CONNECTIONS", 8)
    large = b"x" * 8_000_000

    async def much(request: Request) -> Answer:
        return Answer(200, large) if request.path == "/a" else await echo(request)

    async with serve(much) as served:
        crowd = []
        for number in range(40):
            crowd.append(await served.connect())
            await crowd[-1].send(data)
            await served.until(lambda: len(served.endpoint.open) == min(len(crowd), 8))
            assert len(served.endpoint.open) <= 8, number
        assert (await served.say(b"GET /b HTTP/1.0\r\n\r\n")).endswith(b"/b {}")
        for stream in crowd:
            await anyio.aclose_forcefully(stream)
    assert served.counted()["metrics", "crowded"] == 33


async def test_what_is_too_much_is_closed_before_anything_is_made_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a hundred at once eight get a task, in the place of others; a request is answered."""
    monkeypatch.setattr("lean_sandbox.http.server._MOST_CONNECTIONS", 8)
    made = 0
    begin = _Connection.__init__

    def counted(self: _Connection, *arguments: Any) -> None:
        nonlocal made
        made += 1
        begin(self, *arguments)

    monkeypatch.setattr(_Connection, "__init__", counted)
    async with serve() as served:
        await settle(served)
        crowd = connect_at_once(served, 100)
        await served.until(lambda: ("metrics", "crowded") in served.counted())
        await settle(served)
        assert made == 8
        assert served.counted() == {("metrics", "crowded"): 92}
        crowd += connect_at_once(served, 100)
        await served.until(lambda: served.counted() == {("metrics", "crowded"): 192})
        await settle(served)
        assert len(served.endpoint.open) == 8
        assert (await served.say(GET)).endswith(b"/a {}")
        close_all(crowd)


async def test_a_crowd_of_one_peer_keeps_no_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is made among the connections of the peer that has the most, however old another is."""
    monkeypatch.setattr("lean_sandbox.http.server._MOST_CONNECTIONS", 8)
    async with serve() as served:

        def is_above(before: float) -> bool:
            return served.counted().get(("metrics", "crowded"), 0) > before

        (other,) = connect_at_once(served, 1, "127.0.0.2")
        await served.until(lambda: served.endpoint.open)
        for _ in range(5):
            crowd = connect_at_once(served, 60)
            before = served.counted().get(("metrics", "crowded"), 0)
            await served.until(partial(is_above, before))
            close_all(crowd)
        waiting = [each.peer for each in served.endpoint.open]
        assert "127.0.0.2" in waiting
        other.settimeout(0)
        other.send(GET)
        await settle(served)
        with anyio.fail_after(PATIENCE_S):
            await anyio.wait_readable(other)
        assert other.recv(1000).endswith(b"/a {}")
        other.close()


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
async def test_a_probe_within_a_crowd_is_answered(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among very many that arrive at one time and say nothing, the one that asks is not closed.

    Even if it has the address of the crowd.
    """
    monkeypatch.setattr("lean_sandbox.http.server._MOST_CONNECTIONS", 8)
    async with serve() as served:
        await settle(served)
        crowd = connect_at_once(served, 50)
        (probe,) = connect_at_once(served, 1, source)
        probe.settimeout(0)
        probe.send(GET)
        crowd += connect_at_once(served, 50)
        with anyio.fail_after(PATIENCE_S):
            await anyio.wait_readable(probe)
        assert probe.recv(1000).endswith(b"/a {}")
        close_all([*crowd, probe])


async def test_the_system_keeps_hundreds_of_connections_until_they_are_accepted() -> None:
    """A busy moment of the controller loses no probe behind a crowd."""
    with bind(FLAG, "127.0.0.1:0") as listening:
        address = listening.getsockname()
        close_all([socket.create_connection(address, 5.0) for _ in range(300)])


async def test_a_peer_that_has_left_as_it_is_accepted_is_counted() -> None:
    """Nothing is read of it, and the next one is answered."""
    async with serve() as served:
        (gone,) = connect_at_once(served, 1)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.close()
        assert (await served.say(GET)).endswith(b"/a {}")
    assert served.counted() == {("metrics", "reset"): 1}


async def test_a_failing_accept_is_counted_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many open files pass: the server pauses and goes on."""
    async with serve() as served:
        original = socket.socket.accept

        def refuse(self: socket.socket) -> object:
            monkeypatch.setattr(socket.socket, "accept", original)
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(socket.socket, "accept", refuse)
        async with await served.connect() as stream:
            await stream.send(b"GET /b HTTP/1.0\r\n\r\n")
            await served.until(lambda: ("metrics", "accept") in served.counted())
            await served.clock.advance(1.0)
            assert (await rest_of(stream)).endswith(b"/b {}")


async def test_a_peer_that_leaves_before_it_is_accepted_delays_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is counted, and the next connection is accepted without a pause."""
    async with serve() as served:
        original = socket.socket.accept

        def aborted(self: socket.socket) -> object:
            monkeypatch.setattr(socket.socket, "accept", original)
            raise ConnectionAbortedError(103, "Software caused connection abort")

        monkeypatch.setattr(socket.socket, "accept", aborted)
        assert (await served.say(GET)).endswith(b"/a {}")
    assert served.counted() == {("metrics", "accept"): 1}
