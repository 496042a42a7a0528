"""A run with workers divides the tests that there are."""

from __future__ import annotations

from pathlib import Path

from tests.workers import LONG, PROCESSES


def test_what_takes_turns_or_long_is_there() -> None:
    """A file that moved would run beside the others, or after them, unnoticed."""
    root = Path(__file__).resolve().parent.parent
    assert [path for path in (*PROCESSES, *LONG) if not (root / path).exists()] == []
