"""Delays not-ready statuses, so that a quick launch costs one status write.

The steps of a launch are published only when it takes longer than a window: a quick launch costs
one status write, a slow one two. Readiness, its loss, an error, the end, suspension and the first
status after a change of the spec never wait.

When hundreds of launches outlast the window, they wait for the server, and a status write for each
would make them wait longer. So the steps of a namespace take turns, and the Pod of a Sandbox is not
fetched before its turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
from cachetools import LRUCache

from lean_sandbox.model import names
from lean_sandbox.model.conditions import find
from lean_sandbox.model.sandbox import SandboxStatus
from lean_sandbox.turns import count_down
from lean_sandbox.watch.kind import Key

# The window grows with the number of launches, as each is slower among many: little for the first
# hundred, which get turns at once. Members of pools have the large step: no client waits for them.
_WINDOW_PER_LAUNCH_S = 0.005
_WINDOW_PER_LATER_LAUNCH_S = 0.05
_LONGEST_WINDOW_S = 60.0
_LONGEST_STEP_WINDOW_S = 300.0
_TURNS_AT_ONCE = 100
_TURNS_PER_S = 5.0
# How many namespaces have their last turn remembered.
_MOST_NAMESPACES = 1024

_BEFORE = (
    "",
    names.REASON_DEPENDENCIES_NOT_READY,
    names.REASON_SANDBOX_SUSPENDED,
    names.REASON_SANDBOX_EXPIRED,
)


def is_on_the_way_up(old: SandboxStatus, new: SandboxStatus) -> bool:
    """Return whether ``new`` is a mere step of a launch, given the published status ``old``."""
    ready = find(new.conditions, names.READY)
    if ready is None or ready.status == "True" or not is_before_ready(old):
        return False
    if ready.reason != names.REASON_DEPENDENCIES_NOT_READY:
        return False
    suspended = find(new.conditions, names.SUSPENDED)
    if suspended is None or suspended.status != "False":
        return False
    return not any(find(status.conditions, names.FINISHED) for status in (old, new))


def is_before_ready(status: SandboxStatus) -> bool:
    """Return whether a published status says no more than that the Sandbox is not up yet."""
    ready = find(status.conditions, names.READY)
    return ready is None or (ready.status != "True" and ready.reason in _BEFORE)


def acknowledges(old: SandboxStatus, new: SandboxStatus) -> bool:
    """Return whether a status is the first of a generation after one of another generation."""
    now = find(new.conditions, names.READY)
    before = find(old.conditions, names.READY)
    if now is None or before is None:
        return False
    return now.observedGeneration != before.observedGeneration


def is_unplaced(old: SandboxStatus, new: SandboxStatus) -> bool:
    """Return whether a step is the first to say that the Pod cannot be scheduled, or why."""
    now = find(new.conditions, names.POD_SCHEDULED)
    before = find(old.conditions, names.POD_SCHEDULED)
    if now is None or now.status != names.FALSE:
        return False
    return before is None or (before.status, before.reason) != (now.status, now.reason)


def facts_of(*, trouble: object, address: object) -> frozenset[str]:
    """Return which facts of a step should be published soon.

    ``trouble`` is what keeps a container from running, ``address`` that of a Pod that runs and is
    not ready.
    """
    found = {"trouble": trouble, "address": address}
    return frozenset(name for name, is_there in found.items() if is_there)


class _Step(msgspec.Struct, gc=False):
    """The unpublished step of one Sandbox, and the unready steps published before it.

    ``turn_at`` is when it may be published, set once its window has passed; ``may_be_news`` holds
    until the Pod was fetched. ``published_facts`` are the facts of the last step published, and
    ``hold_s`` is how long the next one waits after it.
    """

    since: float | None = None
    turn_at: float | None = None
    may_be_news: bool = False
    is_published: bool = False
    published_at: float = 0.0
    hold_s: float = 0.0
    published_facts: frozenset[str] = frozenset()


class StatusThrottle:
    """Decides how long the unpublished step of each launching Sandbox waits; times are monotonic.

    The first unready status waits for ``window_s`` from the first step, each later one for
    ``step_window_s`` from the one before, doubling. A window of 0 publishes at once. Steps whose
    window has passed take turns. ``is_spare``: whether no client waits for a Sandbox.
    """

    def __init__(
        self,
        window_s: float,
        step_window_s: float,
        *,
        is_spare: Callable[[Key], bool] = lambda _key: False,
    ) -> None:
        self._is_spare = is_spare
        self._window_s = window_s
        self._step_window_s = step_window_s
        self._steps: dict[Key, _Step] = {}
        # By namespace: how many launches it has, how many of these have published no step yet, and
        # the last turn that was given to one.
        self._launches: Counter[str] = Counter()
        self._unpublished: Counter[str] = Counter()
        self._last_turn_at: LRUCache[str, float] = LRUCache(_MOST_NAMESPACES)

    def __len__(self) -> int:
        return len(self._steps)

    def _step_of(self, key: Key) -> _Step:
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = _Step()
            self._launches[key.namespace] += 1
            self._unpublished[key.namespace] += 1
        return step

    def _first_window_s(self, key: Key) -> float:
        if self._window_s <= 0:
            return 0.0
        # Each other namespace counts for as many as this one: a burst there delays nothing here.
        fair = self._unpublished[key.namespace] * len(self._unpublished)
        others = min(fair, self._unpublished.total()) - 1
        few = 0 if self._is_spare(key) else min(others, _TURNS_AT_ONCE)
        grown_s = _WINDOW_PER_LAUNCH_S * few + _WINDOW_PER_LATER_LAUNCH_S * (others - few)
        return max(self._window_s, min(self._window_s + grown_s, _LONGEST_WINDOW_S))

    def hold_step(
        self,
        key: Key,
        now: float,
        *,
        is_news: bool = False,
        facts: frozenset[str] = frozenset(),
    ) -> float:
        """Begin the window of a new step, give it its turn, and return for how long it waits.

        An important step waits for ``window_s`` alone, however many Sandboxes launch. It is one
        that ``is_news``, such as that no node fits, or that shows one of the ``facts`` that the
        last published step did not show. An address alone does not hurry the first step: Ready may
        follow within the window.
        """
        step = self._step_of(key)
        if step.since is None:
            step.since = now
        fresh = facts - step.published_facts if step.is_published else facts - {"address"}
        if is_news or fresh:
            step.may_be_news = True
            due = step.since + self._window_s
        elif step.is_published:
            due = self._give_turn(key, step, step.published_at + step.hold_s, now)
        else:
            due = self._give_turn(key, step, step.since + self._first_window_s(key), now)
        return max(0.0, due - now)

    def _give_turn(self, key: Key, step: _Step, window_ends: float, now: float) -> float:
        """Return when a step may be published: at its turn, which is given once its window ends."""
        if window_ends > now or self._window_s <= 0:
            return window_ends
        if step.turn_at is None:
            unused = now - _TURNS_AT_ONCE / _TURNS_PER_S
            # Turns of launches that have ended meanwhile are given to others.
            latest = now + self._launches[key.namespace] / _TURNS_PER_S
            last_at = max(self._last_turn_at.get(key.namespace, unused), unused)
            step.turn_at = min(last_at + 1.0 / _TURNS_PER_S, latest)
            self._last_turn_at[key.namespace] = step.turn_at
        return step.turn_at

    def hold_fetch(self, key: Key, now: float) -> float:
        """Hold back the GET of the Pod, and return for how long: its step is not published before.

        The step is given its turn, as by :meth:`hold_step`.
        """
        step = self._steps.get(key)
        if step is None or step.since is None or step.may_be_news:
            return 0.0
        return self.hold_step(key, now)

    def fetched(self, key: Key) -> None:
        """Note that the Pod was fetched, so that all its news is known."""
        step = self._steps.get(key)
        if step is not None:
            step.may_be_news = False

    def published(self, key: Key, now: float, *, facts: frozenset[str]) -> None:
        """Note that an unready step was published."""
        step = self._step_of(key)
        if not step.is_published:
            count_down(self._unpublished, key.namespace)
        step.since = None
        step.turn_at = None
        step.is_published = True
        step.published_at = now
        step.hold_s = min(2.0 * step.hold_s or self._step_window_s, _LONGEST_STEP_WINDOW_S)
        step.published_facts = facts

    def settled(self, key: Key) -> None:
        """Forget a launch: it has ended, one way or another."""
        step = self._steps.pop(key, None)
        if step is not None:
            count_down(self._launches, key.namespace)
            if not step.is_published:
                count_down(self._unpublished, key.namespace)
