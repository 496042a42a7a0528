"""The bill of the demo: its figures, and the tables they are shown in."""

from __future__ import annotations

import msgspec

from lean_sandbox.demo.burst_bill import BurstBill, print_burst
from lean_sandbox.demo.figures import REFERENCE_COLD
from lean_sandbox.demo.ledger import Cost, EventCount
from lean_sandbox.demo.tables import Screen


class StepRow(msgspec.Struct, frozen=True):
    """What one step in the life of a Sandbox cost the controller."""

    step: str
    took_s: float
    writes: int
    reads: int
    event_posts: int
    conflicts: int
    passes: int

    @classmethod
    def of(cls, step: str, took_s: float, cost: Cost) -> StepRow:
        """Build the row from what was counted."""
        return cls(
            step,
            round(took_s, 3),
            cost.writes,
            cost.reads,
            cost.event_posts,
            cost.conflicts,
            cost.passes,
        )


class EventRow(msgspec.Struct, frozen=True):
    """What became of the watch events of one kind, and what let them pass."""

    seen: int
    passed: int
    dropped_known: int
    dropped_unchanged: int
    passed_by: dict[str, int]

    @classmethod
    def of(cls, count: EventCount) -> EventRow:
        """Build the row from what was counted."""
        return cls(
            count.seen,
            count.passed,
            count.known,
            count.unchanged,
            dict(count.by_leaf.most_common()),
        )


class LaunchBill(msgspec.Struct, frozen=True):
    """What the launch of many Sandboxes cost, the steps before it and the burst after it."""

    sandboxes: int
    took_s: float
    requests: dict[str, int]
    writes: int
    reads: int
    event_posts: int
    conflicts: int
    passes: int
    sent_bytes: int
    received_bytes: int
    watch_events: dict[str, EventRow]
    steps: list[StepRow]
    burst: BurstBill | None = None


def print_bill(bill: LaunchBill, screen: Screen) -> None:
    """Print the bill as tables, the launch beside the reference's measured figures."""
    screen.say()
    screen.table(
        "The life of one Sandbox: what each step cost the controller",
        ("step", "seconds", "writes", "reads", "events posted", "409", "passes"),
        [
            (
                row.step,
                f"{row.took_s:.2f}",
                str(row.writes),
                str(row.reads),
                str(row.event_posts),
                str(row.conflicts),
                str(row.passes),
            )
            for row in bill.steps
        ],
    )
    count = bill.sandboxes
    screen.table(
        f"The launch: requests by verb and resource ({count} cold Sandboxes)",
        ("request", "all", "each"),
        [(name, str(number), f"{number / count:.2f}") for name, number in bill.requests.items()],
    )
    screen.table(
        "The launch beside the reference controller, for each Sandbox",
        ("", "lean-sandbox", "reference"),
        _comparison(bill),
    )
    screen.table(
        "The launch: watch events, and why they were dropped",
        ("kind", "seen", "known: own echo or older", "nothing relevant", "passed", "passed by"),
        [
            (
                kind,
                str(row.seen),
                str(row.dropped_known),
                str(row.dropped_unchanged),
                str(row.passed),
                ", ".join(f"{leaf} {number}" for leaf, number in row.passed_by.items()) or "-",
            )
            for kind, row in bill.watch_events.items()
            if row.seen
        ],
    )
    screen.say(
        "Reference: kubernetes-sigs/agent-sandbox of late August 2026, 2000 cold Sandboxes on a"
        " real API server."
    )
    screen.say("The worst launch on record took 34 requests and seven passes for one Pod start.")
    if bill.burst is not None:
        screen.say()
        print_burst(bill.burst, screen)


def _comparison(bill: LaunchBill) -> list[tuple[str, str, str]]:
    def each(number: float) -> str:
        return f"{number / bill.sandboxes:.2f}"

    requests = bill.requests
    sandbox_patches = requests.get("patch sandboxes.agents.x-k8s.io", 0)
    status = requests.get("patch sandboxes.agents.x-k8s.io/status", 0)
    reference = REFERENCE_COLD
    return [
        ("writes, without Events", each(bill.writes), f"{reference.writes:g}"),
        ("  status patches", each(status), f"{reference.status_patches:g}"),
        ("  POST Pod", each(requests.get("create pods", 0)), f"{reference.pod_creates:g}"),
        ("  other patches of the Sandbox", each(sandbox_patches), f"{reference.sandbox_patches:g}"),
        ("answers 409", each(bill.conflicts), f"{reference.conflicts:g}"),
        ("reads", each(bill.reads), "0 (full informers)"),
        ("reconcile passes", each(bill.passes), "up to 7"),
        ("KiB received", each(bill.received_bytes / 1024), f"{reference.received_kib:g}"),
    ]
