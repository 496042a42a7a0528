"""What holds at every moment, whatever fails: the promises, and a history that is judged by them.

``oracle.py`` says what is stored once everything has come to rest. Here every version counts that
was ever stored, and every request that the controller sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from weakref import WeakKeyDictionary

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.direct import StoredChange
from lean_sandbox.local.request import AuditEntry
from tests.support.names import (
    CLAIMS,
    CONTROLLER,
    POLICIES,
    POOLS,
    SAFE_TO_EVICT,
    SANDBOXES,
    TEMPLATES,
    WARM_POOL,
)

__all__ = ["OBJECTS", "History", "Promise", "history_of"]

Json = dict[str, Any]
OBJECTS = (
    "pods",
    "services",
    "persistentvolumeclaims",
    POLICIES,
    SANDBOXES,
    CLAIMS,
    POOLS,
    TEMPLATES,
)
# A backoff that begins at 5 ms and doubles asks 11 times in 10 s. Twice that, for a process that is
# started anew in this time, and a few requests that are sent anyway. A loop without backoff reaches
# any number: the clock of most tests stands still while it runs.
_WINDOW_S = 10.0
_IDENTICAL = 30
# What a Sandbox says of its Pod, and nothing else can make it say.
_READY = "Pod is Ready"
_OF_POD = (_READY, "Pod is Running but not Ready", "Pod does not exist")


class Promise(Enum):
    """What the controller promises under every fault; each test names what it checks."""

    BOUND_ONCE = "A Sandbox is bound to at most one claim, ever."
    READY_IS_OWNED = (
        "A claim that reports Ready names a Sandbox that it owns, in its own namespace."
    )
    READY_LIVES = "A claim becomes Ready only while a Pod of its Sandbox lives."
    READY_IS_USABLE = "A claim becomes Ready only when the Pod of its Sandbox no longer looks free."
    OWNED = "Nothing that the controller created is left without an owner."
    CHILDREN_GO = "The children of a deleted object go."
    STATUS_IS_TRUE = "Status tells the truth within one relist, and never what never was."
    NEVER_UNDONE = "A write of the controller is never undone by a stale view."
    ALONE = "No object's trouble delays another's, and no tenant's burst another tenant."
    BACKOFF = "No loop without backoff."
    SAME_END = (
        "After any fault the state equals that of a run without it, and the net caught nothing."
    )


@dataclass
class _Facts:
    """What was so of one object, version by version, and what the controller told of it.

    A view of one object may lag behind it, and never goes back: what is told one after the other
    was true one after the other. Sequences that a lagging view explains are no fault.
    """

    known: list[tuple[int, Any]] = field(default_factory=list)
    seen: int = 0
    """The oldest version that the controller's view can have, by what it has told."""

    def add(self, version: int, fact: Any) -> None:
        if not self.known or self.known[-1][1] != fact:
            self.known.append((version, fact))

    def told(self, fact: Any) -> Promise | None:
        """Take that the controller tells ``fact``; return the promise that this breaks."""
        begins = [version for version, known in self.known if known == fact]
        if not begins:
            return Promise.STATUS_IS_TRUE
        # It held until the next fact began.
        last = self.known[-1][1] == fact
        ends = [
            after
            for (_, known), (after, _) in zip(self.known, self.known[1:], strict=False)
            if known == fact
        ]
        if not last and self.seen >= ends[-1]:
            return Promise.NEVER_UNDONE
        for begin, end in zip(begins, [*ends, *([None] if last else [])], strict=True):
            if end is None or self.seen < end:
                self.seen = max(self.seen, begin)
                break
        return None

    def may_show(self, fact: Any, since: int) -> bool:
        """Say whether a view may show ``fact`` that has all that was so at version ``since``."""
        ends = [after for after, _ in self.known[1:]]
        return any(
            known == fact and (end is None or end > since)
            for (_, known), end in zip(self.known, [*ends, None], strict=True)
        )


