"""The recorded answers of Kubernetes 1.36 to objects good and bad."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]
_FILE = Path(__file__).parent / "answers.json"
ANSWERS: dict[str, list[Json]] = json.loads(_FILE.read_text(encoding="utf-8"))


def cases(part: str) -> list[Any]:
    """Return the recorded cases of a part as parameters."""
    return [pytest.param(case, id=case["name"]) for case in ANSWERS[part]]


def causes(found: list[Json]) -> list[tuple[str, str, str]]:
    """Return causes in a fixed order, each once: the order is that of a hash map."""
    return sorted({(one["field"], one["reason"], one["message"]) for one in found})
