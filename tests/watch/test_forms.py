"""The forms in which a watch may come, and how the leanest one that works is found."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from filters import Change, parse_labels
from lean_sandbox.config.options import Settings
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.transport import Transport
from lean_sandbox.manager.wiring import build_shared
from lean_sandbox.model import names
from lean_sandbox.watch.kind import METADATA_WATCH_ACCEPT, Representation
from lean_sandbox.watch.resources import build_caches
from lean_sandbox.watch.resources.sandbox import sandbox_kind
from tests.support.clock import FakeClock, settle
from tests.watch.hand import Hand
from tests.watch.objects import (
    SANDBOX_COLUMNS,
    bookmark,
    event,
    meta,
    partial,
    sandbox,
    sandbox_row,
    table,
    table_bookmark,
)
from tests.watch.rig import open_rig, open_sandboxes


async def test_a_table_watch_brings_metadata_and_columns() -> None:
    """Asked for without an alternative; a changed column passes, an unchanged row does not."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1))
        rig.news()
        assert watch.accept == "application/json;as=Table;g=meta.k8s.io;v=v1"
        await watch.lines(
            sandbox_row("MODIFIED", "a", 101, first=True),
            sandbox_row("MODIFIED", "a", 102, ready="False", reason="DependenciesNotReady"),
            sandbox_row("MODIFIED", "a", 103, ready="False", reason="DependenciesNotReady"),
        )
        await rig.at(103)
        assert rig.news() == [("a", Change.COLUMNS)]
        entry = rig.get("a")
        assert entry.version == 103
        assert entry.needs_fetch
        assert rig.cache.dropped_unchanged == 2


async def test_column_definitions_may_come_with_a_bookmark() -> None:
    """Only the first event of a watch names the columns, whatever kind of event it is."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1))
        rig.news()
        await watch.lines(
            table_bookmark(150, SANDBOX_COLUMNS),
            sandbox_row("MODIFIED", "a", 151),
            sandbox_row("MODIFIED", "a", 152, ready="Unknown"),
        )
        await rig.at(152)
        assert rig.news() == [("a", Change.COLUMNS)]


async def test_columns_are_found_by_name_wherever_they_stand() -> None:
    """Another order of the columns, and a null cell, which is an empty text."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1, ready="", reason="7"))
        rig.news()
        row = table(
            "MODIFIED",
            meta("a", 101, generation=1),
            [3, 7, "x", None],
            ["Z", "Reason", "Y", "Ready"],
        )
        await watch.lines(row)
        await rig.at(101)
        assert rig.news() == []


async def test_each_watch_names_its_columns_anew() -> None:
    """A new connection may be answered by another server with other columns."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1))
        await watch.lines(sandbox_row("MODIFIED", "a", 101, first=True))
        await rig.at(101)
        await rig.clock.advance(30)
        await watch.end()
        watch = await rig.server.next(watch=True)
        rig.news()
        other = ("Reason", "Ready")
        await watch.lines(
            table("MODIFIED", meta("a", 102, generation=1), ["DependenciesReady", "True"], other),
            table("MODIFIED", meta("a", 103, generation=1), ["DependenciesReady", "False"]),
        )
        await rig.at(103)
        assert rig.news() == [("a", Change.COLUMNS)]


async def test_a_line_may_hold_an_object_that_was_not_transformed() -> None:
    """Its metadata counts; without columns nothing is said of its status."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1))
        rig.news()
        await watch.lines(
            sandbox_row("MODIFIED", "a", 101, first=True),
            event("MODIFIED", sandbox("a", 102, generation=2, ready="False")),
            sandbox_row("MODIFIED", "a", 103, generation=2),
        )
        await rig.at(103)
        news = rig.news()
        assert [name for name, _ in news] == ["a"]
        assert Change.GENERATION in news[0][1]
        assert rig.get("a").generation == 2
        assert rig.reflector.steps["undecodable"] == 0


async def test_missing_columns_are_said_once_and_metadata_serves() -> None:
    """A server without the columns is no reason to complain at every reconnect."""
    async with open_sandboxes() as rig:
        with capture_logs() as logs:
            watch = await rig.listed(sandbox("a", 1))
            rig.news()
            for version in (101, 102, 103):
                row = table(
                    "MODIFIED", meta("a", version, generation=1), ["a", "5m"], ("Name", "Age")
                )
                await watch.lines(row)
                await rig.at(version)
                await rig.clock.advance(30)
                await watch.end()
                watch = await rig.server.next(watch=True)
            row = table("MODIFIED", meta("a", 110, generation=2), ["a", "5m"], ("Name", "Age"))
            await watch.lines(row)
            await rig.at(110)
        said = [entry for entry in logs if entry["event"] == "columns_missing"]
        assert [entry["columns"] for entry in said] == [["Ready", "Reason"]]
        assert len(rig.news()) == 1
        assert rig.get("a").status is not None
        with capture_logs() as logs:
            # A definition that has them is applied: they are used again, and nothing is said.
            again: Any = {"ready": "False", "reason": "Other", "generation": 2, "first": True}
            await watch.line(sandbox_row("MODIFIED", "a", 111, **again))
            await rig.at(111)
        assert not [entry for entry in logs if entry["event"] == "columns_missing"]
        assert [name for name, _ in rig.news()] == ["a"]