class History:
    """Everything that was stored on a control plane and asked of it, from now on."""

    def __init__(
        self, plane: ControlPlane, *, user: str = CONTROLLER, now: Callable[[], float] | None = None
    ) -> None:
        """Follow a plane; ``user`` is the controller, ``now`` the clock that it goes by."""
        began = plane.store.version
        self.users = {user}
        """The controllers that are judged. Of several, each serves objects of its own."""
        self._now = now or plane.clock.monotonic
        self._ahead_s = 0.0
        self._is_over = False
        self._found: list[str] = []
        self._objects: dict[str, Json] = {}
        """What is stored, by uid."""
        self._made: dict[str, str] = {}
        """The title of everything that the controller created, by uid."""
        self._ownerless: dict[str, str] = {}
        """What is stored and was created without an owner, by uid."""
        self._named: dict[tuple[str, str], list[str]] = defaultdict(list)
        """The uids of all Sandboxes that ever had a name in a namespace."""
        self._bound: dict[str, dict[str, str]] = defaultdict(dict)
        """By uid of Sandbox: the claims that it was ever bound to, uid and title."""
        self._owned_by: dict[str, set[str]] = defaultdict(set)
        """By uid of Sandbox: the uids of all controllers that it ever had."""
        self._pods: dict[str, _Facts] = defaultdict(lambda: _Facts([(0, _pod_fact(None))]))
        """By uid of Sandbox: what was so of its Pod."""
        self._living: dict[str, set[str]] = defaultdict(set)
        """By uid of Sandbox: the uids of its Pods that live."""
        self._lives: dict[str, _Facts] = defaultdict(lambda: _Facts([(0, False)]))
        """By uid of Sandbox: whether a Pod of it lived."""
        self._marked_by_others: set[str] = set()
        """The uids of the Pods that somebody else has made look free."""
        self._pods_known: dict[tuple[str, str], int] = defaultdict(lambda: began)
        """By user and namespace, empty for all: the version from which Pods were watched last."""
        self._said: dict[str, _Facts] = defaultdict(_Facts)
        """By uid of Sandbox: what it said of itself."""
        self._sandboxes: dict[tuple[str, str], _Facts] = defaultdict(_Facts)
        """By uids of claim and Sandbox: what was so of that, also before it was the claim's."""
        self._told_by: dict[str, str] = {}
        """By uid: who has told the generations of the conditions last."""
        self._requests: dict[tuple[str, str, str], list[tuple[float, AuditEntry]]]
        self._requests = defaultdict(list)
        """By user, verb with resource, and path."""
        self._changes: list[tuple[float, str]] = []
        """When something changed, and by whom."""
        for resource in OBJECTS:
            with suppress(KeyError):  # a kind that is not defined yet has no objects
                for one in plane.store.list(resource):
                    version = int(one["metadata"]["resourceVersion"])
                    self._take(StoredChange(resource, version, "", None, one))
        plane.store.follow(self._take, OBJECTS)
        plane.audit.listeners.append(self._note)

    def go_by(self, now: Callable[[], float]) -> None:
        """Go by the clock of a controller: what was asked before another one was asked long ago."""
        if now != self._now:
            self._ahead_s = self._time() + 2.0 * _WINDOW_S - now()
            self._now = now

    def end(self) -> None:
        """Judge nothing that comes: of a past that is no more nothing can be held to anybody."""
        self._is_over = True

    def broken(self) -> list[str]:
        """Return in words every promise that was broken at some moment."""
        return [*self._found, *self._ownerless.values(), *self._loops()]

    def violations(self) -> list[str]:
        """Return in words every promise that was broken, or is by what is stored at rest."""
        return [*self.broken(), *(() if self._is_over else self._left_behind())]

    def _time(self) -> float:
        return self._ahead_s + self._now()

    # -- every version ---------------------------------------------------------------------------

    def _take(self, change: StoredChange) -> None:
        if self._is_over:
            return
        is_ours = change.by in self.users
        self._changes.append((self._time(), change.by))
        one = change.after if change.after is not None else change.before
        assert one is not None
        uid = one["metadata"]["uid"]
        if change.after is None:
            self._objects.pop(uid, None)
            if is_ours:
                self._ownerless.pop(uid, None)
        else:
            self._objects[uid] = one
        if not is_ours and change.before and _owner(change.before) and not _owner(one):
            # Whoever takes it from its owner answers for it.
            self._made.pop(uid, None)
        if is_ours and change.before is None:
            self._made[uid] = _title(one)
            if _owner(one) is None:
                text = f"{_title(one)} was created without an owner (version {change.version})"
                self._ownerless[uid] = f"{Promise.OWNED.name}: {text}"
        if change.resource == "pods":
            self._take_pod(change, one)
            is_edit = change.before is not None and change.after is not None
            if not is_ours and is_edit and _marks(one) - _marks(change.before or one):
                self._marked_by_others.add(uid)
        elif change.resource == SANDBOXES:
            self._take_sandbox(change, one, is_ours=is_ours)
        elif change.resource == CLAIMS and is_ours and change.after is not None:
            self._take_claim(change, one)
        if change.before is not None and change.after is not None:
            self._take_generations(change, change.before, change.after)

    def _take_pod(self, change: StoredChange, pod: Json) -> None:
        for version in (change.before, change.after):
            owner = version and _owner(version)
            if owner:
                # Somebody may have taken it from its Sandbox.
                is_its = change.after is not None and _owner(change.after) == owner
                if owner["kind"] == "Sandbox":
                    fact = _pod_fact(change.after if is_its else None)
                    self._pods[owner["uid"]].add(change.version, fact)
                living = self._living[owner["uid"]]
                living.discard(pod["metadata"]["uid"])
                if is_its and _lives(pod):
                    living.add(pod["metadata"]["uid"])
                self._lives[owner["uid"]].add(change.version, bool(living))

    def _take_sandbox(self, change: StoredChange, one: Json, *, is_ours: bool) -> None:
        uid = one["metadata"]["uid"]
        owner = _owner(one)
        if change.before is None:
            self._named[_key(one)].append(uid)
        if owner is not None:
            self._owned_by[uid].add(owner["uid"])
        before = change.before and _owner(change.before)
        said = self._said[uid]
        said.add(change.version, _ready_fact(change.after))
        if owner is not None and owner["kind"] == "SandboxClaim":
            self._bind(uid, one, owner["uid"], f"SandboxClaim {owner['name']}", change)
            facts = self._sandboxes[owner["uid"], uid]
            if owner == before:
                facts.add(*said.known[-1])
            else:
                facts.known = sorted({*facts.known, *said.known})
        is_bound = before is not None and before["kind"] == "SandboxClaim"
        if is_ours and is_bound and change.after is not None and owner != before:
            self._break(Promise.NEVER_UNDONE, f"{_title(one)} was taken from its claim", change)
        if is_ours and change.after is not None:
            self._told_of_pod(change, uid, one)

    def _told_of_pod(self, change: StoredChange, uid: str, one: Json) -> None:
        ready = _ready(one)
        if change.before is not None and ready == _ready(change.before):
            return
        if len(self._named[_key(one)]) > 1 and change.before and not change.before.get("status"):
            # A status is written by name: the first of an object may be of one that it replaced.
            return
        text = ready.get("message", "").partition(";")[0]
        if text in _OF_POD:
            addresses = one["status"].get("podIPs") or [""]
            broken = self._pods[uid].told((text, addresses[0] if text != _OF_POD[2] else ""))
            if broken is not None:
                self._break(broken, f"{_title(one)} tells {text!r} at {addresses}", change)

    def _take_claim(self, change: StoredChange, claim: Json) -> None:
        uid = claim["metadata"]["uid"]
        title = _title(claim)
        name = _bound_name(claim)
        before = change.before and _bound_name(change.before)
        if name:
            ever = self._named[claim["metadata"]["namespace"], name]
            owned = [one for one in ever if uid in self._owned_by[one]]
            if _ready(claim).get("status") == "True" and not owned:
                self._break(
                    Promise.READY_IS_OWNED,
                    f"{title} is Ready and names {name}, which it has never owned",
                    change,
                )
            # A name that somebody wrote there, and that the controller left, binds nothing.
            for one in owned or (ever[-1:] if name != before else ()):
                self._bind(one, {}, uid, title, change)
        is_over = "deletionTimestamp" in claim["metadata"] or _is_expired(claim)
        if before and name != before and not is_over and self._is_still_there(claim, before):
            text = f"{title} names {name!r} and no longer {before}, which it owns"
            self._break(Promise.NEVER_UNDONE, text, change)
        self._told_of_sandbox(change, uid, claim)
        was_ready = change.before is not None and _is_ready(change.before)
        if _is_ready(claim) and not was_ready:
            self._told_of_life(change, uid, claim)
        if _is_ready(claim) and not (was_ready and name == before):
            self._told_usable(change, claim, name)

    def _told_usable(self, change: StoredChange, claim: Json, name: str) -> None:
        """Judge a claim that becomes Ready, or names another Sandbox, by the marks of the Pod."""
        owner = claim["metadata"]["uid"]
        for sandbox_uid in self._named[claim["metadata"]["namespace"], name]:
            sandbox = self._objects.get(sandbox_uid)
            if sandbox is None or (_owner(sandbox) or {}).get("uid") != owner:
                continue
            template = sandbox["spec"]["podTemplate"].get("metadata") or {}
            wanted = _marks({"metadata": {"annotations": template.get("annotations")}})
            for uid in self._living[sandbox_uid] - self._marked_by_others:
                marks = _marks(self._objects[uid]) - wanted
                if marks:
                    text = f"{_title(claim)} becomes Ready, and Pod {name} has {sorted(marks)}"
                    self._break(Promise.READY_IS_USABLE, text, change)

    def _told_of_life(self, change: StoredChange, uid: str, claim: Json) -> None:
        """Judge a claim that becomes Ready by the Pods that the controller may know.

        Its view may lag behind, but not behind what it has shown to know: what it told of the Pod,
        and the version from which it began or resumed its watch. One that was started after the end
        of a Pod began there too, with a list that did not have it. Of two processes of one user at
        once, the later one counts.
        """
        namespace = claim["metadata"]["namespace"]
        name = _bound_name(claim)
        known = max(self._pods_known[change.by, where] for where in ("", namespace))
        owned = [one for one in self._named[namespace, name] if uid in self._owned_by[one]]
        if owned and not any(
            self._lives[one].may_show(fact=True, since=max(known, self._pods[one].seen))
            for one in owned
        ):
            text = f"{_title(claim)} becomes Ready, and no Pod of {name} lives since {known}"
            self._break(Promise.READY_LIVES, text, change)

    def _is_still_there(self, claim: Json, name: str) -> bool:
        """Say whether a claim owns a Sandbox of this name that nobody has deleted."""
        metadata = claim["metadata"]
        named = self._named[metadata["namespace"], name]
        present = [self._objects[uid] for uid in named if uid in self._objects]
        return any(
            (_owner(one) or {}).get("uid") == metadata["uid"]
            and "deletionTimestamp" not in one["metadata"]
            for one in present
        )

    def _told_of_sandbox(self, change: StoredChange, uid: str, claim: Json) -> None:
        ready = _ready(claim)
        if change.before is not None and ready == _ready(change.before):
            return
        fact = _ready_fact(claim)
        is_ready = ready.get("status") == "True"
        named = self._named[claim["metadata"]["namespace"], _bound_name(claim)]
        # The latest first: a claim may have had others of the name before.
        owned = [self._sandboxes[uid, one] for one in reversed(named) if uid in self._owned_by[one]]
        told = [one for one in owned if any(known == fact for _, known in one.known)]
        # The time changes with the status alone, so it may be that of the Sandbox before.
        before = _ready_fact(change.before)
        lasts = bool(owned) and before[::2] == fact[::2]
        lasts = lasts and any(known[:2] == fact[:2] for _, known in owned[0].known)
        broken: Promise | None = None
        if told and told[0] is owned[0]:
            broken = told[0].told(fact)
        elif is_ready and not lasts and not told:
            # A claim says more than its Sandbox does, but not this.
            broken = Promise.STATUS_IS_TRUE
        elif is_ready and not lasts and owned[0].seen:
            broken = Promise.NEVER_UNDONE
        if broken is not None:
            self._break(broken, f"{_title(claim)} tells {ready}", change)

    def _take_generations(self, change: StoredChange, before: Json, after: Json) -> None:
        known = _generations(before)
        told = _generations(after)
        if told == known:
            return
        # What another controller has told may be news to this one.
        uid = after["metadata"]["uid"]
        was_its_own = self._told_by.get(uid, change.by) == change.by
        self._told_by[uid] = change.by
        if change.by not in self.users or not was_its_own:
            return
        for what, generation in told.items():
            # A status is written by name: the first of an object may be of one that it replaced.
            if generation < known.get(what, 0) <= after["metadata"]["generation"]:
                text = f"{_title(after)} tells {what} of generation {generation}, not {known[what]}"
                self._break(Promise.NEVER_UNDONE, text, change)

    def _bind(self, uid: str, one: Json, claim: str, title: str, change: StoredChange) -> None:
        bound = self._bound[uid]
        if claim not in bound:
            bound[claim] = title
            if len(bound) > 1:
                what = _title(one) if one else f"the Sandbox with uid {uid}"
                text = f"{what} was bound to {', '.join(bound.values())}"
                self._break(Promise.BOUND_ONCE, text, change)

    def _break(self, promise: Promise, text: str, change: StoredChange) -> None:
        self._found.append(f"{promise.name}: {text} (version {change.version})")

    # -- the end ---------------------------------------------------------------------------------

    def _left_behind(self) -> Iterator[str]:
        for uid, one in self._objects.items():
            # What is being deleted goes with its kubelet, its own children or its finalizers.
            if uid not in self._made or "deletionTimestamp" in one["metadata"]:
                continue
            owner = _owner(one)
            if owner is None:
                yield f"{Promise.OWNED.name}: {_title(one)} belongs to nobody"
            elif owner["uid"] not in self._objects:
                title = f"{owner['kind']} {owner['name']}"
                yield f"{Promise.CHILDREN_GO.name}: {_title(one)} is left of {title}"

    # -- every request ---------------------------------------------------------------------------

    def _note(self, entry: AuditEntry) -> None:
        if entry.user in self.users and not self._is_over:
            self._requests[entry.user, entry.what, entry.path].append((self._time(), entry))
            if entry.what == "watch pods":
                version = int(entry.query.get("resourceVersion", "0"))
                place = entry.user, entry.namespace
                self._pods_known[place] = max(self._pods_known[place], version)

    def _loops(self) -> Iterator[str]:
        for (user, what, path), noted in self._requests.items():
            # What is created has its name in the body: only refused creates are the same again.
            times = [at for at, entry in noted if entry.verb != "create" or entry.code >= 400]
            number, since = _most_within(times)
            if number <= _IDENTICAL:
                continue
            excused = sum(abs(at - since) <= _WINDOW_S for at, by in self._changes if by != user)
            if number > _IDENTICAL + excused:
                text = f"{number} times {what} {path} within {_WINDOW_S:g} s"
                yield f"{Promise.BACKOFF.name}: {text}, and {excused} changes by others"


