"""Manifests to begin with: one Sandbox; a template with a warm pool; a claim on that pool."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from lean_sandbox.local import data


def _read(name: str) -> str:
    return (files(data) / f"{name}.yaml").read_text(encoding="utf-8")


SANDBOX: Final = _read("sandbox")
TEMPLATE: Final = _read("template")
WARM_POOL: Final = _read("pool")
CLAIM: Final = _read("claim")

EXAMPLES: Final = {"sandbox": SANDBOX, "pool": f"{TEMPLATE}---\n{WARM_POOL}", "claim": CLAIM}
"""What ``lean-sandbox local example`` prints, by name."""
