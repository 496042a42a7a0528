"""The SandboxWarmPool kind, how a member is built, and how fast a pool is refilled."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

import msgspec

from lean_sandbox.model import names
from lean_sandbox.model.comparison import canonical
from lean_sandbox.model.meta import ObjectMeta, OwnerReference, Reference, controller_reference
from lean_sandbox.model.sandbox import PodTemplateMetadata, SandboxSpec, visible
from lean_sandbox.model.template import TemplateView, blueprint_spec
from lean_sandbox.model.wire import ODD, Lenient, OrNull, interned

# The least spec.readinessGracePeriodSeconds that the definition allows.
LEAST_GRACE_S: Final = 30
# How many verdicts on members are remembered for one state of a template.
_MOST_VERDICTS: Final = 4096
# The pauses between replacements that may not help, like those between restarts of a container.
_FIRST_PAUSE_S: Final = 10.0
_LONGEST_PAUSE_S: Final = 300.0
_FORGOTTEN_AFTER_S: Final = 600.0
# Dates of objects are whole seconds, and clocks need not agree.
_DATES_AGREE_S: Final = 6.0


class UpdateStrategy(Lenient, frozen=True):
    """How members made from an older template are replaced."""

    type: OrNull[str] = ""


class SandboxWarmPoolSpec(Lenient, frozen=True):
    """``spec`` of a SandboxWarmPool."""

    replicas: OrNull[int] = 1
    sandboxTemplateRef: OrNull[Reference] = Reference()
    updateStrategy: OrNull[UpdateStrategy] = UpdateStrategy()
    readinessGracePeriodSeconds: int | None = None


class SandboxWarmPoolStatus(Lenient, frozen=True):
    """``status`` of a SandboxWarmPool; a zero is never stored."""

    replicas: OrNull[int] = 0
    readyReplicas: OrNull[int] = 0
    selector: OrNull[str] = ""
    observedGeneration: OrNull[int] = 0


class SandboxWarmPool(Lenient, frozen=True):
    """A SandboxWarmPool."""

    metadata: OrNull[ObjectMeta] = ObjectMeta()
    spec: OrNull[SandboxWarmPoolSpec] = SandboxWarmPoolSpec()
    status: OrNull[SandboxWarmPoolStatus] = SandboxWarmPoolStatus()


class PoolView(msgspec.Struct, frozen=True, gc=False):
    """What is kept in memory of a pool."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    # Name of the template; an empty one is a template that does not exist.
    template: str = ""
    replicas: int = 1
    # Whether stale members are replaced at once; otherwise they wait to be claimed.
    is_recreate: bool = False
    # Value of the pool label on its members.
    pool_hash: str = ""
    # How long a member may be unready; None: as long as the settings say.
    readiness_grace_s: float | None = None

    @property
    def selector(self) -> str:
        """The label selector of the members and their Pods."""
        return f"{names.WARM_POOL_LABEL}={self.pool_hash}"

    @property
    def reference(self) -> OwnerReference:
        """The controller reference of the pool."""
        return controller_reference(names.SANDBOX_WARM_POOL_KIND, self.name, self.uid)


def view_of_pool(pool: SandboxWarmPool) -> PoolView:
    """Return what decisions need of ``pool``."""
    meta = pool.metadata
    spec = pool.spec
    grace_s = spec.readinessGracePeriodSeconds
    return PoolView(
        name=meta.name,
        namespace=interned(meta.namespace),
        uid=meta.uid,
        generation=meta.generation,
        template=interned(names.clipped_name(spec.sandboxTemplateRef.name)),
        # A server with an older definition does not refuse values below the minimum.
        replicas=max(spec.replicas, 0),
        is_recreate=spec.updateStrategy.type == names.STRATEGY_RECREATE,
        pool_hash=names.name_hash(meta.name),
        readiness_grace_s=None if grace_s is None else float(max(grace_s, LEAST_GRACE_S)),
    )


