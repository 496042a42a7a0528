"""How many objects a page of a list is asked for, and what follows from one that is too large."""

from __future__ import annotations

from contextlib import suppress

import anyio
import msgspec
import pytest

from tests.watch.objects import page, sandbox
from tests.watch.rig import open_sandboxes


async def test_the_first_page_is_small_and_the_next_ones_are_as_large_as_allowed() -> None:
    """Ordinary objects: one page of 25, and from then on the pages that the option asks for."""
    async with open_sandboxes(page_size=250) as rig:
        limits = []
        for number in range(3):
            listing = await rig.server.next(watch=False)
            limits.append(listing.query["limit"])
            token = "" if number == 2 else "more"
            await listing.reply(200, page([sandbox(f"{number}-a", 1)] * 25, 9, token))
        await rig.server.next(watch=True)
        assert limits == ["25", "250", "250"]


async def test_large_objects_come_in_pages_of_some_mebibytes() -> None:
    """The bytes of a page decide how many objects the next one is asked for, down to one."""
    async with open_sandboxes(page_size=250) as rig:
        sizes = {"25": 1_600_000, "32": 3_200_000, "20": 3_900_000, "10": 3_000_000, "6": 100}
        asked: list[str] = []
        while len(asked) < len(sizes):
            listing = await rig.server.next(watch=False)
            limit = listing.query["limit"]
            asked.append(limit)
            body = msgspec.json.encode(page([], 9, "" if limit == "6" else "more"))
            await listing.reply(200, body + b" " * (sizes[limit] - len(body)))
        await rig.server.next(watch=True)
        assert asked == list(sizes)


async def test_a_page_that_is_far_too_large_is_asked_for_again_with_fewer_objects() -> None:
    """With the same token, and not read to its end; a single object is read whatever its size."""
    huge = sandbox("huge", 3, annotations={"x": "y" * 5_000_000})
    async with open_sandboxes() as rig:
        listing = await rig.server.next(watch=False)
        await listing.reply(200, page([sandbox("a", 1)], 9, "token"))
        asked = []
        while True:
            listing = await rig.server.next(watch=False)
            assert listing.query["continue"] == "token"
            asked.append(listing.query["limit"])
            if asked[-1] == "1":
                break
            # The head says more than will ever be sent: nobody waits for it.
            await listing.head(100 << 20)
            listing.cut()
        assert asked == ["250", "62", "15", "3", "1"]
        await listing.reply(200, page([huge], 9))
        await rig.server.next(watch=True)
        assert rig.names() == ["a", "huge"]
        assert rig.reflector.steps["failure"] == 0
        assert rig.reflector.source.received_bytes < 6_000_000


@pytest.mark.parametrize(("more_bytes", "limits"), [(-16_384, ["25"]), (16_384, ["25", "6"])])
async def test_a_page_above_four_mib_is_asked_for_again_with_fewer(
    more_bytes: int, limits: list[str]
) -> None:
    """A quarter of the objects; the rest is as with any page."""
    large = sandbox("large", 1)
    large["spec"]["note"] = "x" * (4 * 1024 * 1024 + more_bytes)
    asked = []
    async with open_sandboxes() as rig:
        for obj in (large, sandbox("a", 1))[: len(limits)]:
            exchange = await rig.server.next(watch=False)
            asked.append(exchange.query["limit"])
            # Whoever has read enough closes the connection.
            with suppress(OSError, anyio.BrokenResourceError):
                await exchange.reply(200, page([obj], 100))
        await rig.server.next(watch=True)
        assert asked == limits
        assert rig.names() == [obj["metadata"]["name"]]


async def test_an_object_that_is_alone_on_its_page_may_be_larger() -> None:
    """It cannot be had with fewer; two at a time are still too many."""
    large = sandbox("large", 1)
    large["spec"]["note"] = "x" * (4 * 1024 * 1024 + 16_384)
    async with open_sandboxes(page_size=8) as rig:
        for limit in ("8", "2", "1"):
            exchange = await rig.server.next(watch=False)
            assert exchange.query["limit"] == limit
            with suppress(OSError, anyio.BrokenResourceError):
                await exchange.reply(200, page([large], 100))
        await rig.server.next(watch=True)
        assert rig.names() == ["large"]


async def test_an_object_larger_than_any_answer_is_a_failure_like_any_other() -> None:
    """It is told and tried again after a pause, alone."""
    async with open_sandboxes(page_size=1) as rig:
        listing = await rig.server.next(watch=False)
        await listing.head(300 << 20)
        assert "above the limit" in await rig.failing()
        await rig.clock.advance(60.0)
        listing = await rig.server.next(watch=False)
        assert listing.query["limit"] == "1"
