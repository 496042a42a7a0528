"""Counts what the caches show, change by change, so that a look costs the same however many.

It makes no requests, and reads no clock.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, deque
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple

from lean_sandbox.model import names
from lean_sandbox.model.claim_status import ClaimFault
from lean_sandbox.model.times import format_rfc3339, moment_s
from lean_sandbox.top.figures import (
    ClaimFigures,
    ControllerFigures,
    Figures,
    LastClaim,
    NotReady,
    PoolFigures,
    SandboxFigures,
    until_ready,
)
from lean_sandbox.top.kinds import NOT_SHOWN, TopCaches, TopClaimEntry, TopSandboxEntry
from lean_sandbox.watch.kind import Delta, Key

#: Over how long arrivals are counted, in seconds.
WINDOW_S: Final = 10.0
# Of how many claims the times until Ready count, how many of the last ones are remembered, of which
# some may be gone, and how many are told.
_MOST_TIMES: Final = 1000
_MOST_LAST: Final = 1000
_MOST_TOLD: Final = 50
# Of how many arrivals the moments are kept.
_MOST_ARRIVALS: Final = 100_000

_STARTING: Final = frozenset({"", names.REASON_DEPENDENCIES_NOT_READY})
# Not served until somebody changes something, or the controller's next try.
_REFUSED: Final = frozenset(fault.reason for fault in ClaimFault) - {
    names.REASON_SANDBOX_CREATE_PENDING,
    names.REASON_SANDBOX_NOT_READY,
    names.REASON_CLAIM_EXPIRED,
}
_BROKEN: Final = frozenset(
    {
        names.REASON_RECONCILER_ERROR,
        names.REASON_INVALID_CONFIGURATION,
        names.REASON_MULTIPLE_PODS,
        names.REASON_POD_FAILED,
    }
)


class _Moment(NamedTuple):
    """A claim by a moment of its life, in seconds since the epoch; ``number`` orders equal ones."""

    at: float
    number: int
    claim: Key
    took_s: float


class _Latest:
    """The latest of many moments."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._number = 0
        self.moments: list[_Moment] = []

    def add(self, at: float, claim: Key, took_s: float = 0.0) -> None:
        self._number += 1
        insort(self.moments, _Moment(at, self._number, claim, took_s))
        if len(self.moments) > self._most:
            del self.moments[0]


