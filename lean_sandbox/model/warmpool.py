"""The SandboxWarmPool kind: its members as they are made, and its status."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lean_sandbox.model.conditions import changed_fields
from lean_sandbox.model.meta import (
    EMPTY_META,
    ObjectMeta,
    OwnerReference,
    controller_reference,
    owner_references_body,
)
from lean_sandbox.model.names import (
    CORE_API_VERSION,
    CREATED_BY_LABEL,
    EXTENSIONS_API_VERSION,
    LAUNCH_TYPE_LABEL,
    LAUNCH_TYPE_WARM,
    POD_TEMPLATE_HASH_LABEL,
    SAFE_TO_EVICT_ANNOTATION,
    SANDBOX_KIND,
    SANDBOX_WARM_POOL_KIND,
    STRATEGY_ON_REPLENISH,
    STRATEGY_RECREATE,
    TEMPLATE_HASH_LABEL,
    TEMPLATE_REF_ANNOTATION,
    TEMPLATE_REF_HASH_LABEL,
    WARM_POOL_LABEL,
    clipped_name,
    name_hash,
)
from lean_sandbox.model.refill import (
    Grant,
    ReplenishHold,
    TokenBucket,
    creation_deficit,
    slow_start_groups,
)
from lean_sandbox.model.sandbox import PodTemplateMetadata
from lean_sandbox.model.sharing import interned
from lean_sandbox.model.template import TemplateView, blueprint_spec
from lean_sandbox.model.times import format_duration
from lean_sandbox.model.wire import Lenient, OrNull

__all__ = [
    "DEFAULT_REPLICAS",
    "EMPTY_POOL_STATUS",
    "LEAST_GRACE_S",
    "MISSING_TEMPLATE_REQUEUE_S",
    "UNKNOWN_POOL_STATUS",
    "Grant",
    "PoolView",
    "ReplenishHold",
    "SandboxWarmPool",
    "SandboxWarmPoolSpec",
    "SandboxWarmPoolStatus",
    "TemplateRef",
    "TokenBucket",
    "UpdateStrategy",
    "build_member",
    "creation_deficit",
    "next_pool_status",
    "pool_status_patch",
    "slow_start_groups",
    "template_missing_note",
    "unschedulable_note",
    "unusable_template",
    "view_of_pool",
]

DEFAULT_REPLICAS: Final = 1
MISSING_TEMPLATE_REQUEUE_S: Final = 60.0
# The least spec.readinessGracePeriodSeconds that the definition allows.
LEAST_GRACE_S: Final = 30


class TemplateRef(Lenient, frozen=True):
    """The template of a pool, in its own namespace."""

    name: OrNull[str] = ""


class UpdateStrategy(Lenient, frozen=True):
    """How members made from an older template are replaced."""

    type: OrNull[str] = ""


_NO_TEMPLATE: Final = TemplateRef()


class SandboxWarmPoolSpec(Lenient, frozen=True):
    """``spec`` of a SandboxWarmPool."""

    replicas: int | None = None
    sandboxTemplateRef: OrNull[TemplateRef] = _NO_TEMPLATE
    updateStrategy: UpdateStrategy | None = None
    readinessGracePeriodSeconds: int | None = None

    @property
    def desired(self) -> int:
        """The wanted number of members; an absent one is 1."""
        return DEFAULT_REPLICAS if self.replicas is None else self.replicas

    @property
    def strategy(self) -> str:
        """The strategy as written; anything but Recreate acts like OnReplenish."""
        return (self.updateStrategy.type if self.updateStrategy else "") or STRATEGY_ON_REPLENISH


class SandboxWarmPoolStatus(Lenient, frozen=True):
    """``status`` of a SandboxWarmPool; a zero is never stored."""

    replicas: OrNull[int] = 0
    readyReplicas: OrNull[int] = 0
    selector: OrNull[str] = ""
    observedGeneration: OrNull[int] = 0


EMPTY_POOL_STATUS: Final = SandboxWarmPoolStatus()
UNKNOWN_POOL_STATUS: Final = SandboxWarmPoolStatus(-1, -1, "?", -1)
"""Differs from every status in every field, so that all of them are written."""
_EMPTY_SPEC: Final = SandboxWarmPoolSpec()


class SandboxWarmPool(Lenient, frozen=True):
    """A SandboxWarmPool."""

    metadata: OrNull[ObjectMeta] = EMPTY_META
    spec: OrNull[SandboxWarmPoolSpec] = _EMPTY_SPEC
    status: OrNull[SandboxWarmPoolStatus] = EMPTY_POOL_STATUS
    apiVersion: str = ""
    kind: str = ""


class PoolView(msgspec.Struct, frozen=True, gc=False):
    """What is kept in memory of a pool."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    # Name of the template; an empty one is a template that does not exist.
    template: str = ""
    replicas: int = DEFAULT_REPLICAS
    # Whether stale members are replaced at once; otherwise they wait to be claimed.
    is_recreate: bool = False
    # Value of the pool label on its members.
    pool_hash: str = ""
    # How long a member may be unready; None: as long as the settings say.
    readiness_grace_s: float | None = None

    @property
    def selector(self) -> str:
        """The label selector of the members and their Pods."""
        return f"{WARM_POOL_LABEL}={self.pool_hash}"

    @property
    def reference(self) -> OwnerReference:
        """The controller reference of the pool."""
        return controller_reference(
            EXTENSIONS_API_VERSION, SANDBOX_WARM_POOL_KIND, self.name, self.uid
        )


