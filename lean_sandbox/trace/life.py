"""What is remembered of an object, and the table in which a person reads it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, Literal, TypeAlias

import msgspec

from lean_sandbox.log import aligned
from lean_sandbox.model.times import format_micro_time
from lean_sandbox.watch.kind import Key

PATH: Final = "/debug/trace"
CLAIMS: Final = "sandboxclaims"
SANDBOXES: Final = "sandboxes"
PODS: Final = "pods"
POOLS: Final = "sandboxwarmpools"
NOUNS: Final = {CLAIMS: "claim", SANDBOXES: "sandbox", PODS: "pod", POOLS: "pool"}
#: How the answer begins if nothing is remembered of an object.
NOTHING: Final = "the controller remembers nothing"
_HEAD: Final = ("     AT MS", "OBJECT", "WHAT", "   TOOK MS", "DETAIL")

Subject: TypeAlias = tuple[str, Key]
"""An object: the plural of its kind, its key."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """Something that happened to an object; ``at`` is monotonic, in seconds."""

    at: float
    plural: str
    key: Key
    #: An event of a watch, a reconcile, or a request of one.
    what: Literal["event", "reconcile", "request"]
    detail: str
    #: None for an event.
    took_s: float | None = None
    #: Of an event, kind/name of the owner that controls the object; empty for none.
    owner: str = ""


def table(
    subject: Subject, entries: list[Entry], wall_clock_at: Callable[[float], datetime]
) -> str:
    """Return one line for each entry; times count from the first one of the object itself."""
    own = (one.at for one in entries if (one.plural, one.key) == subject)
    start_s = min(own, default=entries[0].at)
    since = format_micro_time(wall_clock_at(start_s))
    head = f"{NOUNS[subject[0]]} {subject[1]}: {len(entries)} entries, 0 is {since}\n"
    rows = [
        (
            _ms(one.at - start_s),
            f"{NOUNS[one.plural]} {one.key.name}",
            one.what,
            "" if one.took_s is None else _ms(one.took_s),
            one.detail,
        )
        for one in entries
    ]
    return head + aligned(_HEAD, *rows)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000.0:10.3f}"
