"""What the reference controller was measured to cost, to stand beside our own counts.

Measured on a real kube-apiserver 1.36.3 with etcd 3.6.7 and simulated nodes, two cores, the
kubernetes-sigs/agent-sandbox controller of late August 2026 with default flags: 2000 cold
Sandboxes.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["REFERENCE_COLD", "Reference"]


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
