"""Laws of versions that are gone, and of queries that cannot be read."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.conformance.api import PARTIAL, TABLE, Room
from tests.conformance.servers import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


def aged(token: str) -> str:
    """Return a continue token as it would be if it were of the first version."""
    content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    raw = json.dumps(content | {"rv": 1}).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


async def test_a_page_of_a_forgotten_version_says_how_to_go_on(server: Server, room: Room) -> None:
    """410 Expired, with a token that continues at the newest version."""
    for name in ("a", "b", "c"):
        await room.widget(name)
    token = (await room.api.get(room.widgets, limit=1)).ok()["metadata"]["continue"]
    await room.widget("d")
    server.forget()
    page = await room.api.get(room.widgets, limit=1, continue_=aged(token))
    status = page.refused(410, "Expired")
    rest = await room.api.get(room.widgets, continue_=status["metadata"]["continue"])
    assert [item["metadata"]["name"] for item in rest.ok()["items"]] == ["b", "c", "d"]


async def test_a_list_of_a_forgotten_version_is_gone(server: Server, room: Room) -> None:
    """resourceVersionMatch=Exact reaches no further back than the history."""
    await room.widget("a")
    server.forget()
    exact = {"resourceVersion": "1", "resourceVersionMatch": "Exact"}
    (await room.api.get(room.widgets, **exact)).refused(410, "Expired")


@pytest.mark.parametrize("accept", ["", TABLE, PARTIAL])
async def test_a_watch_of_a_forgotten_version_ends_with_an_error(
    server: Server, room: Room, accept: str
) -> None:
    """An ERROR event with a Status 410 in every representation, then the end."""
    await room.widget("a")
    server.forget()
    events = await room.api.events_to_the_end(room.widgets, resourceVersion="1", accept=accept)
    assert [event["type"] for event in events] == ["ERROR"]
    status = events[0]["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")


async def test_a_table_of_our_kinds_shows_what_watches_read(room: Room) -> None:
    """Sandboxes, claims and pools have the columns that the controller's watches decide by."""
    columns = {
        "agents.x-k8s.io/v1beta1/{}/sandboxes": {"Ready", "Reason"},
        "extensions.agents.x-k8s.io/v1beta1/{}/sandboxclaims": {"Ready", "Sandbox", "Reason"},
    }
    for path, wanted in columns.items():
        place = f"/apis/{path.format(f'namespaces/{room.name}')}"
        table = (await room.api.get(place, accept=TABLE)).ok()
        assert wanted <= {column["name"] for column in table["columnDefinitions"]}


async def test_list_metadata_of_custom_kinds_always_has_a_continue(room: Room) -> None:
    """Empty at the end of a list; built-in kinds, tables and metadata leave it out."""
    await room.widget("a")
    await room.config("c")
    assert (await room.api.get(room.widgets)).ok()["metadata"]["continue"] == ""
    assert "continue" not in (await room.api.get(room.maps)).ok()["metadata"]
    assert "continue" not in (await room.api.get(room.widgets, accept=TABLE)).ok()["metadata"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"limit": "x"}, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ({"labelSelector": "a=b=c"}, "found '=', expected: ',' or 'end of string'"),
        ({"labelSelector": "=x"}, "found '=', expected: !, identifier, or 'end of string'"),
        ({"fieldSelector": "spec.size=1"}, "field label not supported: spec.size"),
    ],
)
async def test_a_query_that_cannot_be_read_is_told_why(
    room: Room, query: Json, message: str
) -> None:
    """400 with the words of the parser."""
    reply = await room.api.get(room.widgets, **query)
    assert message in reply.refused(400, "BadRequest")["message"]


async def test_a_negative_limit_is_no_limit(room: Room) -> None:
    """All objects come in one page."""
    for name in ("a", "b"):
        await room.widget(name)
    assert len((await room.api.get(room.widgets, limit=-1)).ok()["items"]) == 2


async def test_kinds_without_fields_of_their_own_select_by_name_alone(room: Room) -> None:
    """ConfigMaps know metadata.name and metadata.namespace; Pods say less."""
    reply = await room.api.get(room.maps, fieldSelector="spec.foo=x")
    assert reply.refused(400, "BadRequest")["message"] == (
        '"spec.foo" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )
    reply = await room.api.get(room.pods, fieldSelector="spec.foo=x")
    assert reply.refused(400, "BadRequest")["message"] == "field label not supported: spec.foo"


async def test_only_a_list_reads_versions_kindly(room: Room) -> None:
    """A version that is no number gets 400 from a list and 500 from everything else."""
    await room.widget("a")
    assert (await room.api.get(room.widgets, resourceVersion="x")).status == 400
    assert (await room.api.get(f"{room.widgets}/a", resourceVersion="x")).status == 500
    assert (await room.api.get(room.widgets, resourceVersion="x", watch="1")).status == 500
