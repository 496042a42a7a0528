"""Which members of a pool claims may take, where the pool re-creates stale ones (claims, 3.7).

A member's stamp tells at once when it is the template's own. Any other stamp, or none, proves
nothing: another implementation hashes differently. Then the spec is compared, once for all members
with the same stamp.
"""

from __future__ import annotations

import msgspec

from lean_sandbox.controllers.claim.act import ClaimAct
from lean_sandbox.controllers.warm_lines import Member
from lean_sandbox.model import names
from lean_sandbox.model.blueprint import Verdict, claim_verdict, is_same_blueprint
from lean_sandbox.model.template import TemplateView
from lean_sandbox.watch.store import Key

_MOST_POOLS = 1024


class Judge(msgspec.Struct):
    """Judges the members of one pool by one state of its template."""

    template: TemplateView
    # By stamp, as far as specs were compared.
    verdicts: dict[str, Verdict] = {}

    def by_stamp(self, member: Member) -> Verdict:
        """Return what the stamp of a member tells."""
        known = self.verdicts.get(member.mark) if member.mark else None
        return known or claim_verdict(self.template, {names.TEMPLATE_HASH_LABEL: member.mark})

    def may_be_fresh(self, member: Member) -> bool:
        """Tell whether a member is worth taking in hand."""
        return self.by_stamp(member) is not Verdict.STALE


class Freshness:
    """Judges members, and remembers what was compared as long as the template stays the same."""

    def __init__(self, act: ClaimAct) -> None:
        self._act = act
        self._judges: dict[Key, Judge] = {}

    def judge(self, pool: Key, template: TemplateView) -> Judge:
        """Return the judge of a pool's members."""
        held = self._judges.get(pool)
        if held is None or held.template is not template:
            self._judges.pop(pool, None)
            if len(self._judges) >= _MOST_POOLS:
                # The one that was made first: it costs comparisons again, not more.
                del self._judges[next(iter(self._judges))]
            held = self._judges[pool] = Judge(template)
        return held

    async def is_fresh(self, judge: Judge, member: Member) -> bool:
        """Tell whether a member in hand still fits. At most one GET for each unknown stamp."""
        verdict = judge.by_stamp(member)
        if verdict is Verdict.UNDECIDED:
            whole = await self._act.peek_sandbox(member.key)
            if whole is None or whole.metadata.uid != member.uid:
                return False
            is_same = is_same_blueprint(judge.template, whole.spec)
            verdict = Verdict.FRESH if is_same else Verdict.STALE
            if member.mark:
                judge.verdicts[member.mark] = verdict
        return verdict is Verdict.FRESH
