"""What is remembered of a pool between passes, and what belongs to one pass.

Where the reference controller waits for events to confirm its own creations and deletions, here
the answers are learnt: a created member is in the cache before the next pass counts, so nothing has
to be expected. Only a deletion may take time (finalizers, a late event), and so the uids that were
deleted are remembered until the cache shows them gone; they still take their place in the pool.
"""

from __future__ import annotations

import msgspec

from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.model.comparison import Staleness
from lean_sandbox.model.template import TemplateView
from lean_sandbox.model.warmpool import PoolView, ReplenishHold, TokenBucket
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.sandbox import SandboxEntry


class PoolState(msgspec.Struct):
    """What is remembered of one pool, by uid: a pool of the same name begins anew."""

    uid: str
    hold: ReplenishHold
    bucket: TokenBucket
    deleted: dict[str, Key] = {}
    status_at: float | None = None
    differs_since: float | None = None
    is_stuck: bool = False
    # Since when the pool has waited for the NetworkPolicy of its template.
    unprotected_since: float | None = None
    _staleness: Staleness | None = None

    def judge(self, template: TemplateView) -> Staleness:
        """Return the judge of members, with its verdicts as long as the template stays the same."""
        if self._staleness is None or self._staleness.template is not template:
            self._staleness = Staleness(template)
        return self._staleness

    def going(self, sandboxes: Cache[SandboxEntry]) -> frozenset[str]:
        """Return the uids that were deleted and are still shown; the others are forgotten."""
        for uid, key in list(self.deleted.items()):
            held = sandboxes.get(key)
            if held is None or held.uid != uid:
                del self.deleted[uid]
        return frozenset(self.deleted)


class Visit(msgspec.Struct):
    """One pass: the pool and its template as they are now, and what came of it so far."""

    view: PoolView
    template: TemplateView | None
    state: PoolState
    errors: list[ControlPlaneError] = []
    # Seconds until the pool has to be looked at again; the least counts.
    requeues: list[float] = []
    # Whether a request was made since the members were counted: they may have changed meanwhile.
    has_acted: bool = False
