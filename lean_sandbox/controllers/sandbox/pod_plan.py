"""Which Pod is the Sandbox's, and what to do about it (spec, 3.5 to 3.8).

Pure: from what the cache and this pass's looks show to exactly one next step.
"""

from __future__ import annotations

import msgspec

from lean_sandbox.controllers.ownership import may_adopt, ownership_of, reference_of
from lean_sandbox.model import messages
from lean_sandbox.model.meta import Ownership
from lean_sandbox.watch.objects import PodEntry


class PodWorld(msgspec.Struct, frozen=True):
    """What is known about the Pod of one Sandbox.

    ``lookup`` is the name the Pod is expected under, ``has_annotation`` whether the Sandbox carries
    the pod-name key at all, ``owned`` the Pods the cache shows to be controlled by the Sandbox,
    ``named`` the Pod called ``lookup`` as the cache or a look of this pass shows it,
    ``is_absence_proven`` whether it is known that there is none, ``is_doubtful`` whether the watch
    lost sight of it without seeing it end.
    """

    name: str
    uid: str
    name_hash: str
    is_suspended: bool
    lookup: str
    has_annotation: bool
    owned: tuple[PodEntry, ...]
    named: PodEntry | None
    is_absence_proven: bool
    is_doubtful: bool = False


class LookAtPod(msgspec.Struct, frozen=True):
    """Fetch the Pod called ``name`` and plan again: neither its presence nor absence is known."""

    name: str


class ManyPods(msgspec.Struct, frozen=True):
    """More than one Pod is controlled by the Sandbox: touch nothing."""

    count: int


class NoPod(msgspec.Struct, frozen=True):
    """There is no Pod and none is wanted."""

    clears_annotation: bool


class CreatePod(msgspec.Struct, frozen=True):
    """There is no Pod and one is wanted; ``is_looked_up`` when it bears the expected name."""

    clears_annotation: bool
    is_looked_up: bool


class KeepPod(msgspec.Struct, frozen=True):
    """The Pod is there and stays; ``is_owned`` may be false only while suspended."""

    pod: PodEntry
    is_owned: bool
    clears_annotation: bool


class AdoptPod(msgspec.Struct, frozen=True):
    """An unowned Pod that carries the authorisation to be taken."""

    pod: PodEntry


class DeletePod(msgspec.Struct, frozen=True):
    """The Pod has to go because the Sandbox is suspended."""

    pod: PodEntry
    clears_annotation: bool


class RefusePod(msgspec.Struct, frozen=True):
    """The Pod's name is held by one that must not be touched."""

    text: str
    clears_annotation: bool


PodStep = LookAtPod | ManyPods | NoPod | CreatePod | KeepPod | AdoptPod | DeletePod | RefusePod


def plan_pod(world: PodWorld) -> PodStep:
    """Decide the next step for the Pod."""
    owned = list(world.owned)
    named = world.named
    if named is None and world.is_doubtful and not world.is_absence_proven:
        # Another owned Pod does not answer the question: this one would make two.
        return LookAtPod(world.lookup)
    if (
        named is not None
        and ownership_of(named.owner, world.uid) is Ownership.OWNED
        and all(pod.key != named.key for pod in owned)
    ):
        owned.append(named)
    if len(owned) > 1:
        return ManyPods(len(owned))
    clears = False
    pod = named
    if owned:
        pod = owned[0]
        # Ownership wins over the annotation; its target is neither adopted nor touched.
        clears = world.has_annotation and pod.key.name != world.lookup
    elif named is None:
        if not world.is_absence_proven and (world.is_suspended or world.lookup != world.name):
            return LookAtPod(world.lookup)
        # Running under its own name needs no look: the create itself shows what is there.
        clears = world.has_annotation
    if world.is_suspended:
        return _suspended(pod, world, clears=clears)
    if pod is None:
        return CreatePod(clears, is_looked_up=world.lookup == world.name)
    return _running(pod, world, clears=clears)


def _suspended(pod: PodEntry | None, world: PodWorld, *, clears: bool) -> PodStep:
    if pod is None:
        return NoPod(clears_annotation=world.has_annotation)
    if ownership_of(pod.owner, world.uid) is not Ownership.OWNED:
        return KeepPod(pod, is_owned=False, clears_annotation=world.has_annotation)
    if pod.is_terminating:
        return KeepPod(pod, is_owned=True, clears_annotation=clears)
    return DeletePod(pod, clears_annotation=clears)


def _running(pod: PodEntry, world: PodWorld, *, clears: bool) -> PodStep:
    match ownership_of(pod.owner, world.uid):
        case Ownership.OWNED:
            return KeepPod(pod, is_owned=True, clears_annotation=clears)
        case Ownership.UNOWNED:
            if may_adopt(pod.labels, world.name_hash):
                return AdoptPod(pod)
            return RefusePod(
                messages.cannot_adopt(messages.POD, pod.key.name), clears_annotation=False
            )
        case _:
            assert pod.owner is not None
            text = messages.owned_by_other(
                messages.POD, pod.key.name, reference_of(pod.owner), world.name
            )
            return RefusePod(text, clears_annotation=world.has_annotation)
