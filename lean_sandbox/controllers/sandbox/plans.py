"""Plans for the Pod and the Service of a Sandbox.

Pure functions: from what the cache and the fetches of this reconcile show to exactly one next step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec

from lean_sandbox.model import names
from lean_sandbox.model.meta import is_controlled_by
from lean_sandbox.model.service import cluster_ip_refusal
from lean_sandbox.watch.resources.children import PvcEntry, ServiceEntry
from lean_sandbox.watch.resources.pod import PodEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

T = TypeVar("T", PodEntry, PvcEntry, ServiceEntry)


class Fetch(msgspec.Struct, frozen=True):
    """Fetch the object and plan again: it may be stale in the cache, or is unknown."""


class Nothing(msgspec.Struct, frozen=True):
    """No object is wanted, and the Sandbox has none."""


class Create(msgspec.Struct, frozen=True):
    """An object is wanted, and none exists."""


class Keep(msgspec.Struct, Generic[T], frozen=True):
    """The object is there and stays; only a suspended Sandbox keeps a Pod that it does not own."""

    found: T


class Adopt(msgspec.Struct, Generic[T], frozen=True):
    """The object has no controller, and its labels authorise its adoption."""

    found: T


class Delete(msgspec.Struct, Generic[T], frozen=True):
    """The object is the Sandbox's own, and not wanted."""

    found: T


class Refuse(msgspec.Struct, frozen=True):
    """The name is held by an object that must not be touched; the Ready condition shows why."""

    text: str


class ManyPods(msgspec.Struct, frozen=True):
    """More than one Pod is controlled by the Sandbox: touch none."""

    count: int


_Step = Fetch | Nothing | Create | Keep[T] | Adopt[T] | Delete[T] | Refuse
PodStep = _Step[PodEntry] | ManyPods
ServiceStep = _Step[ServiceEntry]


def refusal(kind: str, found: T, sandbox_name: str) -> str | None:
    """Return why an object that is not the Sandbox's is left alone, ``None`` to adopt it."""
    name = found.key.name
    owner = found.owner
    labels = found.labels or {}
    if owner is not None:
        return (
            f'{kind} "{name}" is owned by {owner.kind}/{owner.name} (UID: {owner.uid}), '
            f'not by sandbox "{sandbox_name}"'
        )
    if labels.get(names.ADOPTABLE_LABEL) == "true":
        return None
    if labels.get(names.NAME_HASH_LABEL) == names.name_hash(sandbox_name):
        return None
    return (
        f'cannot adopt unowned {kind} "{name}": missing required pool authorization label '
        f'("{names.ADOPTABLE_LABEL}") or sandbox tracking label ("{names.NAME_HASH_LABEL}")'
    )


def disowned(kind: str, found: T) -> str:
    """Return the error of an adoption that the server has undone."""
    return f'{kind} "{found.key.name}" cannot be adopted: the server drops its controller reference'


def plan_pod(
    entry: SandboxEntry,
    owned: Iterable[PodEntry],
    named: PodEntry | None,
    *,
    is_absent: bool,
    is_doubtful: bool,
) -> tuple[PodStep, bool]:
    """Decide the next step for the Pod, and whether the pod-name annotation is to be cleared.

    ``owned`` are the cached Pods that the Sandbox controls, ``named`` is the Pod of the expected
    name as the cache or a fetch shows it. ``is_absent``: there is known to be no Pod of that name;
    ``is_doubtful``: the watch lost sight of it without seeing its deletion.
    """
    assert entry.view is not None
    is_suspended = entry.view.is_suspended
    expected = entry.pod_key
    has_annotation = entry.pod_name is not None
    # Another owned Pod does not settle it: a Pod of the expected name would make two.
    has_another = any(pod.key != expected for pod in owned)
    if named is None and not is_absent and (is_doubtful or has_another):
        return Fetch(), False
    pods = {pod.key: pod for pod in owned}
    if named is not None and is_controlled_by(named.owner, entry.uid):
        pods.setdefault(named.key, named)
    if len(pods) > 1:
        return ManyPods(len(pods)), False
    if pods:
        (pod,) = pods.values()
        step = Delete(pod) if is_suspended and not pod.is_terminating else Keep(pod)
        # Ownership wins over the annotation; its target is neither adopted nor touched.
        return step, has_annotation and (entry.pod_name or entry.key.name) != pod.key.name
    if named is None:
        # Running under its own name needs no fetch: the create itself shows what is there.
        if not is_absent and (is_suspended or expected != entry.key):
            return Fetch(), False
        return Nothing() if is_suspended else Create(), has_annotation
    if is_suspended:
        return Keep(named), has_annotation
    text = refusal("pod", named, entry.key.name)
    if text is None:
        return Adopt(named), False
    return Refuse(text), has_annotation and named.owner is not None


def plan_service(entry: SandboxEntry, service: ServiceEntry | None) -> ServiceStep:
    """Decide the next step for the headless Service; ``spec.service`` may be absent."""
    assert entry.view is not None
    wanted = entry.view.service
    if service is None:
        return Create() if wanted else Nothing()
    if is_controlled_by(service.owner, entry.uid):
        if wanted is False:
            return Nothing() if service.is_deleting else Delete(service)
        return Fetch() if service.needs_fetch else Keep(service)
    if wanted is False or (wanted is None and service.owner is None):
        return Nothing()
    text = refusal("service", service, entry.key.name)
    if text is not None:
        return Refuse(text)
    if service.spec is None:
        return Fetch()
    text = cluster_ip_refusal(service.key.name, service.spec)
    return Adopt(service) if text is None else Refuse(text)
