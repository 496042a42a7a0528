"""A page of a list that is far too large, as docs/security.md says."""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest

from tests.watch.objects import page, sandbox
from tests.watch.rig import open_sandboxes

_MIB = 1024 * 1024


@pytest.mark.parametrize(("more_bytes", "limits"), [(-16_384, ["25"]), (16_384, ["25", "6"])])
async def test_a_page_above_four_mib_is_asked_for_again_with_fewer(
    more_bytes: int, limits: list[str]
) -> None:
    """A quarter of the objects; the rest is as with any page."""
    large = sandbox("large", 1)
    large["spec"]["note"] = "x" * (4 * _MIB + more_bytes)
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
