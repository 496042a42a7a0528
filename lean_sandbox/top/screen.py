"""Draws the figures for a terminal, or for a pipe, with rich."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from rich.console import Group, RenderableType
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
from lean_sandbox.top.grid import Column, Piece, grid, number
from lean_sandbox.words import counted

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
        parts += ["", *_pools(figures.pools, rows[0], width, blocks)]
    if figures.not_ready:
        parts += ["", *_not_ready(figures.not_ready, rows[1], width)]
    if figures.last_claims:
        parts += ["", *_last_claims(figures.last_claims, rows[2], width, at)]
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
    last = "claim" if took.claims == 1 else counted(took.claims, "claim", "claims")
    return f"{', '.join(said)}, of the last {last}"


def _controller(said: ControllerFigures) -> str:
    facts = []
    if said.memory_bytes is not None:
        facts.append(f"{said.memory_bytes / _MIB:.0f} MiB")
    if said.cores is not None:
        facts.append(f"{said.cores:.1%} of a core")
    if said.queued is not None:
        facts.append(f"{said.queued:.0f} queued")
    if said.warm is not None and said.cold is not None and (total := said.warm + said.cold):
        claims = counted(round(total), "claim", "claims")
        facts.append(f"{said.warm / total:.0%} of {claims} warm since its start")
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


def _first(title: str, shown: int, total: int) -> Column:
    return Column(f"{title}  {total - shown} more" if shown < total else title)


def _words(text: str, style: str = "") -> list[Piece]:
    """Return a cell of words, which others may have written."""
    return [Piece(printable(text), style)]


def _figure(value: str, style: str = "") -> list[Piece]:
    return [Piece(value, style)]


def _count(count: int, style: str = "") -> list[Piece]:
    return [Piece(f"{count:,}" if count else "", style)]


def _pools(pools: Sequence[PoolFigures], shown: int, width: int, blocks: str) -> list[Text]:
    largest = sorted(pools, key=lambda pool: (not (pool.cause or pool.stuck), -pool.desired))
    chosen = sorted(largest[:shown], key=lambda pool: (pool.namespace, pool.name))
    longest = max(len(pool.namespace) + len(pool.name) for pool in pools)
    bar = max(_SHORTEST_BAR, min(_LONGEST_BAR, width - _POOL_CELLS - longest))
    columns = (
        _first("POOL", shown, len(pools)),
        Column(""),
        *map(number, ("FREE", "OF", "STARTING", "STUCK", "CLAIMED", "WARM", "WAITING")),
        Column(""),
    )
    rows = [
        (
            _words(f"{pool.namespace}/{pool.name}"),
            _bar(pool, bar, blocks),
            _figure(f"{pool.free:,}"),
            _figure(f"{pool.desired:,}"),
            _count(pool.starting, _STARTING),
            _count(pool.stuck, _STUCK),
            _count(pool.claimed),
            _figure("" if pool.warm_share is None else f"{pool.warm_share:.0%}"),
            _count(pool.waiting, _STARTING),
            _words(pool.cause, _STUCK),
        )
        for pool in chosen
    ]
    return grid(columns, rows, width)


def _bar(pool: PoolFigures, width: int, blocks: str) -> list[Piece]:
    """Return a bar as long as all that the pool has, or should have."""
    members = (pool.free, pool.starting, pool.stuck)
    whole = max(pool.desired, sum(members))
    bar: list[Piece] = []
    if not whole:
        return bar
    drawn = 0
    reached = 0
    for count, block, style in zip(members, blocks, (_FREE, _STARTING, _STUCK), strict=False):
        reached += count
        upto = round(reached * width / whole)
        # However few, some are to be seen, and however many, a gap is.
        if count and upto == drawn:
            upto += 1
        if reached < whole:
            upto = min(upto, width - 1)
        bar.append(Piece(block * (upto - drawn), style))
        drawn = max(drawn, upto)
    bar.append(Piece(blocks[3] * (width - drawn), "dim"))
    return bar


def _not_ready(groups: Sequence[NotReady], shown: int, width: int) -> list[Text]:
    columns = (
        _first("NOT READY", shown, len(groups)),
        number(""),
        Column("REASON"),
        Column(""),
    )
    rows = []
    for one in groups[:shown]:
        style = _STUCK if one.is_refused else ""
        plural = {"claim": "claims", "sandbox": "Sandboxes"}[one.kind]
        example = f"{one.example_namespace}/{one.example_name}" if one.example_name else ""
        rows.append(
            (
                _figure(plural, style),
                _figure(f"{one.count:,}", style),
                _words(one.reason or "no condition yet", style),
                _words(": ".join(filter(None, (example, one.message))), "dim"),
            )
        )
    return grid(columns, rows, width)


def _last_claims(claims: Sequence[LastClaim], shown: int, width: int, at: datetime) -> list[Text]:
    columns = (
        _first("LAST CLAIMS", shown, len(claims)),
        number("AGE"),
        *map(Column, ("POOL", "SANDBOX", "LAUNCH")),
        number("READY AFTER"),
        Column(""),
    )
    rows = [
        (
            _words(f"{claim.namespace}/{claim.name}"),
            _figure(_age((at - parse_rfc3339(claim.created_at)).total_seconds())),
            _words(claim.pool),
            _words(claim.sandbox),
            _figure(claim.launch, _STARTING if claim.launch == "cold" else ""),
            _figure("" if claim.took_ms is None else _milliseconds(claim.took_ms)),
            _words("" if claim.is_ready else claim.reason or "new", _STARTING),
        )
        for claim in claims[:shown]
    ]
    return grid(columns, rows, width)
