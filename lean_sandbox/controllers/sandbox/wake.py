"""Which Sandbox a change concerns, and how soon it has to be looked at.

A change that a Sandbox's user would see at once (ready, no longer ready, finished, going, gone,
moved, relabelled) wakes at once. A step on the way up (scheduled, pulling, running but not ready)
waits for the launch window, because the next step usually comes within it and makes a look at this
one waste.
"""

from __future__ import annotations

import msgspec

from filters import Change
from lean_sandbox.model import names
from lean_sandbox.model.meta import OwnerReference
from lean_sandbox.watch.kind import Delta, Key
from lean_sandbox.watch.resources.pod import READY, RUNNING, WAITING, PodEntry
from lean_sandbox.watch.resources.pvc import PvcEntry
from lean_sandbox.watch.resources.service import ServiceEntry

_AT_ONCE = (
    Change.GONE
    | Change.DELETING
    | Change.OWNERS
    | Change.LABELS
    | Change.ANNOTATIONS
    | Change.FIRST_SEEN
    | Change.RECREATED
)


class Wake(msgspec.Struct, frozen=True):
    """A Sandbox to reconcile.

    ``may_wait`` when the launch window may pass first; ``is_news`` when it may be more than a step
    of the launch, as a finding of the scheduler.
    """

    key: Key
    may_wait: bool
    reason: str
    is_news: bool = False


def owner_key(namespace: str, owner: OwnerReference | None) -> Key | None:
    """Return the Sandbox that controls an object, by group, kind and name.

    The uid is not compared: the end of a predecessor's Pod must wake the Sandbox that took its name
    (spec, 6.1).
    """
    if owner is None or owner.kind != names.SANDBOX_KIND or owner.group != names.CORE_GROUP:
        return None
    return Key(namespace, owner.name)


def pod_wakes(notice: Delta[PodEntry]) -> list[Wake]:
    """Return the Sandboxes that a change of a Pod concerns: its old and its new owner."""
    may_wait = not (notice.change & _AT_ONCE) and _is_a_step_up(notice)
    reason = "pod gone" if notice.new is None else f"pod {notice.new.hint or 'changed'}"
    # Before there is a node only the scheduler writes, and no column shows what it found.
    is_news = bool(notice.change & Change.VERSION) and not notice.change & Change.COLUMNS
    wakes: dict[Key, Wake] = {}
    for entry in (notice.old, notice.new):
        if entry is None:
            continue
        key = owner_key(notice.key.namespace, entry.owner)
        if key is None and notice.new is None:
            # Nobody's Pod went: it may have held the name that a Sandbox needs.
            key = notice.key
        if key is not None:
            wakes[key] = Wake(key, may_wait, reason, is_news=is_news)
    return list(wakes.values())


def _is_a_step_up(notice: Delta[PodEntry]) -> bool:
    if notice.new is None or notice.old is None:
        return False
    if notice.old.hint == READY:
        # Anything but readiness is news; readiness with another address or node is as well.
        return False
    # A watch without columns gives no hint: any write may be the one that makes the Pod ready.
    return notice.new.hint in (RUNNING, WAITING)


def pvc_wakes(notice: Delta[PvcEntry]) -> list[Wake]:
    """Return the Sandbox that a claim for a volume belonged to, once the claim is gone.

    Nothing else that happens to a claim changes what a Sandbox does or reports (spec, 6.1).
    """
    if notice.new is not None or notice.old is None:
        return []
    key = owner_key(notice.key.namespace, notice.old.owner)
    return [] if key is None else [Wake(key, may_wait=False, reason="volume claim gone")]


def service_wakes(notice: Delta[ServiceEntry]) -> list[Wake]:
    """Return the Sandboxes that a change of a Service concerns: its owners, old and new.

    One that nobody controls, or that went, concerns the Sandbox of its name: it may be free to be
    adopted, or out of the way.
    """
    found: dict[Key, Wake] = {}
    for entry in (notice.old, notice.new):
        if entry is None:
            continue
        key = owner_key(notice.key.namespace, entry.owner)
        if key is None and (entry.owner is None or notice.new is None):
            key = notice.key
        if key is not None:
            found[key] = Wake(key, may_wait=False, reason="service changed")
    return list(found.values())
