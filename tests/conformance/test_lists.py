"""Laws of lists: versions, pages, selectors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import Reply, Room

pytestmark = pytest.mark.asyncio(loop_scope="module")


def names(reply: Reply) -> list[str]:
    """Return the names of a list."""
    return [item["metadata"]["name"] for item in reply.ok()["items"]]


async def filled(room: Room, count: int = 5) -> None:
    """Create widgets w0, w1, ..."""
    for index in range(count):
        await room.widget(f"w{index}", metadata={"labels": {"odd": str(index % 2)}})


async def test_a_list_has_the_version_of_the_store(room: Room) -> None:
    """It is at least the version of every item, and grows with every write."""
    await filled(room, 2)
    first = await room.api.get(room.widgets)
    assert first.json["kind"] == "WidgetList"
    assert all(
        int(item["metadata"]["resourceVersion"]) <= int(first.version)
        for item in first.json["items"]
    )
    await room.config("other")
    assert int((await room.api.get(room.widgets)).version) > int(first.version)


async def test_items_of_built_in_lists_carry_no_kind(room: Room) -> None:
    """A ConfigMapList says it once, a custom list with each item."""
    await room.config("a")
    await room.widget("w")
    maps = (await room.api.get(room.maps)).ok()
    assert maps["kind"] == "ConfigMapList"
    assert all("kind" not in item for item in maps["items"])
    assert (await room.api.get(room.widgets)).ok()["items"][0]["kind"] == "Widget"


async def test_lists_are_sorted_by_name(room: Room) -> None:
    """Order is by key, not by age."""
    for name in ("c", "a", "b"):
        await room.widget(name)
    assert names(await room.api.get(room.widgets)) == ["a", "b", "c"]


async def test_pages_show_one_consistent_state(room: Room) -> None:
    """Later pages are of the first page's version, whatever happens in between."""
    await filled(room)
    first = await room.api.get(room.widgets, limit=2)
    assert first.json["metadata"]["remainingItemCount"] == 3
    await room.api.delete(f"{room.widgets}/w3")
    await room.widget("w2a")
    seen = names(first)
    token = first.json["metadata"]["continue"]
    while token:
        page = await room.api.get(room.widgets, limit=2, continue_=token)
        assert page.version == first.version
        seen += names(page)
        token = page.json["metadata"].get("continue", "")
    assert seen == ["w0", "w1", "w2", "w3", "w4"]


async def test_pages_of_a_selection_hold_only_what_matches(room: Room) -> None:
    """Limit counts matches; nothing is promised about the remaining number."""
    await filled(room)
    page = await room.api.get(room.widgets, limit=2, labelSelector="odd=0")
    assert names(page) == ["w0", "w2"]
    assert "remainingItemCount" not in page.json["metadata"]
    token = page.json["metadata"]["continue"]
    rest = await room.api.get(room.widgets, limit=2, labelSelector="odd=0", continue_=token)
    assert names(rest) == ["w4"]


async def test_an_exact_version_is_that_state(room: Room) -> None:
    """resourceVersionMatch=Exact shows the past; NotOlderThan the present."""
    await filled(room, 2)
    then = (await room.api.get(room.widgets)).version
    (await room.api.patch(f"{room.widgets}/w0", {"spec": {"size": 9}})).ok()
    await room.api.delete(f"{room.widgets}/w1")
    await room.widget("w2")
    exact = {"resourceVersion": then, "resourceVersionMatch": "Exact"}
    past = await room.api.get(room.widgets, **exact)
    assert past.version == then
    assert [(i["metadata"]["name"], i["spec"]["size"]) for i in past.json["items"]] == [
        ("w0", 1),
        ("w1", 1),
    ]
    newer = exact | {"resourceVersionMatch": "NotOlderThan"}
    assert names(await room.api.get(room.widgets, **newer)) == ["w0", "w2"]


async def test_version_zero_is_any_version_in_one_page(room: Room) -> None:
    """resourceVersion=0 is answered from memory; limit has no effect."""
    await filled(room, 3)
    await room.api.get(room.widgets)  # a read of the newest state brings a cache up to it
    assert names(await room.api.get(room.widgets, resourceVersion="0", limit=1)) == [
        "w0",
        "w1",
        "w2",
    ]


async def test_a_future_version_is_too_large(room: Room) -> None:
    """Lists and reads of a version that has not happened get 504 with a cause."""
    for path in (room.widgets, f"{room.widgets}/w0"):
        await room.api.post(room.widgets, {})
        reply = await room.api.get(path, resourceVersion="99999999999")
        status = reply.refused(504, "Timeout")
        assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
        assert "Too large resource version" in status["message"]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"resourceVersion": "abc"}, 400),
        ({"continue_": "garbage"}, 400),
        ({"labelSelector": "a in b"}, 400),
        ({"fieldSelector": "spec.size=1"}, 400),
        ({"fieldSelector": "nonsense"}, 400),
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersion": "0", "resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersion": "5", "resourceVersionMatch": "Perhaps"}, 422),
        ({"sendInitialEvents": "true"}, 422),
    ],
)
async def test_list_options_that_make_no_sense_are_refused(
    room: Room, query: dict[str, Any], code: int
) -> None:
    """Bad syntax gets 400, forbidden combinations 422."""
    assert (await room.api.get(room.widgets, **query)).status == code


@pytest.mark.parametrize(
    ("selector", "code"),
    [
        *((text, 200) for text in (" ", "a", "! a", "a==b", "a!=", "a=,b", "a in ()", "a in (,x)")),
        *((text, 200) for text in ("a>5", "in", "in-b=x", "notin.x notin (in)", "a/b_c.d=X-1")),
        *(
            (text, 400)
            for text in ("a b", "a,,b", "a,", "!", "a<-5", "a=(", "a in (x", "a in (x y)")
        ),
        *((text, 400) for text in ("-", "a=-x", "a in (-)", "A.b/c", "a/", "a>x", "a>", "a in b")),
    ],
)
async def test_label_selectors_are_read_alike(room: Room, selector: str, code: int) -> None:
    """What is a selector and what is none, by grammar and by the names of labels."""
    assert (await room.api.get(room.widgets, labelSelector=selector)).status == code


async def test_field_selectors_choose_on_the_server(room: Room) -> None:
    """By name, by Pod phase, and by a selectable field of a custom kind."""
    await room.widget("a", mode="Slow")
    await room.widget("b")
    chosen = await room.api.get(room.widgets, fieldSelector="metadata.name=b")
    assert names(chosen) == ["b"]
    assert names(await room.api.get(room.widgets, fieldSelector="spec.mode=Slow")) == ["a"]
    for name in ("p", "q"):
        await room.pod(name)
    running = {"status": {"phase": "Running"}}
    (await room.api.patch(f"{room.pods}/p/status", running)).ok()
    not_pending = await room.api.get(room.pods, fieldSelector="status.phase!=Pending")
    assert names(not_pending) == ["p"]
    elsewhere = f"metadata.namespace!={room.name},status.phase!=Pending"
    others = (await room.api.get("/api/v1/pods", fieldSelector=elsewhere)).ok()["items"]
    assert room.name not in {item["metadata"]["namespace"] for item in others}


async def test_a_list_of_all_namespaces_is_of_all_namespaces(room: Room) -> None:
    """Without a namespace in the path objects of every namespace are listed."""
    await room.widget("a")
    everywhere = (await room.api.get(room.widgets.replace(f"/namespaces/{room.name}", ""))).ok()
    assert room.name in {item["metadata"]["namespace"] for item in everywhere["items"]}
