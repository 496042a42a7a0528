"""What a rollout decides by: how many members may be missing, and which are to be deleted now."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from lean_sandbox.companions.kinds import CompanionSandboxEntry

_SHARE: Final = re.compile(r"([0-9]{1,9})(%?)", re.ASCII)
_WHOLE: Final = 100
#: How far a rollout is, the first word of its status.
PROGRESSING: Final = "Progressing"
STALLED: Final = "Stalled"
COMPLETE: Final = "Complete"


class Share(msgspec.Struct, frozen=True):
    """How many members may be missing: a number of them, or a part of all."""

    number: int
    is_percent: bool

    def of(self, replicas: int) -> int:
        """Return how many of ``replicas`` that are: at least one, parts are rounded down."""
        return max(1, replicas * self.number // _WHOLE) if self.is_percent else self.number


def read_share(text: str) -> Share:
    """Return what the annotation permits. Raises ValueError."""
    found = _SHARE.fullmatch(text)
    number = int(found[1]) if found is not None else 0
    is_percent = found is not None and found[2] != ""
    if number < 1 or (is_percent and number > _WHOLE):
        raise ValueError("is neither a whole number from 1 nor a part from 1% to 100%")
    return Share(number, is_percent)


class FreeMembers(msgspec.Struct, frozen=True):
    """The free members of a pool that nobody deletes: whether they are old, and whether ready."""

    wanted: int
    renewed: list[CompanionSandboxEntry] = []
    starting: list[CompanionSandboxEntry] = []
    old: list[CompanionSandboxEntry] = []
    old_unready: list[CompanionSandboxEntry] = []

    @property
    def left(self) -> int:
        """How many are old."""
        return len(self.old) + len(self.old_unready)

    @property
    def missing(self) -> int:
        """How many places have no member that is ready."""
        return max(0, self.wanted - len(self.renewed) - len(self.old))

    @property
    def made_last(self) -> CompanionSandboxEntry | None:
        """The newest of the old ones, unless a new one was made as late as it."""
        old = max(self.old + self.old_unready, key=_date_of, default=None)
        new = max(map(_date_of, self.renewed + self.starting), default="")
        return old if old is not None and old.created_at > new else None

    @property
    def in_renewal(self) -> int:
        """How many places have no member, or a new one that is not ready."""
        return max(0, self.missing - len(self.old_unready))


def _date_of(member: CompanionSandboxEntry) -> str:
    return member.created_at


def choose(census: FreeMembers, permitted: int) -> list[CompanionSandboxEntry]:
    """Return the old members to delete now, so that no more than are permitted are missing.

    One that is not ready is missing already; as many of them go at a time. Of the others the newest
    goes first, as claims take the oldest.
    """
    unready = census.old_unready[: max(0, permitted - census.in_renewal)]
    newest_first = sorted(census.old, key=lambda one: (one.created_at, one.key), reverse=True)
    return unready + newest_first[: max(0, permitted - census.missing)]


def state_of(census: FreeMembers, permitted: int, *, is_stuck: bool) -> str:
    """Return how far a rollout is; it ends when it could go on and no old member is left."""
    if not census.left and census.missing < permitted:
        return COMPLETE
    return STALLED if is_stuck else PROGRESSING


def status_of(state: str, census: FreeMembers) -> str:
    """Return the status that is written on a pool."""
    if state == COMPLETE:
        return state
    return f"{state} {len(census.renewed)}/{census.wanted}"


def word_of(status: str) -> str:
    """Return how far a rollout is by its status."""
    return status.partition(" ")[0]
