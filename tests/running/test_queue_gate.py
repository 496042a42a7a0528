"""Work that nobody waits for lets more urgent work of another queue go first: never for ever."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from lean_sandbox.runtime.queue import CLIENT, LOW, WorkQueue
from tests.running.hand_clock import HandClock
from tests.support.clock import FakeClock, settle

# For how long a key waits at most, beside a few claims and beside a crowd: more than FEW.
LONGEST_S, LONGEST_BESIDE_CROWD_S, FEW = 2.0, 120.0, 32


class Gated:
    """A queue of claims and one that stands back for it, all but for the keys in ``awaited``."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or HandClock()
        self.claims: WorkQueue[str] = WorkQueue(self.clock)
        self.behind: WorkQueue[str] = WorkQueue(self.clock)
        self.awaited: set[str] = set()
        self.looks = 0
        self.behind.gate(self.hold_s, behind=self.claims)

    def hold_s(self, key: str) -> float:
        """Return for how long a key has to stand back; count how often that is asked."""
        self.looks += 1
        return 0.0 if key in self.awaited else self.claims.precedence_s(None)

    def next(self) -> str | None:
        """Take the next key, and be done with it at once."""
        item = self.behind.get_nowait()
        if item is not None:
            self.behind.done(item.key)
        return item.key if item is not None else None

    def move(self, seconds: float) -> None:
        """Let time pass."""
        assert isinstance(self.clock, HandClock)
        self.clock.move(seconds)


@pytest.fixture
def gated() -> Gated:
    """Return both queues, empty."""
    return Gated()


def test_nothing_waits_while_nothing_is_urgent(gated: Gated) -> None:
    """Without claims every key is handed out as if there was no gate."""
    gated.behind.add("a")
    assert gated.next() == "a"


def test_keys_wait_while_a_claim_is_due_or_served_and_no_longer(gated: Gated) -> None:
    """The end of the last claim hands them out, in their order."""
    gated.claims.add("claim")
    gated.behind.add("a")
    gated.behind.add("b")
    assert gated.next() is None
    gated.claims.get_nowait()
    assert gated.next() is None
    counts = gated.behind.counts()
    assert (counts["ready"], counts["delayed"]) == (0, 2)
    gated.claims.done("claim")
    assert [gated.next(), gated.next(), gated.next()] == ["a", "b", None]


def test_a_key_waits_no_longer_than_the_bound(gated: Gated) -> None:
    """However long claims keep coming, a key gets its turn; its next wait begins anew."""
    gated.claims.add("claim")
    gated.behind.add("a")
    assert gated.next() is None
    gated.move(LONGEST_S - 0.1)
    assert gated.next() is None
    gated.move(0.1)
    assert gated.next() == "a"
    gated.behind.add("a")
    assert gated.next() is None
    gated.move(LONGEST_S)
    assert gated.next() == "a"


def crowd(claims: WorkQueue[str], group: str = "", *, priority: int = CLIENT) -> None:
    """Add one claim more than are no crowd yet."""
    for number in range(FEW + 1):
        claims.add(f"{group}{number}", priority=priority)


def test_more_than_32_of_a_namespace_are_a_crowd_and_bring_two_minutes(gated: Gated) -> None:
    """Those that are served at this moment count; beside fewer it is two seconds."""
    for number in range(32):
        gated.claims.add(f"a{number}", priority=CLIENT)
    assert gated.claims.get_nowait() is not None
    assert gated.claims.precedence_s(None) == 2.0
    gated.claims.add("one more", priority=CLIENT)
    assert gated.claims.precedence_s(None) == 120.0


def test_a_key_waits_longer_beside_a_crowd(gated: Gated) -> None:
    """What is done beside many claims makes all of them late; that has a bound as well."""
    crowd(gated.claims)
    gated.behind.add("a")
    waited_s = 0.0
    while gated.next() is None:
        gated.move(0.5)
        waited_s += 0.5
    assert waited_s == LONGEST_BESIDE_CROWD_S


def test_one_claim_less_is_no_crowd(gated: Gated) -> None:
    """Beside a few claims a key waits for as long as beside one."""
    for number in range(FEW):
        gated.claims.add(f"{number}", priority=CLIENT)
    gated.behind.add("a")
    gated.move(LONGEST_S)
    assert gated.next() is None
    gated.move(LONGEST_S)
    assert gated.next() == "a"


def test_a_key_is_judged_anew_once_the_crowd_is_gone(gated: Gated) -> None:
    """The last of a crowd are served like any single claim, for which nothing waits that long."""
    crowd(gated.claims)
    gated.behind.add("a")
    item = gated.claims.get_nowait()
    assert item is not None
    assert gated.next() is None
    gated.claims.done(item.key)
    gated.move(LONGEST_S)
    assert gated.next() == "a"


def test_many_keys_that_no_client_waits_for_are_no_crowd(gated: Gated) -> None:
    """At a start every object is in line."""
    crowd(gated.claims, priority=LOW)
    gated.behind.add("a")
    assert gated.next() is None
    gated.move(LONGEST_S)
    assert gated.next() == "a"


