"""Laws of credentials where they count for something: over TLS."""

from __future__ import annotations

import pytest

from tests.conformance.api import Room

pytestmark = pytest.mark.asyncio(loop_scope="module")
TLS = True


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer", "Bearer ", "Token x", "x", ""])
async def test_credentials_of_another_form_are_none(room: Room, header: str) -> None:
    """Who sends them is anonymous, so what is forbidden is told, and not that they are wrong."""
    nobody = room.api.as_user(None)
    reply = await nobody.get(room.maps, headers=[("Authorization", header)])
    assert 'User "system:anonymous"' in reply.refused(403, "Forbidden")["message"]


async def test_a_token_of_nobody_is_refused(room: Room) -> None:
    """Whatever the case of the word before it."""
    for word in ("Bearer", "bearer"):
        reply = await room.api.as_user(None).get(
            room.maps, headers=[("Authorization", f"{word} unknown")]
        )
        reply.refused(401, "Unauthorized")
