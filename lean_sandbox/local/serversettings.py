"""What the embedded API server can be told to be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
"""The address of the server; whoever can reach it may do anything without TLS."""
MAX_BODY_BYTES: Final = 3 * 1024 * 1024
"""Largest request body; more is answered with 413."""


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Options of the embedded control plane; each default is what a stock API server does."""

    port: int = 0
    """Port to listen on; 0 picks a free one."""
    tls: bool = False
    """Serve HTTPS with a certificate made at start."""
    tables: bool = True
    """Answer ``as=Table``; without it such an Accept header alone is refused with 406."""
    partial_metadata: bool = True
    """Answer ``as=PartialObjectMetadata``; without it such an Accept header alone gets 406."""
    sharded_lists: bool = False
    """Honour ``shardSelector``, as Kubernetes does from 1.36 with the gate ShardedListAndWatch."""
    bookmark_interval_s: float = 60.0
    """Seconds between two bookmarks of a watch that asked for them."""
    state_file: Path | None = None
    """Where state is kept over a restart; None keeps it in memory only."""
    save_interval_s: float = 5.0
    """Seconds between two saves of changed state to ``state_file``."""