def build_member(pool: PoolView, template: TemplateView, *, eviction: bool) -> dict[str, Any]:
    """Return the body that creates a member; the server picks its name.

    ``eviction`` marks the Pod as safe to evict where the template does not say otherwise.
    """
    stamps = {
        names.WARM_POOL_LABEL: pool.pool_hash,
        names.TEMPLATE_REF_HASH_LABEL: template.ref_hash,
        names.POD_TEMPLATE_HASH_LABEL: template.pod_template_hash,
        names.TEMPLATE_HASH_LABEL: template.blueprint_hash,
    }
    annotations = dict(template.pod_metadata.annotations or {})
    if eviction:
        annotations.setdefault(names.SAFE_TO_EVICT_ANNOTATION, "true")
    pod_labels = {**(template.pod_metadata.labels or {}), **stamps}
    return {
        "apiVersion": names.CORE_API_VERSION,
        "kind": names.SANDBOX_KIND,
        "metadata": {
            "generateName": f"{pool.name}-",
            "namespace": pool.namespace,
            "labels": {
                **stamps,
                names.LAUNCH_TYPE_LABEL: names.LAUNCH_TYPE_WARM,
                names.CREATED_BY_LABEL: "controller",
            },
            "annotations": {names.TEMPLATE_REF_ANNOTATION: template.name},
            "ownerReferences": [pool.reference],
        },
        "spec": blueprint_spec(template, PodTemplateMetadata(pod_labels, annotations or None)),
    }


def unusable_template(name: str, fault: str) -> str:
    """Return the message for a template that exists but cannot be used."""
    return f'SandboxTemplate "{name}" cannot be used: {fault}'


class Freshness(Enum):
    """Whether a pool member still fits its template."""

    FRESH = "fresh"
    # It differs in labels or annotations of its Pod or its volume claims alone.
    RELABELLED = "relabelled"
    STALE = "stale"
    # The labels do not decide: the spec of the Sandbox has to be compared.
    UNDECIDED = "undecided"


class Staleness:
    """Decides which members of a pool no longer fit one state of its template.

    A member is fresh if the hash of its blueprint, a label, is that of the template. Another hash
    proves nothing, because another implementation may hash differently: then the spec is compared,
    once for all members with the same hash. A member without one is compared on its own, as is one
    whose spec somebody has edited: the hash no longer describes it. One made from this state is
    fresh until it is edited, whatever a policy changed of it at once: the next would be no other.

    A claim gives labels and annotations to the member that it takes, so a member that is merely
    RELABELLED is as good as a fresh one, unless it does not get on, perhaps for want of a label.
    """

    def __init__(self, template: TemplateView) -> None:
        self.template = template
        self._verdicts: dict[str, Freshness] = {}
        # Uids of those made from this state that do not look so.
        self._made: set[str] = set()

    def note_made(self, member: ObjectMeta) -> None:
        """Note a member that was made from the template just now."""
        if self.by_labels(member) is not Freshness.FRESH:
            if len(self._made) >= _MOST_VERDICTS:
                self._made.clear()
            self._made.add(member.uid)

    def _is_as_made(self, member: ObjectMeta) -> bool:
        return member.uid in self._made and member.generation <= 1

    def by_hash(self, member: ObjectMeta) -> Freshness:
        """Compare the hash of a member alone; the name of the template does not count."""
        if _hash_of(member) == self.template.blueprint_hash or self._is_as_made(member):
            return Freshness.FRESH
        return self._verdicts.get(_verdict_key(member), Freshness.UNDECIDED)

    def by_labels(self, member: ObjectMeta) -> Freshness:
        """Compare the labels of a member: the template, and the hash."""
        if self._is_as_made(member):
            return Freshness.FRESH
        return Freshness.STALE if self.is_of_another(member) else self.by_hash(member)

    def is_of_another(self, sandbox: ObjectMeta) -> bool:
        """Return whether a label says that a Sandbox was made from another template, or none."""
        return (sandbox.labels or {}).get(names.TEMPLATE_REF_HASH_LABEL) != self.template.ref_hash

    def by_spec(self, member: ObjectMeta, spec: SandboxSpec) -> Freshness:
        """Compare a member with one created now; remembered for all members with its hash."""
        if len(self._verdicts) >= _MOST_VERDICTS:
            self._verdicts.clear()
        verdict = self._verdicts[_verdict_key(member)] = self.compare(spec)
        return verdict

    def compare(self, spec: SandboxSpec) -> Freshness:
        """Compare the Pod and the volume claims of a Sandbox with those of one created now."""
        made_now = blueprint_spec(self.template, self.template.pod_metadata)
        try:
            if _parts(spec) != _parts(made_now):
                return Freshness.STALE
        except ODD:
            return Freshness.STALE
        is_equal = _metadata(spec) == _metadata(made_now)
        return Freshness.FRESH if is_equal else Freshness.RELABELLED


