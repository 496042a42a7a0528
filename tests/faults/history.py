"""All that was ever stored, and every request of the controller, judged by the promises."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.direct import StoredChange
from lean_sandbox.local.request import AuditEntry
from tests.faults.promises import Facts, Promise
from tests.support.names import CLAIMS, CONTROLLER, POLICIES, POOLS, SANDBOXES, TEMPLATES
from tests.support.stored import (
    OF_POD,
    bound_name,
    generations_of,
    has_an_end,
    is_ready,
    key_of,
    lives,
    marks_of,
    owner_of,
    pod_fact,
    ready_fact,
    ready_of,
    title_of,
)

__all__ = ["OBJECTS", "History", "history_of"]

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
        self._pods: dict[str, Facts] = defaultdict(lambda: Facts([(0, pod_fact(None))]))
        """By uid of Sandbox: what was so of its Pod."""
        self._living: dict[str, set[str]] = defaultdict(set)
        """By uid of Sandbox: the uids of its Pods that live."""
        self._lives: dict[str, Facts] = defaultdict(lambda: Facts([(0, False)]))
        """By uid of Sandbox: whether a Pod of it lived."""
        self._marked_by_others: set[str] = set()
        """The uids of the Pods that somebody else has made look free."""
        self._pods_known: dict[tuple[str, str], int] = defaultdict(lambda: began)
        """By user and namespace, empty for all: the version from which Pods were watched last."""
        self._said: dict[str, Facts] = defaultdict(Facts)
        """By uid of Sandbox: what it said of itself."""
        self._sandboxes: dict[tuple[str, str], Facts] = defaultdict(Facts)
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
        if not is_ours and change.before and owner_of(change.before) and not owner_of(one):
            # Whoever takes it from its owner answers for it.
            self._made.pop(uid, None)
        if is_ours and change.before is None:
            self._made[uid] = title_of(one)
            if not owner_of(one):
                text = f"{title_of(one)} was created without an owner (version {change.version})"
                self._ownerless[uid] = f"{Promise.OWNED.name}: {text}"
        if change.resource == "pods":
            self._take_pod(change, one)
            is_edit = change.before is not None and change.after is not None
            if not is_ours and is_edit and marks_of(one) - marks_of(change.before or one):
                self._marked_by_others.add(uid)
        elif change.resource == SANDBOXES:
            self._take_sandbox(change, one, is_ours=is_ours)
        elif change.resource == CLAIMS and is_ours and change.after is not None:
            self._take_claim(change, one)
        if change.before is not None and change.after is not None:
            self._take_generations(change, change.before, change.after)

    def _take_pod(self, change: StoredChange, pod: Json) -> None:
        for version in (change.before, change.after):
            owner = version and owner_of(version)
            if owner:
                # Somebody may have taken it from its Sandbox.
                is_its = change.after is not None and owner_of(change.after) == owner
                if owner["kind"] == "Sandbox":
                    fact = pod_fact(change.after if is_its else None)
                    self._pods[owner["uid"]].add(change.version, fact)
                living = self._living[owner["uid"]]
                living.discard(pod["metadata"]["uid"])
                if is_its and lives(pod):
                    living.add(pod["metadata"]["uid"])
                self._lives[owner["uid"]].add(change.version, bool(living))

    def _take_sandbox(self, change: StoredChange, one: Json, *, is_ours: bool) -> None:
        uid = one["metadata"]["uid"]
        owner = owner_of(one)
        if change.before is None:
            self._named[key_of(one)].append(uid)
        if owner:
            self._owned_by[uid].add(owner["uid"])
        before = owner_of(change.before) if change.before else {}
        said = self._said[uid]
        said.add(change.version, ready_fact(change.after))
        if owner.get("kind") == "SandboxClaim":
            self._bind(uid, one, owner["uid"], f"SandboxClaim {owner['name']}", change)
            facts = self._sandboxes[owner["uid"], uid]
            if owner == before:
                facts.add(*said.known[-1])
            else:
                facts.known = sorted({*facts.known, *said.known})
        is_bound = before.get("kind") == "SandboxClaim"
        if is_ours and is_bound and change.after is not None and owner != before:
            self._break(Promise.NEVER_UNDONE, f"{title_of(one)} was taken from its claim", change)
        if is_ours and change.after is not None:
            self._told_of_pod(change, uid, one)

    def _told_of_pod(self, change: StoredChange, uid: str, one: Json) -> None:
        ready = ready_of(one)
        if change.before is not None and ready == ready_of(change.before):
            return
        if len(self._named[key_of(one)]) > 1 and change.before and not change.before.get("status"):
            # A status is written by name: the first of an object may be of one that it replaced.
            return
        text = ready.get("message", "").partition(";")[0]
        if text in OF_POD:
            addresses = one["status"].get("podIPs") or [""]
            broken = self._pods[uid].told((text, addresses[0] if text != OF_POD[2] else ""))
            if broken is not None:
                self._break(broken, f"{title_of(one)} tells {text!r} at {addresses}", change)

    def _take_claim(self, change: StoredChange, claim: Json) -> None:
        uid = claim["metadata"]["uid"]
        title = title_of(claim)
        name = bound_name(claim)
        before = change.before and bound_name(change.before)
        if name:
            ever = self._named[claim["metadata"]["namespace"], name]
            owned = [one for one in ever if uid in self._owned_by[one]]
            if ready_of(claim).get("status") == "True" and not owned:
                self._break(
                    Promise.READY_IS_OWNED,
                    f"{title} is Ready and names {name}, which it has never owned",
                    change,
                )
            # A name that somebody wrote there, and that the controller left, binds nothing.
            for one in owned or (ever[-1:] if name != before else ()):
                self._bind(one, {}, uid, title, change)
        is_over = "deletionTimestamp" in claim["metadata"] or has_an_end(claim)
        if before and name != before and not is_over and self._is_still_there(claim, before):
            text = f"{title} names {name!r} and no longer {before}, which it owns"
            self._break(Promise.NEVER_UNDONE, text, change)
        self._told_of_sandbox(change, uid, claim)
        was_ready = change.before is not None and is_ready(change.before)
        if is_ready(claim) and not was_ready:
            self._told_of_life(change, uid, claim)
        if is_ready(claim) and not (was_ready and name == before):
            self._told_usable(change, claim, name)

    def _told_usable(self, change: StoredChange, claim: Json, name: str) -> None:
        """Judge a claim that becomes Ready, or names another Sandbox, by the marks of the Pod."""
        owner = claim["metadata"]["uid"]
        for sandbox_uid in self._named[claim["metadata"]["namespace"], name]:
            sandbox = self._objects.get(sandbox_uid)
            if sandbox is None or owner_of(sandbox).get("uid") != owner:
                continue
            template = sandbox["spec"]["podTemplate"].get("metadata") or {}
            wanted = marks_of({"metadata": {"annotations": template.get("annotations")}})
            for uid in self._living[sandbox_uid] - self._marked_by_others:
                marks = marks_of(self._objects[uid]) - wanted
                if marks:
                    text = f"{title_of(claim)} becomes Ready, and Pod {name} has {sorted(marks)}"
                    self._break(Promise.READY_IS_USABLE, text, change)

    def _told_of_life(self, change: StoredChange, uid: str, claim: Json) -> None:
        """Judge a claim that becomes Ready by the Pods that the controller may know.

        Its view may lag behind, but not behind what it has shown to know: what it told of the Pod,
        and the version from which it began or resumed its watch. One that was started after the end
        of a Pod began there too, with a list that did not have it. Of two processes of one user at
        once, the later one counts.
        """
        namespace = claim["metadata"]["namespace"]
        name = bound_name(claim)
        known = max(self._pods_known[change.by, where] for where in ("", namespace))
        owned = [one for one in self._named[namespace, name] if uid in self._owned_by[one]]
        if owned and not any(
            self._lives[one].may_show(fact=True, since=max(known, self._pods[one].seen))
            for one in owned
        ):
            text = f"{title_of(claim)} becomes Ready, and no Pod of {name} lives since {known}"
            self._break(Promise.READY_LIVES, text, change)

    def _is_still_there(self, claim: Json, name: str) -> bool:
        """Say whether a claim owns a Sandbox of this name that nobody has deleted."""
        metadata = claim["metadata"]
        named = self._named[metadata["namespace"], name]
        present = [self._objects[uid] for uid in named if uid in self._objects]
        return any(
            owner_of(one).get("uid") == metadata["uid"]
            and "deletionTimestamp" not in one["metadata"]
            for one in present
        )

    def _told_of_sandbox(self, change: StoredChange, uid: str, claim: Json) -> None:
        ready = ready_of(claim)
        if change.before is not None and ready == ready_of(change.before):
            return
        fact = ready_fact(claim)
        tells_ready = ready.get("status") == "True"
        named = self._named[claim["metadata"]["namespace"], bound_name(claim)]
        # The latest first: a claim may have had others of the name before.
        owned = [self._sandboxes[uid, one] for one in reversed(named) if uid in self._owned_by[one]]
        told = [one for one in owned if any(known == fact for _, known in one.known)]
        # The time changes with the status alone, so it may be that of the Sandbox before.
        before = ready_fact(change.before)
        lasts = bool(owned) and before[::2] == fact[::2]
        lasts = lasts and any(known[:2] == fact[:2] for _, known in owned[0].known)
        broken: Promise | None = None
        if told and told[0] is owned[0]:
            broken = told[0].told(fact)
        elif tells_ready and not lasts and not told:
            # A claim says more than its Sandbox does, but not this.
            broken = Promise.STATUS_IS_TRUE
        elif tells_ready and not lasts and owned[0].seen:
            broken = Promise.NEVER_UNDONE
        if broken is not None:
            self._break(broken, f"{title_of(claim)} tells {ready}", change)

    def _take_generations(self, change: StoredChange, before: Json, after: Json) -> None:
        known = generations_of(before)
        told = generations_of(after)
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
                text = (
                    f"{title_of(after)} tells {what} of generation {generation}, not {known[what]}"
                )
                self._break(Promise.NEVER_UNDONE, text, change)

    def _bind(self, uid: str, one: Json, claim: str, title: str, change: StoredChange) -> None:
        bound = self._bound[uid]
        if claim not in bound:
            bound[claim] = title
            if len(bound) > 1:
                what = title_of(one) if one else f"the Sandbox with uid {uid}"
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
            owner = owner_of(one)
            if not owner:
                yield f"{Promise.OWNED.name}: {title_of(one)} belongs to nobody"
            elif owner["uid"] not in self._objects:
                title = f"{owner['kind']} {owner['name']}"
                yield f"{Promise.CHILDREN_GO.name}: {title_of(one)} is left of {title}"

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
