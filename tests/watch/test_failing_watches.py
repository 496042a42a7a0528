"""What goes wrong between a server and a watch, and that none of it becomes a loop or a loss."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from filters import Change
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.transport import Transport
from lean_sandbox.watch.kind import Representation
from lean_sandbox.watch.resources.sandbox import sandbox_kind
from tests.support.clock import settle
from tests.support.scripted import Exchange, failure, open_scripted
from tests.watch.objects import (
    SANDBOX_COLUMNS,
    event,
    page,
    problem,
    sandbox,
    sandbox_row,
    table_bookmark,
)
from tests.watch.rig import open_rig, open_sandboxes, until


async def test_a_clean_end_resumes_from_the_last_version() -> None:
    """No list, no delta, and what comes twice is dropped."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1))
        rig.news()
        await watch.lines(sandbox_row("MODIFIED", "a", 120, generation=2, first=True))
        await rig.at(120)
        assert len(rig.news()) == 1
        await rig.clock.advance(30)
        await watch.end()
        watch = await rig.server.next(watch=True)
        assert watch.query["resourceVersion"] == "120"
        await watch.lines(
            sandbox_row("MODIFIED", "a", 120, generation=2, first=True),
            sandbox_row("ADDED", "b", 121),
        )
        await rig.at(121)
        assert rig.news() == [("b", Change.FIRST_SEEN)]
        assert rig.cache.dropped_known == 1
        assert rig.reflector.problem is None


@pytest.mark.parametrize("form", ["table", "full"])
@pytest.mark.parametrize(
    "line",
    [
        {"type": 7, "object": {}},
        {"type": "ADDED"},
        {"type": "BOOKMARK", "object": 7},
        {"object": {}},
        [],
        "ADDED",
        7,
        None,
    ],
)
async def test_a_line_that_is_no_event_costs_itself_alone(form: str, line: Any) -> None:
    """It is counted; the watch goes on, and the events that follow are applied."""
    async with open_sandboxes() as rig:
        while rig.reflector.source.representation.value != form:
            rig.reflector.source.fall_back()
        watch = await rig.listed(sandbox("a", 1))
        rig.news()
        await watch.lines(line, event("ADDED", sandbox("b", 121)))
        await rig.at(121)
        assert rig.news() == [("b", Change.FIRST_SEEN)]
        assert rig.reflector.steps["undecodable"] == 1
        assert rig.reflector.problem is None


async def test_a_watch_that_ends_at_once_is_not_asked_in_a_loop() -> None:
    """A 200 that is over immediately counts as a failure: the pauses double up to the cap."""
    asked_at: list[float] = []

    async def respond(exchange: Exchange) -> None:
        if not exchange.is_watch:
            await exchange.reply(200, page([], 100))
            return
        asked_at.append(rig.clock.monotonic())
        await exchange.begin()
        await exchange.end()

    async with open_sandboxes(responder=respond) as rig:
        await until(lambda: asked_at)
        for _ in range(3000):
            await rig.clock.advance(0.1)
        pauses = [round(later - earlier, 1) for earlier, later in pairwise(asked_at)]
        assert pauses[:6] == [0.4, 0.8, 1.6, 3.2, 6.4, 12.8]
        assert set(pauses[6:]) == {15.0}
        assert len(asked_at) < 30
        assert rig.reflector.problem == "the server ended the watch at once"


@pytest.mark.parametrize("between_pages", [True, False])
@pytest.mark.parametrize("takes_s", [0.0, 60.0])
async def test_a_version_that_always_expires_is_not_listed_in_a_loop(
    takes_s: float, *, between_pages: bool
) -> None:
    """410 within a list or right after it backs off like any failure, however long lists take."""
    listing_s = 0.0
    lists = 0

    async def respond(exchange: Exchange) -> None:
        nonlocal lists, listing_s
        if exchange.is_watch or "continue" in exchange.query:
            await exchange.reply(410, failure(410, "Expired"))
            return
        lists += 1
        listing_s += takes_s
        rig.clock.leap(takes_s)
        await exchange.reply(200, page([], 100, "more" if between_pages else ""))

    async with open_sandboxes(responder=respond) as rig:
        while rig.clock.monotonic() - listing_s < 60.0:
            await rig.clock.advance(0.1)
            assert lists < 10
        assert rig.reflector.steps["relist"] >= lists - 1
        assert rig.reflector.problem is not None


