"""Laws of the options of lists and watches: which make no sense, and what a continue token is."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.conformance.api import Room

pytestmark = pytest.mark.asyncio(loop_scope="module")

MATCH = "resourceVersionMatch"
NEEDS_VERSION = f"Forbidden: {MATCH} is forbidden unless resourceVersion is provided"
NOT_WITH_CONTINUE = f"Forbidden: {MATCH} is forbidden when continue is provided"
NEEDS_INITIAL = f"Forbidden: {MATCH} is forbidden for watch unless sendInitialEvents is provided"
NEEDS_MATCH = f"Forbidden: sendInitialEvents requires setting {MATCH} to NotOlderThan"
NOT_FOR_LISTS = "Forbidden: sendInitialEvents is forbidden for list"
NO_EXACT_ZERO = f'Forbidden: {MATCH} "exact" is forbidden for resourceVersion "0"'
ONLY_NEWER = 'Unsupported value: "{}": supported values: "NotOlderThan"'
BOTH = 'Unsupported value: "{}": supported values: "Exact", "NotOlderThan", ""'


def wrong_in_list(query: Mapping[str, str]) -> list[str]:
    """Return what a list with these options is refused for."""
    match = query.get(MATCH, "")
    version = query.get("resourceVersion", "")
    found = []
    if match and not version:
        found.append(NEEDS_VERSION)
    if match and "continue" in query:
        found.append(NOT_WITH_CONTINUE)
    if match == "Nope":
        found.append(BOTH.format(match))
    if (match, version) == ("Exact", "0"):
        found.append(NO_EXACT_ZERO)
    return found + [NOT_FOR_LISTS] * ("sendInitialEvents" in query)


def wrong_in_watch(query: Mapping[str, str]) -> list[str]:
    """Return what a watch with these options is refused for."""
    match = query.get(MATCH, "")
    initial = "sendInitialEvents" in query
    streams = not (match or initial) and query.get("resourceVersion", "0") == "0"
    found = []
    if initial and match != "NotOlderThan":
        found.append(NEEDS_MATCH)
    if match and not initial:
        found.append(NEEDS_INITIAL)
    if match in ("Exact", "Nope"):
        found.append(ONLY_NEWER.format(match))
    return found + [NOT_WITH_CONTINUE] * ("continue" in query and (bool(match) or streams))


COMBINATIONS = [
    {
        name: value
        for name, value in (
            (MATCH, match),
            ("sendInitialEvents", initial),
            ("continue", token),
            ("resourceVersion", version),
        )
        if value is not None
    }
    for match in (None, "Exact", "NotOlderThan", "Nope")
    for initial in (None, "true", "")
    for token in (None, "x")
    for version in (None, "0", "5")
]


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_options_are_refused_with_every_cause(room: Room, verb: str) -> None:
    """All combinations of the options of versions, pages and initial events, in these words."""
    more = {"watch": "1", "timeoutSeconds": "1"} if verb == "watch" else {}
    wrong = wrong_in_watch if verb == "watch" else wrong_in_list
    refused = 0
    for query in COMBINATIONS:
        causes = wrong(query)
        if causes:
            reply = await room.api.get(room.widgets, **query, **more)
            found = reply.refused(422, "Invalid")["details"]["causes"]
            assert [cause["message"] for cause in found] == causes, query
            refused += 1
    assert refused > len(COMBINATIONS) / 2


NUMBERS = {
    "": "invalid syntax",
    "x": "invalid syntax",
    " 1": "invalid syntax",
    "1.5": "invalid syntax",
    "1_0": "invalid syntax",
    "\u0663": "invalid syntax",
    "99999999999999999999": "value out of range",
    "-99999999999999999999": "value out of range",
    "+1": "",
    "-1": "",
}


@pytest.mark.parametrize("name", ["limit", "timeoutSeconds"])
@pytest.mark.parametrize("more", [{}, {"watch": "1"}], ids=["list", "watch"])
async def test_numbers_are_read_as_64_bits(room: Room, name: str, more: Mapping[str, str]) -> None:
    """Both numbers are checked in lists and watches, and before the rest of the options."""
    for text, why in NUMBERS.items():
        query = {"timeoutSeconds": "1", **more, name: text}
        reply = await room.api.get(room.widgets, **query)
        if not why:
            assert reply.status == 200, query
            continue
        message = f'strconv.ParseInt: parsing "{text}": {why}'
        assert reply.refused(400, "BadRequest")["message"] == message
        query[MATCH] = "Nope"
        (await room.api.get(room.widgets, **query)).refused(400, "BadRequest")


@pytest.mark.parametrize(
    ("version", "why"),
    [
        *((text, "invalid syntax") for text in ("-1", "+1", "1e3", " 1", "\u0661", "\u00b2")),
        (str(1 << 64), "value out of range"),
        ("9" * 5000, "value out of range"),
    ],
)
async def test_versions_are_read_as_64_bits(room: Room, version: str, why: str) -> None:
    """A list says 400, a read and a watch 500 with the same words; selectors are read before."""
    await room.widget("a")
    problem = f'parsing "{version}": {why}'
    for path, code, more in (
        (room.widgets, 400, {}),
        (f"{room.widgets}/a", 500, {}),
        (room.widgets, 500, {"watch": "1"}),
    ):
        reply = await room.api.get(path, resourceVersion=version, **more)
        assert (reply.status, problem in reply.message) == (code, True), reply.body
    query = {"resourceVersion": version, "watch": "1", "labelSelector": "a=b=c"}
    (await room.api.get(room.widgets, **query)).refused(400, "BadRequest")


def token(**content: Any) -> str:
    """Return a continue token."""
    raw = json.dumps({"v": "meta.k8s.io/v1", "start": "/b\0", **content}).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


async def filled(room: Room) -> int:
    """Create four widgets; return the version of the store."""
    for name in "abcd":
        await room.widget(name)
    return int((await room.api.get(room.widgets)).version)


async def test_a_token_that_was_not_given_out_is_refused(room: Room) -> None:
    """Every part of it is checked: alphabet, form, version, key; 504 for a version to come."""
    now = await filled(room)
    page = (await room.api.get(room.widgets, limit=1)).ok()["metadata"]["continue"]
    for given in (
        page + "=" * (-len(page) % 4 or 4),
        "garbage!",
        base64.urlsafe_b64encode(b"nojson").decode(),
        base64.urlsafe_b64encode(b"[1]").decode(),
        token(v="", rv=now),
        token(v="meta.k8s.io/v2", rv=now),
        token(),
        token(rv=0),
        token(rv=None),
        token(rv=str(now)),
        token(rv=1.5),
        token(rv=now, start=""),
        token(rv=now, start=None),
        token(rv=now, start=5),
        token(rv=now, start="../../b\0"),
        token(rv=now, start="x/../b"),
        token(rv=now, start="//b"),
    ):
        reply = await room.api.get(room.widgets, continue_=given)
        message = reply.refused(400, "BadRequest")["message"]
        assert message.startswith("invalid continue token: continue key is not valid: "), given
    future = await room.api.get(room.widgets, continue_=token(rv=now + 10**6))
    future.refused(504, "Timeout")


async def test_a_token_says_where_a_list_goes_on(room: Room) -> None:
    """Its key is relative to the namespace; a negative version means the newest."""
    now = await filled(room)
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"rv": now}, "cd"),
        ({"rv": now, "start": "b\0"}, "cd"),
        ({"rv": now, "start": "b"}, "bcd"),
        ({"rv": now, "more": 1}, "cd"),
        ({"rv": -1}, "cd"),
        ({"rv": -5}, "cd"),
    )
    for content, shown in cases:
        reply = await room.api.get(room.widgets, continue_=token(**content))
        assert "".join(item["metadata"]["name"] for item in reply.ok()["items"]) == shown
    first = (await room.api.get(room.widgets, limit=1)).ok()["metadata"]["continue"]
    said = json.loads(base64.urlsafe_b64decode(first + "=" * (-len(first) % 4)))
    assert (said["v"], said["start"]) == ("meta.k8s.io/v1", "/a\0")
    assert said["rv"] >= now


async def test_a_token_stands_alone(room: Room) -> None:
    """Beside a version it is refused, however the version looks; with 0 there are no pages."""
    await filled(room)
    page = (await room.api.get(room.widgets, limit=1)).ok()["metadata"]["continue"]
    for version in ("1", "abc", "99999999999999"):
        reply = await room.api.get(room.widgets, continue_=page, resourceVersion=version)
        message = "specifying resource version is not allowed when using continue"
        assert reply.refused(400, "BadRequest")["message"] == message
    query = {"continue_": page, "resourceVersion": "0", "limit": "1"}
    assert len((await room.api.get(room.widgets, **query)).ok()["items"]) == 3


async def test_a_page_of_a_version_is_of_exactly_that_version(room: Room) -> None:
    """A limit beside a version without a match asks for that state; NotOlderThan for the newest."""
    now = await filled(room)
    await room.widget("e")
    query = {"resourceVersion": str(now), "limit": "10"}
    assert len((await room.api.get(room.widgets, **query)).ok()["items"]) == 4
    query[MATCH] = "NotOlderThan"
    assert len((await room.api.get(room.widgets, **query)).ok()["items"]) == 5
    del query["limit"], query[MATCH]
    assert len((await room.api.get(room.widgets, **query)).ok()["items"]) == 5


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}], ids=["none", "zero"])
async def test_the_first_events_end_with_a_bookmark(room: Room, query: Mapping[str, str]) -> None:
    """A watch without a version marks their end, though it has not asked for initial events."""
    await room.widget("a")
    await room.api.get(room.widgets)  # a read of the newest state brings a cache up to it
    events = await room.api.events(room.widgets, 2, allowWatchBookmarks="true", **query)
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
    metadata = events[1]["object"]["metadata"]
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_watch_from_before_the_server_is_told_so(room: Room) -> None:
    """The versions of its start are forgotten, whether or not anything was compacted."""
    await room.widget("a")
    for query in ({}, {"sendInitialEvents": "false", MATCH: "NotOlderThan"}):
        (event,) = await room.api.events_to_the_end(room.widgets, resourceVersion="1", **query)
        assert (event["type"], event["object"]["reason"]) == ("ERROR", "Expired")
