"""idle: a Sandbox that nobody has used for as long as its annotation says is suspended.

Use is the newest of: its start or resume, a write of anything but its status, its claim, the
annotation ``last-activity-time`` of the Sandbox or of its claim, and CPU at or above
``--idle-cpu``. Where it is not known whether somebody uses it, nothing is done. A suspension is one
PATCH and an Event; :mod:`lean_sandbox.companions.usage` says what samples of CPU cost.

Whoever binds a Sandbox to a claim may remove the record of who has written it. Then only those
changes of its spec and of its owner count that this process has seen.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from lean_sandbox.companions.annotations import IDLE_TIMEOUT, LAST_ACTIVITY
from lean_sandbox.companions.common import Companion, Kit, whole_number
from lean_sandbox.companions.kinds import CompanionClaimEntry, CompanionSandboxEntry, Wishes
from lean_sandbox.companions.usage import SAMPLE_S, PodUsage
from lean_sandbox.kube.errors import ControlPlaneError, message_of
from lean_sandbox.model import names
from lean_sandbox.model.times import format_rfc3339, parse_rfc3339
from lean_sandbox.runtime.workers import Result
from lean_sandbox.turns import Rank
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Delta, Key

# In the place of an object: the samples of all Pods are due.
_SAMPLE: Final = Key("", "")
_WISHES: Final = frozenset({IDLE_TIMEOUT, LAST_ACTIVITY})
# How soon a Pod is looked at again of which nothing is known; that takes no request.
_UNKNOWN_S: Final = 10.0


def active_at(sandbox: CompanionSandboxEntry, claimed_at: str, *known_s: float) -> float:
    """Return when a Sandbox was last used, in seconds since the epoch.

    ``claimed_at`` is when its claim was made, empty without one; ``known_s`` are what annotations
    tell, what was seen, and when its Pod last used CPU.
    """
    own = (sandbox.created_at, sandbox.edited_at, sandbox.ready_since, sandbox.resumed_at)
    dates_s = [parse_rfc3339(date).timestamp() for date in (*own, claimed_at) if date]
    return max(0.0, *dates_s, *known_s)


class Idle(Companion[CompanionSandboxEntry]):
    """Suspends Sandboxes that ask for it themselves, by their claim or by their template."""

    def __init__(self, kit: Kit) -> None:
        caches = kit.caches
        settings = kit.settings
        super().__init__("idle", kit, caches.sandboxes)
        client = kit.writer.client
        self._usage: PodUsage | None = None
        if settings.idle_cpu > 0.0:
            self._usage = PodUsage(client, settings.namespaces, settings.idle_cpu)
        self._is_sampling = False
        # By uid: when a change of the spec or of the owner was seen, in seconds since the epoch.
        self._changed_s: dict[str, float] = {}
        self.watches(caches.sandboxes, self.on_sandbox)
        if settings.extensions:
            self.watches(caches.claims, self.on_claim)
            self.watches(caches.templates, self.on_template)

    def on_sandbox(self, delta: Delta[CompanionSandboxEntry]) -> None:
        """Look at a Sandbox that may have a wish; a change of its spec or owner is use of it."""
        old = delta.old
        new = delta.new
        if old is not None and delta.has_ended:
            self._changed_s.pop(old.uid, None)
            old = None
        if new is None:
            return
        if old is not None and (new.generation, new.owner) != (old.generation, old.owner):
            self._changed_s[new.uid] = self._kit.server_time.now_s()
        self.wake(delta.key, reason=self.name)

    def on_claim(self, delta: Delta[CompanionClaimEntry]) -> None:
        """Look at the Sandbox of a claim with a wish."""
        both = [one for one in (delta.old, delta.new) if one is not None]
        for sandbox in {one.sandbox for one in both if _WISHES & one.annotations.keys()}:
            self._check(Key(delta.key.namespace, sandbox))

    def on_template(self, delta: Delta[Wishes]) -> None:
        """Look at the Sandboxes of a template whose wish has changed."""
        before, now = (_timeout_text(one) for one in (delta.old, delta.new))
        if before == now:
            return
        for sandbox in self._kit.caches.by_template.find(*delta.key):
            self._check(sandbox)

    def _check(self, sandbox: Key) -> None:
        if sandbox in self.cache:
            self.wake(sandbox, reason=self.name)

    async def act(self, key: Key) -> Result:
        """Suspend a Sandbox whose time has come, or take the samples that are due."""
        if key == _SAMPLE:
            return await self._sample()
        sandbox = self.cache.get(key)
        if sandbox is None or sandbox.is_deleting or not sandbox.is_running or sandbox.has_ended:
            return Result()
        is_free = sandbox.owner_key(names.SANDBOX_WARM_POOL_KIND) is not None
        if is_free or sandbox.is_resuming:
            return Result()
        bearers = self._bearers(sandbox)
        timeout_s = self.nearest_wish(bearers, IDLE_TIMEOUT, whole_number(1))
        if timeout_s is None or (told_s := self._told_s(bearers[:-1])) is None:
            return Result()
        now_s = self._kit.server_time.now_s()
        quiet_since_s = self._quiet_since_s(sandbox, now_s)
        claim = self._claim_of(sandbox)
        claimed_at = claim.created_at if claim is not None else ""
        changed_s = self._changed_s.get(sandbox.uid, 0.0)
        since_s = active_at(sandbox, claimed_at, changed_s, quiet_since_s or 0.0, *told_s)
        if (left_s := since_s + timeout_s - now_s) > 0.0:
            return Result(requeue_after_s=left_s)
        if quiet_since_s is None:
            return Result(requeue_after_s=_UNKNOWN_S)
        asked = names.OPERATING_MODE_SUSPENDED
        written = await self.write(sandbox, {"spec": {"operatingMode": asked}})
        since = f"idle since {format_rfc3339(datetime.fromtimestamp(since_s, UTC))}"
        if written.spec.operatingMode == asked:
            note = f"Suspended: {since}, for {timeout_s} s or longer"
            self.report(self.cache, sandbox, "IdleSuspended", note)
        else:
            note = f"Not suspended, though {since}: a policy or webhook keeps it Running"
            self.report(self.cache, sandbox, "IdleNotSuspended", note, type_="Warning")
        return Result()

    def _claim_of(self, sandbox: CompanionSandboxEntry) -> CompanionClaimEntry | None:
        claim = sandbox.owner_key(names.SANDBOX_CLAIM_KIND)
        return None if claim is None else self._kit.caches.claims.get(claim)

    def _bearers(self, sandbox: CompanionSandboxEntry) -> list[tuple[Cache[Any], Wishes | None]]:
        """Return the Sandbox, its claim and its template, the nearest first."""
        caches = self._kit.caches
        namespace = sandbox.key.namespace
        return [
            (self.cache, sandbox),
            (caches.claims, self._claim_of(sandbox)),
            (caches.templates, caches.templates.get(Key(namespace, sandbox.template))),
        ]

    def _told_s(self, bearers: list[tuple[Cache[Any], Wishes | None]]) -> list[float] | None:
        """Return what annotations tell of the last activity; None if one cannot be read."""
        told: list[float] = []
        for cache, entry in bearers:
            if entry is not None and LAST_ACTIVITY in entry.annotations:
                moment_s = self.wish(cache, entry, LAST_ACTIVITY, _moment_s)
                if moment_s is None:
                    return None
                told.append(moment_s)
        return told

    def _quiet_since_s(self, sandbox: CompanionSandboxEntry, now_s: float) -> float | None:
        """Return since when the Pod uses no CPU, 0 if that is not asked; None if it is unknown."""
        if self._usage is None:
            return 0.0
        if not self._is_sampling:
            self._is_sampling = True
            self.queue.add(_SAMPLE, rank=Rank.SPARE, reason="samples")
        if not self._usage.is_served:
            return 0.0
        return self._usage.quiet_since(sandbox.pod_key, now_s)

    async def _sample(self) -> Result:
        """Take a sample, and ask for the next one while any Sandbox that runs has a wish."""
        usage = self._usage
        if usage is None or not self._is_anything_wanted():
            self._is_sampling = False
            return Result()
        try:
            return Result(requeue_after_s=await usage.sample(self._kit.server_time.now_s()))
        except ControlPlaneError as error:
            self._log.warning("usage_unknown", problem=message_of(error))
            return Result(requeue_after_s=SAMPLE_S)

    def _is_anything_wanted(self) -> bool:
        return any(
            sandbox.is_running
            and not sandbox.has_ended
            and any(_timeout_text(entry) is not None for _, entry in self._bearers(sandbox))
            for sandbox in self.cache
        )


def _timeout_text(entry: Wishes | None) -> str | None:
    return None if entry is None else entry.annotations.get(IDLE_TIMEOUT)


def _moment_s(text: str) -> float:
    try:
        return parse_rfc3339(text).timestamp()
    except ValueError:
        raise ValueError("is not an RFC 3339 date-time such as 2026-01-02T03:04:05Z") from None