def test_a_crowd_of_another_group_counts_as_work_alone() -> None:
    """The crowd of one tenant does not keep another's objects waiting for as long."""
    claims: WorkQueue[str] = WorkQueue(HandClock(), group_of=lambda key: key[0])
    crowd(claims, "a")
    assert (claims.precedence_s("a"), claims.precedence_s("b")) == (
        LONGEST_BESIDE_CROWD_S,
        LONGEST_S,
    )


def test_what_is_done_for_one_key_does_not_stand_back_for_it() -> None:
    """The annotations of a claim go out beside its status."""
    claims: WorkQueue[str] = WorkQueue(HandClock())
    claims.add("a")
    claims.get_nowait()
    assert claims.precedence_s(None, beside="a") == 0.0
    assert claims.precedence_s(None, beside="b") == LONGEST_S


def test_an_event_does_not_lengthen_the_wait(gated: Gated) -> None:
    """The bound counts from the first time that the key was held back."""
    gated.claims.add("claim")
    gated.behind.add("a")
    for _ in range(19):
        assert gated.next() is None
        gated.move(0.1)
        gated.behind.add("a")
    gated.move(0.1)
    assert gated.next() == "a"


def test_what_a_claim_waits_for_does_not_stand_back(gated: Gated) -> None:
    """It would let the claim wait for itself."""
    gated.claims.add("claim")
    gated.awaited.add("a")
    gated.behind.add("b")
    gated.behind.add("a")
    assert [gated.next(), gated.next()] == ["a", None]


def test_a_key_that_is_awaited_later_is_let_through_then(gated: Gated) -> None:
    """A claim that begins to wait has the keys judged anew; so has an event of the key."""
    gated.claims.add("claim")
    for key in ("a", "b", "c"):
        gated.behind.add(key)
    assert gated.next() is None
    gated.awaited.add("a")
    gated.claims.judge_behind()
    assert [gated.next(), gated.next()] == ["a", None]
    gated.awaited.add("b")
    gated.behind.add("b")
    assert [gated.next(), gated.next()] == ["b", None]


def test_keys_that_are_held_back_are_not_looked_at_again_and_again(gated: Gated) -> None:
    """Standing back costs one look a key, not one each tenth of a second."""
    gated.claims.add("claim")
    for n in range(600):
        gated.behind.add(f"{n}")
    for _ in range(19):
        assert gated.next() is None
        gated.move(0.1)
    assert gated.looks == 600


def test_a_gate_that_fails_lets_the_key_through_and_is_counted() -> None:
    """A bug in a judgement costs neither the key nor the others their turn."""
    claims: WorkQueue[str] = WorkQueue(HandClock())
    behind: WorkQueue[str] = WorkQueue(HandClock())

    def broken(key: str) -> float:
        raise LookupError(key)

    behind.gate(broken, behind=claims)
    behind.add("a")
    with capture_logs() as logs:
        item = behind.get_nowait()
    assert item is not None
    assert item.key == "a"
    assert behind.gate_errors == 1
    assert [line["event"] for line in logs] == ["gate_failed"]


async def test_the_task_that_waits_is_woken_when_the_claims_are_served() -> None:
    """Neither a timer nor another add is needed for that."""
    gated = Gated(FakeClock())
    got: list[str] = []

    async def take() -> None:
        item = await gated.behind.get()
        assert item is not None
        got.append(item.key)

    gated.claims.add("claim")
    gated.claims.get_nowait()
    gated.behind.add("a")
    async with anyio.create_task_group() as group:
        group.start_soon(take)
        await settle()
        assert got == []
        gated.claims.done("claim")
    assert got == ["a"]


async def test_the_task_that_waits_is_woken_at_the_bound() -> None:
    """A steady stream of claims does not starve what stands back."""
    gated = Gated(FakeClock())
    got: list[str] = []

    async def take() -> None:
        item = await gated.behind.get()
        assert item is not None
        got.append(item.key)

    gated.claims.add("claim")
    gated.behind.add("a")
    async with anyio.create_task_group() as group:
        group.start_soon(gated.behind.keep_time)
        group.start_soon(take)
        await gated.clock.advance(LONGEST_S - 0.1)
        assert got == []
        await gated.clock.advance(0.1)
        assert got == ["a"]
        gated.behind.close()


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans(), st.booleans()), max_size=60))
def test_no_history_of_busy_times_keeps_a_key_longer_than_the_bound(
    history: list[tuple[float, bool, bool]],
) -> None:
    """Between the first refusal and its turn the bound goes by, and one step at most."""
    gated = Gated()
    held_since: float | None = None
    gated.behind.add("a")
    for step_s, has_claims, is_event in history:
        if has_claims and not gated.claims.is_busy:
            gated.claims.add("claim")
        elif not has_claims and gated.claims.get_nowait() is not None:
            gated.claims.done("claim")
        if is_event:
            gated.behind.add("a")
        now = gated.clock.monotonic()
        if gated.next() == "a":
            held_since = None
            gated.behind.add("a")
        else:
            assert has_claims
            held_since = now if held_since is None else held_since
            assert now - held_since < LONGEST_S
        gated.move(step_s)
