"""Members of warm pools as the cache holds them."""

from __future__ import annotations

from lean_sandbox.model.conditions import Condition
from lean_sandbox.model.meta import controller_reference
from lean_sandbox.model.sandbox import SandboxStatus, SandboxView
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.pod import PodEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry
from tests.support.names import REF_HASH, TEMPLATE_HASH, WARM_POOL

READY = Condition(type="Ready", status="True")
ADDRESSES = ("10.0.0.1",)


def member_of(
    pool: Key,
    name: str,
    node: str = "",
    *,
    uid: str = "",
    has_address: bool = True,
    is_ready: bool = True,
    mark: str = "",
) -> SandboxEntry:
    """Return a Sandbox that a pool owns; ``mark`` is the hash of its blueprint."""
    return SandboxEntry(
        key=Key(pool.namespace, name),
        uid=uid or f"uid-{name}",
        version=1,
        generation=1,
        is_deleting=False,
        owner=controller_reference(
            "SandboxWarmPool", pool.name, "x", "extensions.agents.x-k8s.io/v1"
        ),
        labels={WARM_POOL: "", REF_HASH: "", TEMPLATE_HASH: mark},
        view=SandboxView(generation=1),
        status=SandboxStatus(
            conditions=(READY,) if is_ready else (),
            podIPs=ADDRESSES if has_address else (),
            nodeName=node,
        ),
    )


def mark_of(entry: SandboxEntry) -> str:
    """Return the hash of the blueprint of a member."""
    return (entry.labels or {})[TEMPLATE_HASH]


def running_pods(sandbox: SandboxEntry) -> list[PodEntry]:
    """Return the Pods of a Sandbox: one, of which nothing bad is known."""
    return [PodEntry(key=sandbox.key, uid=f"pod-{sandbox.uid}", version=1)]
