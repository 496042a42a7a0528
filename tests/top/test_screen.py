"""What is drawn fits, has what matters, and lets nobody write on the terminal."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lean_sandbox.model.times import format_rfc3339, parse_rfc3339
from lean_sandbox.top.figures import (
    ClaimFigures,
    ControllerFigures,
    Figures,
    LastClaim,
    NotReady,
    PoolFigures,
    SandboxFigures,
    until_ready,
)
from lean_sandbox.top.screen import draw

POOL = PoolFigures(
    namespace="team-a",
    name="python",
    template="python",
    desired=20,
    free=16,
    starting=2,
    stuck=1,
    claimed=41,
    warm=40,
    waiting=1,
    cause="create",
)
REFUSED = NotReady(
    kind="claim",
    reason="WarmPoolNotFound",
    count=2,
    is_refused=True,
    example_namespace="team-a",
    example_name="lost",
    message='SandboxWarmPool "nowhere" not found',
)
CLAIM = LastClaim(
    namespace="team-a",
    name="mine",
    pool="python",
    sandbox="python-4q4wm",
    launch="warm",
    is_ready=True,
    reason="DependenciesReady",
    created_at="2026-01-02T03:04:05Z",
    took_ms=12.3,
)


def figures(pools: int = 1, refused: int = 1, claims: int = 1) -> Figures:
    """Return figures with so many rows of each table."""
    return Figures(
        at="2026-01-02T03:05:05Z",
        server="https://10.0.0.1:6443",
        namespace="",
        pools=tuple(msgspec.structs.replace(POOL, name=f"python-{n}") for n in range(pools)),
        claims=ClaimFigures(
            total=41, ready=39, per_second=12.3, window_s=10.0, until_ready=until_ready([0.012])
        ),
        sandboxes=SandboxFigures(total=10_000, ready=9_712),
        not_ready=(REFUSED,) * refused,
        last_claims=tuple(msgspec.structs.replace(CLAIM, name=f"c-{n}") for n in range(claims)),
        controller=ControllerFigures(url="u", memory_bytes=62e6, cores=0.03, warm=98.0, cold=2.0),
        problems=("the watch of pods is broken",),
    )


def drawn(
    what: Figures, width: int, height: int | None = None, *, is_plain: bool = False
) -> list[str]:
    """Return the lines that a pipe of this width would get."""
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    console.print(draw(what, width=width, height=height, is_plain=is_plain))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@given(
    st.integers(0, 60),
    st.integers(0, 20),
    st.integers(0, 60),
    st.integers(30, 200),
    st.integers(24, 80),
)
def test_it_fits_into_any_window(
    pools: int, refused: int, claims: int, width: int, height: int
) -> None:
    """No line is wider than the window, and there are no more of them than it has."""
    lines = drawn(figures(pools, refused, claims), width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) <= height


WIDE = """\
lean-sandbox top  https://10.0.0.1:6443, all namespaces, 2026-01-02T03:05:05Z
Sandboxes    9,712 of 10,000 Ready
Claims       39 of 41 Ready, 12.3 new a second
Until Ready  p50 12 ms, longest 12 ms, of the last claim
Controller   59 MiB, 3.0% of a core, 98% of 100 claims warm since its start
the watch of pods is broken

POOL                                       FREE  OF  STARTING  STUCK  CLAIMED  WARM  WAITING
team-a/python-0  ###################+++!.    16  20         2      1       41   98%        1  create

NOT READY     REASON
claims     2  WarmPoolNotFound  team-a/lost: SandboxWarmPool "nowhere" not found

LAST CLAIMS  AGE  POOL    SANDBOX       LAUNCH  READY AFTER
team-a/c-0   60s  python  python-4q4wm  warm          12 ms
"""
NARROW = """\
lean-sandbox top  https://10.0.0.1:6443, all namespaces, 2026-01-02T03:…
Sandboxes    9,712 of 10,000 Ready
Claims       39 of 41 Ready, 12.3 new a second
Until Ready  p50 12 ms, longest 12 ms, of the last claim
Controller   59 MiB, 3.0% of a core, 98% of 100 claims warm since its s…
the watch of pods is broken

