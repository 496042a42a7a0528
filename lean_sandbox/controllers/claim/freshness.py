"""Which members of a pool claims may take, where the pool re-creates stale ones (claims, 3.7)."""

from __future__ import annotations

from lean_sandbox.controllers.claim.act import ClaimAct
from lean_sandbox.controllers.claim.warm import Member
from lean_sandbox.model.comparison import Staleness, Verdict
from lean_sandbox.model.template import TemplateView
from lean_sandbox.watch.kind import Key

_MOST_POOLS = 1024


class Freshness:
    """Remembers what was compared of a pool, as long as its template stays the same."""

    def __init__(self, act: ClaimAct) -> None:
        self._act = act
        self._judges: dict[Key, Staleness] = {}

    def judge(self, pool: Key, template: TemplateView) -> Staleness:
        """Return the judge of a pool's members."""
        held = self._judges.get(pool)
        if held is None or held.template is not template:
            self._judges.pop(pool, None)
            if len(self._judges) >= _MOST_POOLS:
                # The one that was made first: it costs comparisons again, not more.
                del self._judges[next(iter(self._judges))]
            held = self._judges[pool] = Staleness(template)
        return held

    async def is_fresh(self, judge: Staleness, member: Member) -> bool:
        """Tell whether a member in hand still fits. At most one GET for each unknown stamp."""
        verdict = judge.by_stamp(member.mark)
        if verdict is Verdict.UNDECIDED:
            whole = await self._act.peek_sandbox(member.key)
            if whole is None or whole.metadata.uid != member.uid:
                return False
            verdict = judge.by_spec(member.mark, whole.spec)
        return verdict is Verdict.FRESH
