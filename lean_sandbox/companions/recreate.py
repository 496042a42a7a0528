"""recreate: a Pod that has failed is deleted, so that the controller makes the next one.

Volumes, name and Service of the Sandbox stay. The first failure in a row waits for 10 s, each
further one twice as long, at most 5 minutes; a Pod that lived for 10 minutes begins a new row.
Requests for a failure: a PATCH of the Sandbox, which counts it, a DELETE of the Pod, an Event.
A Pod that was evicted or preempted, or whose node was shut down, does not count: after 10 s there
is one DELETE.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from cachetools import LRUCache

from lean_sandbox.companions.annotations import (
    FAILURE_COUNT,
    FAILURE_LIMIT,
    FAILURE_POD,
    FAILURE_POLICY,
    FAILURE_TIME,
)
from lean_sandbox.companions.common import Companion, Kit, whole_number
from lean_sandbox.companions.kinds import CompanionSandboxEntry, FailedPodEntry, Wishes
from lean_sandbox.model import names
from lean_sandbox.model.times import format_rfc3339, parse_rfc3339
from lean_sandbox.runtime.workers import Result
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Delta, Key

FIRST_PAUSE_S: Final = 10.0
LONGEST_PAUSE_S: Final = 300.0
# A Pod that lived for this long ends the row of failures, as with the restarts of a container.
LONG_LIFE_S: Final = 600.0
# 2^5 times the first pause is more than the longest.
_MOST_DOUBLINGS: Final = 5
_MOST_COUNTED: Final = 4096
_WISHES: Final = (FAILURE_POLICY, FAILURE_LIMIT)
# More than any limit.
_NO_LIMIT: Final = 10**9


class PodFailures(msgspec.Struct, frozen=True):
    """The failures in a row up to that of the Pod with the uid ``pod``, at ``at_s``."""

    count: int = 0
    at_s: float = 0.0
    pod: str = ""


def failures_of(annotations: dict[str, str]) -> PodFailures:
    """Return the failures that annotations tell of; none if they cannot be read."""
    try:
        count = whole_number(0)(annotations[FAILURE_COUNT])
        at_s = parse_rfc3339(annotations[FAILURE_TIME]).timestamp()
        return PodFailures(count, at_s, annotations[FAILURE_POD])
    except (KeyError, ValueError):
        return PodFailures()


def pause_s(count: int) -> float:
    """Return how long a Pod stays after so many failures in a row; a disruption is none."""
    pause = FIRST_PAUSE_S * 2.0 ** min(max(count - 1, 0), _MOST_DOUBLINGS)
    return min(pause, LONGEST_PAUSE_S)


class Recreate(Companion[CompanionSandboxEntry]):
    """Deletes failed Pods of Sandboxes that ask for it, themselves or by their template."""

    def __init__(self, kit: Kit) -> None:
        caches = kit.caches
        super().__init__("recreate", kit, caches.sandboxes)
        self._pods = caches.failed_pods
        # By the uid of the Pod: what was counted, also where the annotations were not kept.
        self._counted: LRUCache[str, PodFailures] = LRUCache(_MOST_COUNTED)
        self._given_up: LRUCache[str, bool] = LRUCache(_MOST_COUNTED)
        self.watches(caches.sandboxes, self.on_sandbox)
        if kit.settings.extensions:
            self.watches(caches.templates, self.on_template)
        self.watches(caches.failed_pods, self.on_pod)

    def on_sandbox(self, delta: Delta[CompanionSandboxEntry]) -> None:
        """Look at a Sandbox with a wish of its own, or with a Pod that has failed."""
        new = delta.new
        if new is None:
            return
        if any(one in new.annotations for one in _WISHES) or self._failed(new) is not None:
            self.wake(new.key, reason=self.name)

    def on_template(self, delta: Delta[Wishes]) -> None:
        """Look at the Sandboxes of a template that have a Pod that has failed."""
        for key in self._kit.caches.by_template.find(*delta.key):
            sandbox = self.cache.get(key)
            if sandbox is not None and self._failed(sandbox) is not None:
                self.wake(key, reason=self.name)

    def on_pod(self, delta: Delta[FailedPodEntry]) -> None:
        """Look at the Sandbox of a Pod that has failed."""
        owner = delta.new.owner_key(names.SANDBOX_KIND) if delta.new is not None else None
        if owner is not None:
            self.wake(owner, reason=self.name)

    def _failed(self, sandbox: CompanionSandboxEntry) -> FailedPodEntry | None:
        pods = self._pods.owned_by(sandbox.key.namespace, sandbox.uid)
        return next((pod for pod in pods if not pod.is_deleting), None)

    def _bearers(self, sandbox: CompanionSandboxEntry) -> list[tuple[Cache[Any], Wishes | None]]:
        """Return the Sandbox and its template, the nearest first."""
        templates = self._kit.caches.templates
        template = templates.get(Key(sandbox.key.namespace, sandbox.template))
        return [(self.cache, sandbox), (templates, template)]

    async def act(self, key: Key) -> Result:
        """Count the failure of a Sandbox's Pod, and delete the Pod when its time has come."""
        sandbox = self.cache.get(key)
        if sandbox is None or sandbox.is_deleting or not sandbox.is_running:
            return Result()
        bearers = self._bearers(sandbox)
        # None if it cannot be read.
        limit = self.nearest_wish(bearers, FAILURE_LIMIT, whole_number(1), _NO_LIMIT)
        is_wanted = self.nearest_wish(bearers, FAILURE_POLICY, _policy) == "Recreate"
        is_free = sandbox.owner_key(names.SANDBOX_WARM_POOL_KIND) is not None
        pod = self._failed(sandbox)
        if pod is None or limit is None or not is_wanted or is_free:
            return Result()
        failures = await self._failures(sandbox, pod)
        if failures.count > limit:
            self._give_up(sandbox, pod, failures, limit)
            return Result()
        left_s = failures.at_s + pause_s(failures.count) - self._kit.server_time.now_s()
        if left_s > 0.0:
            return Result(requeue_after_s=left_s)
        if await self._kit.writer.delete(self._pods, pod):
            # A finalizer may keep it, and the event that says so may come late.
            self._pods.mark(pod, is_deleting=True)
            why = "disruption" if pod.disrupted_at else f"failure {failures.count} in a row"
            named = f" ({pod.reason})" if pod.reason else ""
            note = f'Deleted failed Pod "{pod.key.name}"{named} so that another is made: {why}'
            self.report(self.cache, sandbox, "PodRecreated", note)
        return Result()

    async def _failures(self, sandbox: CompanionSandboxEntry, pod: FailedPodEntry) -> PodFailures:
        """Return the failures in a row with that of a Pod, which is counted if it was none before.

        One at a time in the future, by a clock that is ahead or by a tenant, counts as one of now.
        """
        found = self._counted.get(pod.uid)
        if found is None and pod.disrupted_at:
            found = PodFailures(0, parse_rfc3339(pod.disrupted_at).timestamp(), pod.uid)
        elif found is None:
            found = failures_of(sandbox.annotations)
            if found.pod != pod.uid:
                found = await self._count(sandbox, pod, found)
        at_s = min(found.at_s, self._kit.server_time.now_s())
        self._counted[pod.uid] = found = msgspec.structs.replace(found, at_s=at_s)
        return found

    async def _count(
        self, sandbox: CompanionSandboxEntry, pod: FailedPodEntry, before: PodFailures
    ) -> PodFailures:
        """Count the failure of a Pod. One PATCH of the Sandbox, guarded by its version."""
        time = self._kit.server_time
        is_new_row = time.age_s(pod.created_at) >= LONG_LIFE_S
        failures = PodFailures(1 if is_new_row else before.count + 1, time.now_s(), pod.uid)
        annotations = {
            FAILURE_COUNT: str(failures.count),
            FAILURE_TIME: format_rfc3339(time.now()),
            FAILURE_POD: pod.uid,
        }
        await self.write(sandbox, {"metadata": {"annotations": annotations}})
        return failures

    def _give_up(
        self, sandbox: CompanionSandboxEntry, pod: FailedPodEntry, failures: PodFailures, limit: int
    ) -> None:
        if pod.uid in self._given_up:
            return
        self._given_up[pod.uid] = True
        note = (
            f'Pod "{pod.key.name}" stays: {failures.count} failures in a row are more than'
            f" {FAILURE_LIMIT} permits, {limit}; delete the Pod to try again"
        )
        self.report(self.cache, sandbox, "PodFailureLimitReached", note, type_="Warning")


def _policy(text: str) -> str:
    if text not in ("Recreate", "Ignore"):
        raise ValueError("is neither Recreate nor Ignore")
    return text
