"""Two tenants' namesakes."""

from __future__ import annotations

# Two names with one 32-bit hash.
TWINS = ("sg7vyf25jo", "s3re4g6ke6")