def _hash_of(member: ObjectMeta) -> str:
    return (member.labels or {}).get(names.TEMPLATE_HASH_LABEL, "")


def _verdict_key(member: ObjectMeta) -> str:
    """Return what members of equal specs share: their hash, unless it is gone or says nothing."""
    shared = _hash_of(member) if member.generation <= 1 else ""
    return shared or f"{member.uid}/{member.generation}"


def _parts(spec: SandboxSpec) -> tuple[Any, ...]:
    claims = [
        (entry.name, canonical(msgspec.json.decode(entry.spec)))
        for entry in spec.volumeClaimTemplates or ()
    ]
    return canonical(msgspec.json.decode(spec.podTemplate.spec)), claims, spec.service


def _metadata(spec: SandboxSpec) -> tuple[Any, ...]:
    """Return the labels and annotations of a Pod and its volumes, but those that pools add."""
    pod = visible(spec.podTemplate.metadata)
    annotations = dict(pod.annotations or {})
    annotations.pop(names.SAFE_TO_EVICT_ANNOTATION, None)
    claims = [
        (entry.metadata.labels or {}, entry.metadata.annotations or {})
        for entry in spec.volumeClaimTemplates or ()
    ]
    return pod.labels, annotations, claims


def slow_start_groups(total: int, first: int = 1) -> Iterator[int]:
    """Yield the sizes of the groups in which ``total`` requests are sent: 1, 2, 4..., the rest."""
    size = first
    while total > 0:
        yield min(size, total)
        total -= size
        size *= 2


class ReplenishHold:
    """Puts refilling off for a while after members left the pool; never if the delay is <= 0."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        # Below any number at first: an initial fill or a restart is not a drop.
        self._last_members = -math.inf
        self._defer_until_s = -math.inf

    def observe(self, current: int, desired: int, now_s: float) -> float:
        """Note the number of active members and return the seconds still to wait, 0 for none."""
        last = self._last_members
        self._last_members = current
        if current >= desired:
            self._defer_until_s = -math.inf
        elif current < last:
            self._defer_until_s = now_s + self._delay_s
        return max(0.0, self._defer_until_s - now_s)

    def created(self, count: int) -> None:
        """Note that members were created, so that losing them again counts as a drop."""
        self._last_members += count


class ReplacementPace:
    """Spaces out replacements of members that may have to be replaced as well.

    The first comes at once, the next 10 s later. The pause doubles, up to five minutes, whenever
    the member replaced was itself made since the last replacement. All times are the server's, in
    seconds.
    """

    def __init__(self) -> None:
        self._last_at_s = -math.inf
        self._pause_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """Return for how long no member may be replaced."""
        passed_s = now_s - self._last_at_s
        # The server's clock may have been set back.
        return max(0.0, self._pause_s - passed_s) if passed_s >= 0 else 0.0

    def replaced(self, created_s: float, now_s: float) -> None:
        """Note that a member created at ``created_s`` is replaced now."""
        is_repeated = created_s >= self._last_at_s - _DATES_AGREE_S
        is_recent = now_s - self._last_at_s < _FORGOTTEN_AFTER_S
        doubled_s = min(2.0 * self._pause_s, _LONGEST_PAUSE_S)
        self._pause_s = doubled_s if is_repeated and is_recent else _FIRST_PAUSE_S
        self._last_at_s = now_s


class MemberOutcomes:
    """What became of the newest members of a pool: whether one made now is likely to be of use.

    Members are compared by when they were created, as written; ``now_s`` is monotonic.
    """

    def __init__(self) -> None:
        #: When the newest member was created that has been ready; empty without one.
        self.newest_ready = ""
        self._newest_failed = ""
        self._failed_at_s = -math.inf
        self._why = ""

    def ready(self, created_at: str) -> None:
        """Note that a member has become ready."""
        self.newest_ready = max(self.newest_ready, created_at)

    def failed(self, created_at: str, why: str, now_s: float) -> None:
        """Note that a member has ended, or did not become ready in time."""
        if created_at >= self._newest_failed:
            self._newest_failed = created_at
            self._why = why
        self._failed_at_s = now_s

    def failure(self, now_s: float, *, lasts_s: float) -> str:
        """Return why the newest member failed, "" if one as new became ready.

        A failure older than ``lasts_s`` is forgotten: claims may have taken what became ready.
        """
        is_over = self._newest_failed <= self.newest_ready
        return "" if is_over or now_s - self._failed_at_s > lasts_s else self._why