async def test_a_row_with_too_few_cells_has_no_columns() -> None:
    """Half a row says nothing about readiness and does not end the watch."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1))
        rig.news()
        await watch.lines(
            table("MODIFIED", meta("a", 101, generation=1), ["a"], SANDBOX_COLUMNS),
            sandbox_row("MODIFIED", "a", 102),
        )
        await rig.at(102)
        assert rig.news() == []


async def test_a_row_without_its_object_is_counted() -> None:
    """It names nothing that could be fetched; the rest of the watch goes on."""
    empty = sandbox_row("MODIFIED", "a", 101, first=True)
    empty["object"]["rows"][0]["object"] = None
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1))
        await watch.lines(empty, sandbox_row("MODIFIED", "a", 102))
        await rig.at(102)
        assert rig.reflector.steps["undecodable"] == 1


async def test_an_event_of_an_unknown_type_or_shape_is_counted() -> None:
    """A type of a later server, or a label that is no text: skipped, counted, and on it goes."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1))
        await watch.lines(
            sandbox_row("RENAMED", "a", 101, first=True),
            sandbox_row("MODIFIED", "a", 102, labels={"x": 1}),
        )
        await watch.raw(b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}\n')
        await watch.line(sandbox_row("MODIFIED", "a", 103, generation=2))
        await rig.at(103)
        assert rig.reflector.steps["undecodable"] == 3
        assert rig.get("a").generation == 2


def test_what_is_not_understood_is_logged_once_for_each_version() -> None:
    """What has no name is logged each time; so is what was forgotten among a thousand others."""
    hand = Hand(sandbox_kind(Representation.FULL))

    def logged(name: str, version: int, namespace: str = "ns") -> int:
        odd = sandbox(name, version, namespace=namespace)
        odd["spec"]["service"] = "perhaps"
        with capture_logs() as logs:
            hand.feed.full_line(msgspec.json.encode(event("MODIFIED", odd)))
        return [entry["event"] for entry in logs].count("object_not_understood")

    assert [logged("a", 1), logged("a", 1), logged("a", 2)] == [1, 0, 1]
    assert [logged("a", 2, "b"), logged("a", 2, "b"), logged("a", 2)] == [1, 0, 0]
    assert [logged("", 2), logged("", 2)] == [1, 1]
    for number in range(1021):
        logged(f"x{number}", 2)
    assert [logged("a", 2), logged("last", 2), logged("last", 2), logged("a", 2)] == [0, 1, 0, 1]
    assert hand.feed.steps["undecodable"] == 8 + 1021 + 4


async def test_partial_metadata_carries_what_predicates_read() -> None:
    """Generation, labels and deletion pass; what is not in the metadata is not missed."""
    async with open_rig(sandbox_kind(Representation.METADATA)) as rig:
        watch = await rig.listed(sandbox("a", 1))
        rig.news()
        assert watch.accept == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        await watch.lines(
            partial("MODIFIED", meta("a", 101, generation=1)),
            partial("MODIFIED", meta("a", 102, generation=2)),
            bookmark(103),
            partial(
                "MODIFIED", meta("a", 104, generation=2, deletionTimestamp="2026-01-02T03:04:05Z")
            ),
            partial("DELETED", meta("a", 105, generation=2)),
        )
        await rig.at(105)
        changes = [change for _, change in rig.news()]
        assert len(changes) == 3
        assert Change.GENERATION in changes[0]
        assert Change.DELETING in changes[1]
        assert changes[2] == Change.GONE


async def test_a_watch_of_full_objects_keeps_what_an_entry_holds() -> None:
    """The same predicates on the same columns, and nothing has to be fetched afterwards."""
    async with open_rig(sandbox_kind(Representation.FULL)) as rig:
        watch = await rig.listed(sandbox("a", 1))
        rig.news()
        assert watch.accept == "application/json"
        odd = sandbox("a", 102)
        odd["spec"]["service"] = "perhaps"
        await watch.lines(
            event("MODIFIED", sandbox("a", 101)),
            event("MODIFIED", odd),
            event("RENAMED", sandbox("a", 103)),
            event("MODIFIED", sandbox("a", 104, ready="False", generation=2)),
            bookmark(105),
            event("DELETED", {**odd, "metadata": meta("b", 106)}),
        )
        await rig.at(106)
        assert rig.news() == [("a", Change.GENERATION | Change.COLUMNS), ("b", Change.GONE)]
        entry = rig.get("a")
        assert not entry.needs_fetch
        assert entry.status is not None
        assert entry.status.conditions[0].status == "False"
        assert rig.reflector.steps["undecodable"] == 3


