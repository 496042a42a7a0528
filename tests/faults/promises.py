"""What holds at every moment, whatever fails: the promises, by which ``history.py`` judges.

``oracle.py`` says what is stored once everything has come to rest. Here every version counts that
was ever stored, and every request that the controller sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Json = dict[str, Any]


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
class Facts:
    """What was so of one object, version by version, and what the controller told of it.

    A view of one object may lag behind it, and never goes back: what is told one after the other
    was true one after the other. Sequences that a lagging view explains are no fault.
    """

    known: list[tuple[int, Any]] = field(default_factory=list)
    seen: int = 0
    """The oldest version that the controller's view can have, by what it has told."""

    def add(self, version: int, fact: Any) -> None:
        """Take that ``fact`` holds from a version on."""
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
