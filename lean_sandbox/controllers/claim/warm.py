"""The warm queue: which member of a pool a claim gets, and never two claims the same.

A member is *free* (claims may get it), *acquired* (one claim has it in hand) or *adopted* (a
claim's write succeeded, and the watch has yet to show it). Ready members are handed out first, then
those with an address; members without an address are only counted. Of the nodes that hold the most
members of a stage, the one whose first member came earliest gives that member; members without a
node come only when none has one. A member keeps its turn whatever happens to it; only one that was
released goes to the end.

The queue is fed with every sight of a member (:meth:`WarmQueue.add`) and of every Sandbox that is
not, or no longer, one (:meth:`WarmQueue.forget`). It holds all of them, whatever their number, and
nothing of a pool that has none. After a restart the initial list rebuilds it: in the order of the
list, and with the members again that were in hand, which is why the adopting write must still be
guarded.

Nothing here waits or talks to the server; one event loop, no locks. A choice looks at each node of
the pool once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition
from lean_sandbox.model import names
from lean_sandbox.model.conditions import find
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# Adopted members that are remembered until the watch shows the adoption; forgetting one early can
# cost a refused write, not more.
MOST_ADOPTED: Final = 8192

# The stages of a free member, in the order in which claims want them.
_READY: Final = 0  # it has an address and is Ready
_NETWORKED: Final = 1  # it has an address
_WAITING: Final = 2  # it has no address yet: never handed out


class Member(msgspec.Struct, frozen=True, gc=False):
    """A Sandbox of a pool that no claim has: what a claim needs to know to choose it.

    ``mark`` is for the claim to judge, such as the label with the hash of its blueprint.
    It takes 72 bytes; let ``pool``, ``node`` and ``mark`` be the same object for all members that
    agree in them, and ``key`` and ``uid`` those of the cache, for else they cost 400 more.
    """

    pool: Key
    key: Key
    uid: str
    node: str = ""
    has_address: bool = False
    is_ready: bool = False
    mark: str = ""

    @property
    def stage(self) -> int:
        """What a claim can do with it."""
        if not self.has_address:
            return _WAITING
        return _READY if self.is_ready else _NETWORKED


def member_of(entry: SandboxEntry) -> Member | None:
    """Return a Sandbox as a member of its pool, ``None`` when it cannot be adopted (3.7.4)."""
    owner = entry.owner
    labels = entry.labels or {}
    if (
        entry.is_deleting
        or owner is None
        or not owner.is_a(names.SANDBOX_WARM_POOL_KIND, names.EXTENSIONS_GROUP)
        or names.WARM_POOL_LABEL not in labels
        or names.TEMPLATE_REF_HASH_LABEL not in labels
    ):
        return None
    status = entry.status
    ready = find(status.conditions, names.READY) if status is not None else None
    # The addresses stay in the status until the Pod is gone, and are of no use from now on.
    is_losing_pod = ready is not None and ready.reason == names.REASON_POD_TERMINATING
    return Member(
        pool=Key(entry.key.namespace, owner.name),
        key=entry.key,
        uid=entry.uid,
        node=status.nodeName if status is not None else "",
        has_address=status is not None and bool(status.podIPs) and not is_losing_pod,
        is_ready=ready is not None and ready.status == names.TRUE,
        mark=labels.get(names.TEMPLATE_HASH_LABEL, ""),
    )


class Acquired(msgspec.Struct, frozen=True, gc=False):
    """What a claim gets.

    ``waiting`` is how many members have no address yet. With no member in hand it is 0 exactly when
    waiting is pointless: the claim would accept none of them.
    """

    member: Member | None
    waiting: int


class Counts(msgspec.Struct, frozen=True, gc=False):
    """The members of a pool, each counted once: free by stage, and acquired."""

    ready: int = 0
    # With an address but not Ready.
    networked: int = 0
    waiting: int = 0
    acquired: int = 0


class _Place(msgspec.Struct, order=True, gc=False):
    """A free member and its turn. Compared by ``number``, which rises in the order of arrival."""

    number: int
    member: Member


class _Pool:
    """The members of one pool: the free ones by stage and node, and how many are acquired."""

    __slots__ = ("acquired", "stages")

    def __init__(self) -> None:
        # The places on each node, earliest first; a node without any is not kept.
        self.stages: tuple[dict[str, list[_Place]], ...] = ({}, {}, {})
        self.acquired = 0

    def size(self, stage: int) -> int:
        return sum(map(len, self.stages[stage].values()))

    def insert(self, place: _Place) -> None:
        insort(self.stages[place.member.stage].setdefault(place.member.node, []), place)

    def remove(self, place: _Place) -> None:
        nodes = self.stages[place.member.stage]
        line = nodes[place.member.node]
        del line[bisect_left(line, place)]
        if not line:
            del nodes[place.member.node]

    def first(self, stage: int) -> _Place | None:
        """Return the place at a stage that is next by the rule, None when there is none."""
        nodes = self.stages[stage]
        best: list[_Place] = []
        size = 0
        for node, line in nodes.items():
            more = len(line) - size
            if node and (more > 0 or (more == 0 and line[0].number < best[0].number)):
                best, size = line, len(line)
        best = best or nodes.get("", [])
        return best[0] if best else None

    def earliest_waiting(self) -> _Place | None:
        """Return the member without an address that came first, wherever it is."""
        return min((line[0] for line in self.stages[_WAITING].values()), default=None)

    def is_empty(self) -> bool:
        return not self.acquired and not any(self.stages)

    def places(self) -> list[_Place]:
        lines = [line for nodes in self.stages for line in nodes.values()]
        return [place for line in lines for place in line]


class WarmQueue:
    """Hands the members of pools to claims, each to one at a time."""

    def __init__(
        self,
        *,
        on_available: Callable[[Key], None] = lambda _pool: None,
        on_released: Callable[[Key], None] | None = None,
    ) -> None:
        """Create an empty queue.

        ``on_available`` is called with the pool each time one more of its members can be acquired
        (seen with an address for the first time, or released): claims that wait for one may look
        again. It must only note that, not call back.
        ``on_released`` is called in its place, if given, for a member that was released.
        """
        self._on_available = on_available
        self._on_released = on_released or on_available
        self._pools: dict[Key, _Pool] = {}
        self._free: dict[Key, _Place] = {}
        self._acquired: dict[Key, Member] = {}
        self._adopted: dict[Key, str] = {}
        self._arrivals = 0
        self._hits = 0
        self._misses = 0
        self._refused = 0
        self._released = 0

    @property
    def adopted(self) -> int:
        """How many adopted members the watch has not shown to be so."""
        return len(self._adopted)

    def add(self, member: Member) -> None:
        """Note a member as it is now: a new one goes to the end, a known one keeps its turn.

        One in hand stays so; its new facts count once it is released. A free one that is now of
        another pool goes to the end there. Another uid under the same key is another Sandbox: the
        former is dropped, even if acquired. An adopted member stays adopted.
        Raises ValueError when the pool is in another namespace.
        """
        key = member.key
        if member.pool.namespace != key.namespace:
            raise ValueError(f"Sandbox {key} cannot be a member of the pool {member.pool}")
        if self._adopted.get(key) == member.uid:
            return
        self._adopted.pop(key, None)
        acquired = self._acquired.get(key)
        if acquired is not None:
            self._drop_acquired(acquired)
            if acquired.uid == member.uid:
                self._keep_acquired(member)
                return
        place = self._free.get(key)
        if place is None:
            self._append(member, self._on_available)
        elif (place.member.uid, place.member.pool) == (member.uid, member.pool):
            self._refresh(place, member)
        else:
            self._drop_free(place)
            self._append(member, self._on_available)

    def acquire(self, pool: Key, *, accept: Callable[[Member], bool] | None = None) -> Acquired:
        """Take a member of ``pool``; :meth:`commit`, :meth:`release` or :meth:`forget` must follow.

        Members that ``accept`` refuses are dropped until they are added again; when there is none
        to take, so are those that wait for an address, up to the first that would be accepted. An
        error of ``accept`` is passed on, and the member it was asked about stays.
        """
        held = self._pools.get(pool)
        if held is None:
            self._misses += 1
            return Acquired(None, 0)
        for stage in (_READY, _NETWORKED):
            place = self._accepted(partial(held.first, stage), accept)
            if place is not None:
                self._hits += 1
                # Before the place goes, so that the pool is not empty in between.
                self._keep_acquired(place.member)
                self._drop_free(place)
                return Acquired(place.member, held.size(_WAITING))
        self._misses += 1
        if accept is not None:
            self._accepted(held.earliest_waiting, accept)
        return Acquired(None, held.size(_WAITING))

    def release(self, member: Member) -> None:
        """Free a member in hand again, at the end of the line and with its latest facts.

        Nothing happens when it was forgotten, replaced or released meanwhile.
        """
        acquired = self._acquired.get(member.key)
        if acquired is None or acquired.uid != member.uid:
            return
        self._released += 1
        self._drop_acquired(acquired)
        self._append(acquired, self._on_released)

    def commit(self, member: Member) -> None:
        """Note that a claim has adopted the member: the server accepted the write.

        It is remembered until :meth:`forget`, because the watch may still deliver what the member
        was before. Works for a free member too, which a claim knew from before a restart. When the
        watch came first and the member was forgotten, nothing happens.
        """
        key = member.key
        if not self._drop(key, member.uid):
            return
        self._adopted[key] = member.uid
        if len(self._adopted) > MOST_ADOPTED:
            del self._adopted[next(iter(self._adopted))]

    def forget(self, key: Key, uid: str) -> None:
        """Drop a Sandbox that is gone, being deleted, or not a member; the unknown is no error.

        Another uid under the key stays: it is another Sandbox.
        """
        if not self._drop(key, uid) and self._adopted.get(key) == uid:
            del self._adopted[key]

    def forget_pool(self, pool: Key) -> None:
        """Drop the members of a pool, free and acquired, because it was deleted."""
        held = self._pools.pop(pool, None)
        if held is None:
            return
        for place in held.places():
            del self._free[place.member.key]
        if held.acquired:
            for member in [other for other in self._acquired.values() if other.pool == pool]:
                del self._acquired[member.key]

    def counts(self, pool: Key) -> Counts:
        """Return how many members a pool has; all zero for an unknown one."""
        held = self._pools.get(pool)
        if held is None:
            return Counts()
        return Counts(held.size(_READY), held.size(_NETWORKED), held.size(_WAITING), held.acquired)

    def pools(self) -> list[Key]:
        """Return the pools that have members here."""
        return list(self._pools)

    def collect(self, into: Exposition) -> None:
        """Add how many members there are, and what became of those that claims asked for."""
        counts = [self.counts(pool) for pool in self._pools]
        members = {
            "ready": sum(count.ready for count in counts),
            "networked": sum(count.networked for count in counts),
            "waiting": sum(count.waiting for count in counts),
            "taken": len(self._acquired),
        }
        into.add(families.WARM_MEMBERS, [((stage,), n) for stage, n in members.items()])
        takes = {
            "taken": self._hits,
            "missed": self._misses,
            "refused": self._refused,
            "given_back": self._released,
        }
        into.add(families.WARM_TAKES, [((outcome,), n) for outcome, n in takes.items()])

    def _accepted(
        self, first: Callable[[], _Place | None], accept: Callable[[Member], bool] | None
    ) -> _Place | None:
        """Return the next place that is accepted, having dropped those before it."""
        while (place := first()) is not None:
            if accept is None or accept(place.member):
                return place
            self._refused += 1
            self._drop_free(place)
        return None

    def _append(self, member: Member, tell: Callable[[Key], None]) -> None:
        self._arrivals += 1
        place = self._free[member.key] = _Place(self._arrivals, member)
        self._pool(member.pool).insert(place)
        if member.has_address:
            tell(member.pool)

    def _refresh(self, place: _Place, member: Member) -> None:
        """Let a place have its member as it is now. It keeps its turn."""
        held, before = self._pools[member.pool], place.member
        if (before.stage, before.node) == (member.stage, member.node):
            place.member = member
            return
        held.remove(place)
        place.member = member
        held.insert(place)
        if member.has_address and not before.has_address:
            self._on_available(member.pool)

    def _drop(self, key: Key, uid: str) -> bool:
        """Drop a member, free or acquired, and tell whether it was either."""
        acquired, place = self._acquired.get(key), self._free.get(key)
        if acquired is not None and acquired.uid == uid:
            self._drop_acquired(acquired)
        elif place is not None and place.member.uid == uid:
            self._drop_free(place)
        else:
            return False
        return True

    def _drop_free(self, place: _Place) -> None:
        member = place.member
        del self._free[member.key]
        self._pools[member.pool].remove(place)
        self._sweep(member.pool)

    def _keep_acquired(self, member: Member) -> None:
        self._acquired[member.key] = member
        self._pool(member.pool).acquired += 1

    def _drop_acquired(self, acquired: Member) -> None:
        del self._acquired[acquired.key]
        self._pools[acquired.pool].acquired -= 1
        self._sweep(acquired.pool)

    def _pool(self, pool: Key) -> _Pool:
        held = self._pools.get(pool)
        if held is None:
            held = self._pools[pool] = _Pool()
        return held

    def _sweep(self, pool: Key) -> None:
        if self._pools[pool].is_empty():
            del self._pools[pool]
