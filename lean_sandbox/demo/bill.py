"""The bill of the demo: what each act cost the controller, beside the reference's figures.

The reference was measured on a real kube-apiserver 1.36.3 with etcd 3.6.7 and simulated nodes, two
cores, the kubernetes-sigs/agent-sandbox controller of late August 2026 with default flags: 2000
cold Sandboxes, one claim on a pool of two, and 300 claims at once on a pool of 600.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from lean_sandbox.bench.controller import Cost
from lean_sandbox.bench.report import Screen, percentile

# Of the reference: each for one cold Sandbox, then for one claim of the burst, refill included.
_COLD: Final = {
    "writes": 10.6,
    "status": 5.6,
    "pods": 3.2,
    "sandboxes": 1.9,
    "conflicts": 2.2,
    "received_kib": 42.0,
}
_BURST_CLAIMS: Final = 300
_BURST_POOL: Final = 600
_BURST_CONFLICTS: Final = 422
_BURST_S: Final = {50: 11.2, 99: 22.5}
_CLAIM_REQUESTS: Final = 20.3
_CLAIM_RECEIVED_KIB: Final = 107.0
_CLAIM_CPU_MS: Final = 57.0
# One claim alone, without Events.
_CLAIM_WRITES: Final = 19


class Bill(msgspec.Struct, frozen=True):
    """What a stretch of the demo cost the controller. ``reads`` are GETs and list pages."""

    took_s: float
    requests: dict[str, int]
    writes: int
    reads: int
    event_posts: int
    conflicts: int
    passes: dict[str, int]
    sent_bytes: int
    received_bytes: int

    def passes_in_all(self) -> int:
        """Return the passes of all controllers."""
        return sum(self.passes.values())


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

    Binding times run from just before a claim is created to when the watch of its owner showed it
    Ready with a Sandbox.
    """

    pool: int
    claims: int
    filled_s: float
    bind_p50_s: float
    bind_p99_s: float
    refilled_s: float
    bill: Bill


class Account(msgspec.Struct, frozen=True):
    """The whole demo."""

    steps: list[Step]
    launch: Launch
    burst: Burst | None = None


def bill_of(cost: Cost, took_s: float) -> Bill:
    """Return the bill of what was counted in a stretch."""
    total, without_events = cost.total or 0, cost.without_events or 0
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
    pool: int, filled_s: float, latencies_s: Sequence[float], refilled_s: float, bill: Bill
) -> Burst:
    """Return the account of a burst from the binding times that were seen."""
    return Burst(
        pool=pool,
        claims=len(latencies_s),
        filled_s=round(filled_s, 3),
        bind_p50_s=round(percentile(latencies_s, 50) or 0.0, 4),
        bind_p99_s=round(percentile(latencies_s, 99) or 0.0, 4),
        refilled_s=round(refilled_s, 3),
        bill=bill,
    )


def print_account(account: Account, screen: Screen) -> None:
    """Print everything as tables, beside the reference's measured figures."""
    screen.say()
    screen.table(
        "The life of one Sandbox: what each step cost the controller",
        ("step", "seconds", "writes", "reads", "events posted", "409", "passes"),
        [
            (
                one.step,
                f"{one.bill.took_s:.2f}",
                str(one.bill.writes),
                str(one.bill.reads),
                str(one.bill.event_posts),
                str(one.bill.conflicts),
                str(one.bill.passes_in_all()),
            )
            for one in account.steps
        ],
    )
    _print_launch(account.launch, screen)
    if account.burst is not None:
        screen.say()
        _print_burst(account.burst, screen)


def _print_launch(launch: Launch, screen: Screen) -> None:
    bill, count = launch.bill, launch.sandboxes
    screen.table(
        f"The launch: requests by verb and resource ({count} cold Sandboxes)",
        ("request", "all", "each"),
        _each(bill.requests, count),
    )

    def row(text: str, number: float, of_reference: str) -> tuple[str, str, str]:
        return text, f"{number / count:.2f}", f"{_COLD.get(of_reference, of_reference)}"

    def made(request: str) -> int:
        return bill.requests.get(request, 0)

    screen.table(
        "The launch beside the reference controller, for each Sandbox",
        ("", "lean-sandbox", "reference"),
        [
            row("writes, without Events", bill.writes, "writes"),
            row("  status patches", made("patch sandboxes/status"), "status"),
            row("  POST Pod", made("create pods"), "pods"),
            row("  other patches of the Sandbox", made("patch sandboxes"), "sandboxes"),
            row("answers 409", bill.conflicts, "conflicts"),
            row("reads", bill.reads, "0 (full informers)"),
            row("reconcile passes", bill.passes_in_all(), "up to 7"),
            row("KiB received", bill.received_bytes / 1024, "received_kib"),
        ],
    )
    screen.table(
        "The launch: watch events, and why they were dropped",
        ("kind", "seen", "known: own echo or older", "nothing relevant", "passed", "passed by"),
        [
            (
                kind,
                str(events.seen),
                str(events.dropped_known),
                str(events.dropped_unchanged),
                str(events.passed),
                ", ".join(f"{leaf} {number}" for leaf, number in events.passed_by.items()) or "-",
            )
            for kind, events in launch.watch_events.items()
        ],
    )
    screen.say(
        "Reference: kubernetes-sigs/agent-sandbox of late August 2026, 2000 cold Sandboxes on a"
        " real API server."
    )
    screen.say("Its worst launch on record took 34 requests and seven passes for one Pod start.")


def _print_burst(burst: Burst, screen: Screen) -> None:
    bill, count = burst.bill, burst.claims
    screen.table(
        f"The burst: requests by verb and resource ({count} claims, the refill included)",
        ("request", "all", "each"),
        _each(bill.requests, count),
    )
    screen.table(
        "The burst: passes by controller", ("controller", "all", "each"), _each(bill.passes, count)
    )
    requests = sum(bill.requests.values())
    screen.table(
        "The burst beside the reference controller",
        ("", "lean-sandbox", "reference"),
        [
            ("claims at once", str(count), str(_BURST_CLAIMS)),
            ("members of the pool", str(burst.pool), str(_BURST_POOL)),
            ("bound, p50", _seconds(burst.bind_p50_s), _seconds(_BURST_S[50])),
            ("bound, p99", _seconds(burst.bind_p99_s), _seconds(_BURST_S[99])),
            ("requests for each claim", f"{requests / count:.1f}", f"{_CLAIM_REQUESTS:g}"),
            (
                "  writes, without Events",
                f"{bill.writes / count:.2f}",
                f"{_CLAIM_WRITES} (one claim alone)",
            ),
            ("answers 409", str(bill.conflicts), str(_BURST_CONFLICTS)),
            (
                "KiB received for each claim",
                f"{bill.received_bytes / 1024 / count:.1f}",
                f"{_CLAIM_RECEIVED_KIB:g}",
            ),
            ("CPU for each claim", "not told apart here", f"{_CLAIM_CPU_MS:g} ms"),
        ],
    )
    screen.say(
        "Reference: the same controller with extensions, 300 claims at once on a pool of 600 on a"
        " real API server."
    )
    screen.say("Here server, nodes, controller and user share one process and its CPU.")


def _each(counted: Mapping[str, int], count: int) -> list[tuple[str, str, str]]:
    return [(name, str(number), f"{number / count:.2f}") for name, number in counted.items()]


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"