POOL              FREE  OF  STARTING  STUCK  CLAIMED  WARM  WAITING
team-a/…  #####.    16  20         2      1       41   98%        1  cr…

NOT READY     REASON
claims     2  WarmPoolNotFound  team-a/lost: SandboxWarmPool "nowhere"…

LAST CLAIMS  AGE  POOL    SANDBOX       LAUNCH  READY AFTER
team-a/c-0   60s  python  python-4q4wm  warm          12 ms
"""


@pytest.mark.parametrize(("width", "expected"), [(150, WIDE), (72, NARROW)])
def test_everything_that_is_known_is_told(width: int, expected: str) -> None:
    """Each table with its figures, one line for each of the others; numbers and bars are whole."""
    told = [line.rstrip() for line in drawn(figures(), width, is_plain=True)]
    assert told == expected.splitlines()


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ({}, "says nothing of itself"),
        ({"memory_bytes": 62e6}, "59 MiB"),
        ({"cores": 0.03}, "3.0% of a core"),
        ({"queued": 1234.0}, "1234 queued"),
        ({"warm": 1.0, "cold": 0.0}, "100% of 1 claim warm since its start"),
        ({"warm": 0.0, "cold": 0.0}, "says nothing of itself"),
        ({"is_leading": True}, "says nothing of itself"),
        ({"is_leading": False}, "does not lead"),
        ({"failing_watches": ("pods", "services")}, "cannot watch pods, services"),
    ],
)
def test_of_a_controller_each_thing_that_is_known_is_told(known: dict[str, Any], told: str) -> None:
    """And nothing of what its page does not have."""
    said = ControllerFigures(url="u", **known)
    lines = drawn(msgspec.structs.replace(figures(), controller=said), 150)
    assert lines[4].rstrip() == f"Controller   {told}"


@pytest.mark.parametrize(
    ("seconds", "count", "told"),
    [
        *((0.0124, 1, "p50 12 ms, longest 12 ms"), (0.9994, 1, "p50 999 ms, longest 999 ms")),
        *((1.0, 1, "p50 1.0 s, longest 1.0 s"), (59.94, 1, "p50 59.9 s, longest 59.9 s")),
        *((60.0, 2, "p50 60s, longest 60s"), (1.0, 1000, "p50 1.0 s, p99 1.0 s, longest 1.0 s")),
    ],
)
def test_a_time_has_the_unit_of_its_size(seconds: float, count: int, told: str) -> None:
    """Milliseconds below a second, tenths below a minute; and it is told of how many it is."""
    claims = msgspec.structs.replace(figures().claims, until_ready=until_ready([seconds] * count))
    lines = drawn(msgspec.structs.replace(figures(), claims=claims), 150)
    of = {1: "claim", 2: "2 claims", 1000: "1,000 claims"}[count]
    assert lines[3].rstrip() == f"Until Ready  {told}, of the last {of}"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        *((-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h")),
        *((172_799, "47h"), (172_800, "2d")),
    ],
)
def test_an_age_has_the_largest_unit_of_which_there_are_two(seconds: int, told: str) -> None:
    """A claim that the clock of the server dates into the future is new."""
    made = format_rfc3339(parse_rfc3339(figures().at) - timedelta(seconds=seconds))
    claim = msgspec.structs.replace(CLAIM, created_at=made)
    lines = drawn(msgspec.structs.replace(figures(), last_claims=(claim,)), 150)
    assert lines[-1].split()[1] == told


def test_what_has_no_message_yet_is_named_alone() -> None:
    """No colon announces what does not come."""
    what = msgspec.structs.replace(figures().not_ready[0], reason="", message="")
    lines = drawn(msgspec.structs.replace(figures(), not_ready=(what,)), 150)
    (line,) = (one for one in lines if "no condition yet" in one)
    assert line.split()[-1] == "team-a/lost"


def test_what_is_not_known_is_left_out() -> None:
    """Without times, rates, pools or a controller nothing is said of them."""
    unknown = ClaimFigures(
        total=0, ready=0, per_second=None, window_s=10.0, until_ready=until_ready([])
    )
    bare = msgspec.structs.replace(figures(0, 0, 0), claims=unknown, controller=None, problems=())
    told = [line.rstrip() for line in drawn(bare, 100)]
    assert told[1:] == ["Sandboxes    9,712 of 10,000 Ready", "Claims       0 of 0 Ready"]


def test_a_table_says_how_many_rows_it_leaves_out() -> None:
    """The largest pools stay, and those in trouble before them: of either kind, however small."""
    calm = msgspec.structs.replace(POOL, stuck=0, cause="")
    many = [msgspec.structs.replace(calm, name=f"x{n:02}", desired=100 + n) for n in range(50)]
    hanging = msgspec.structs.replace(calm, name="hangs", desired=1, stuck=1)
    refused = msgspec.structs.replace(calm, name="refused", desired=1, cause="create")
    what = msgspec.structs.replace(figures(0, 0, 0), pools=(*many, hanging, refused))
    told = drawn(what, 120, 24)
    assert "POOL  36 more" in "\n".join(told)
    shown = [line.split()[0] for line in told if line.startswith("team-a/")]
    largest = [f"team-a/x{number}" for number in range(36, 50)]
    assert shown == ["team-a/hangs", "team-a/refused", *largest]


def test_nobody_writes_on_the_terminal() -> None:
    """Escapes and line breaks in what a tenant has written are shown, not obeyed; no markup is."""
    evil = "\x1b]0;x\x07[red]\n\u202e"
    hostile = msgspec.structs.replace(REFUSED, reason=evil, message=evil)
    claim = msgspec.structs.replace(CLAIM, pool=evil, sandbox=evil, is_ready=False, reason=evil)
    what = msgspec.structs.replace(figures(), not_ready=(hostile,), last_claims=(claim,))
    told = "\n".join(drawn(what, 200))
    assert not set("\x1b\x07\u202e") & set(told)
    assert "[red]" in told


@pytest.mark.parametrize(
    ("free", "starting", "desired", "bar"),
    [
        (5, 0, 5, "#" * 24),
        (0, 0, 5, "." * 24),
        (1, 0, 1000, "#" + "." * 23),
        (999, 0, 1000, "#" * 23 + "."),
        (0, 1, 1000, "+" + "." * 23),
        (8, 2, 5, "#" * 19 + "+" * 5),
        (0, 0, 0, ""),
    ],
)
def test_a_bar_shows_the_least_and_the_gap(
    free: int, starting: int, desired: int, bar: str
) -> None:
    """However few there are, they are seen; however many, what is missing is."""
    pool = msgspec.structs.replace(
        POOL, free=free, starting=starting, stuck=0, desired=desired, cause=""
    )
    told = drawn(msgspec.structs.replace(figures(), pools=(pool,)), 160, is_plain=True)
    assert any(f"  {bar}  " in line for line in told), told


def test_of_a_pool_what_is_none_is_left_out() -> None:
    """But for how many are free, and of how many."""
    none = dict.fromkeys(("free", "starting", "stuck", "claimed", "warm", "waiting"), 0)
    pool = msgspec.structs.replace(POOL, **none, desired=3, cause="")
    lines = drawn(msgspec.structs.replace(figures(), pools=(pool,)), 150, is_plain=True)
    (row,) = (line for line in lines if line.startswith("team-a/python"))
    assert row.split() == ["team-a/python", "." * 24, "0", "3"]