async def test_each_form_that_is_refused_leads_to_the_next_and_is_said_once() -> None:
    """406 for the Table, then for the metadata: the full object, from the same version."""
    async with open_sandboxes() as rig:
        with capture_logs() as logs:
            watch = await rig.listed(sandbox("a", 1))
            await watch.refuse(406, "NotAcceptable")
            watch = await rig.server.next(watch=True)
            assert watch.accept == METADATA_WATCH_ACCEPT[Representation.METADATA]
            await watch.refuse(406, "NotAcceptable")
            watch = await rig.server.next(watch=True)
            assert watch.accept == "application/json"
            assert watch.query["resourceVersion"] == "100"
            await watch.lines(event("MODIFIED", sandbox("a", 101, generation=2)))
            await rig.at(101)
            await rig.clock.advance(30)
            await watch.end()
            watch = await rig.server.next(watch=True)
            assert watch.accept == "application/json"
        said = [entry for entry in logs if entry["event"] == "representation_refused"]
        assert [(entry["refused"], entry["using"]) for entry in said] == [
            ("table", "metadata"),
            ("metadata", "full"),
        ]
        assert rig.reflector.steps["fallback"] == 2
        assert rig.reflector.steps["failure"] == 0
        assert rig.reflector.source.representation is Representation.FULL


async def test_a_server_that_refuses_even_full_objects_is_a_problem() -> None:
    """Nothing is left to fall back to: it is said, and tried again later."""
    async with open_rig(sandbox_kind(Representation.FULL)) as rig:
        watch = await rig.listed()
        await watch.refuse(406, "NotAcceptable")
        assert "406" in await rig.failing()
        await rig.clock.advance(1)
        await rig.server.next(watch=True)


async def test_a_refused_list_does_not_change_the_form_of_the_watch() -> None:
    """406 on a list speaks of the list."""
    async with open_sandboxes() as rig:
        await (await rig.server.next(watch=False)).refuse(406, "NotAcceptable")
        await rig.failing()
        assert rig.reflector.source.representation is Representation.TABLE


async def test_bookmarks_move_the_version_to_resume_from() -> None:
    """In a Table the mark sits in the object of the row, if there is one."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1))
        rig.news()
        await watch.lines(
            table_bookmark(150, SANDBOX_COLUMNS),
            event("BOOKMARK", {"kind": "Table", "rows": []}),
            event("BOOKMARK", {"kind": "Table", "rows": [{}]}),
            table_bookmark(170),
        )
        await rig.at(170)
        assert (rig.reflector.steps["bookmark"], rig.reflector.steps["failure"]) == (4, 0)
        assert rig.news() == []
        await rig.clock.advance(30)
        await watch.end()
        watch = await rig.server.next(watch=True)
        assert watch.query["resourceVersion"] == "170"
        assert rig.reflector.steps["list"] == 1


async def test_nothing_is_asked_for_while_a_watch_is_quiet() -> None:
    """Idle costs no requests: one list, one watch."""
    async with open_sandboxes() as rig:
        watch = await rig.listed(sandbox("a", 1))
        await watch.begin()
        for minute in range(1, 5):
            await rig.clock.advance(60)
            await watch.line(table_bookmark(100 + minute, SANDBOX_COLUMNS))
            await rig.at(100 + minute)
        await settle()
        assert len(rig.server.exchanges) == 2
        assert rig.reflector.problem is None


@pytest.mark.parametrize("form", list(Representation))
def test_what_is_kept_lean_is_watched_in_the_form_of_the_setting(form: Representation) -> None:
    """Services have no column that counts; the rest is watched in one form always."""
    caches = msgspec.structs.asdict(build_caches(leanest=form))
    found = {name: cache.kind.watch_as for name, cache in caches.items()}
    lean = Representation.METADATA if form is Representation.TABLE else form
    assert (found["sandboxes"], found["pods"], found["services"]) == (form, form, lean)
    for name in ("templates", "pools", "claims"):
        assert found[name] is Representation.FULL


@pytest.mark.parametrize("only_tracked", [True, False])
def test_all_services_are_watched_unless_the_tracked_alone_are(*, only_tracked: bool) -> None:
    """Any Service with a Sandbox's name is in its way."""
    caches = build_caches(only_tracked_services=only_tracked)
    label = names.NAME_HASH_LABEL if only_tracked else ""
    assert caches.services.kind.label_selector == parse_labels(label)
    assert build_caches().services.kind.label_selector == parse_labels("")


@pytest.mark.parametrize(("timeout_s", "kept_s"), [(10.0, 60.0), (30.0, 60.0), (100.0, 200.0)])
async def test_an_end_is_remembered_for_as_long_as_two_requests_may_take(
    timeout_s: float, kept_s: float
) -> None:
    """At least for a minute: a request may be sent again after a 401."""
    clock = FakeClock()
    client = Client(Transport(Connection("http://127.0.0.1:9")))
    shared = build_shared(client, Settings(request_timeout=timeout_s), clock, lambda: 0.5)
    for cache in msgspec.structs.asdict(shared.caches).values():
        cache.gate.note_end("first", 1)
        await clock.advance(kept_s)
        cache.gate.note_end("second", 2)
        assert len(cache.gate._tombstones) == 2
        await clock.advance(1.0)
        cache.gate.note_end("third", 3)
        assert len(cache.gate._tombstones) == 2
