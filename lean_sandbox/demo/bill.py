"""The bill of the demo: what each act cost the controller, beside the reference's figures."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lean_sandbox.bench.arithmetic import percentile
from lean_sandbox.bench.controller import Cost


class Bill(msgspec.Struct, frozen=True):
    """What a stretch of the demo cost the controller.

    ``reads`` are GETs and list pages, ``passes`` reconciles by controller, ``writes`` those without
    Events.
    """

    took_s: float
    requests: dict[str, int]
    writes: int
    reads: int
    event_posts: int
    conflicts: int
    passes: dict[str, int]
    sent_bytes: int
    received_bytes: int


class Step(msgspec.Struct, frozen=True):
    """One step in the life of a Sandbox."""

    step: str
    bill: Bill


class EventRow(msgspec.Struct, frozen=True):
    """What became of the watch events of one kind, and what let them pass."""

    seen: int
    passed: int
    dropped_known: int
    dropped_unchanged: int
    passed_by: dict[str, int]


class Launch(msgspec.Struct, frozen=True):
    """The launch of many cold Sandboxes at once."""

    sandboxes: int
    bill: Bill
    watch_events: dict[str, EventRow]


class Burst(msgspec.Struct, frozen=True):
    """Many claims at once, the refill of their pool included.

    Times run from just before a claim is created to when the watches of its owner had shown it
    usable: Ready, and the Pod of its Sandbox as one that no longer looks free. ``lag`` is how long
    it was Ready and not yet usable.
    """

    pool: int
    claims: int
    cold: int
    """Claims that found the pool empty."""
    alone_s: float
    """How long one claim took to be usable, on a full pool and while nothing else happened."""
    filled_s: float
    usable_p50_s: float
    usable_p99_s: float
    lag_max_s: float
    refilled_s: float
    bill: Bill


class Account(msgspec.Struct, frozen=True):
    """The whole demo."""

    steps: list[Step]
    launch: Launch
    burst: Burst | None = None


def bill_of(cost: Cost, took_s: float) -> Bill:
    """Return the bill of what was counted in a stretch."""
    total = cost.total or 0
    without_events = cost.without_events or 0
    return Bill(
        took_s=round(took_s, 3),
        requests=dict(sorted(cost.by_kind().items())),
        writes=cost.writes or 0,
        reads=(cost.gets or 0) + (cost.lists or 0),
        event_posts=total - without_events,
        conflicts=cost.conflicts or 0,
        passes={controller: n for (controller,), n in cost.passes.most_common()},
        sent_bytes=round((cost.sent_kib or 0) * 1024),
        received_bytes=round((cost.received_kib or 0) * 1024),
    )


def event_rows(cost: Cost) -> dict[str, EventRow]:
    """Return what became of the watch events, by kind."""
    rows: dict[str, EventRow] = {}
    for kind in sorted({kind for kind, _ in cost.events}):
        outcomes = {outcome: n for (of, outcome), n in cost.events.items() if of == kind}
        rows[kind] = EventRow(
            seen=sum(outcomes.values()),
            passed=outcomes.get("passed", 0),
            dropped_known=outcomes.get("dropped_known", 0),
            dropped_unchanged=outcomes.get("dropped_unchanged", 0),
            passed_by={leaf: n for (of, leaf), n in cost.changes.most_common() if of == kind},
        )
    return rows


def burst_of(
    pool: int,
    seen: Sequence[tuple[float, float]],
    bill: Bill,
    *,
    cold: int,
    alone_s: float,
    filled_s: float,
    refilled_s: float,
) -> Burst:
    """Return the account of a burst; ``seen`` is how long each claim took to Ready, to usable."""
    usable_s = [usable for _, usable in seen]
    return Burst(
        pool=pool,
        claims=len(seen),
        cold=cold,
        alone_s=round(alone_s, 4),
        filled_s=round(filled_s, 3),
        usable_p50_s=round(percentile(usable_s, 50) or 0.0, 4),
        usable_p99_s=round(percentile(usable_s, 99) or 0.0, 4),
        lag_max_s=round(max(usable - ready for ready, usable in seen), 4),
        refilled_s=round(refilled_s, 3),
        bill=bill,
    )
