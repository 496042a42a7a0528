"""Members of a pool as the cache shows them: how they do, which go first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.controllers.warmpool.members import Census, PoolMembers, find_orphans, to_delete
from lean_sandbox.controllers.warmpool.report import why_unready
from lean_sandbox.model import names
from lean_sandbox.model.conditions import Condition
from lean_sandbox.model.meta import OwnerReference, controller_reference
from lean_sandbox.model.pod import PodState
from lean_sandbox.model.sandbox import SandboxStatus
from lean_sandbox.model.times import format_rfc3339
from lean_sandbox.model.warmpool import PoolView
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources import build_caches
from lean_sandbox.watch.resources.pod import PodEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry
from tests.support.clock import FakeClock

NOW_S = 1_000_000.0
GRACE_S = 300.0
POOL = PoolView("pool", "default", "pu", pool_hash="hash")
READY = Condition("Ready", "True")
UNREADY = Condition("Ready", "False", "DependenciesNotReady")
UNSCHEDULABLE = Condition("PodScheduled", "False", "Unschedulable")


def member(name: str = "m", age_s: float | None = None, *conditions: Condition) -> SandboxEntry:
    """Return the entry of a member of that age; None: it does not say when it was created."""
    owner: OwnerReference = controller_reference(names.SANDBOX_WARM_POOL_KIND, "pool", "pu")
    created = datetime.fromtimestamp(NOW_S - (age_s or 0), UTC)
    return SandboxEntry(
        key=Key("default", name),
        uid=f"uid-{name}",
        version=1,
        generation=1,
        is_deleting=False,
        owner=owner,
        labels={names.WARM_POOL_LABEL: "hash", names.LAUNCH_TYPE_LABEL: "warm"},
        status=SandboxStatus(conditions=conditions),
        created_at="" if age_s is None else format_rfc3339(created),
    )


def counted(
    *members: SandboxEntry,
    grace_s: float = GRACE_S,
    late_s: float = 0.0,
    ahead_s: float = 0.0,
    pods: Sequence[PodEntry] = (),
) -> PoolMembers:
    """Return the census of these members, ``late_s`` after now."""
    caches = build_caches()
    now_s = NOW_S + late_s
    clock = FakeClock(datetime.fromtimestamp(now_s + ahead_s, UTC))
    context = SimpleNamespace(
        caches=caches, clock=clock, server_time=SimpleNamespace(now_s=lambda: now_s)
    )
    run: Any = SimpleNamespace(
        context=context,
        sandboxes=caches.sandboxes,
        view=POOL,
        grace_s=grace_s,
        state=SimpleNamespace(kept_at={}),
    )
    with (
        patch.object(caches.sandboxes, "owned_by", lambda *_: list(members)),
        patch.object(caches.pods, "owned_by", lambda *_: list(pods)),
    ):
        return Census(run).take()


# --- readiness -----------------------------------------------------------------------------------


@pytest.mark.pool_case(62, 63)
def test_a_young_member_is_kept_and_looked_at_later() -> None:
    """Pool cases 62, 63: at 2 of 5 minutes it is due again in 3m2s; the eldest counts."""
    found = counted(member("a", 60, UNREADY), member("b", 120, UNREADY), member("c", 0, UNREADY))
    assert (len(found.active), found.checks.after_s, found.stuck, found.held) == (3, 182, [], [])
    found = counted(member("a", 120, READY))
    assert (found.ready, found.checks.after_s) == (1, None)


@pytest.mark.pool_case(64)
def test_the_end_of_grace_belongs_to_it() -> None:
    """Pool case 64: exactly at the end it is kept, one tick later it is not."""
    assert counted(member("m", 300, UNREADY)).checks.after_s == 2
    found = counted(member("m", 300, UNREADY), late_s=0.001)
    assert (found.checks.after_s, len(found.stuck)) == (None, 1)


@pytest.mark.pool_case(61, 65, 69, 71, 73, 74)
def test_past_its_grace_only_a_waiting_member_stays() -> None:
    """Pool cases 61, 65, 69, 71, 73, 74: the age of the object counts, whatever it was before."""
    old = member("m", 600, UNREADY)
    assert counted(old).stuck == [old]
    found = counted(member("m", 600, UNREADY, UNSCHEDULABLE))
    assert (len(found.held), found.stuck, found.checks.after_s) == (1, [], None)
    assert not counted(member("m", 360, UNREADY), grace_s=600).stuck
    assert counted(member("m", 3600, READY)).ready == 1
    ageless = counted(member("m", None, UNREADY))
    assert (len(ageless.active), ageless.checks.after_s, ageless.stuck) == (1, None, [])


@pytest.mark.pool_case(65, 66, 67, 70, 71)
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Condition("PodScheduled", "False", "Unschedulable"), True),
        (Condition("PodScheduled", "False", "SchedulingGated"), True),
        (Condition("PodScheduled", "False", "Other"), False),
        (Condition("PodScheduled", "Unknown", "Unschedulable"), False),
        (Condition("PodScheduled", "True", "Unschedulable"), False),
        (Condition("Ready", "False", "Unschedulable"), False),
        (None, False),
    ],
)
def test_waiting_is_told_by_the_mirrored_condition(
    condition: Condition | None,
    expected: bool,  # noqa: FBT001
) -> None:
    """Pool cases 65, 66, 67, 70, 71: False with one of two reasons."""
    found = counted(member("m", 600, *([condition] if condition else [])))
    assert (len(found.held), len(found.stuck)) == ((1, 0) if expected else (0, 1))


@pytest.mark.parametrize("ahead_s", [-1000.0, 0.0, 1000.0])
@pytest.mark.parametrize("is_ours", [True, False])
def test_grace_counts_from_the_loss_of_readiness_by_the_clock_of_the_server(
    ahead_s: float,
    is_ours: bool,  # noqa: FBT001
) -> None:
    """A wrong clock of ours shortens no grace, whoever dated the condition: it, or a right one."""
    lost = datetime.fromtimestamp(NOW_S - 40 + (ahead_s if is_ours else 0.0), UTC)
    unready = msgspec.structs.replace(UNREADY, lastTransitionTime=format_rfc3339(lost))
    one = member("m", 3600, unready)
    found = counted(one, ahead_s=ahead_s)
    assert found.stuck == []
    assert found.checks.after_s is not None
    assert found.checks.after_s >= GRACE_S - 40
    if is_ours:
        assert counted(one, ahead_s=ahead_s, late_s=GRACE_S).stuck == [one]


@pytest.mark.parametrize(
    ("condition", "has_ended"),
    [
        *(
            (Condition("Ready", "False", reason), True)
            for reason in ("PodFailed", "PodSucceeded", "SandboxExpired")
        ),
        # Another controller may call the reason something else.
        (Condition("Finished", "True", "Other"), True),
        (Condition("Finished", "False", "Other"), None),
        # Its member goes after its grace.
        (Condition("Ready", "False", "PodTerminating"), False),
        (Condition("Ready", "False", "SandboxSuspended"), False),
    ],
)
def test_what_has_ended_or_is_ending_waits_for_no_node(
    condition: Condition, *, has_ended: bool | None
) -> None:
    """A Pod that ended without a node leaves PodScheduled=False behind."""
    one = member("m", 600, condition, UNSCHEDULABLE)
    found = counted(one)
    expected = {True: ([one], [], []), False: ([], [one], []), None: ([], [], [one])}[has_ended]
    assert (found.ended, found.stuck, found.held) == expected


@pytest.mark.parametrize(
    ("pod", "is_held"),
    [
        ({}, True),
        ({"is_deleting": True}, False),
        ({"is_delete_sent": True}, False),
        ({"state": PodState(phase="Failed")}, False),
        ({"state": PodState(phase="Pending")}, True),
    ],
)
def test_a_member_whose_pod_has_ended_or_is_deleted_waits_for_no_node(
    pod: dict[str, Any],
    is_held: bool,  # noqa: FBT001
) -> None:
    """Though its status says so until it is written anew."""
    one = member("m", 600, UNREADY, UNSCHEDULABLE)
    fields: dict[str, Any] = {"is_deleting": False, "owner": None, **pod}
    found = counted(one, pods=[PodEntry(key=one.key, uid="p", version=1, **fields)])
    assert (found.held, found.stuck) == (([one], []) if is_held else ([], [one]))


@pytest.mark.parametrize(("ready_s", "is_kept"), [(900, True), (600, True), (599, False)])
@pytest.mark.parametrize("reason", ["ReconcilerError", "InvalidConfiguration"])
def test_what_is_refused_is_kept_unless_newer_members_become_ready(
    reason: str, ready_s: float, *, is_kept: bool
) -> None:
    """Then it is refused to this member alone, which goes after its grace; one as old says less."""
    refused = member("m", 600, Condition("Ready", "False", reason, "forbidden"))
    found = counted(refused, member("other", ready_s, READY))
    kept, alone = ([refused], []) if is_kept else ([], [refused])
    assert (found.refused, found.refused_alone, found.stuck) == (kept, alone, alone)


# --- scale down ----------------------------------------------------------------------------------


def names_of(members: list[SandboxEntry]) -> list[str]:
    """Return the names of members."""
    return [one.key.name for one in members]


@pytest.mark.pool_case(40, 41)
def test_as_many_as_asked_for_go() -> None:
    """Pool cases 40, 41: all when all are too many, at most a batch, none for none."""
    members = [member(f"m{n}") for n in range(700)]
    assert len(to_delete(members, 300)) == 300
    assert len(to_delete(members, 900)) == 700
    assert to_delete(members, 0) == to_delete(members, -1) == []


MEMBERS = st.lists(
    st.builds(
        member,
        st.text("abc", min_size=1, max_size=3),
        st.none() | st.integers(0, 5).map(float),
        st.sampled_from([READY, UNREADY]),
    ),
    unique_by=lambda one: one.key.name,
)


@given(MEMBERS, st.integers(0, 10), st.randoms())
def test_the_choice_of_victims_is_total_and_fair(
    members: list[SandboxEntry], count: int, random: Any
) -> None:
    """The order of listing is no matter, and nobody stays who should have gone before a victim."""
    chosen = to_delete(members, count)
    shuffled = list(members)
    random.shuffle(shuffled)

    assert to_delete(shuffled, count) == chosen
    left = [one for one in members if one not in chosen]
    for gone in chosen:
        for kept in left:
            assert counted(gone).ready <= counted(kept).ready
            if counted(gone).ready == counted(kept).ready:
                assert gone.created_at >= kept.created_at


@pytest.mark.parametrize(("age_s", "unknown"), [(10.0, 0), (11.0, 1)])
def test_a_member_has_a_status_ten_seconds_after_it_was_made(age_s: float, unknown: int) -> None:
    """One without is not counted out before it was looked at again."""
    one = msgspec.structs.replace(member("m", age_s), status=None)
    found = counted(one, grace_s=5.0)
    assert (found.unknown, len(found.stuck)) == (unknown, 1 - unknown)


def test_orphans_come_by_name_and_have_no_owner_and_no_end() -> None:
    """Somebody may have written what they are found by as the uid of an owner."""
    caches = build_caches()
    alone = {"owner": None}
    found = [
        msgspec.structs.replace(member("b", 1), **alone),
        msgspec.structs.replace(member("a", 1), **alone),
        msgspec.structs.replace(member("c", 1), **alone, is_deleting=True),
        member("d", 1),
    ]
    with patch.object(caches.sandboxes, "owned_by", lambda *_: found):
        assert [one.key.name for one in find_orphans(caches.sandboxes, POOL)] == ["a", "b"]


@pytest.mark.parametrize(
    ("conditions", "told"),
    [
        ((), "nothing is known of it yet"),
        ((Condition("Ready", "False", "Why", "because"),), "because"),
        ((Condition("Ready", "False", "Why"),), "Why"),
    ],
)
def test_a_member_says_why_it_is_not_ready(conditions: tuple[Condition, ...], told: str) -> None:
    """By its message, or else its reason."""
    assert why_unready(member("m", 1, *conditions)) == told
