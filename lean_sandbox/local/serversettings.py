"""What the embedded API server can be told to be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Options of the embedded control plane; each default is what a stock API server does."""

    host: str = "127.0.0.1"
    """Address to listen on; keep it on loopback."""
    port: int = 0
    """Port to listen on; 0 picks a free one."""
    tls: bool = False
    """Serve HTTPS with a certificate made at start."""
    trust_anonymous: bool | None = None
    """Take requests without credentials for an administrator's; None means only without TLS.

    kubectl keeps its credentials to itself on plain HTTP, so without this it could not do anything
    there.
    """
    tables: bool = True
    """Answer ``as=Table``; without it such an Accept header alone is refused with 406."""
    partial_metadata: bool = True
    """Answer ``as=PartialObjectMetadata``; without it such an Accept header alone gets 406."""
    sharded_lists: bool = False
    """Honour ``shardSelector``, as Kubernetes does from 1.36 with the gate ShardedListAndWatch."""
    bookmark_interval_s: float = 60.0
    """Seconds between two bookmarks of a watch that asked for them."""
    history: int = 20_000
    """Events kept for each kind; an older version is answered with 410."""
    watch_backlog: int = 50_000
    """Events a watcher may lag behind before its connection is cut."""
    max_body_bytes: int = 3 * 1024 * 1024
    """Largest request body; more is answered with 413."""
    max_object_bytes: int = 1536 * 1024
    """Largest stored object, as etcd would take it."""
    state_file: Path | None = None
    """Where state is kept over a restart; None keeps it in memory only."""
    save_interval_s: float = 5.0
    """Seconds between two saves of changed state to ``state_file``."""
    service_cidr: str = "10.96.0.0/16"
    """Range of cluster IPs of Services."""
    audit_limit: int = 200_000
    """Audit entries kept; the oldest are dropped beyond it."""
