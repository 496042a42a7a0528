"""Controllers share the load by namespace: what one serves, and which Lease it contends for.

A namespace is served by one shard, with all that is in it: claims, pools and Sandboxes of one
namespace never meet those of another. Replicas of a shard share its Lease; two shards never do.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from lean_sandbox.config.options import Settings

# That of the reference controller, so that the two never work at the same time (spec, 7.8).
LEASE_NAME: Final = "a3317529.agent-sandbox.x-k8s.io"
# A scope stands in the holder of a Lease, which is written every two seconds.
_LONGEST_SCOPE: Final = 120
_DIGEST_DIGITS: Final = 8


def admits(shard: str) -> Callable[[str], bool]:
    """Return whether a namespace belongs to a shard, ``INDEX/COUNT``.

    By the CRC-32 of its name, which is the same in every process and version.
    """
    own, count = _parts(shard)

    def is_own(namespace: str) -> bool:
        return zlib.crc32(namespace.encode()) % count == own

    return is_own


def lease_of(settings: Settings) -> str:
    """Return the name of the Lease that replicas with these settings contend for.

    By default the reference controller's, or with ``--shard`` one for each shard.
    """
    if settings.leader_election_lease:
        return settings.leader_election_lease
    if settings.shard:
        return "{}-{}-of-{}".format(LEASE_NAME, *_parts(settings.shard))
    return LEASE_NAME


def scope_of(settings: Settings) -> str:
    """Say in words without end of line what is served; empty for everything.

    Replicas of a shard say the same. What is long is cut, and stays different from others.
    """
    parts = []
    if settings.shard:
        parts.append("shard={}/{}".format(*_parts(settings.shard)))
    if settings.namespaces:
        parts.append(f"namespaces={','.join(sorted(settings.namespaces))}")
    elif settings.exclude_namespaces:
        parts.append(f"exclude-namespaces={','.join(sorted(settings.exclude_namespaces))}")
    if settings.sandbox_label_selector:
        parts.append(f"sandbox-label-selector={settings.sandbox_label_selector}")
    scope = " ".join(parts)
    if len(scope) <= _LONGEST_SCOPE:
        return scope
    import hashlib  # noqa: PLC0415 -- for many namespaces only

    digest = hashlib.sha256(scope.encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{scope[: _LONGEST_SCOPE - _DIGEST_DIGITS - 3]}...{digest}"


def _parts(shard: str) -> tuple[int, int]:
    """Return which of how many shards ``INDEX/COUNT`` is; an index counts modulo the count."""
    index, count = map(int, shard.split("/"))
    return index % count, count
