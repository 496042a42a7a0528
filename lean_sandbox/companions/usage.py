"""How long Pods have been quiet, by samples of the CPU they use.

Where ``metrics.k8s.io`` is served: one LIST a minute, or one for each namespace that is chosen. A
Pod is quiet since its first sample, since the last one at or above the threshold, or since a gap
between samples, whichever came last. Of a Pod without a recent sample nothing is known.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import NotFound, NotServed
from lean_sandbox.kube.resources import Page, Resource
from lean_sandbox.model.comparison import parse_quantity
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.names import NAME_HASH_LABEL
from lean_sandbox.model.wire import Lenient, OrNull
from lean_sandbox.watch.kind import Key, key_of

POD_METRICS: Final = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")
SAMPLE_S: Final = 60.0
_MOST_CORES: Final = 10**9
#: How often a server without the API is asked again; what was known before is then too old.
LOOK_AGAIN_S: Final = 600.0
# How old the last sample of a Pod may be that says what it uses now.
_FRESH_S: Final = 1.5 * SAMPLE_S
#: The longest time between two samples that is no gap.
GAP_S: Final = 3.0 * SAMPLE_S


class _Used(Lenient, frozen=True):
    cpu: OrNull[str] = "0"


class _Container(Lenient, frozen=True):
    usage: OrNull[_Used] = _Used()


class PodMetrics(Lenient, frozen=True):
    """What a Pod uses; its containers together."""

    metadata: OrNull[ObjectMeta] = ObjectMeta()
    containers: OrNull[tuple[_Container, ...]] = ()

    @property
    def cores(self) -> float:
        """How many cores it uses; more than any number if that cannot be read."""
        return sum(cores_of(one.usage.cpu) for one in self.containers)


def cores_of(text: str) -> float:
    """Return a quantity of CPU in cores; infinite if it cannot be read."""
    found = parse_quantity(text)
    if found is None or found < 0 or found > _MOST_CORES:
        return float("inf")
    return float(found)


class _Quiet(msgspec.Struct, gc=False):
    since: float
    seen_at: float


class PodUsage:
    """Samples what Pods use; all times are of the caller's clock, in seconds."""

    def __init__(self, client: Client, namespaces: tuple[str, ...], threshold_cores: float) -> None:
        self._client = client
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self._threshold = threshold_cores
        self._quiet: dict[Key, _Quiet] = {}
        #: Whether the API is served, as far as is known; without it, nothing is asked of Pods.
        self.is_served = True

    def quiet_since(self, pod: Key, now_s: float) -> float | None:
        """Return since when a Pod has been quiet; None if nothing is known of it at present."""
        held = self._quiet.get(pod)
        return held.since if held is not None and now_s - held.seen_at <= _FRESH_S else None

    async def sample(self, now_s: float) -> float:
        """Read what all tracked Pods use; return how long to wait for the next sample.

        One LIST for each namespace that is watched, or for all. Raises ControlPlaneError.
        """
        try:
            for namespace in self._namespaces:
                found = await self._client.list(
                    POD_METRICS,
                    Page[PodMetrics],
                    namespace=namespace,
                    # Samples are stored nowhere, so servers of them have no pages.
                    chunk_size=None,
                    labels=NAME_HASH_LABEL,
                )
                for one in found.items:
                    self._note(one, now_s)
        except (NotFound, NotServed):
            self.is_served = False
            return LOOK_AGAIN_S
        self.is_served = True
        known = self._quiet.items()
        self._quiet = {key: one for key, one in known if now_s - one.seen_at <= GAP_S}
        return SAMPLE_S

    def _note(self, one: PodMetrics, now_s: float) -> None:
        key = key_of(one.metadata.namespace, one.metadata.name)
        held = self._quiet.get(key)
        is_quiet = one.cores < self._threshold
        if held is not None and is_quiet and now_s - held.seen_at <= GAP_S:
            held.seen_at = now_s
        else:
            self._quiet[key] = _Quiet(now_s, now_s)
