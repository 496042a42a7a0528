"""The members of a pool as the cache shows them, and the Sandboxes that could be members."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache

import msgspec

from lean_sandbox.controllers.warmpool.run import PoolRun
from lean_sandbox.model import names
from lean_sandbox.model.conditions import find, is_true
from lean_sandbox.model.times import parse_rfc3339
from lean_sandbox.model.warmpool import PoolView
from lean_sandbox.runtime.workers import UNSEEN_S, Requeue
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.resources.pod import PodEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry, orphans_of

# A member of this age has a known status, unless another process led before.
_STATUS_DUE_S = 10.0
# A member's grace is checked this much after it ended, so that clocks need not agree.
_GRACE_SLACK_S = 2.0
_WAITING = frozenset({names.REASON_UNSCHEDULABLE, names.REASON_SCHEDULING_GATED})
# A member's grace to become ready begins anew when one of these conditions changes.
_BEGINNINGS = frozenset({(names.READY, names.FALSE), (names.POD_SCHEDULED, names.TRUE)})
# Reasons of Ready by which the Pod of a member no longer waits for a node.
_ENDING = frozenset({names.REASON_POD_TERMINATING, names.REASON_SANDBOX_SUSPENDED})
_ENDED = frozenset(
    {names.REASON_POD_FAILED, names.REASON_POD_SUCCEEDED, names.REASON_SANDBOX_EXPIRED}
)
_REFUSED = frozenset({names.REASON_RECONCILER_ERROR, names.REASON_INVALID_CONFIGURATION})


class PoolMembers(msgspec.Struct):
    """The members of a pool, by state."""

    active: list[SandboxEntry] = []
    ready: int = 0
    terminating: int = 0
    # Past their grace, with a Pod that no node takes: another one would wait as well.
    held: list[SandboxEntry] = []
    # The server refuses their Pod, Service or volume claims, and would refuse those of another
    # member.
    refused: list[SandboxEntry] = []
    # The same, but others have become ready since.
    refused_alone: list[SandboxEntry] = []
    # Their Pods have ended: they never become ready.
    ended: list[SandboxEntry] = []
    # Within their grace, with a container that does not start or ends again and again.
    failing: list[SandboxEntry] = []
    # Past their grace for any other reason.
    stuck: list[SandboxEntry] = []
    # Their status is unknown because another process led before: neither ready nor stuck.
    unknown: int = 0
    # Without a label that members have.
    unlabelled: list[SandboxEntry] = []
    # When members have to be checked again.
    checks: Requeue = msgspec.field(default_factory=Requeue)
    # When the newest ready member was created; empty without one.
    newest_ready: str = ""

    @property
    def total(self) -> int:
        """Members that take a place, those being deleted included."""
        return len(self.active) + self.terminating

    @property
    def not_progressing(self) -> list[SandboxEntry]:
        """Members that stay as they are until their template changes, or their surroundings do."""
        return [*self.refused, *self.ended, *self.held, *self.failing]


class Census:
    """Counts the members of a pool."""

    def __init__(self, run: PoolRun) -> None:
        self._view = run.view
        self._sandboxes = run.sandboxes
        self._pods = run.context.caches.pods
        self._grace_s = run.grace_s
        self._kept_at = run.state.kept_at
        # By the server's clock, and by how much ours is ahead of it.
        self._now_s = run.context.server_time.now_s()
        self._ahead_s = run.context.clock.now().timestamp() - self._now_s

    def take(self) -> PoolMembers:
        """Return the members; the loop is hot, so a ready member costs next to nothing.

        A member is what the pool owns, whatever its labels say.
        """
        pool = self._view
        found = PoolMembers()
        for entry in self._sandboxes.owned_by(pool.namespace, pool.uid):
            if entry.owner_key(names.SANDBOX_WARM_POOL_KIND) is None:
                continue
            if entry.is_deleting:
                found.terminating += 1
                continue
            found.active.append(entry)
            if not has_labels(entry, pool.pool_hash):
                found.unlabelled.append(entry)
            if entry.is_ready:
                found.ready += 1
                found.newest_ready = max(found.newest_ready, entry.created_at)
            else:
                self._judge(found, entry)
        # Where newer ones become ready, what was refused was refused to this member alone.
        alone = [one for one in found.refused if one.created_at < found.newest_ready]
        found.refused_alone = alone
        for entry in alone:
            found.refused.remove(entry)
            self._judge_by_time(found, entry)
        return found

    def _judge(self, found: PoolMembers, entry: SandboxEntry) -> None:
        ready = entry.ready
        reason = ready.reason if ready is not None else ""
        if reason in _ENDED or _is_finished(entry):
            found.ended.append(entry)
        elif is_refused(entry):
            found.refused.append(entry)
        else:
            self._judge_by_time(found, entry)

    def _judge_by_time(self, found: PoolMembers, entry: SandboxEntry) -> None:
        if not entry.created_at:
            return
        unready_s = self._now_s - self._unready_since_s(entry)
        if entry.status is None and unready_s > _STATUS_DUE_S:
            found.unknown += 1
            found.checks.within(UNSEEN_S)
            return
        if unready_s > self._grace_s and self._waits_for_a_place(entry):
            found.held.append(entry)
            return
        unready_s = min(unready_s, self._now_s - self._kept_at.get(entry.uid, 0.0))
        if unready_s <= self._grace_s:
            found.checks.within(self._grace_s - unready_s + _GRACE_SLACK_S)
            if any(pod.trouble for pod in self._pods_of(entry)):
                found.failing.append(entry)
        else:
            found.stuck.append(entry)

    def _unready_since_s(self, entry: SandboxEntry) -> float:
        """Return since when a member that is not refused or held could have become ready.

        It was created, lost its readiness, or got a node then.
        """
        since_s = seconds_of(entry.created_at)
        for found in entry.status.conditions if entry.status is not None else ():
            if (found.type, found.status) in _BEGINNINGS:
                since_s = max(since_s, self._dated_s(found.lastTransitionTime))
        return since_s

    def _dated_s(self, moment: str) -> float:
        """Return the date of a condition by the server's clock; 0 for one that is unreadable.

        It was written by the clock of a controller: ours, or another's that goes as the server's
        does. The date can mean two moments; the later of them that has passed counts.
        """
        try:
            dated_s = seconds_of(moment)
        except ValueError:
            return 0.0
        possible = [at for at in (dated_s, dated_s - self._ahead_s) if at <= self._now_s]
        return max(possible, default=self._now_s)

    def _waits_for_a_place(self, entry: SandboxEntry) -> bool:
        ready = entry.ready
        conditions = entry.status.conditions if entry.status else ()
        found = find(conditions, names.POD_SCHEDULED)
        if found is None or found.status != names.FALSE or found.reason not in _WAITING:
            return False
        if ready is not None and ready.reason in _ENDING:
            return False
        pods = self._pods_of(entry)
        return not pods or any(not (pod.is_terminating or pod.has_ended) for pod in pods)

    def _pods_of(self, entry: SandboxEntry) -> Collection[PodEntry]:
        return self._pods.owned_by(entry.key.namespace, entry.uid)


def has_labels(entry: SandboxEntry, pool_hash: str) -> bool:
    """Return whether a member has the labels by which its pool and claims find it."""
    labels = entry.labels or {}
    return (
        labels.get(names.WARM_POOL_LABEL) == pool_hash
        and labels.get(names.LAUNCH_TYPE_LABEL) == names.LAUNCH_TYPE_WARM
        and names.TEMPLATE_REF_HASH_LABEL in labels
    )


def is_refused(member: SandboxEntry) -> bool:
    """Return whether the server refuses what a member is made of, and would to the next one."""
    # A member whose spec somebody has edited says nothing about members made after it.
    return member.ready is not None and member.ready.reason in _REFUSED and member.generation <= 1


def may_be_let_in(member: SandboxEntry) -> bool:
    """Return whether a refused member is worth another try.

    One whose spec breaks a rule of Pods is refused until it is edited.
    """
    return member.ready is not None and member.ready.reason == names.REASON_RECONCILER_ERROR


def newest(members: Iterable[SandboxEntry]) -> str:
    """Return when the newest of some members was created; empty without any."""
    return max((one.created_at for one in members), default="")


def _is_finished(entry: SandboxEntry) -> bool:
    return entry.status is not None and is_true(entry.status.conditions, names.FINISHED)


def to_delete(members: Iterable[SandboxEntry], count: int) -> list[SandboxEntry]:
    """Return the ``count`` members to delete first: unready before ready, the newest first."""

    def order(entry: SandboxEntry) -> tuple[bool, float, str]:
        return entry.is_ready, -seconds_of(entry.created_at), entry.key.name

    return sorted(members, key=order)[: max(0, count)]


@lru_cache(maxsize=1024)
def seconds_of(moment: str) -> float:
    """Return a written moment in seconds since the epoch, 0 for none; raises ValueError."""
    # Whole seconds: the members of one batch share a few of them.
    return parse_rfc3339(moment).timestamp() if moment else 0.0


def find_orphans(sandboxes: Cache[SandboxEntry], pool: PoolView) -> list[SandboxEntry]:
    """Return the Sandboxes with the label of the pool and no owner, which it may adopt.

    Somebody may have written their index key as the uid of an owner, so the owner is checked.
    """
    found = sandboxes.owned_by(pool.namespace, orphans_of(pool.pool_hash))
    return sorted(
        (entry for entry in found if entry.owner is None and not entry.is_deleting),
        key=lambda entry: entry.key,
    )
