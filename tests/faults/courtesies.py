"""What companions promise, judged by every version that was ever stored.

A DELETE or a patch that names a version was decided on exactly that version. What else a companion
has seen, of another object, may be a few seconds old: what was so a moment ago excuses it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar

from lean_sandbox.companions.freemembers import read_share
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.direct import StoredChange
from lean_sandbox.model.times import parse_rfc3339
from tests.support.names import CLAIMS, POOLS, SANDBOXES, TEMPLATES
from tests.support.stored import is_ready, owner_of, ready_of

__all__ = ["Courtesies", "Courtesy"]

Json = dict[str, Any]
V = TypeVar("V", bound=tuple[Any, ...])
_CORE = "agents.x-k8s.io/"
_OWN = "companions.lean-sandbox/"
TIMEOUT = _CORE + "idle-timeout-seconds"
ACTIVITY = _CORE + "last-activity-time"
POLICY = _CORE + "pod-failure-policy"
LIMIT = _OWN + "pod-failure-limit"
COUNT = _OWN + "pod-failure-count"
GIVEN = _OWN + "claim-defaults-applied"
ROLLING = _OWN + "rolling-update"
LEAST = _OWN + "min-replicas"
MOST = _OWN + "max-replicas"
_NEVER = "1970-01-01T00:00:00Z"
# How long a size lasts that somebody else gave, or that is smaller.
_LASTS_S = 60.0
# For how long claims are watched before a pool is made smaller.
_LEARNS_S = 1200.0
# Dates are whole seconds.
_DATES_AGREE_S = 1.0
# For how long a companion may not know of a change of another object.
_LATE_S = 5.0


class Courtesy(Enum):
    """What companions never do."""

    IN_USE = "No Sandbox is suspended that a pool has, or that was used within its timeout."
    DONE = "No Pod is deleted unasked, none that has not failed, and no more than is permitted."
    MISSING = "A rollout never deletes a ready member while as many are missing as may be."
    GIVEN = "Defaults are written once unless their mark is gone, and never over a lifecycle."
    SIZED = (
        "A pool comes to rest within its bounds, gets no size that its claims do not explain, none"
        " within a minute of one that somebody else gave it, and loses nothing for 20 minutes, then"
        " no more than a quarter of its members in a minute."
    )
    OTHERS = "Nothing else is written."


class Courtesies:
    """Follows a plane, and judges what one user writes."""

    def __init__(self, plane: ControlPlane, user: str) -> None:
        """Begin now; ``user`` is the process of companions."""
        self.found: list[str] = []
        self._plane = plane
        self._user = user
        self._timeouts: set[float] = set()
        # By uid: how many failures a Sandbox permits, less than none if it asks for no other Pod,
        # and the activity of a claim, each with its time.
        self._limits: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self._used: dict[str, list[tuple[float, float]]] = defaultdict(list)
        # How many claims have named a pool, by namespace and name.
        self._claims: Counter[tuple[str, str]] = Counter()
        # By uid of the pool: the size that companions know, since when they know it, when somebody
        # else gave it another, and when it was last made smaller.
        self._sizes: dict[str, int] = {}
        self._since_s: dict[str, float] = {}
        self._sized_s: dict[str, float] = {}
        self._shrunk_s: dict[str, float] = {}
        self._given: Counter[str] = Counter()
        # By uid of the pool: how many may be missing of how many, of each version with the time.
        self._wanted: dict[str, list[tuple[float, int, int | None]]] = defaultdict(list)
        # By uid of the pool, by uid of the member: until when it was ready and free.
        self._ready: dict[str, dict[str, float]] = defaultdict(dict)
        plane.store.follow(self._take, (SANDBOXES, CLAIMS, POOLS, TEMPLATES, "pods"))

    def _take(self, change: StoredChange) -> None:
        if change.by == self._user:
            judge = {
                SANDBOXES: self._of_sandbox,
                CLAIMS: self._of_claim,
                POOLS: self._of_pool,
                "pods": self._of_pod,
            }.get(change.resource)
            if judge is None:
                self._break(Courtesy.OTHERS, change)
            else:
                judge(change)
        self._learn(change)

    def _learn(self, change: StoredChange) -> None:
        one = change.after or change.before
        assert one is not None
        notes = _notes(one)
        uid = one["metadata"]["uid"]
        if notes.get(TIMEOUT, "").isdigit():
            self._timeouts.add(float(notes[TIMEOUT]))
        if change.resource == SANDBOXES:
            limit = notes.get(LIMIT, "")
            most = float(limit) if limit.isdigit() else float("inf")
            if notes.get(POLICY) != "Recreate":
                most = -1.0
            self._limits[uid].append((self._now_s(), most))
            self._learn_member(change, one)
        if change.resource == CLAIMS:
            self._used[uid].append((self._now_s(), _seconds(notes.get(ACTIVITY, _NEVER))))
            pool = _pool_of(one)
            if change.before is None or _pool_of(change.before) != pool:
                self._claims[pool] += 1
        if change.resource == CLAIMS and GIVEN not in notes and change.by != self._user:
            # Whoever takes the mark off asks for them again.
            del self._given[uid]
        if change.resource == POOLS and change.after is not None:
            permitted = _permitted(one)
            self._wanted[uid].append((self._now_s(), one["spec"].get("replicas", 1), permitted))
            self._learn_size(change, one)

    def _learn_size(self, change: StoredChange, pool: Json) -> None:
        uid = pool["metadata"]["uid"]
        size = pool["spec"].get("replicas", 1)
        if change.by == self._user or uid not in self._sizes or MOST not in _notes(pool):
            self._sizes[uid] = size
            self._sized_s.pop(uid, None)
            if MOST not in _notes(pool):
                self._since_s[uid] = self._now_s()
        elif size == self._sizes[uid]:
            # It may have been another one for too short a time to be seen.
            self._sized_s.pop(uid, None)
        elif change.before is None or size != change.before["spec"].get("replicas", 1):
            self._sized_s[uid] = self._now_s()

    def forget(self) -> None:
        """Note that companions begin anew: they do not know who gave a pool its size."""
        self._since_s = dict.fromkeys(self._sizes, self._now_s())
        self._sizes.clear()
        self._sized_s.clear()

    def _learn_member(self, change: StoredChange, one: Json) -> None:
        uid = one["metadata"]["uid"]
        for version, is_now in ((change.before, False), (change.after, True)):
            if version is None or owner_of(version).get("kind") != "SandboxWarmPool":
                continue
            is_free = "deletionTimestamp" not in version["metadata"] and is_ready(version)
            ready = self._ready[owner_of(version)["uid"]]
            if is_now and is_free:
                ready[uid] = float("inf")
            elif uid in ready and (
                is_now or change.after is None or owner_of(one) != owner_of(version)
            ):
                ready[uid] = min(ready[uid], self._now_s())

    # -- what it writes --------------------------------------------------------------------------

    def _of_sandbox(self, change: StoredChange) -> None:
        before = change.before
        after = change.after
        assert before is not None
        if after is None or "deletionTimestamp" in after["metadata"]:
            self._of_member(change, before)
            return
        if before["spec"] == after["spec"]:
            return
        modes = before["spec"].get("operatingMode"), after["spec"].get("operatingMode")
        is_suspended = modes in (("Running", "Suspended"), (None, "Suspended"))
        if not is_suspended or owner_of(before).get("kind") == "SandboxWarmPool":
            self._break(Courtesy.IN_USE, change)
            return
        text = _notes(before).get(TIMEOUT)
        timeout_s = float(text) if text else min(self._timeouts, default=float("inf"))
        used = [before["metadata"]["creationTimestamp"], _notes(before).get(ACTIVITY)]
        used += [ready_of(before).get("lastTransitionTime")] if is_ready(before) else []
        writers = before["metadata"].get("managedFields", [])
        used += [writer.get("time") for writer in writers if not writer.get("subresource")]
        used_s = max(_seconds(date) for date in used if date)
        if owner_of(before).get("kind") == "SandboxClaim":
            told = self._recent(self._used[owner_of(before)["uid"]])
            used_s = max(used_s, min((at_s for _, at_s in told), default=0.0))
        if self._now_s() + _DATES_AGREE_S < used_s + timeout_s:
            self._break(Courtesy.IN_USE, change)

    def _of_member(self, change: StoredChange, member: Json) -> None:
        owner = owner_of(member)
        if owner.get("kind") != "SandboxWarmPool":
            self._break(Courtesy.MISSING, change)
            return
        if not is_ready(member):
            return
        left = self._recent(self._wanted[owner["uid"]])
        ready = self._ready[owner["uid"]]
        known = sum(until >= self._now_s() - _LATE_S for until in ready.values())
        # This one is among them.
        most = [wanted - known + 1 <= may for _, wanted, may in left if may is not None]
        if not any(most):
            self._break(Courtesy.MISSING, change)
        del ready[member["metadata"]["uid"]]

    def _of_pod(self, change: StoredChange) -> None:
        pod = change.before
        assert pod is not None
        is_deleted = change.after is None or "deletionTimestamp" in change.after["metadata"]
        if not is_deleted or pod.get("status", {}).get("phase") != "Failed":
            self._break(Courtesy.DONE, change)
            return
        namespace = pod["metadata"]["namespace"]
        owner = self._plane.store.find(SANDBOXES, namespace, owner_of(pod).get("name", "-"))
        conditions = pod["status"].get("conditions", [])
        if owner is None:
            return
        limits = self._recent(self._limits[owner["metadata"]["uid"]])
        is_disrupted = any(one["type"] == "DisruptionTarget" for one in conditions)
        counted = 0 if is_disrupted else int(_notes(owner).get(COUNT, "0"))
        if counted > max(most for _, most in limits):
            self._break(Courtesy.DONE, change)

    def _of_claim(self, change: StoredChange) -> None:
        before = change.before
        after = change.after
        assert before is not None
        if before["spec"].get("lifecycle") is not None:
            self._break(Courtesy.GIVEN, change)
        elif after is None or "deletionTimestamp" in after["metadata"]:
            if before.get("status", {}).get("sandbox"):
                self._break(Courtesy.GIVEN, change)
        else:
            self._given[before["metadata"]["uid"]] += 1
            if self._given[before["metadata"]["uid"]] > 1:
                self._break(Courtesy.GIVEN, change)

    def _of_pool(self, change: StoredChange) -> None:
        before = change.before
        after = change.after
        if before is None or after is None or _but_size(before) != _but_size(after):
            self._break(Courtesy.OTHERS, change)
            return
        was = before["spec"].get("replicas", 1)
        size = after["spec"].get("replicas", 1)
        if size == was:
            return
        uid = after["metadata"]["uid"]
        now_s = self._now_s()
        # A claim that finds no member may ask for one more.
        explained = 2 * self._claims[after["metadata"]["namespace"], after["metadata"]["name"]] + 1
        bounds = _bounds(before)
        if bounds is None:
            self._break(Courtesy.SIZED, change)
            return
        least, most = bounds
        is_too_large = size > most or size > max(explained, least, was)
        is_too_small = size < least
        if size < was <= most:
            is_too_small |= size < min(was - 1, 3 * was // 4)
            is_too_small |= now_s + _DATES_AGREE_S < self._shrunk_s.get(uid, 0.0) + _LASTS_S
            is_too_small |= now_s + _DATES_AGREE_S < self._since_s.get(uid, 0.0) + _LEARNS_S
            self._shrunk_s[uid] = now_s
        is_too_soon = now_s + _DATES_AGREE_S < self._sized_s.get(uid, 0.0) + _LASTS_S
        if is_too_large or is_too_small or is_too_soon:
            self._break(Courtesy.SIZED, change)

    def rest(self) -> list[str]:
        """Return what was broken, now that everything has come to rest."""
        for pool in self._plane.store.list(POOLS):
            bounds = _bounds(pool)
            if bounds is not None and "deletionTimestamp" not in pool["metadata"]:
                size = pool["spec"].get("replicas", 1)
                if not bounds[0] <= size <= bounds[1]:
                    self.found.append(f"{Courtesy.SIZED.name}: {size} is not within {bounds}")
        return self.found

    def _recent(self, versions: list[V]) -> list[V]:
        """Return what a companion may hold for the last of versions that begin with their times."""
        late = sum(version[0] >= self._now_s() - _LATE_S for version in versions)
        return versions[-late - 1 :]

    def _now_s(self) -> float:
        now: datetime = self._plane.clock.now()
        return now.timestamp()

    def _break(self, courtesy: Courtesy, change: StoredChange) -> None:
        one = change.before or change.after
        assert one is not None
        metadata = one["metadata"]
        what = f"{one['kind']} {metadata['namespace']}/{metadata['name']}"
        self.found.append(f"{courtesy.name}: {what} (version {change.version})")


def _but_size(pool: Json) -> Json:
    spec: Json = pool["spec"]
    return {key: spec[key] for key in spec.keys() - {"replicas"}}


def _pool_of(claim: Json) -> tuple[str, str]:
    return claim["metadata"]["namespace"], claim["spec"]["warmPoolRef"]["name"]


def _bounds(pool: Json) -> tuple[int, int] | None:
    """Return the bounds of a pool; None if it has none, or wrong ones."""
    notes = _notes(pool)
    least = notes.get(LEAST, "1")
    most = notes.get(MOST, "")
    if not (least.isdigit() and most.isdigit() and int(most) >= max(1, int(least))):
        return None
    return int(least), int(most)


def _permitted(pool: Json) -> int | None:
    strategy = pool["spec"].get("updateStrategy", {}).get("type")
    text = _notes(pool).get(ROLLING)
    if text is None or strategy == "Recreate":
        return None
    try:
        return read_share(text).of(pool["spec"].get("replicas", 1))
    except ValueError:
        return None


def _notes(one: Json) -> dict[str, str]:
    return one["metadata"].get("annotations") or {}


def _seconds(date: str) -> float:
    try:
        return parse_rfc3339(date).timestamp()
    except ValueError:
        return float("inf")
