"""Busy namespaces get a watch of bare cells of their own; nothing is missed when they move."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from filters import Change
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.transport import Transport
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.group import ReflectorGroup
from lean_sandbox.watch.kind import Delta, Kind
from lean_sandbox.watch.objects import PodEntry
from lean_sandbox.watch.reflector import WatchOptions
from lean_sandbox.watch.representation import Representation
from lean_sandbox.watch.resources import kinds
from lean_sandbox.watch.store import Key, Store
from tests.support.clock import FakeClock, settle
from tests.support.scripted import Exchange, Scripted, open_scripted, until
from tests.watching.objects import page, pod, pod_cells, pod_row, problem

BUSY = 30


@dataclass
class Pods:
    """Pods of all namespaces, or of those named, between a scripted server and notices."""

    server: Scripted
    clock: FakeClock
    group: ReflectorGroup
    cache: Cache[PodEntry]
    store: Store[PodEntry]
    notices: list[Delta[PodEntry]] = field(default_factory=list)
    version: int = 100

    async def listed(self, *items: Any) -> Exchange:
        """Answer the next list and return the watch that follows."""
        exchange = await self.server.next(watch=False)
        await exchange.reply(200, page(items, self.version))
        return await self.server.next(watch=True)

    async def happen(self, watch: Exchange, namespace: str, events: int) -> None:
        """Let a Pod of a namespace flicker on the watch of all; the last event is taken in."""
        for _ in range(events):
            self.version += 1
            ready = f"{self.version % 2}/1"
            row = pod_row("MODIFIED", "a", self.version, namespace=namespace, ready=ready)
            await watch.line(row)
        await until(lambda: self.version == self.seen(namespace))

    def informer_version(self) -> str | None:
        """Return up to which version the only watch has taken everything in."""
        ((version,),) = self.group.seen_versions().values()
        return version

    def seen(self, namespace: str, name: str = "a") -> int:
        """Return the version that is remembered of a Pod, 0 without one."""
        entry = self.store.get(Key(namespace, name))
        return 0 if entry is None else entry.version

    async def watches(self, count: int) -> dict[str, Exchange]:
        """Return the next watches by their path's namespace, ``*`` for all."""
        found: dict[str, Exchange] = {}
        for _ in range(count):
            exchange = await self.server.next(watch=True)
            parts = exchange.path.split("/")
            found[parts[4] if "namespaces" in parts else "*"] = exchange
        return found


@asynccontextmanager
async def open_pods(
    kind: Kind[PodEntry] | None = None,
    *,
    namespaces: tuple[str, ...] = (),
    makes_objects: bool = True,
    admits: Callable[[str], bool] | None = None,
) -> AsyncIterator[Pods]:
    """Run the watches for the body of the ``async with``."""
    clock = FakeClock()
    kind = kind or kinds.pods()
    notices: list[Delta[PodEntry]] = []
    store: Store[PodEntry] = Store(kind.owner_of)
    cache = Cache(kind, store, notices.append)
    if admits is not None:
        cache.narrow(admits)
    async with open_scripted() as server:
        transport = Transport(Connection(server=server.url), clock=clock)
        informers = ReflectorGroup(
            Client(transport),
            clock=clock,
            uniform=lambda: 0.0,
            options=WatchOptions(),
            namespaces=namespaces,
        )
        async with anyio.create_task_group() as group:
            informers.enter(group)
            if makes_objects:
                informers.makes_objects()
            informers.start(cache)
            yield Pods(server, clock, informers, cache, store, notices)
            group.cancel_scope.cancel()
        await transport.aclose()


async def test_a_busy_namespace_gets_a_watch_of_its_own_from_where_the_other_ends() -> None:
    """The watch of all leaves it out; both go on from the same version, and nothing is listed."""
    async with open_pods() as pods:
        first = await pods.listed(pod("a", 90, namespace="x"))
        assert "includeObject" not in first.query
        await first.lines(pod_row("MODIFIED", "a", 101, namespace="x", first=True))
        pods.version = 101
        await pods.happen(first, "x", BUSY - 2)
        assert pods.server.waiting == 0
        await pods.happen(first, "x", 1)
        watches = await pods.watches(2)
        assert watches["x"].query["includeObject"] == "None"
        assert watches["*"].query["fieldSelector"] == "metadata.namespace!=x"
        assert {one.query["resourceVersion"] for one in watches.values()} == {str(pods.version)}
        await watches["x"].lines(pod_cells("MODIFIED", "a", 200, ready="0/1", first=True))
        await until(lambda: pods.seen("x") == 200)
        assert len(pods.group.seen_versions()["pods"]) == 2


