"""What a controller serves: all kinds or Sandboxes alone, all of them or a selection."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["EVERYTHING", "SELECTORS", "SLOW", "TIER", "Scope"]

Json = dict[str, Any]
# A label of Sandboxes, by which some controllers choose those that they serve.
TIER = "example.com/tier"
SLOW = "slow"
SELECTORS = (f"{TIER}={SLOW}", f"{TIER}!={SLOW}")


class Scope(msgspec.Struct, frozen=True):
    """Which kinds and which Sandboxes a controller serves; it leaves all others alone."""

    has_extensions: bool = True
    selector: str = ""

    def selects(self, sandbox: Json) -> bool:
        """Say whether a Sandbox is served."""
        is_slow = (sandbox["metadata"].get("labels") or {}).get(TIER) == SLOW
        return self.selector in ("", SELECTORS[0] if is_slow else SELECTORS[1])

    def serves(self, one: Json) -> bool:
        """Say whether an object of any kind of the API is served."""
        return self.selects(one) if one["kind"] == "Sandbox" else self.has_extensions


EVERYTHING = Scope()
