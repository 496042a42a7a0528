"""A plugin of pytest: runs the tests and files of tests that a file lists, in its order.

What never ends, or takes all memory, ends itself.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from tests.mutants.copies import heed_signals

__all__ = ["CHOSEN", "LONGEST", "limit"]

CHOSEN = "SANDBOX_TESTS_CHOSEN"
LONGEST = "SANDBOX_TESTS_LONGEST_CPU_S"
_MOST_BYTES = 4 << 30


def pytest_configure() -> None:
    """Set the limits."""
    heed_signals()
    limit(int(os.environ[LONGEST]))


def limit(longest_s: int) -> None:
    """Set the limits of this process, in seconds of CPU, and of those that it starts.

    Of memory only what can be written counts: a browser reserves far more than it uses.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (longest_s, longest_s))
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not listed; a listed test that is no more is none."""
    lines = Path(os.environ[CHOSEN]).read_text(encoding="utf-8").splitlines()
    places = {name: place for place, name in enumerate(lines)}
    found: list[tuple[int, pytest.Item]] = []
    left_out: list[pytest.Item] = []
    for item in items:
        place = places.get(item.nodeid, places.get(item.nodeid.partition("::")[0]))
        if place is None:
            left_out.append(item)
        else:
            found.append((place, item))
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for _, item in sorted(found, key=lambda one: one[0])]