async def test_nothing_moves_while_another_makes_the_objects() -> None:
    """A standby would have to ask for each object that the leader makes; then it leads."""
    async with open_pods(makes_objects=False) as pods:
        first = await pods.listed(pod("a", 90, namespace="x"))
        await first.lines(pod_row("MODIFIED", "a", 101, namespace="x", first=True))
        await pods.happen(first, "x", 2 * BUSY)
        assert pods.server.waiting == 0
        pods.group.makes_objects()
        await pods.happen(first, "x", BUSY - 1)
        assert set(await pods.watches(2)) == {"*", "x"}


async def test_a_watch_of_one_namespace_is_reopened_when_this_process_begins_to_lead() -> None:
    """As bare cells, from the version that is known; a standby has seen more."""
    async with open_pods(namespaces=("x",), makes_objects=False) as pods:
        first = await pods.listed(pod("a", 90, namespace="x"))
        assert "includeObject" not in first.query
        await first.lines(pod_row("MODIFIED", "a", 101, namespace="x", first=True))
        await until(lambda: pods.seen("x") == 101)
        pods.group.makes_objects()
        again = await pods.server.next(watch=True)
        assert (again.query["includeObject"], again.query["resourceVersion"]) == ("None", "101")
        assert pods.group.problems == {}


async def test_a_new_list_of_all_leaves_the_others_alone() -> None:
    """What it was told to leave out is not taken for gone."""
    async with open_pods() as pods:
        first = await pods.listed(pod("a", 90, namespace="x"), pod("a", 91, namespace="y"))
        await first.lines(pod_row("MODIFIED", "a", 101, namespace="x", first=True))
        await pods.happen(first, "x", BUSY - 1)
        watches = await pods.watches(2)
        await pods.clock.advance(30)
        await watches["*"].lines(problem(410, "Expired"))
        listing = await pods.server.next(watch=False)
        assert listing.query["fieldSelector"] == "metadata.namespace!=x"
        await listing.reply(200, page([], 500))
        await until(lambda: pods.seen("y") == 0)
        assert pods.seen("x") == pods.version


async def test_a_busier_namespace_takes_the_watch_of_the_quietest() -> None:
    """Eight have their own. The watch of all begins where the quiet one's had come to."""
    async with open_pods() as pods:
        names = [f"n{number}" for number in range(9)]
        wide = await pods.listed(*(pod("a", 90, namespace=name) for name in names))
        await wide.begin()
        own: dict[str, Exchange] = {}
        for name in names[:8]:
            await wide.line(pod_row("MODIFIED", "a", pods.version, namespace=name, first=True))
            await pods.happen(wide, name, BUSY - 1)
            watches = await pods.watches(2)
            wide, own[name] = watches["*"], watches[name]
            await wide.begin()
        await wide.line(pod_row("MODIFIED", "a", pods.version, namespace="n8", first=True))
        quiet_at = pods.version - 7 * (BUSY - 1)
        await pods.happen(wide, "n8", 4 * BUSY - 2)
        assert pods.server.waiting == 0
        await pods.happen(wide, "n8", 1)
        watches = await pods.watches(2)
        assert watches["n8"].query["resourceVersion"] == str(pods.version)
        assert watches["*"].query["resourceVersion"] == str(quiet_at)
        left_out = watches["*"].query["fieldSelector"]
        assert left_out == ",".join(f"metadata.namespace!={name}" for name in names[1:])
        assert len(pods.group.seen_versions()["pods"]) == 9
        opened = sum(one.watches for one in pods.group.statistics("pods"))
        # One of all, and with each move one of its own and another of all.
        assert opened == 1 + 2 * 9


