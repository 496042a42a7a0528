"""The marker ``scenarios``: ends to ends of the bench that not every run needs."""

from __future__ import annotations

import pytest

_MARKER = "scenarios"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave them out unless the run asks for them by the marker."""
    if _MARKER not in (config.getoption("markexpr") or ""):
        items[:] = [item for item in items if item.get_closest_marker(_MARKER) is None]
