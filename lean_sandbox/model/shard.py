"""A shard: the namespaces that one controller of several serves, by the hash of their names."""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from itertools import pairwise
from typing import Final

import msgspec

from lean_sandbox.model.names import shard_hash

_BOUND: Final = "0x[0-9a-f]{16}"
_SHARD: Final = re.compile(
    rf"(0|[1-9][0-9]{{0,5}})/([1-9][0-9]{{0,3}}|({_BOUND}(,{_BOUND})*))", re.ASCII
)
_END: Final = 2**64


class Shard(msgspec.Struct, frozen=True):
    """One shard of ``count``, from 0 on. Shards are even parts, or ranges between ``bounds``.

    Even parts are by CRC-32, which spreads even names that differ only in their last letter. Ranges
    are by the hash of API servers, which can then send a shard only its own objects.
    """

    index: int
    count: int
    bounds: tuple[int, ...] = ()

    def __str__(self) -> str:
        bounds = ",".join(f"{bound:#018x}" for bound in self.bounds)
        return f"{self.index}/{bounds or self.count}"

    def admits(self, namespace: str) -> bool:
        """Return whether a namespace belongs to this shard."""
        if self.bounds:
            return bisect_right(self.bounds, shard_hash(namespace)) == self.index
        return zlib.crc32(namespace.encode()) % self.count == self.index

    @property
    def selector(self) -> str:
        """The selector for servers that shard lists and watches, "" for one without bounds."""
        if not self.bounds:
            return ""
        edges = [f"{edge:#018x}" for edge in (0, *self.bounds, _END)]
        low, high = edges[self.index : self.index + 2]
        return f"shardRange(object.metadata.namespace, '{low}', '{high}')"


def parse_shard(text: str) -> Shard:
    """Read ``INDEX/COUNT`` or ``INDEX/BOUND,...``; an index counts modulo the count.

    Raises ValueError.
    """
    found = _SHARD.fullmatch(text)
    if found is None:
        raise ValueError(
            "it is neither INDEX/COUNT such as 0/2 nor INDEX/BOUND,... of 0x and 16 digits"
        )
    bounds: tuple[int, ...] = ()
    if found[3]:
        bounds = tuple(int(bound, 16) for bound in found[3].split(","))
        if any(low >= high for low, high in pairwise((0, *bounds))):
            raise ValueError("each bound must be above the one before, the first above 0")
    count = len(bounds) + 1 if bounds else int(found[2])
    return Shard(int(found[1]) % count, count, bounds)
