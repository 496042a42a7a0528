"""What the reference controller was measured to cost, to stand beside our own counts.

Measured on a real kube-apiserver 1.36.3 with etcd 3.6.7 and simulated nodes, two cores, the
kubernetes-sigs/agent-sandbox controller of late August 2026 with default flags: 2000 cold
Sandboxes, one claim on a pool of two, and 300 claims at once on a pool of 600.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reference:
    """One measured row, each figure per Sandbox."""

    writes: float
    status_patches: float
    pod_creates: float
    sandbox_patches: float
    conflicts: float
    received_kib: float
    cpu_ms: float


REFERENCE_COLD = Reference(
    writes=10.6,
    status_patches=5.6,
    pod_creates=3.2,
    sandbox_patches=1.9,
    conflicts=2.2,
    received_kib=42.0,
    cpu_ms=20.6,
)
"""Per cold Sandbox. The worst launch on record took 34 requests and seven passes per Pod start."""


@dataclass(frozen=True, slots=True)
class ReferenceBurst:
    """One measured burst of claims; requests, CPU and KiB are for each claim, refill included."""

    claims: int
    pool: int
    requests: float
    conflicts: int
    p50_s: float
    p99_s: float
    cpu_ms: float
    received_kib: float


REFERENCE_CLAIM_WRITES = 19
"""Writes without Events for one claim alone, the refill of its pool included."""

REFERENCE_BURST = ReferenceBurst(
    claims=300,
    pool=600,
    requests=20.3,
    conflicts=422,
    p50_s=11.2,
    p99_s=22.5,
    cpu_ms=57.0,
    received_kib=107.0,
)
