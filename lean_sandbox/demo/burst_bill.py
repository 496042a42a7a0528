"""The bill of a burst of claims, and the tables it is shown in."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from lean_sandbox.demo.figures import REFERENCE_BURST, REFERENCE_CLAIM_WRITES
from lean_sandbox.demo.ledger import Cost
from lean_sandbox.demo.tables import Screen


class BurstBill(msgspec.Struct, frozen=True):
    """What binding many claims at once cost, the refill of their pool included.

    Binding times run from just before a claim is created to when the watch of its owner showed it
    Ready with a Sandbox.
    """

    pool: int
    claims: int
    filled_s: float
    bind_p50_s: float
    bind_p99_s: float
    refilled_s: float
    requests: dict[str, int]
    writes: int
    reads: int
    event_posts: int
    conflicts: int
    passes: dict[str, int]
    received_bytes: int

    @classmethod
    def of(
        cls, pool: int, filled_s: float, latencies_s: Sequence[float], refilled_s: float, cost: Cost
    ) -> BurstBill:
        """Build the bill from what was counted."""
        return cls(
            pool=pool,
            claims=len(latencies_s),
            filled_s=round(filled_s, 3),
            bind_p50_s=round(percentile(latencies_s, 50), 4),
            bind_p99_s=round(percentile(latencies_s, 99), 4),
            refilled_s=round(refilled_s, 3),
            requests=cost.requests_by_name(),
            writes=cost.writes,
            reads=cost.reads,
            event_posts=cost.event_posts,
            conflicts=cost.conflicts,
            passes=dict(cost.passes_by.most_common()),
            received_bytes=cost.received_bytes,
        )


def percentile(values: Sequence[float], rank: float) -> float:
    """Return the smallest value that ``rank`` percent of the values do not exceed, 0 of none."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(len(values) * rank / 100) - 1)]


def print_burst(bill: BurstBill, screen: Screen) -> None:
    """Print the bill as tables, beside the reference's measured figures."""
    count = bill.claims
    screen.table(
        f"The burst: requests by verb and resource ({count} claims, the refill included)",
        ("request", "all", "each"),
        [(name, str(number), f"{number / count:.2f}") for name, number in bill.requests.items()],
    )
    screen.table(
        "The burst: passes by controller",
        ("controller", "all", "each"),
        [(name, str(number), f"{number / count:.2f}") for name, number in bill.passes.items()],
    )
    reference = REFERENCE_BURST
    requests = bill.writes + bill.reads + bill.event_posts
    screen.table(
        "The burst beside the reference controller",
        ("", "lean-sandbox", "reference"),
        [
            ("claims at once", str(count), str(reference.claims)),
            ("members of the pool", str(bill.pool), str(reference.pool)),
            ("bound, p50", _seconds(bill.bind_p50_s), _seconds(reference.p50_s)),
            ("bound, p99", _seconds(bill.bind_p99_s), _seconds(reference.p99_s)),
            ("requests for each claim", f"{requests / count:.1f}", f"{reference.requests:g}"),
            (
                "  writes, without Events",
                f"{bill.writes / count:.2f}",
                f"{REFERENCE_CLAIM_WRITES} (one claim alone)",
            ),
            ("answers 409", str(bill.conflicts), str(reference.conflicts)),
            (
                "KiB received for each claim",
                f"{bill.received_bytes / 1024 / count:.1f}",
                f"{reference.received_kib:g}",
            ),
            ("CPU for each claim", "not told apart here", f"{reference.cpu_ms:g} ms"),
        ],
    )
    screen.say(
        "Reference: the same controller with extensions, 300 claims at once on a pool of 600 on a"
        " real API server."
    )
    screen.say("Here server, nodes, controller and user share one process and its CPU.")


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"