async def test_a_namespace_of_another_shard_never_gets_its_own() -> None:
    """Its events are not taken in at all."""
    async with open_pods(admits=lambda namespace: namespace == "own") as pods:
        watch = await pods.listed()
        await watch.lines(pod_row("MODIFIED", "a", 101, namespace="other", first=True))
        for version in range(102, 102 + 2 * BUSY):
            await watch.line(pod_row("MODIFIED", "a", version, namespace="other"))
        await watch.line(pod_row("ADDED", "a", 300, namespace="own"))
        await until(lambda: pods.seen("own") == 300)
        assert pods.server.waiting == 0


async def test_who_is_not_expected_is_looked_at() -> None:
    """One list of one name; what the cells have told since counts on top of it."""
    async with open_pods(namespaces=("x",)) as pods:
        watch = await pods.listed()
        with pods.cache.strangers.expecting(Key("x", "b")):
            await watch.lines(pod_cells("ADDED", "b", 101, first=True))
            await until(lambda: pods.cache.strangers)
            await settle()
            assert pods.server.waiting == 0
        look = await pods.server.next(watch=False)
        await watch.line(pod_cells("MODIFIED", "b", 103, ready="0/1"))
        await until(lambda: pods.informer_version() == "103")
        assert look.query["fieldSelector"] == "metadata.name=b"
        assert look.path == "/api/v1/namespaces/x/pods"
        await look.reply(200, page([pod("b", 102, namespace="x")], 102))
        await until(lambda: pods.seen("x", "b") == 103)
        assert [notice.change for notice in pods.notices] == [Change.FIRST_SEEN, Change.COLUMNS]


async def test_a_look_that_fails_is_repeated_and_one_that_finds_nothing_is_not() -> None:
    """The row waits meanwhile; of what is gone already nothing remains."""
    async with open_pods(namespaces=("x",)) as pods:
        watch = await pods.listed()
        await watch.lines(pod_cells("ADDED", "b", 101, first=True))
        await (await pods.server.next(watch=False)).refuse(403, "Forbidden")
        await settle()
        assert pods.cache.strangers
        await pods.clock.advance(10)
        await (await pods.server.next(watch=False)).reply(200, page([], 102))
        await until(lambda: not pods.cache.strangers)
        assert pods.seen("x", "b") == 0


async def test_a_crowd_of_unknown_objects_is_listed_at_once() -> None:
    """Another controller has made them; one list is cheaper than a look at each."""
    async with open_pods(namespaces=("x",)) as pods:
        watch = await pods.listed()
        await watch.lines(pod_cells("ADDED", "p0", 101, first=True))
        look = await pods.server.next(watch=False)
        for number in range(1, 60):
            await watch.line(pod_cells("ADDED", f"p{number}", 101 + number))
        await until(lambda: len(pods.cache.strangers) == 60)
        await look.reply(200, page([pod("p0", 101, namespace="x")], 101))
        listing = await pods.server.next(watch=False)
        assert "fieldSelector" not in listing.query
        items = [pod(f"p{number}", 101 + number, namespace="x") for number in range(60)]
        await listing.reply(200, page(items, 200))
        watch = await pods.server.next(watch=True)
        assert watch.query["resourceVersion"] == "200"
        assert len(pods.store) == 60
        assert not pods.cache.strangers


async def test_a_server_whose_cells_do_not_do_is_asked_for_more() -> None:
    """From the version before the event that could not be read: it is sent again."""
    async with open_pods(namespaces=("x",)) as pods:
        watch = await pods.listed(pod("a", 90, namespace="x"))
        odd = pod_cells("MODIFIED", "a", 101, ready="0/1", first=True)
        odd["object"]["columnDefinitions"][0]["name"] = "Title"
        await watch.lines(odd)
        again = await pods.server.next(watch=True)
        assert ("includeObject" in again.query, again.query["resourceVersion"]) == (False, "100")
        await again.lines(pod_row("MODIFIED", "a", 101, namespace="x", ready="0/1", first=True))
        await until(lambda: pods.seen("x") == 101)


async def test_without_cells_among_the_forms_nothing_moves() -> None:
    """The user asked for more than cells."""
    order = kinds.representations(Representation.TABLE)
    async with open_pods(kinds.pods(order)) as pods:
        first = await pods.listed(pod("a", 90, namespace="x"))
        await first.lines(pod_row("MODIFIED", "a", 101, namespace="x", first=True))
        await pods.happen(first, "x", 2 * BUSY)
        assert pods.server.waiting == 0