_HISTORIES: WeakKeyDictionary[ControlPlane, History] = WeakKeyDictionary()


def history_of(plane: ControlPlane) -> History:
    """Return the history of a plane; it begins when it is asked for first."""
    if plane not in _HISTORIES:
        _HISTORIES[plane] = History(plane)
    return _HISTORIES[plane]


def _most_within(times: list[float]) -> tuple[int, float]:
    """Return how many of ``times`` the fullest window has, and when it begins."""
    began = 0
    best = 0
    since = 0.0
    for index, at in enumerate(times):
        while times[began] < at - _WINDOW_S:
            began += 1
        if index - began + 1 > best:
            best = index - began + 1
            since = times[began]
    return best, since


def _title(one: Json) -> str:
    return f"{one['kind']} {one['metadata']['namespace']}/{one['metadata']['name']}"


def _key(one: Json) -> tuple[str, str]:
    return one["metadata"]["namespace"], one["metadata"]["name"]


def _owner(one: Json) -> Json | None:
    references: list[Json] = one["metadata"].get("ownerReferences", [])
    return next((ref for ref in references if ref.get("controller")), None)


def _conditions(one: Json) -> list[Json]:
    """Return the conditions of an object, without what is none: anything may be stored."""
    status = one.get("status")
    found = status.get("conditions") if isinstance(status, dict) else None
    conditions = found if isinstance(found, list) else []
    return [it for it in conditions if isinstance(it, dict) and isinstance(it.get("type"), str)]


