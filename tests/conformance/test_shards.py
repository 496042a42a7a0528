"""Laws of ``shardSelector``: lists and watches of a part of all namespaces."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.model.shard import Shard, parse_shard
from tests.conformance.api import Api, Room
from tests.conformance.objects import widget

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Of each two, one is below and one above the middle.
TEAMS = ("lab", "team-a", "mail", "team-b")
SHARDS = tuple(parse_shard(f"{index}/0x8000000000000000") for index in (0, 1))
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


async def everywhere(room: Room) -> str:
    """Create a Widget in each team's namespace; return the path of those of all namespaces."""
    before, _, plural = room.widgets.partition(f"/namespaces/{room.name}")
    for team in TEAMS:
        await room.api.post("/api/v1/namespaces", {"metadata": {"name": team}})
        reply = await room.api.post(f"{before}/namespaces/{team}{plural}", widget(room.name))
        assert reply.status == 201
    return before + plural


def teams(items: list[dict[str, Any]], room: Room) -> set[str]:
    """Return the namespaces of this test's objects in a list, or in the rows of a Table."""
    found = [item.get("object", item)["metadata"] for item in items]
    return {one["namespace"] for one in found if one["name"] == room.name}


@pytest.mark.parametrize("shard", SHARDS, ids=str)
@pytest.mark.parametrize("accept", ["application/json", TABLE, METADATA])
async def test_a_list_has_what_is_in_its_range(room: Room, accept: str, shard: Shard) -> None:
    """By FNV-1a of 64 bits of the namespace's name, in every form, also page by page."""
    path = await everywhere(room)
    own = {team for team in TEAMS if shard.admits(team)}
    assert len(own) == 2
    selected = {"shardSelector": shard.selector, "accept": accept}
    for limit in (500, 1):
        items: list[dict[str, Any]] = []
        reply = await room.api.get(path, **selected, limit=limit)
        while True:
            items += reply.ok().get("rows", reply.ok().get("items")) or []
            token = reply.json["metadata"].get("continue")
            if not token:
                break
            reply = await room.api.get(path, **selected, limit=limit, continue_=token)
        assert teams(items, room) == own


@pytest.mark.parametrize("shard", SHARDS, ids=str)
async def test_a_watch_tells_of_what_is_in_its_range(room: Room, shard: Shard) -> None:
    """Additions and deletions in other namespaces are not sent; bookmarks are."""
    path = await everywhere(room)
    version = (await room.api.get(path)).version
    before, _, plural = room.widgets.partition(f"/namespaces/{room.name}")
    for team in TEAMS:
        await room.api.delete(f"{before}/namespaces/{team}{plural}/{room.name}")
    # What other tests leave in their namespaces goes meanwhile.
    own = {"fieldSelector": f"metadata.name={room.name}"}
    query = {**own, "shardSelector": shard.selector, "resourceVersion": version}
    seen = await room.api.events(path, 2, **query)
    assert [one["type"] for one in seen] == ["DELETED", "DELETED"]
    found = {one["object"]["metadata"]["namespace"] for one in seen}
    assert found == {team for team in TEAMS if shard.admits(team)}


async def test_ranges_are_joined_and_go_with_other_selectors(room: Room) -> None:
    """One selector may name several ranges."""
    path = await everywhere(room)
    both = " || ".join(shard.selector for shard in SHARDS)
    fields = f"metadata.namespace!={TEAMS[0]}"
    reply = await room.api.get(path, shardSelector=both, fieldSelector=fields)
    assert teams(reply.ok()["items"], room) == set(TEAMS[1:])


@pytest.mark.parametrize(
    "selector",
    [
        "nonsense",
        "shardRange(object.metadata.name, '0x0000000000000000', '0x8000000000000000')",
        "shardRange(object.metadata.namespace, '0x0', '0x8')",
        "shardRange(object.metadata.namespace, '0x8000000000000000', '0x8000000000000000')",
    ],
)
async def test_selectors_that_make_no_sense_are_refused(api: Api, selector: str) -> None:
    """With 500, as the first servers that shard do."""
    reply = await api.get("/api/v1/configmaps", shardSelector=selector)
    assert reply.status == 500
    assert "invalid shard selector" in reply.message