@pytest.mark.parametrize("in_stream", [True, False])
async def test_an_expired_version_is_cured_by_a_list_at_once(*, in_stream: bool) -> None:
    """HTTP 410 and an ERROR event of 410 as the first line: a list without any pause."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1), sandbox("b", 2))
        rig.news()
        await watch.lines(table_bookmark(110, SANDBOX_COLUMNS))
        await rig.at(110)
        await rig.clock.advance(30)
        await watch.end()
        watch = await rig.server.next(watch=True)
        if in_stream:
            await watch.lines(problem(410, "Expired"))
        else:
            await watch.refuse(410, "Expired")
        await rig.listed(sandbox("b", 2), version=200)
        assert rig.news() == [("a", Change.GONE)]
        assert rig.reflector.steps["failure"] == 0
        assert rig.reflector.steps["relist"] == 1


@pytest.mark.parametrize("form", list(Representation))
async def test_an_error_as_the_first_line_resumes_after_a_pause(form: Representation) -> None:
    """Any other ERROR than 410 keeps the version; in each form it comes as it is."""
    async with open_rig(sandbox_kind(form)) as rig:
        watch = await rig.listed(sandbox("a", 1))
        await watch.lines(problem(500, "InternalError"))
        assert "500 InternalError" in await rig.failing()
        assert rig.server.waiting == 0
        await rig.clock.advance(0.5)
        watch = await rig.server.next(watch=True)
        assert watch.query["resourceVersion"] == "100"


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("on_watch", [True, False])
async def test_retry_after_is_honoured(status: int, *, on_watch: bool) -> None:
    """The server's word is the shortest pause, on lists and watches."""
    async with open_sandboxes() as rig:
        exchange = await rig.listed() if on_watch else await rig.server.next(watch=False)
        await exchange.refuse(status, "TooManyRequests", headers={"Retry-After": "7"})
        await rig.failing()
        await rig.clock.advance(6.9)
        assert rig.server.waiting == 0
        await rig.clock.advance(0.2)
        await rig.server.next(watch=on_watch)


async def test_retry_after_inside_a_stream_is_honoured() -> None:
    """An ERROR event may carry the seconds in its details; after so long, it begins with a list."""
    async with open_sandboxes() as rig:
        watch = await rig.listed()
        await watch.lines(problem(429, "TooManyRequests", retryAfterSeconds=9))
        await rig.failing()
        await rig.clock.advance(8.9)
        assert rig.server.waiting == 0
        await rig.clock.advance(0.2)
        await rig.server.next(watch=False)


async def test_the_backoff_grows_with_each_failure_and_resets_after_a_healthy_while() -> None:
    """Broken connections in a row double the pause; a watch that lasted makes it short again."""
    async with open_sandboxes(uniform=lambda: 0.5) as rig:
        watch = await rig.listed(sandbox("a", 1))
        for pause_s in (0.6, 1.2, 2.4):
            watch.cut()
            await rig.failing()
            await rig.clock.advance(pause_s - 0.05)
            assert rig.server.waiting == 0
            await rig.clock.advance(0.1)
            watch = await rig.listed(sandbox("a", 1))
        await watch.lines(table_bookmark(100, SANDBOX_COLUMNS))
        await until(lambda: rig.reflector.steps["bookmark"] == 1)
        for minute in range(3):
            await rig.clock.advance(60)
            await watch.line(table_bookmark(100 + minute, SANDBOX_COLUMNS))
            await rig.at(100 + minute)
        watch.cut()
        await rig.failing()
        await rig.clock.advance(0.65)
        await rig.server.next(watch=False)


