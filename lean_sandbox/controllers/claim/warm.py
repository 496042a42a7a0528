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

# The stages of a member, those of a free one in the order in which claims want them.
_READY: Final = 0  # it has an address and is Ready
_NETWORKED: Final = 1  # it has an address
_WAITING: Final = 2  # it has no address yet: never handed out
_ACQUIRED: Final = 3


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


class _Slot(msgspec.Struct, order=True, gc=False):
    """A member and its turn. Compared by ``number``, which rises in the order of arrival."""

    number: int
    member: Member
    is_acquired: bool = False

    @property
    def line(self) -> tuple[int, str]:
        """The stage of the member, and its node where a claim chooses by that."""
        member = self.member
        if self.is_acquired:
            return _ACQUIRED, ""
        if not member.has_address:
            return _WAITING, ""
        return _READY if member.is_ready else _NETWORKED, member.node


class _Pool:
    """The members of one pool, by stage and node; a node without any is not kept."""

    __slots__ = ("stages",)

    def __init__(self) -> None:
        # The slots on each node, earliest first.
        self.stages: tuple[dict[str, list[_Slot]], ...] = ({}, {}, {}, {})

    def size(self, stage: int) -> int:
        return sum(map(len, self.stages[stage].values()))

    def insert(self, slot: _Slot) -> None:
        stage, node = slot.line
        insort(self.stages[stage].setdefault(node, []), slot)

    def remove(self, slot: _Slot) -> None:
        stage, node = slot.line
        line = self.stages[stage][node]
        del line[bisect_left(line, slot)]
        if not line:
            del self.stages[stage][node]

    def first(self, stage: int) -> _Slot | None:
        """Return the slot at a stage that is next by the rule, None when there is none."""
        nodes = self.stages[stage]
        best: list[_Slot] = []
        size = 0
        for node, line in nodes.items():
            more = len(line) - size
            if node and (more > 0 or (more == 0 and line[0].number < best[0].number)):
                best, size = line, len(line)
        best = best or nodes.get("", [])
        return best[0] if best else None


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
        # The members that are free or acquired.
        self._slots: dict[Key, _Slot] = {}
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
        slot = self._slots.get(key)
        if slot is None:
            self._append(member, self._on_available)
        elif (slot.member.uid, slot.member.pool) == (member.uid, member.pool):
            self._refresh(slot, member)
        else:
            self._drop(slot)
            if slot.is_acquired and slot.member.uid == member.uid:
                slot.member = member
                self._insert(slot)
            else:
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
            slot = self._accepted(held, stage, accept)
            if slot is not None:
                self._hits += 1
                held.remove(slot)
                slot.is_acquired = True
                held.insert(slot)
                return Acquired(slot.member, held.size(_WAITING))
        self._misses += 1
        self._accepted(held, _WAITING, accept)
        return Acquired(None, held.size(_WAITING))

    def release(self, member: Member) -> None:
        """Free a member in hand again, at the end of the line and with its latest facts.

        Nothing happens when it was forgotten, replaced or released meanwhile.
        """
        slot = self._slots.get(member.key)
        if slot is None or not slot.is_acquired or slot.member.uid != member.uid:
            return
        self._released += 1
        self._drop(slot)
        self._append(slot.member, self._on_released)

    def commit(self, member: Member) -> None:
        """Note that a claim has adopted the member: the server accepted the write.

        It is remembered until :meth:`forget`, because the watch may still deliver what the member
        was before. Works for a free member too, which a claim knew from before a restart. When the
        watch came first and the member was forgotten, nothing happens.
        """
        slot = self._slots.get(member.key)
        if slot is None or slot.member.uid != member.uid:
            return
        self._drop(slot)
        self._adopted[member.key] = member.uid
        if len(self._adopted) > MOST_ADOPTED:
            del self._adopted[next(iter(self._adopted))]

    def forget(self, key: Key, uid: str) -> None:
        """Drop a Sandbox that is gone, being deleted, or not a member; the unknown is no error.

        Another uid under the key stays: it is another Sandbox.
        """
        slot = self._slots.get(key)
        if slot is not None and slot.member.uid == uid:
            self._drop(slot)
        elif self._adopted.get(key) == uid:
            del self._adopted[key]

    def forget_pool(self, pool: Key) -> None:
        """Drop the members of a pool, free and acquired, because it was deleted."""
        held = self._pools.pop(pool, None)
        for nodes in held.stages if held is not None else ():
            for line in nodes.values():
                for slot in line:
                    del self._slots[slot.member.key]

    def counts(self, pool: Key) -> Counts:
        """Return how many members a pool has; all zero for an unknown one."""
        held = self._pools.get(pool)
        if held is None:
            return Counts()
        return Counts(*map(held.size, (_READY, _NETWORKED, _WAITING, _ACQUIRED)))

    def to_take(self, pool: Key) -> int:
        """Return how many members of a pool can be acquired."""
        held = self._pools.get(pool)
        return held.size(_READY) + held.size(_NETWORKED) if held is not None else 0

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
            "taken": sum(count.acquired for count in counts),
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
        self, pool: _Pool, stage: int, accept: Callable[[Member], bool] | None
    ) -> _Slot | None:
        """Return the next slot at a stage that is accepted, having dropped those before it."""
        while (slot := pool.first(stage)) is not None:
            if accept is None or accept(slot.member):
                return slot
            self._refused += 1
            self._drop(slot)
        return None

    def _append(self, member: Member, tell: Callable[[Key], None]) -> None:
        self._arrivals += 1
        self._insert(_Slot(self._arrivals, member))
        if member.has_address:
            tell(member.pool)

    def _insert(self, slot: _Slot) -> None:
        self._slots[slot.member.key] = slot
        pool = self._pools.get(slot.member.pool)
        if pool is None:
            pool = self._pools[slot.member.pool] = _Pool()
        pool.insert(slot)

    def _refresh(self, slot: _Slot, member: Member) -> None:
        """Let a slot have its member as it is now. It keeps its turn, or stays acquired."""
        before = slot.member
        pool = self._pools[member.pool]
        pool.remove(slot)
        slot.member = member
        pool.insert(slot)
        if member.has_address and not before.has_address and not slot.is_acquired:
            self._on_available(member.pool)

    def _drop(self, slot: _Slot) -> None:
        member = slot.member
        del self._slots[member.key]
        pool = self._pools[member.pool]
        pool.remove(slot)
        if not any(pool.stages):
            del self._pools[member.pool]
