"""Caches that are fed by hand."""

from __future__ import annotations

import pytest

from lean_sandbox.watch.resources.sandbox import SandboxEntry, sandbox_kind
from tests.watch.hand import Hand
from tests.watch.objects import sandbox, sandbox_row


@pytest.fixture
def boxes() -> Hand[SandboxEntry]:
    """Sandboxes fed by hand; the columns are known already."""
    hand = Hand(sandbox_kind())
    hand.listed(sandbox("a", 10))
    assert hand.saw(sandbox_row("MODIFIED", "a", 11, first=True)) == []
    return hand