async def test_a_watch_that_is_cut_each_half_minute_is_back_at_once() -> None:
    """As by a load balancer for which it is idle, with a bookmark a minute: pauses do not grow."""
    async with open_sandboxes(uniform=lambda: 0.5) as rig:
        for _ in range(6):
            watch = await rig.listed(sandbox("a", 1))
            await watch.begin()
            await settle()
            await rig.clock.advance(35)
            watch.cut()
            await rig.failing()
            await rig.clock.advance(0.55)
            assert rig.server.waiting == 0
            await rig.clock.advance(0.1)


async def test_after_a_silent_watch_everything_is_listed() -> None:
    """Not even a bookmark for long: the connection is dead, whatever TCP believes."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1))
        await watch.lines(table_bookmark(105, SANDBOX_COLUMNS))
        await rig.at(105)
        await rig.clock.advance(89)
        assert rig.reflector.problem is None
        await rig.clock.advance(1)
        assert rig.reflector.problem == "the watch of sandboxes was silent for 90 s"
        await rig.clock.advance(1)
        watch = await rig.listed(sandbox("a", 1), version=120)
        assert watch.query["resourceVersion"] == "120"
        assert rig.reflector.steps["list"] == 2


@pytest.mark.parametrize(("spread", "ends_s"), [(0.0, 290.0), (0.999, 318.0)])
async def test_a_watch_without_bookmarks_is_given_up_after_the_server_should_have_ended_it(
    spread: float, ends_s: float
) -> None:
    """By half a minute to one and a half, and within six and a half minutes."""
    async with open_sandboxes(uniform=lambda: spread) as rig:
        # The watch begins at any moment between two turns of this loop.
        await rig.clock.advance(7.0)
        watch = await rig.listed(sandbox("a", 1))
        assert watch.query["timeoutSeconds"] == f"{ends_s:g}"
        await watch.begin()
        began_s = rig.clock.monotonic()
        while rig.reflector.problem is None:
            await rig.clock.advance(1.0)
        took_s = rig.clock.monotonic() - began_s
        assert rig.reflector.problem == "the watch of sandboxes was silent for 349 s"
        assert ends_s + 30.0 <= took_s <= ends_s + 90.0
        assert took_s <= 390.0


async def test_a_server_that_is_not_there_is_asked_again_with_pauses() -> None:
    """A refused connection is a failure like any other; the store fills once it is back."""
    async with open_scripted() as server:
        nobody = Client(Transport(Connection(server=server.url)))
    async with open_sandboxes() as rig:
        rig.reflector.source._client = nobody
        for pause_s in (0.4, 0.8, 1.6):
            assert "cannot connect" in await rig.failing()
            assert rig.server.exchanges == []
            rig.reflector.source._client = rig.client if pause_s == 1.6 else nobody
            await rig.clock.advance(pause_s)
        await rig.listed(sandbox("a", 1))
        assert rig.names() == ["a"]


@pytest.mark.parametrize("on_watch", [True, False])
async def test_a_missing_permission_is_named_and_its_return_noticed(*, on_watch: bool) -> None:
    """The problem names verb and resource; allowed again, it disappears once the watch lasts."""
    async with open_sandboxes() as rig:
        exchange = await rig.listed() if on_watch else await rig.server.next(watch=False)
        await exchange.refuse(403, "Forbidden", 'sandboxes is forbidden: User "u" cannot do that')
        said = await rig.failing()
        assert f"allow verb {'watch' if on_watch else 'list'!r}" in said
        assert "'sandboxes.agents.x-k8s.io'" in said
        assert rig.reflector.synced.is_set() is on_watch
        await rig.clock.advance(1)
        if on_watch:
            watch = await rig.server.next(watch=True)
        else:
            watch = await rig.listed(sandbox("a", 1))
        await watch.lines(table_bookmark(110, SANDBOX_COLUMNS))
        await rig.at(110)
        assert rig.reflector.problem is not None
        await rig.clock.advance(5)
        assert rig.reflector.problem is None
        assert rig.reflector.synced.is_set()


async def test_a_refused_credential_is_a_problem() -> None:
    """401 after the transport's own refresh: said in words, and tried again."""
    async with open_sandboxes() as rig:
        await (await rig.server.next(watch=False)).refuse(401, "Unauthorized")
        assert "list sandboxes.agents.x-k8s.io: 401" in await rig.failing()
        await rig.clock.advance(1)
        await rig.listed()


