"""What is made of the word that the column Status shows of a Pod."""

from __future__ import annotations

import pytest

from lean_sandbox.watch.resources.pod import PodEntry, pod_kind
from tests.watch.hand import Hand
from tests.watch.objects import pod, pod_meta, pod_row, table


def shown(status: str, ready: str = "0/1", *later: str) -> PodEntry:
    """Return what is remembered of a Pod after rows with these words."""
    hand: Hand[PodEntry] = Hand(pod_kind())
    hand.saw(pod_row("ADDED", "a", 10, first=True, status=status, ready=ready))
    for version, word in enumerate(later, 11):
        hand.saw(pod_row("MODIFIED", "a", version, status=word, ready=ready))
    return hand.get("a")


@pytest.mark.parametrize(
    ("status", "ready", "hint"),
    [
        ("Running", "1/1", "ready"),
        ("Running", "2/2", "ready"),
        ("Running", "0/0", "running"),
        ("Running", "1/2", "running"),
        ("Running", "", "running"),
        ("NotReady", "1/2", "running"),
        ("Terminating", "1/1", "ready"),
        ("Terminating", "0/1", "Terminating"),
        ("ContainerCreating", "0/1", "waiting"),
        ("Init:CrashLoopBackOff", "0/1", "waiting"),
        ("Init:1/2", "0/1", "waiting"),
        ("Init:Error", "0/1", "Init:Error"),
        ("Error", "0/2", "Error"),
        ("Error", "1/2", "running"),
        ("CrashLoopBackOff", "0/1", "CrashLoopBackOff"),
        ("Completed", "0/1", "Completed"),
        ("SchedulingGated", "0/1", "SchedulingGated"),
    ],
)
def test_words_of_a_pod_fall_into_classes(status: str, ready: str, hint: str) -> None:
    """What the columns settle becomes a class; any other word stands for itself."""
    assert shown(status, ready).hint == hint


@pytest.mark.parametrize(
    ("gates", "hint"),
    [
        ("<none>", "ready"),
        ("", "ready"),
        ("2/2", "ready"),
        ("1/2", "running"),
        ("0/1", "running"),
    ],
)
def test_a_pod_is_ready_whose_gates_are_open(gates: str, hint: str) -> None:
    """All of them; a cell without any is empty."""
    hand: Hand[PodEntry] = Hand(pod_kind())
    hand.saw(pod_row("ADDED", "a", 10, first=True, gates=gates))
    assert hand.get("a").hint == hint


# Why a container does not start, and the word by which that is told.
NO_START = {
    "ErrImagePull": "ErrImagePull",
    "ImagePullBackOff": "ErrImagePull",
    "ErrImageNeverPull": "ErrImageNeverPull",
    "InvalidImageName": "InvalidImageName",
    "RegistryUnavailable": "RegistryUnavailable",
    "CreateContainerConfigError": "CreateContainerConfigError",
    "CreateContainerError": "CreateContainerError",
    "ImageInspectError": "ImageInspectError",
}
ENDED = ("Error", "OOMKilled", "ContainerCannotRun", "StartError", "RunContainerError")
CALM = ("Pending", "ContainerCreating", "PodInitializing")


@pytest.mark.parametrize(("word", "trouble"), NO_START.items())
def test_what_keeps_a_container_from_starting_is_told_and_still_waits(
    word: str, trouble: str
) -> None:
    """In init containers, too; and for as long as the Pod waits: between attempts it shows none."""
    for status in (word, f"Init:{word}"):
        entry = shown(status)
        assert (entry.hint, entry.trouble) == ("waiting", trouble)
    for calm in CALM:
        assert shown(word, "0/1", calm).trouble == trouble
    assert shown(word, "0/1", "Running").trouble == ""


@pytest.mark.parametrize("word", ENDED)
def test_a_container_that_has_ended_is_told_with_the_reason(word: str) -> None:
    """Not if it was told to crash in a loop before: it does so still; and until it is ready."""
    assert shown(word).trouble == word
    assert shown("CrashLoopBackOff").trouble == "CrashLoopBackOff"
    assert shown("CrashLoopBackOff", "0/1", word).trouble == "CrashLoopBackOff"
    assert shown(word, "0/1", "CrashLoopBackOff").trouble == "CrashLoopBackOff"
    assert shown(word, "0/1", "Running").trouble == word
    assert shown(word, "1/1", "Running").trouble == ""
    assert shown("CrashLoopBackOff", "0/1", "ErrImagePull").trouble == "ErrImagePull"


@pytest.mark.parametrize("word", [*CALM, "Running", "Completed", "SchedulingGated", "Terminating"])
def test_other_words_tell_of_no_trouble(word: str) -> None:
    """They are states, or say what has been done."""
    entry = shown(word)
    assert entry.trouble == ""
    assert (entry.hint == "waiting") == (word in CALM)


def lacking(column: str) -> PodEntry:
    """Return what is remembered of a ready Pod whose server does not show a column."""
    cells = {"Ready": "1/1", "Status": "Running", "IP": "10.0.0.1", "Node": "node-1"}
    cells["Readiness Gates"] = "<none>"
    del cells[column]
    hand: Hand[PodEntry] = Hand(pod_kind())
    hand.listed(pod("a", 9))
    metadata = pod_meta("a", 10)
    hand.saw(table("MODIFIED", metadata, cells.values(), cells.keys()))
    return hand.get("a")


@pytest.mark.parametrize("column", ["Status", "Ready", "Readiness Gates", "Node", "IP"])
def test_a_row_without_a_column_hints_at_nothing(column: str) -> None:
    """Another server may not show it: the Pod is fetched, whatever the other cells say."""
    entry = lacking(column)
    assert (entry.hint, entry.needs_fetch, entry.may_be_ready) == ("", True, True)


STATES = [
    (phase, is_ready, is_deleting)
    for phase in ("Pending", "Running", "Succeeded")
    for is_ready in (True, False)
    for is_deleting in (True, False)
]


@pytest.mark.parametrize(("phase", "is_ready", "is_deleting"), STATES)
def test_a_pod_that_is_known_is_ready_while_it_runs_and_stays(
    phase: str, *, is_ready: bool, is_deleting: bool
) -> None:
    """The condition alone does not say so."""
    hand: Hand[PodEntry] = Hand(pod_kind())
    body = pod("a", 9, ready=is_ready)
    body["status"]["phase"] = phase
    if is_deleting:
        body["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    hand.listed(body)
    is_up = phase == "Running" and is_ready and not is_deleting
    assert hand.get("a").may_be_ready is is_up
