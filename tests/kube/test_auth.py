"""Credentials: fixed ones, and a token in a file that somebody else rotates."""

from __future__ import annotations

from pathlib import Path

import pytest

from lean_sandbox.kube.auth import Auth, TokenFileAuth, is_token
from lean_sandbox.kube.errors import CredentialFault
from tests.support.clock import FakeClock


async def test_fixed_credentials_have_nothing_newer() -> None:
    """Neither no header nor a token is worth a second try."""
    for auth, header in ((Auth(), None), (Auth("Bearer t"), "Bearer t")):
        assert await auth.authorization() == header
        assert not await auth.refresh(header)
        assert auth.identity == 0


async def test_a_rotated_token_is_picked_up_by_age(tmp_path: Path) -> None:
    """Within its age the file is not read again; after it the new token is used."""
    clock = FakeClock()
    file = tmp_path / "token"
    file.write_text("one\n")
    auth = TokenFileAuth(file, clock)
    assert await auth.authorization() == "Bearer one"
    file.write_text("two")
    await clock.advance(59)
    assert await auth.authorization() == "Bearer one"
    await clock.advance(1)
    assert await auth.authorization() == "Bearer two"


async def test_a_refused_token_is_read_again_at_once(tmp_path: Path) -> None:
    """A 401 asks the file; only another token is worth a second try."""
    file = tmp_path / "token"
    file.write_text("one")
    auth = TokenFileAuth(file, FakeClock())
    refused = await auth.authorization()
    assert not await auth.refresh(refused)
    file.write_text("two")
    assert await auth.refresh(refused)
    assert await auth.authorization() == "Bearer two"


@pytest.mark.parametrize("content", [None, b"", b"\n", b"a\nb", b"\xff"])
async def test_without_any_token_the_request_fails_and_may_be_repeated(
    tmp_path: Path, content: bytes | None
) -> None:
    """Missing, empty or odd: an error with the file's name, retryable for it may come."""
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CredentialFault, match=str(file)) as caught:
        await TokenFileAuth(file, FakeClock()).authorization()
    assert caught.value.retryable


async def test_an_unreadable_file_does_not_take_away_a_good_token(tmp_path: Path) -> None:
    """In the moment of a rotation the old token goes on, and the failure is counted."""
    clock = FakeClock()
    file = tmp_path / "token"
    file.write_text("one")
    auth = TokenFileAuth(file, clock)
    await auth.authorization()
    file.unlink()
    await clock.advance(60)
    assert await auth.authorization() == "Bearer one"
    assert auth.failed_reads == 1


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("a", True), ("a b~!", True), ("", False), ("\u00e9", False), ("a\n", False), ("\x7f", False)],
)
def test_a_token_is_what_can_stand_in_a_header(text: str, *, is_one: bool) -> None:
    """ASCII that can be printed."""
    assert is_token(text) is is_one