async def test_a_problem_ends_with_a_clean_end_of_a_watch() -> None:
    """A watch that lived its time out is proof enough."""
    async with open_sandboxes() as rig:
        watch = await rig.listed()
        watch.cut()
        await rig.failing()
        await rig.clock.advance(1)
        watch = await rig.listed()
        await watch.lines(table_bookmark(110, SANDBOX_COLUMNS))
        await rig.at(110)
        await rig.clock.advance(5)
        await watch.end()
        await rig.server.next(watch=True)
        assert rig.reflector.problem is None
        assert rig.reflector.steps["failure"] == 1


async def test_bytes_that_are_no_json_end_the_watch_and_are_a_problem() -> None:
    """What a mixed line hid is unknown: everything is listed."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1))
        await watch.lines(sandbox_row("MODIFIED", "a", 105, first=True))
        await watch.raw(b'{"type":"ADDED","obj<html>\n')
        assert "a line of the watch of sandboxes is not understood" in await rig.failing()
        await rig.clock.advance(1)
        watch = await rig.listed(sandbox("a", 110), version=120)
        assert watch.query["resourceVersion"] == "120"
        assert rig.get("a").version == 110


async def test_a_line_without_an_end_is_refused_at_the_limit() -> None:
    """16 MiB without a line feed is no object: the watch is dropped, the memory is freed."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1))
        await watch.begin()
        piece = b"x" * (1 << 20)
        for _ in range(16):
            await watch.raw(piece)
        await settle()
        assert rig.reflector.problem is None
        await watch.raw(b"x")
        assert "exceeds 16777216 bytes" in await rig.failing()
        watch.cut()


async def test_odd_characters_inside_texts_do_not_cut_lines() -> None:
    """U+0085 and U+2028 are line ends for text tools only; so is a carriage return in a string."""
    async with open_sandboxes() as rig:
        watch = await rig.listed()
        note = "one\u0085two\u2028three"
        labels = {"agents.x-k8s.io/created-by": note}
        await watch.lines(sandbox_row("ADDED", "a", 101, first=True, labels=labels))
        await rig.at(101)
        assert rig.get("a").labels == labels
        assert rig.reflector.steps["undecodable"] == 0


async def test_a_line_may_arrive_in_pieces_of_any_size() -> None:
    """Byte by byte gives the same events."""
    async with open_sandboxes() as rig:
        watch = await rig.listed()
        await watch.begin()
        events: list[Any] = [
            sandbox_row("ADDED", "a", 101, first=True),
            sandbox_row("ADDED", "b", 102),
        ]
        for byte in b"".join(msgspec.json.encode(one) + b"\r\n" for one in events):
            await watch.raw(bytes([byte]))
        await rig.at(102)
        assert rig.names() == ["a", "b"]


@pytest.mark.parametrize(("away_s", "lists"), [(4, False), (5, True)])
async def test_a_watch_that_was_away_for_long_begins_with_a_list(
    away_s: int, *, lists: bool
) -> None:
    """The server may have been started over a restored store, and its versions have caught up."""
    async with open_sandboxes(uniform=lambda: 0.0) as rig:
        watch = await rig.listed(sandbox("a", 700, generation=7), version=800)
        await watch.lines(problem(429, "TooManyRequests", retryAfterSeconds=away_s))
        await rig.failing()
        await rig.clock.advance(away_s + 0.05)
        asked = await rig.server.next(watch=not lists)
        if lists:
            await asked.reply(200, page([sandbox("a", 100, generation=2)], 900))
            watch = await rig.server.next(watch=True)
            assert watch.query["resourceVersion"] == "900"
            assert rig.get("a").generation == 2