def _ready(one: Json) -> Json:
    return next((found for found in _conditions(one) if found["type"] == "Ready"), {})


def _is_ready(one: Json) -> bool:
    return _ready(one).get("status") == "True"


def _ready_fact(one: Json | None) -> tuple[str, ...]:
    """Return what Ready says, by which a claim repeats what its Sandbox says."""
    ready = _ready(one) if one is not None else {}
    return tuple(str(ready.get(name, "")) for name in ("status", "reason", "lastTransitionTime"))


def _pod_fact(pod: Json | None) -> tuple[str, str]:
    """Return what a Sandbox can say of a Pod, and the Pod's address."""
    if pod is None:
        return _OF_POD[2], ""
    status = pod.get("status", {})
    address = (status.get("podIPs") or [{"ip": ""}])[0]["ip"]
    if "deletionTimestamp" in pod["metadata"]:
        return "Pod is terminating", address
    if status.get("phase") != "Running":
        return f"Pod exists with phase: {status.get('phase')}", address
    # The kubelet takes a moment to say of a Pod whose gate has closed that it is not ready.
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()]
    needed = {"Ready", *gates}
    met = {found["type"] for found in _conditions(pod) if found.get("status") == "True"}
    return _READY if needed <= met else _OF_POD[1], address


def _lives(pod: Json) -> bool:
    """Say whether a Pod may be used, by what the columns of a list show of it."""
    return "deletionTimestamp" not in pod["metadata"] and _pod_fact(pod)[0] == _READY


def _marks(one: Json) -> set[str]:
    """Return by which keys a Pod looks free: to a router, and to an autoscaler."""
    metadata = one["metadata"]
    labels = metadata.get("labels") or {}
    annotations = metadata.get("annotations") or {}
    found = {WARM_POOL} if WARM_POOL in labels else set()
    return found | ({SAFE_TO_EVICT} if annotations.get(SAFE_TO_EVICT) == "true" else set())


def _generations(one: Json) -> dict[str, int]:
    told = {found["type"]: found.get("observedGeneration") for found in _conditions(one)}
    return {what: known if isinstance(known, int) else 0 for what, known in told.items()}


def _bound_name(claim: Json) -> str:
    return str((claim.get("status") or {}).get("sandbox", {}).get("name", ""))


def _is_expired(claim: Json) -> bool:
    lifecycle = claim["spec"].get("lifecycle") or {}
    return not {"shutdownTime", "ttlSecondsAfterFinished"}.isdisjoint(lifecycle)
