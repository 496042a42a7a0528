"""Draws the figures for a terminal, or for a pipe, with rich."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lean_sandbox.log import printable
from lean_sandbox.model.times import parse_rfc3339
from lean_sandbox.top.figures import (
    ClaimFigures,
    ControllerFigures,
    Figures,
    LastClaim,
    NotReady,
    PoolFigures,
    UntilReady,
)

_MIB: Final = 1024 * 1024
# Above the rows of each table: a space and its titles.
_TABLE_LINES: Final = 2
# The rows of a table for which there is always room.
_LEAST_ROWS: Final = 3
# The cells of the table of pools beside names and bars; and how long a bar may be.
_POOL_CELLS: Final = 62
_SHORTEST_BAR: Final = 6
_LONGEST_BAR: Final = 24
_FREE: Final = "green"
_STARTING: Final = "yellow"
_STUCK: Final = "red"
# Of a bar: free, starting, stuck, missing.
_BLOCKS: Final = "█▓▒░"
_PLAIN_BLOCKS: Final = "#+!."


def draw(
    figures: Figures, *, width: int, height: int | None = None, is_plain: bool = False
) -> Group:
    """Return everything that fits into so many columns and lines; None: all that there is.

    ``is_plain`` draws with ASCII alone.
    """
    parts: list[RenderableType] = [*_head(figures)]
    tables = (figures.pools, figures.not_ready, figures.last_claims)
    rows = [len(table) for table in tables]
    if height is not None:
        titles = _TABLE_LINES * sum(map(bool, tables))
        rows = _shared_out(rows, height - len(parts) - titles)
    at = parse_rfc3339(figures.at)
    if figures.pools:
        blocks = _PLAIN_BLOCKS if is_plain else _BLOCKS
        parts += ["", _pools(figures.pools, rows[0], width, blocks)]
    if figures.not_ready:
        parts += ["", _not_ready(figures.not_ready, rows[1])]
    if figures.last_claims:
        parts += ["", _last_claims(figures.last_claims, rows[2], at)]
    return Group(*parts)


def _shared_out(wanted: Sequence[int], lines: int) -> list[int]:
    """Return how many rows each table gets of these lines, none more than it wants."""
    given = [min(one, _LEAST_ROWS) for one in wanted]
    left = max(0, lines - sum(given))
    short = [at for at, one in enumerate(wanted) if one > given[at]]
    for done, at in enumerate(short):
        more = min(wanted[at] - given[at], left // (len(short) - done))
        given[at] += more
        left -= more
    return given


# -- the head --------------------------------------------------------------------------------------


def _head(figures: Figures) -> Iterable[Text]:
    where = f"namespace {figures.namespace}" if figures.namespace else "all namespaces"
    first = Text(no_wrap=True, overflow="ellipsis")
    first.append("lean-sandbox top", style="bold")
    first.append(f"  {figures.server}, {where}, {figures.at}", style="dim")
    yield first
    sandboxes = figures.sandboxes
    yield _line("Sandboxes", f"{sandboxes.ready:,} of {sandboxes.total:,} Ready")
    yield _line("Claims", _claims(figures.claims))
    if (took := figures.claims.until_ready).claims:
        yield _line("Until Ready", _until_ready(took))
    if figures.controller is not None:
        yield _line("Controller", _controller(figures.controller))
    for problem in figures.problems:
        yield Text(printable(problem), style=_STUCK, no_wrap=True, overflow="ellipsis")


def _line(title: str, said: str) -> Text:
    line = Text(f"{title:<13}", style="bold", no_wrap=True, overflow="ellipsis")
    return line.append(said, style="not bold")


def _claims(claims: ClaimFigures) -> str:
    said = f"{claims.ready:,} of {claims.total:,} Ready"
    return said if claims.per_second is None else f"{said}, {claims.per_second:g} new a second"


def _until_ready(took: UntilReady) -> str:
    said = [
        f"{name} {_milliseconds(value)}"
        for name, value in (("p50", took.p50_ms), ("p99", took.p99_ms), ("longest", took.max_ms))
        if value is not None
    ]
    return f"{', '.join(said)}, of the last {took.claims:,} claims"


def _controller(said: ControllerFigures) -> str:
    facts = []
    if said.memory_bytes is not None:
        facts.append(f"{said.memory_bytes / _MIB:.0f} MiB")
    if said.cores is not None:
        facts.append(f"{said.cores:.1%} of a core")
    if said.queued is not None:
        facts.append(f"{said.queued:.0f} queued")
    if said.warm is not None and said.cold is not None and (total := said.warm + said.cold):
        facts.append(f"{said.warm / total:.0%} of {total:,.0f} claims warm since its start")
    if said.is_leading is False:
        facts.append("does not lead")
    if said.failing_watches:
        facts.append(f"cannot watch {', '.join(said.failing_watches)}")
    return ", ".join(facts) or "says nothing of itself"


def _milliseconds(value: float) -> str:
    if value < 1000.0:
        return f"{value:.0f} ms"
    return f"{value / 1000.0:.1f} s" if value < 60_000.0 else _age(value / 1000.0)


def _age(seconds: float) -> str:
    whole = max(0, int(seconds))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


# -- tables ----------------------------------------------------------------------------------------


def _table(title: str, shown: int, total: int, *columns: tuple[str, bool]) -> Table:
    """Return a table without rows; each column has a title, and may be of numbers."""
    more = f"  {total - shown} more" if shown < total else ""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(_cell(f"{title}{more}"), header_style="bold")
    for name, is_number in columns:
        table.add_column(_cell(name), justify="right" if is_number else "left", no_wrap=is_number)
    return table


def _cell(text: str, style: str = "") -> Text:
    """Return a cell of words that others may have written, cut where there is no room for it."""
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _pools(pools: Sequence[PoolFigures], rows: int, width: int, blocks: str) -> Table:
    table = _table(
        "POOL",
        rows,
        len(pools),
        ("", False),
        ("FREE", True),
        ("OF", True),
        ("STARTING", True),
        ("STUCK", True),
        ("CLAIMED", True),
        ("WARM", True),
        ("WAITING", True),
        ("", False),
    )
    largest = sorted(pools, key=lambda pool: (not (pool.cause or pool.stuck), -pool.desired))
    shown = sorted(largest[:rows], key=lambda pool: (pool.namespace, pool.name))
    longest = max(len(pool.namespace) + len(pool.name) for pool in pools)
    bar = max(_SHORTEST_BAR, min(_LONGEST_BAR, width - _POOL_CELLS - longest))
    for pool in shown:
        share = pool.warm_share
        table.add_row(
            _cell(f"{pool.namespace}/{pool.name}"),
            _bar(pool, bar, blocks),
            f"{pool.free:,}",
            f"{pool.desired:,}",
            _number(pool.starting, _STARTING),
            _number(pool.stuck, _STUCK),
            _number(pool.claimed),
            "" if share is None else f"{share:.0%}",
            _number(pool.waiting, _STARTING),
            _cell(pool.cause, _STUCK),
        )
    return table


def _number(count: int, style: str = "") -> Text:
    return Text(f"{count:,}" if count else "", style=style)


def _bar(pool: PoolFigures, width: int, blocks: str) -> Text:
    """Return a bar as long as all that the pool has, or should have."""
    members = (pool.free, pool.starting, pool.stuck)
    whole = max(pool.desired, sum(members))
    bar = Text(no_wrap=True)
    if not whole:
        return bar
    drawn = 0
    reached = 0
    for count, block, style in zip(members, blocks, (_FREE, _STARTING, _STUCK), strict=False):
        reached += count
        upto = round(reached * width / whole)
        # However few, some are to be seen, and however many, a gap is.
        if count and upto == drawn < width:
            upto += 1
        if reached < whole:
            upto = min(upto, width - 1)
        bar.append(block * (upto - drawn), style=style)
        drawn = max(drawn, upto)
    bar.append(blocks[3] * (width - drawn), style="dim")
    return bar


def _not_ready(groups: Sequence[NotReady], rows: int) -> Table:
    table = _table("NOT READY", rows, len(groups), ("", True), ("REASON", False), ("", False))
    for one in groups[:rows]:
        style = _STUCK if one.is_refused else ""
        plural = {"claim": "claims", "sandbox": "Sandboxes"}[one.kind]
        example = f"{one.example_namespace}/{one.example_name}: " if one.example_name else ""
        table.add_row(
            Text(plural, style=style),
            Text(f"{one.count:,}", style=style),
            _cell(one.reason or "no condition yet", style),
            _cell(f"{example}{one.message}", "dim"),
        )
    return table


def _last_claims(claims: Sequence[LastClaim], rows: int, at: datetime) -> Table:
    table = _table(
        "LAST CLAIMS",
        rows,
        len(claims),
        ("AGE", True),
        ("POOL", False),
        ("SANDBOX", False),
        ("LAUNCH", False),
        ("READY AFTER", True),
        ("", False),
    )
    for claim in claims[:rows]:
        age_s = (at - parse_rfc3339(claim.created_at)).total_seconds()
        table.add_row(
            _cell(f"{claim.namespace}/{claim.name}"),
            _age(age_s),
            _cell(claim.pool),
            _cell(claim.sandbox),
            Text(claim.launch, style=_STARTING if claim.launch == "cold" else ""),
            "" if claim.took_ms is None else _milliseconds(claim.took_ms),
            _cell("" if claim.is_ready else claim.reason or "new", _STARTING),
        )
    return table
