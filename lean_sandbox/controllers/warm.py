"""The warm queue: which member of a pool a claim gets.

A member is *free* (claims may get it) or *acquired* (held by one claim). Ready members are handed
out first, then those with an address; members without an address are only counted. Members come
from the node with the most members of a stage; of several such nodes, from the one whose first
member came earliest. Members without a node come last. A member keeps its turn whatever happens to
it; only one that was released goes to the end.

Only changes of the caches add and remove members. After a restart the initial lists rebuild it,
including members that were acquired, which is why the adopting write must still be guarded.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from lean_sandbox.controllers.resolver import TemplateResolver
from lean_sandbox.model import names
from lean_sandbox.runtime.controller import Signal
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources import Caches
from lean_sandbox.watch.resources.extensions import PoolEntry, TemplateEntry
from lean_sandbox.watch.resources.pod import RUNNING, PodEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# The stages of a member, those of a free one in the order in which claims want them.
_READY: Final = 0  # it has an address and is Ready
_NETWORKED: Final = 1  # it has an address
_WAITING: Final = 2  # it has no address yet: never handed out
_ACQUIRED: Final = 3
# Reasons of Ready that rule a member out: its Pod has ended or is about to.
_OF_NO_USE: Final = {
    names.REASON_POD_TERMINATING,
    names.REASON_POD_FAILED,
    names.REASON_POD_SUCCEEDED,
    names.REASON_SANDBOX_SUSPENDED,
    names.REASON_SANDBOX_EXPIRED,
}


def pool_of(entry: SandboxEntry) -> Key | None:
    """Return the pool of a member, ``None`` for a Sandbox that cannot be adopted."""
    labels = entry.labels or {}
    is_labelled = names.WARM_POOL_LABEL in labels and names.TEMPLATE_REF_HASH_LABEL in labels
    if entry.is_deleting or not is_labelled:
        return None
    return entry.owner_key(names.SANDBOX_WARM_POOL_KIND)


def _place_of(entry: SandboxEntry, pods: Iterable[PodEntry]) -> tuple[int, str]:
    status = entry.status
    view = entry.view
    ready = entry.ready
    if entry.needs_fetch or view is None or status is None:
        # A spec that was changed may ask for the member's end.
        return _WAITING, ""
    if view.is_suspended or (ready is not None and ready.reason in _OF_NO_USE):
        # The addresses stay in the status until the Pod is gone.
        return _WAITING, ""
    # The status may describe a Pod that is gone, as long as it has not been updated.
    living = [pod for pod in pods if not (pod.is_terminating or pod.has_ended)]
    # An address may be published seconds after the Pod has it.
    if not living or not (status.podIPs or any(pod.hint == RUNNING for pod in living)):
        return _WAITING, ""
    is_ready = entry.is_ready and any(pod.may_be_ready for pod in living)
    return _READY if is_ready else _NETWORKED, status.nodeName


class Counts(NamedTuple):
    """The members of a pool, each counted once: free by stage, and acquired."""

    ready: int = 0
    # With an address but not Ready.
    networked: int = 0
    waiting: int = 0
    acquired: int = 0


class _QueuedMember(msgspec.Struct, order=True, gc=False):
    """A member and its turn. Compared by ``number``, which rises in the order of arrival."""

    number: int
    entry: SandboxEntry
    pool: Key
    stage: int
    node: str


class WarmQueue:
    """Hands the members of pools to claims, each member to one claim at a time."""

    def __init__(self, pods_of: Callable[[SandboxEntry], Iterable[PodEntry]]) -> None:
        """``pods_of`` returns the Pods that a Sandbox controls."""
        self._pods_of = pods_of
        #: Called with the pool of a member that can be acquired; may not call back.
        self.available: Signal[Key] = Signal()
        #: The same for a member that was given back.
        self.released: Signal[Key] = Signal()
        # By stage, the members on each node, earliest first; a node without any is not kept.
        self._pools: dict[Key, tuple[dict[str, list[_QueuedMember]], ...]] = {}
        self._queued: dict[Key, _QueuedMember] = {}
        # Uids of the members that the server does not let claims take over.
        self._refused: set[str] = set()
        self._arrivals = 0

    def offer(self, entry: SandboxEntry) -> None:
        """Note a Sandbox as it is now: a new member goes to the end, a known one keeps its turn.

        An acquired member stays acquired; its new state counts once it is released. A member of
        another pool than before is a new one, even if acquired. Any other Sandbox is forgotten.
        """
        pool = pool_of(entry)
        if pool is None:
            self.forget(entry)
            return
        queued = self._queued.get(entry.key)
        if queued is None or (queued.entry.uid, queued.pool) != (entry.uid, pool):
            if queued is not None:
                self._drop(queued)
            self._append(entry, pool, self.available)
            return
        queued.entry = entry
        before = (queued.stage, queued.node)
        after = _place_of(entry, self._pods_of(entry))
        if queued.stage != _ACQUIRED and before != after:
            self._move(queued, *after)
            if before[0] == _WAITING:
                self.available(queued.pool)

    def acquire(
        self, pool: Key, *, accept: Callable[[SandboxEntry], bool] = lambda _member: True
    ) -> SandboxEntry | None:
        """Take a member of ``pool``; :meth:`release` must follow, whatever becomes of the member.

        Members that ``accept`` refuses are dropped until they are offered again; when there is none
        to take, so are those that wait for an address, up to the first that would be accepted. An
        error of ``accept`` is raised, and the member that it was called with stays.
        """
        for stage in (_READY, _NETWORKED):
            queued = self._accepted(pool, stage, accept)
            if queued is not None:
                self._move(queued, _ACQUIRED, "")
                return queued.entry
        self._accepted(pool, _WAITING, accept)
        return None

    def reserve(self, entry: SandboxEntry) -> bool:
        """Take just this member, at whatever stage; false if it is no free one.

        :meth:`release` must follow, whatever becomes of the member.
        """
        queued = self._queued.get(entry.key)
        if queued is None or queued.entry.uid != entry.uid or queued.stage == _ACQUIRED:
            return False
        self._move(queued, _ACQUIRED, "")
        return True

    def release(self, entry: SandboxEntry) -> None:
        """Free an acquired member, unless it was forgotten or replaced; it goes to the end."""
        queued = self._queued.get(entry.key)
        if queued is None or queued.stage != _ACQUIRED:
            return
        if (queued.entry.uid, queued.pool) == (entry.uid, pool_of(entry)):
            self._drop(queued)
            self._append(queued.entry, queued.pool, self.released)

    def forget(self, entry: SandboxEntry) -> None:
        """Drop exactly this Sandbox: it is gone, or is no member any more.

        Or no claim may take it until it has changed and is offered again.
        """
        self._refused.discard(entry.uid)
        queued = self._queued.get(entry.key)
        if queued is not None and queued.entry.uid == entry.uid:
            self._drop(queued)

    def refuse(self, entry: SandboxEntry) -> None:
        """Drop a member that the server does not let claims take over; its pool replaces it.

        A Sandbox that is gone, or no member any more, is ignored.
        """
        queued = self._queued.get(entry.key)
        if queued is not None and queued.entry.uid == entry.uid:
            self._drop(queued)
            self._refused.add(entry.uid)

    def is_refused(self, entry: SandboxEntry) -> bool:
        """Return whether claims cannot take a member over, as far as is known."""
        return entry.uid in self._refused

    def forget_pool(self, pool: Key) -> None:
        """Drop the members of a pool that was deleted, free and acquired."""
        for nodes in self._pools.pop(pool, ()):
            for line in nodes.values():
                for queued in line:
                    del self._queued[queued.entry.key]

    def counts(self, pool: Key) -> Counts:
        """Return how many members a pool has."""
        stages = self._pools.get(pool, ())
        return Counts(*(sum(map(len, nodes.values())) for nodes in stages))

    def to_take(self, pool: Key) -> int:
        """Return how many members of a pool can be acquired."""
        counts = self.counts(pool)
        return counts.ready + counts.networked

    def _accepted(
        self, pool: Key, stage: int, accept: Callable[[SandboxEntry], bool]
    ) -> _QueuedMember | None:
        """Return the next member at a stage that is accepted, having dropped those before it."""
        while pool in self._pools and (queued := _first(self._pools[pool][stage])) is not None:
            if accept(queued.entry):
                return queued
            self._drop(queued)
        return None

    def _append(self, entry: SandboxEntry, pool: Key, signal: Signal[Key]) -> None:
        self._arrivals += 1
        place = _place_of(entry, self._pods_of(entry))
        queued = self._queued[entry.key] = _QueuedMember(self._arrivals, entry, pool, *place)
        self._insert(queued)
        if queued.stage != _WAITING:
            signal(pool)

    def _drop(self, queued: _QueuedMember) -> None:
        del self._queued[queued.entry.key]
        self._remove(queued)
        if not any(self._pools[queued.pool]):
            del self._pools[queued.pool]

    def _move(self, queued: _QueuedMember, stage: int, node: str) -> None:
        self._remove(queued)
        queued.stage = stage
        queued.node = node
        self._insert(queued)

    def _insert(self, queued: _QueuedMember) -> None:
        stages = self._pools.get(queued.pool)
        if stages is None:
            stages = self._pools[queued.pool] = ({}, {}, {}, {})
        insort(stages[queued.stage].setdefault(queued.node, []), queued)

    def _remove(self, queued: _QueuedMember) -> None:
        nodes = self._pools[queued.pool][queued.stage]
        line = nodes[queued.node]
        del line[bisect_left(line, queued)]
        if not line:
            del nodes[queued.node]


def _first(nodes: dict[str, list[_QueuedMember]]) -> _QueuedMember | None:
    best: list[_QueuedMember] = []
    size = 0
    for node, line in nodes.items():
        more = len(line) - size
        if node and (more > 0 or (more == 0 and line[0].number < best[0].number)):
            best = line
            size = len(line)
    best = best or nodes.get("", [])
    return best[0] if best else None


def build_warm_queue(caches: Caches, resolver: TemplateResolver) -> WarmQueue:
    """Return a warm queue that follows the caches."""

    def pods_of(sandbox: SandboxEntry) -> list[PodEntry]:
        return caches.pods.owned_by(sandbox.key.namespace, sandbox.uid)

    queue = WarmQueue(pods_of)
    feed = _Feed(queue, caches, resolver)
    caches.sandboxes.listeners.append(feed.follow_sandbox)
    caches.pods.listeners.append(feed.follow_pod)
    caches.pools.listeners.append(feed.follow_pool)
    caches.templates.listeners.append(feed.follow_template)
    return queue


class _Feed:
    """Hands the warm queue the changes of the caches, which alone make its members."""

    def __init__(self, queue: WarmQueue, caches: Caches, resolver: TemplateResolver) -> None:
        self._queue = queue
        self._caches = caches
        self._resolver = resolver

    def follow_sandbox(self, old: SandboxEntry | None, new: SandboxEntry | None) -> None:
        """Offer a Sandbox as it is now, or forget one that is gone."""
        if old is not None and (new is None or new.uid != old.uid):
            self._queue.forget(old)
        if new is not None:
            self._queue.offer(new)

    def follow_pod(self, old: PodEntry | None, new: PodEntry | None) -> None:
        """Offer the Sandboxes that control a Pod, or did."""
        owners = {
            Key(pod.key.namespace, pod.owner.name)
            for pod in (old, new)
            if pod is not None and pod.owner is not None
        }
        for held in filter(None, map(self._caches.sandboxes.get, owners)):
            self._queue.offer(held)

    def follow_pool(self, old: PoolEntry | None, new: PoolEntry | None) -> None:
        """Forget the members of a pool that is gone; offer those of one that changed again."""
        if old is None:
            return
        if new is None:
            self._queue.forget_pool(old.key)
        elif old.view != new.view:
            self._offer_again(old, new)

    def follow_template(self, _old: TemplateEntry | None, new: TemplateEntry | None) -> None:
        """Offer the members of the pools of a template again."""
        pools = self._resolver.pools_of(new.key) if new is not None else []
        for pool in filter(None, map(self._caches.pools.get, pools)):
            self._offer_again(pool, pool)

    def _offer_again(self, before: PoolEntry, pool: PoolEntry) -> None:
        """Offer the members of a pool again: claims may have dropped some as stale."""
        if before.view is not None and before.view.is_recreate:
            for member in self._caches.sandboxes.owned_by(pool.key.namespace, pool.uid):
                self._queue.offer(member)
