"""How the simulated kubelet behaves: delays, nodes, writes. Every value has a default."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class WritesPerStart(IntEnum):
    """Status writes a Pod start costs; events a watcher of Pods sees grow with it."""

    ONE = 1
    """Straight to ready (or to whatever its script stops it at)."""
    TWO = 2
    """Running without being ready, then ready."""
    FOUR = 4
    """Like a real kubelet: waiting, network, running, ready."""


@dataclass(frozen=True, slots=True)
class Delay:
    """A wait of ``base_s`` seconds and a random part of up to ``jitter_s`` more."""

    base_s: float = 0.0
    jitter_s: float = 0.0


AT_ONCE = Delay()


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """Options of the simulated kubelet; all durations in seconds.

    With ``creates_nodes``, ``nodes`` Node objects named ``<node_prefix>-<i>`` are created; without,
    the Nodes that carry ``node_labels`` are taken over as they are (all Nodes when it is empty).
    ``schedules`` turns the scheduler on; leave it off where a real one runs.
    """

    nodes: int = 2
    node_prefix: str = "node"
    creates_nodes: bool = True
    node_labels: tuple[tuple[str, str], ...] = ()
    node_address: str = "127.0.0.1"
    pods_per_node: int = 5000
    # Zero: no heartbeats. Needed only where a node lifecycle controller watches.
    node_heartbeat_s: float = 0.0
    schedules: bool = True
    scheduler_names: tuple[str, ...] = ("", "default-scheduler")

    dual_stack: bool = False
    ipv4_range: str = "10.64.0.0/10"
    ipv6_range: str = "fd00:10:64::/64"
    writes_per_start: WritesPerStart = WritesPerStart.FOUR

    schedule: Delay = Delay(0.02)
    waiting: Delay = Delay(0.02)
    network: Delay = Delay(0.1, 0.16)
    running: Delay = Delay(0.1, 0.16)
    ready: Delay = Delay(0.1, 0.16)
    termination: Delay = Delay(0.05)
    # How long a container whose command ends at once is seen running.
    exit: Delay = Delay(0.3)
    # Extra wait of a Pod whose image is called slow-start.
    slow_start_s: float = 10.0
    # How long a crash-looping container runs before it ends.
    crash_after_s: float = 1.0
    # Seconds in ErrImagePull or as terminated before the kubelet shows the back-off.
    error_shown_s: float = 2.0
    # First wait before a failed pull or a crashed container is tried again; doubles up to the cap.
    backoff_s: float = 10.0
    backoff_cap_s: float = 300.0

    # Requests in flight at once; one that fails is tried again after 0.4 s, doubling up to 30 s.
    max_in_flight: int = 16
    request_timeout_s: float = 15.0
    page_size: int = 500

    def node_names(self) -> tuple[str, ...]:
        """Return the names of the Nodes this kubelet creates."""
        return tuple(f"{self.node_prefix}-{i}" for i in range(self.nodes))