class Board:
    """Follows the caches from now on; they have to be empty."""

    def __init__(self, caches: TopCaches) -> None:
        self._caches = caches
        # By the pool.
        self._members: dict[Key, Counter[str]] = {}
        self._claims: dict[Key, Counter[str]] = {}
        self._ready: Counter[str] = Counter()
        self._sandboxes_by_reason: Counter[str] = Counter()
        # The claims that are not Ready, by the reason; the one seen so last comes last.
        self._claims_by_reason: dict[str, dict[Key, TopClaimEntry]] = {}
        self._times = _Latest(_MOST_TIMES)
        self._last = _Latest(_MOST_LAST)
        # Monotonic, in seconds.
        self._arrivals: deque[float] = deque(maxlen=_MOST_ARRIVALS)
        caches.sandboxes.listeners.append(self._on_sandbox)
        caches.claims.listeners.append(self._on_claim)

    def arrived(self, delta: Delta[TopClaimEntry], now_s: float) -> None:
        """Count a claim that was created while it was watched for."""
        if delta.is_new:
            self._arrivals.append(now_s)

    def _on_sandbox(self, old: TopSandboxEntry | None, new: TopSandboxEntry | None) -> None:
        if old is not None:
            self._note_sandbox(old, -1)
        if new is not None:
            self._note_sandbox(new, 1)

    def _note_sandbox(self, entry: TopSandboxEntry, by: int) -> None:
        if entry.pool:
            pool = Key(entry.key.namespace, entry.pool)
            _count(self._members.setdefault(pool, Counter()), _state(entry), by)
            if not self._members[pool]:
                del self._members[pool]
        if entry.is_ready:
            self._ready["sandboxes"] += by
        else:
            _count(self._sandboxes_by_reason, entry.reason, by)

    def _on_claim(self, old: TopClaimEntry | None, new: TopClaimEntry | None) -> None:
        if old is not None:
            self._note_claim(old, -1)
        if new is not None:
            self._note_claim(new, 1)
            self._date(new, old if old is not None and old.uid == new.uid else None)
        before = old if old is not None and not old.is_ready else None
        after = new if new is not None and not new.is_ready else None
        if before is not None and (after is None or after.reason != before.reason):
            waiting = self._claims_by_reason[before.reason]
            del waiting[before.key]
            if not waiting:
                del self._claims_by_reason[before.reason]
        if after is not None:
            self._claims_by_reason.setdefault(after.reason, {})[after.key] = after

    def _note_claim(self, entry: TopClaimEntry, by: int) -> None:
        pool = Key(entry.key.namespace, entry.pool)
        _count(self._claims.setdefault(pool, Counter()), _launch(entry) or "waiting", by)
        if not self._claims[pool]:
            del self._claims[pool]
        if entry.is_ready:
            self._ready["claims"] += by

    def _date(self, new: TopClaimEntry, before: TopClaimEntry | None) -> None:
        if before is None:
            self._last.add(moment_s(new.created_at, "creationTimestamp") or 0.0, new.key)
        is_known = before is not None and before.took_s is not None
        if new.took_s is not None and not is_known:
            self._times.add(new.ready_s, new.key, new.took_s)

    def figures(
        self,
        now: datetime,
        *,
        server: str,
        namespace: str,
        per_second: float | None = None,
        controller: ControllerFigures | None = None,
        causes: dict[Key, str] | None = None,
        problems: tuple[str, ...] = (),
    ) -> Figures:
        """Return everything as it is; ``causes`` are what the controller says of its pools."""
        caches = self._caches
        return Figures(
            at=format_rfc3339(now),
            server=server,
            namespace=namespace,
            pools=tuple(self._pools(causes or {})),
            claims=ClaimFigures(
                total=len(caches.claims),
                ready=self._ready["claims"],
                per_second=per_second,
                window_s=WINDOW_S,
                until_ready=until_ready([one.took_s for one in self._times.moments]),
            ),
            sandboxes=SandboxFigures(total=len(caches.sandboxes), ready=self._ready["sandboxes"]),
            not_ready=tuple(sorted(self._not_ready(), key=_by_weight)),
            last_claims=tuple(self._last_claims()),
            controller=controller,
            problems=problems,
        )

    def per_second(self, now_s: float, since_s: float) -> float | None:
        """Return how many claims came a second, in the last ten; None before a second has passed.

        Both are monotonic, in seconds: now, and since when claims are watched.
        """
        passed_s = min(now_s - since_s, WINDOW_S)
        if passed_s < 1.0:
            return None
        while self._arrivals and self._arrivals[0] <= now_s - WINDOW_S:
            self._arrivals.popleft()
        return round(len(self._arrivals) / passed_s, 1)

    def _pools(self, causes: dict[Key, str]) -> Iterator[PoolFigures]:
        nothing: Counter[str] = Counter()
        for pool in sorted(self._caches.pools, key=lambda one: one.key):
            members = self._members.get(pool.key, nothing)
            claims = self._claims.get(pool.key, nothing)
            yield PoolFigures(
                namespace=pool.key.namespace,
                name=pool.key.name,
                template=pool.template,
                desired=pool.desired,
                free=members["free"],
                starting=members["starting"],
                stuck=members["stuck"],
                claimed=claims["warm"] + claims["cold"],
                warm=claims["warm"],
                waiting=claims["waiting"],
                cause=causes.get(pool.key, ""),
            )

    def _not_ready(self) -> Iterator[NotReady]:
        for reason, claims in self._claims_by_reason.items():
            example = next(reversed(claims.values()))
            yield NotReady(
                kind="claim",
                reason=reason,
                count=len(claims),
                is_refused=reason in _REFUSED,
                example_namespace=example.key.namespace,
                example_name=example.key.name,
                message=example.message,
            )
        for reason, count in self._sandboxes_by_reason.items():
            is_broken = reason in _BROKEN
            yield NotReady(kind="sandbox", reason=reason, count=count, is_refused=is_broken)

    def _last_claims(self) -> Iterator[LastClaim]:
        # A name may have been used more than once.
        keys = dict.fromkeys(moment.claim for moment in reversed(self._last.moments))
        held = filter(None, map(self._caches.claims.get, keys))
        for entry in islice(held, _MOST_TOLD):
            took_s = entry.took_s
            yield LastClaim(
                namespace=entry.key.namespace,
                name=entry.key.name,
                pool=entry.pool,
                sandbox=entry.sandbox,
                launch=_launch(entry),
                is_ready=entry.is_ready,
                reason=entry.reason,
                created_at=entry.created_at,
                took_ms=None if took_s is None else round(took_s * 1000.0, 3),
            )


def _count(counter: Counter[str], what: str, by: int) -> None:
    counter[what] += by
    if not counter[what]:
        del counter[what]


def _state(member: TopSandboxEntry) -> str:
    if member.is_deleting:
        return "ending"
    if member.is_ready:
        return "free"
    if member.reason == NOT_SHOWN:
        return "unknown"
    return "starting" if member.reason in _STARTING else "stuck"


def _launch(claim: TopClaimEntry) -> str:
    if not claim.sandbox:
        return ""
    return "warm" if claim.is_warm else "cold"


def _by_weight(one: NotReady) -> tuple[bool, int, str, str]:
    """Sort what is refused first, then what concerns the most."""
    return not one.is_refused, -one.count, one.kind, one.reason
