"""What the demo prints: each act as it ends, then how it compares with the reference controller.

The reference was measured on kube-apiserver 1.36.3 with etcd 3.6.7 and simulated nodes, two cores,
the kubernetes-sigs/agent-sandbox controller of late August 2026 with default flags. What is counted
for each Sandbox or claim carries from server to server; times do not, so that those of the closing
lines are of the same load on the same machine, and none of them is of the demo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from lean_sandbox.demo.bill import Account, Burst, Launch, Step
from lean_sandbox.program import called
from lean_sandbox.words import counted

# Of the reference, for each of 2000 cold Sandboxes, and of 300 claims at once with their refill.
_COLD_WRITES: Final = 10.6
_COLD_CONFLICTS: Final = 2.2
_COLD_KIB: Final = 42
_CLAIM_REQUESTS: Final = 20.3
_CLAIM_CONFLICTS: Final = 1.4
_CLAIM_KIB: Final = 107
# 300 claims at once on a pool of 600, from created to usable: the median in multiples of that of
# the four requests a claim needs, as docs/performance.md has it.
FLOORS: Final = 1.1
REFERENCE_FLOORS: Final = 5.6

_REFERENCE: Final = (
    "Reference: kubernetes-sigs/agent-sandbox of late August 2026 on kube-apiserver 1.36.3; 2000"
    " cold Sandboxes, and 300 claims at once on a pool of 600. All figures: docs/performance.md."
)
_FIRST_COLUMN: Final = 34
_TABLE_WIDTH: Final = 80


class Show:
    """Prints for people: in colour and with a bar on a terminal, plainly elsewhere."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = Console(quiet=quiet, highlight=False, markup=False)

    def say(self, text: str = "", style: str = "") -> None:
        """Print lines."""
        self._console.print(text, style=style or None)

    @contextmanager
    def bar(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show, while the block runs, how many are done; gives what sets the number."""
        columns = (TextColumn(" {task.description}"), BarColumn(), MofNCompleteColumn())
        is_off = not self._console.is_terminal
        with Progress(*columns, console=self._console, transient=True, disable=is_off) as progress:
            task = progress.add_task(title, total=total)
            yield lambda done: progress.update(task, completed=done)

    def before_life(self) -> None:
        """Say what is about to be seen, as do the next ones."""
        self.say("1. A Sandbox with nothing in reserve: its Pod has to start.", style="bold")

    def before_launch(self, count: int) -> None:
        """Say that many start at once."""
        at_once = f"{counted(count, 'Sandbox', 'Sandboxes')} at once, again without a pool"
        self.say(f"2. {at_once}: what each costs the API server.", style="bold")

    def before_burst(self, pool: int, claims: int) -> None:
        """Say what a pool is, and that it is claimed from."""
        self.say(
            f"3. A pool keeps {pool} in reserve. One claim takes one, then"
            f" {counted(claims, 'more does', 'more do')}.",
            style="bold",
        )

    def life(self, steps: Sequence[Step]) -> None:
        """Print the life of one Sandbox."""
        rows = [
            (
                step.step,
                f"{bill.took_s:.2f}",
                *map(str, (bill.writes, bill.reads, bill.event_posts)),
            )
            for step in steps
            for bill in (step.bill,)
        ]
        self._table(("", "seconds", "writes", "reads", "Events"), rows)

    def launch(self, launch: Launch) -> None:
        """Print what a cold Sandbox cost."""
        bill = launch.bill
        count = launch.sandboxes
        self._beside(
            f"for each; all Ready in {_seconds(bill.took_s)}",
            [
                ("writes, without Events", bill.writes / count, _COLD_WRITES),
                ("conflicts (answers 409)", bill.conflicts / count, _COLD_CONFLICTS),
                ("KiB received", bill.received_bytes / 1024 / count, _COLD_KIB),
            ],
        )

    def burst(self, burst: Burst) -> None:
        """Print what a claim cost."""
        bill = burst.bill
        count = burst.claims
        found = f", {burst.cold} found the pool empty" if burst.cold else ""
        self.say(
            f"  {counted(count, 'claim', 'claims')} at once: usable after"
            f" {_seconds(burst.usable_p50_s)} (median){found}"
        )
        self._beside(
            f"for each; pool full in {_seconds(burst.refilled_s)}",
            [
                ("requests, with Events and refill", _requests(burst), _CLAIM_REQUESTS),
                ("conflicts (answers 409)", bill.conflicts / count, _CLAIM_CONFLICTS),
                ("KiB received", bill.received_bytes / 1024 / count, _CLAIM_KIB),
            ],
        )

    def close(self, account: Account) -> None:
        """Print the point of it all, and what to do next."""
        launch = account.launch
        fewer = f"{_times(_COLD_WRITES, launch.bill.writes / launch.sandboxes)} fewer writes"
        said = f"A cold Sandbox takes {fewer} than with the reference controller"
        burst = account.burst
        if burst is not None:
            fewer = f"{_times(_CLAIM_REQUESTS, _requests(burst))} fewer requests"
            said += f", a {'' if burst.cold else 'warm '}claim {fewer}"
        self.say(
            f"{said}. Of 300 claims at once on kube-apiserver half are usable in {FLOORS:g} x the"
            " time of the four bare requests that each needs; with the reference in"
            f" {REFERENCE_FLOORS:g} x."
        )
        self.say(_REFERENCE, style="dim")
        if burst is not None:
            cold_s = account.steps[0].bill.took_s
            self.say(
                f"Cold {_seconds(cold_s)}, warm {_seconds(burst.alone_s)}: a claim on a full pool"
                f" is usable {_times(cold_s, burst.alone_s)} sooner than a Sandbox without one."
                " Pods are simulated: on your nodes both times are others.",
                style="bold green",
            )
        self.say()
        self.say("Next, a server to try with kubectl, and everything that was counted here:")
        for words in ("local up -d", "demo --output json"):
            # Whole, however long: it is pasted.
            self._console.print(f"  {called()} {words}", soft_wrap=True)

    def _beside(self, first: str, rows: Sequence[tuple[str, float, float]]) -> None:
        shown = [(text, f"{own:.2f}", f"{reference:g}") for text, own, reference in rows]
        self._table((first, "lean-sandbox", "reference"), shown)

    def _table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
        table.add_column(f"  {head[0]}", min_width=_FIRST_COLUMN)
        for at, name in enumerate(head[1:]):
            table.add_column(name, justify="right", style="" if at else "green")
        for first, *others in rows:
            table.add_row(f"  {first}", *others)
        if self._console.width < _TABLE_WIDTH:
            # The terminal wraps a row; a row that is cut would have other figures.
            table.width = _TABLE_WIDTH
        self._console.print(table, crop=False)
        self.say()


def _requests(burst: Burst) -> float:
    return sum(burst.bill.requests.values()) / burst.claims


def _times(theirs: float, own: float) -> str:
    factor = theirs / own
    return f"{factor:.0f} x" if factor >= 10 else f"{factor:.1f} x"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"
