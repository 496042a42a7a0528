"""Sentences that people read."""

from __future__ import annotations


def counted(count: int, one: str, many: str) -> str:
    """Return a number with its noun, as in ``1 claim`` and ``2,000 claims``."""
    return f"{count:,} {one if count == 1 else many}"
