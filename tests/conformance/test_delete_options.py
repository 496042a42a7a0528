"""Laws of delete options: what is not understood deletes nothing, in a query as in a body."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.api import Room

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]

_WRONG_QUERIES: list[tuple[int, Json]] = [
    (422, {"dryRun": "all"}),
    (422, {"dryRun": ""}),
    (422, {"dryRun": "true"}),
    (400, {"gracePeriodSeconds": "abc"}),
    (400, {"gracePeriodSeconds": ""}),
    (400, {"gracePeriodSeconds": "1.5"}),
    (400, {"gracePeriodSeconds": "1_0"}),
    (400, {"gracePeriodSeconds": "9" * 20}),
    (422, {"propagationPolicy": "background"}),
    (422, {"propagationPolicy": ""}),
    (422, {"orphanDependents": "true", "propagationPolicy": "Orphan"}),
    (409, {"uid": "other"}),
    (409, {"resourceVersion": "5"}),
]
_WRONG_BODIES: list[tuple[int, Any]] = [
    (422, {"dryRun": ["all"]}),
    (422, {"dryRun": ["All", "x"]}),
    (422, {"dryRun": [""]}),
    (400, {"dryRun": "All"}),
    (400, {"dryRun": 3}),
    (400, {"dryRun": {}}),
    (400, {"gracePeriodSeconds": "5"}),
    (400, {"gracePeriodSeconds": 1.5}),
    (400, {"gracePeriodSeconds": True}),
    (400, {"gracePeriodSeconds": 10**20}),
    (400, {"preconditions": 3}),
    (400, {"preconditions": []}),
    (400, {"preconditions": {"uid": 3}}),
    (400, {"preconditions": {"resourceVersion": 5}}),
    (409, {"preconditions": {"uid": ""}}),
    (409, {"preconditions": {"resourceVersion": "1"}}),
    (400, {"propagationPolicy": 3}),
    (422, {"propagationPolicy": ""}),
    (422, {"propagationPolicy": "Foregroun"}),
    (400, {"orphanDependents": "true"}),
    (422, {"orphanDependents": True, "propagationPolicy": "Orphan"}),
    (400, {"kind": "Pod"}),
    (400, {"kind": 3}),
    (400, {"apiVersion": 3}),
    (400, []),
    (400, "x"),
    (400, 3),
    (400, b"{"),
    (400, b"nope"),
    (400, b"  "),
    (422, b'{"dryRun":["All"],"dryRun":["x"]}'),
]
_HARMLESS: list[Any] = [
    {"dryRun": None, "gracePeriodSeconds": None, "preconditions": None, "propagationPolicy": None},
    {"kind": "DeleteOptions", "apiVersion": "v1"},
    {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "preconditions": {}},
    {"unknown": 1},
]


async def _objects(room: Room) -> tuple[str, ...]:
    await room.config("x")
    await room.widget("x")
    await room.pod("x")
    return f"{room.maps}/x", f"{room.widgets}/x", f"{room.pods}/x"


@pytest.mark.parametrize(("status", "query"), _WRONG_QUERIES)
async def test_a_query_that_means_nothing_deletes_nothing(
    room: Room, status: int, query: Json
) -> None:
    """A mistyped dry run, number, policy or precondition is refused before anything happens."""
    for path in await _objects(room):
        before = (await room.api.get(path)).ok()
        for where in (path, path.removesuffix("/x")):
            reply = await room.api.delete(where, **query)
            if where == path or "resourceVersion" not in query:  # which is a list's own option
                assert reply.status == status, reply.body
        assert (await room.api.get(path)).ok() == before


@pytest.mark.parametrize(("status", "body"), _WRONG_BODIES)
async def test_a_body_that_means_nothing_deletes_nothing(
    room: Room, status: int, body: Any
) -> None:
    """Neither an object nor a collection goes by options of wrong types, values or kinds."""
    for path in await _objects(room):
        before = (await room.api.get(path)).ok()
        for where in (path, path.removesuffix("/x")):
            reply = await room.api.delete(where, body, content="application/json")
            assert reply.status == status, (where, reply.body)
        assert (await room.api.get(path)).ok() == before


@pytest.mark.parametrize(
    "content",
    [
        "text/plain",
        "application/merge-patch+json",
        "*/*",
        "nonsense",
        ";",
        "application/apply-patch+yaml",
    ],
)
async def test_a_body_in_an_unknown_format_deletes_nothing(room: Room, content: str) -> None:
    """Delete options are JSON, YAML or protobuf."""
    for path in await _objects(room):
        reply = await room.api.delete(path, {"dryRun": []}, content=content)
        reply.refused(415, "UnsupportedMediaType")
        assert (await room.api.get(path)).status == 200


@pytest.mark.parametrize("body", _HARMLESS)
async def test_options_without_effect_delete(room: Room, body: Json) -> None:
    """Nulls, the names of the kind and unknown members are no mistakes."""
    for path in await _objects(room):
        (await room.api.delete(path, body)).ok()
        assert (await room.api.get(path)).status == 404


@pytest.mark.parametrize("content", ["application/json", "application/yaml", ""])
async def test_a_dry_run_deletes_nothing(room: Room, content: str) -> None:
    """It answers as the deletion would, by query and by body."""
    for path in await _objects(room):
        before = (await room.api.get(path)).ok()
        body = json.dumps({"dryRun": ["All"]}).encode()
        (await room.api.ask("DELETE", path, body, content=content)).ok()
        (await room.api.delete(path, dryRun="All")).ok()
        (await room.api.delete(path.removesuffix("/x"), dryRun="All")).ok()
        assert (await room.api.get(path)).ok() == before


async def test_a_body_replaces_the_query(room: Room) -> None:
    """Options come from one place: with a body, those of the query count for nothing."""
    path, *_ = await _objects(room)
    (await room.api.delete(path, {"dryRun": ["All"]}, gracePeriodSeconds="abc")).ok()
    assert (await room.api.get(path)).status == 200
    (await room.api.delete(path, {}, propagationPolicy="x")).ok()
    assert (await room.api.get(path)).status == 404


async def test_a_policy_of_before_holds_without_a_new_one(room: Room) -> None:
    """A second deletion that names no policy leaves the finalizer of the first."""
    held = ["laws.dev/hold"]
    await room.widget("x", metadata={"finalizers": held})
    path = f"{room.widgets}/x"
    await room.widget("child", metadata={"ownerReferences": [], "finalizers": held})
    both = {"metadata": {"finalizers": [*held, "foregroundDeletion"]}}
    (await room.api.patch(path, both)).ok()
    kept = (await room.api.delete(path, dryRun="All")).ok()["metadata"]["finalizers"]
    assert kept == [*held, "foregroundDeletion"]
    background = (await room.api.delete(path, propagationPolicy="Background", dryRun="All")).ok()
    assert background["metadata"]["finalizers"] == held
    for name in ("x", "child"):
        (await room.api.patch(f"{room.widgets}/{name}", {"metadata": {"finalizers": None}})).ok()


async def test_a_collection_is_deleted_by_pages(room: Room) -> None:
    """With a limit only so many objects go, and the answer has the token of the next ones."""
    for name in ("a", "b", "c"):
        await room.widget(name)
    first = (await room.api.delete(room.widgets, limit="2")).ok()
    assert [item["metadata"]["name"] for item in first["items"]] == ["a", "b"]
    left = (await room.api.get(room.widgets)).ok()["items"]
    assert [item["metadata"]["name"] for item in left] == ["c"]
    token = first["metadata"]["continue"]
    rest = (await room.api.delete(room.widgets, continue_=token)).ok()
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c"]
    assert (await room.api.get(room.widgets)).ok()["items"] == []


@pytest.mark.parametrize(
    ("status", "query"),
    [
        (400, {"limit": "x"}),
        (400, {"continue_": "x"}),
        (400, {"resourceVersion": "x"}),
        (504, {"resourceVersion": "999999999"}),
        (422, {"resourceVersionMatch": "Exact"}),
        (400, {"labelSelector": "=="}),
        (400, {"fieldSelector": "spec.nothing=x"}),
        (400, {"timeoutSeconds": "x"}),
    ],
)
async def test_a_collection_that_cannot_be_listed_is_not_deleted(
    room: Room, status: int, query: Json
) -> None:
    """Options of lists are checked before the first object goes."""
    for path in await _objects(room):
        reply = await room.api.delete(path.removesuffix("/x"), **query)
        assert reply.status == status, reply.body
        assert (await room.api.get(path)).status == 200


@pytest.mark.parametrize("body", [{"uid": "other"}, {"resourceVersion": "1"}])
async def test_preconditions_guard_a_collection(room: Room, body: Json) -> None:
    """Each object has to meet them; the first that does not ends the request."""
    for path in await _objects(room):
        reply = await room.api.delete(path.removesuffix("/x"), {"preconditions": body})
        reply.refused(409, "Conflict")
        assert (await room.api.get(path)).status == 200


async def test_which_objects_are_meant_comes_before_how_they_are_deleted(room: Room) -> None:
    """Of a limit and a body that cannot be read, the limit is told."""
    reply = await room.api.delete(room.maps, b"{", limit="x")
    assert "strconv.ParseInt" in reply.refused(400, "BadRequest")["message"]