def view_of_pool(pool: SandboxWarmPool) -> PoolView:
    """Return what decisions need of ``pool``."""
    meta = pool.metadata
    grace_s = pool.spec.readinessGracePeriodSeconds
    return PoolView(
        name=meta.name,
        namespace=interned(meta.namespace),
        uid=meta.uid,
        generation=meta.generation,
        template=interned(clipped_name(pool.spec.sandboxTemplateRef.name)),
        replicas=pool.spec.desired,
        is_recreate=pool.spec.strategy == STRATEGY_RECREATE,
        pool_hash=name_hash(meta.name),
        # A server whose definition is older does not refuse what is below the minimum.
        readiness_grace_s=None if grace_s is None else float(max(grace_s, LEAST_GRACE_S)),
    )


def build_member(pool: PoolView, template: TemplateView, *, eviction: bool) -> dict[str, Any]:
    """Return the body that creates a member; the server picks its name.

    ``eviction`` marks the Pod as safe to evict where the template does not say otherwise.
    """
    stamps = {
        WARM_POOL_LABEL: pool.pool_hash,
        TEMPLATE_REF_HASH_LABEL: template.ref_hash,
        POD_TEMPLATE_HASH_LABEL: template.pod_template_hash,
        TEMPLATE_HASH_LABEL: template.blueprint_hash,
    }
    annotations = dict(template.pod_annotations or {})
    if eviction:
        annotations.setdefault(SAFE_TO_EVICT_ANNOTATION, "true")
    pod_labels = {**(template.pod_labels or {}), **stamps}
    return {
        "apiVersion": CORE_API_VERSION,
        "kind": SANDBOX_KIND,
        "metadata": {
            "generateName": f"{pool.name}-",
            "namespace": pool.namespace,
            "labels": {
                **stamps,
                LAUNCH_TYPE_LABEL: LAUNCH_TYPE_WARM,
                CREATED_BY_LABEL: "controller",
            },
            "annotations": {TEMPLATE_REF_ANNOTATION: template.name},
            "ownerReferences": owner_references_body((pool.reference,)),
        },
        "spec": blueprint_spec(template, PodTemplateMetadata(pod_labels, annotations or None)),
    }


def next_pool_status(pool: PoolView, active: int, ready: int) -> SandboxWarmPoolStatus:
    """Return the status for so many active members, and among them so many that are ready."""
    return SandboxWarmPoolStatus(
        replicas=active,
        readyReplicas=ready,
        selector=pool.selector,
        observedGeneration=pool.generation,
    )


def pool_status_patch(
    old: SandboxWarmPoolStatus, new: SandboxWarmPoolStatus
) -> dict[str, Any] | None:
    """Return what a merge patch must put under ``status``, None when no request is due.

    A value that became zero is removed.
    """
    return changed_fields(old, new, new.__struct_fields__) or None


def unschedulable_note(unschedulable: int, desired: int, grace_s: float) -> str:
    """Return the note of the event for a pool that waits for room in the cluster."""
    return (
        f"{unschedulable}/{desired} sandboxes are unschedulable past the "
        f"{format_duration(grace_s)} readiness grace period; holding them instead of replacing "
        "(replacements would be equally unschedulable)"
    )


def template_missing_note(name: str) -> str:
    """Return the note of the event for a pool whose template does not exist."""
    return f'SandboxTemplate not found: "{name}"'


def unusable_template(name: str, fault: str) -> str:
    """Return what is said of a template that is there and cannot be used."""
    return f'SandboxTemplate "{name}" cannot be used: {fault}'
