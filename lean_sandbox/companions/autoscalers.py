"""HorizontalPodAutoscalers, as far as companions read them: which pool one sizes."""

from __future__ import annotations

from lean_sandbox.model import names
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.wire import Lenient, OrNull
from lean_sandbox.watch.kind import Entry, identity


class AutoscalerEntry(Entry, gc=False, frozen=True):
    """The cache entry of a HorizontalPodAutoscaler; ``pool`` is empty if it sizes no pool."""

    pool: str = ""


class _Target(Lenient, frozen=True):
    apiVersion: OrNull[str] = ""
    kind: OrNull[str] = ""
    name: OrNull[str] = ""


class _AutoscalerSpec(Lenient, frozen=True):
    scaleTargetRef: OrNull[_Target] = _Target()


class AutoscalerItem(Lenient, frozen=True):
    """What is decoded of a HorizontalPodAutoscaler."""

    metadata: OrNull[ObjectMeta] = ObjectMeta()
    spec: OrNull[_AutoscalerSpec] = _AutoscalerSpec()


def build_autoscaler(
    row: ObjectMeta, item: AutoscalerItem | None, old: AutoscalerEntry | None
) -> AutoscalerEntry:
    """Return the entry of a HorizontalPodAutoscaler."""
    pool = ""
    if item is not None:
        target = item.spec.scaleTargetRef
        is_pool = target.kind == names.SANDBOX_WARM_POOL_KIND
        if is_pool and target.apiVersion.startswith(f"{names.EXTENSIONS_GROUP}/"):
            pool = names.clipped_name(target.name)
    return AutoscalerEntry(*identity(row, old), pool=pool)
