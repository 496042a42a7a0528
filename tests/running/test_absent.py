"""Nothing is asked for or deleted twice that is known not to exist."""

from __future__ import annotations

import pytest

from lean_sandbox.runtime.absent import KnownAbsent, Proof
from tests.running.hand_clock import HandClock

X = ("NetworkPolicy", "default", "x")


@pytest.fixture
def clock() -> HandClock:
    """Return a clock that stands still."""
    return HandClock()


@pytest.fixture
def absent(clock: HandClock) -> KnownAbsent:
    """Return a memory in which nothing is known."""
    return KnownAbsent(1000, 600.0, clock)


class Server:
    """Counts the DELETE requests for objects, and answers whether there was one."""

    def __init__(self) -> None:
        self.objects: set[tuple[str, str, str]] = set()
        self.deletes = 0

    def delete(self, key: tuple[str, str, str]) -> bool:
        """Answer one DELETE: True for 200, False for 404."""
        self.deletes += 1
        if key in self.objects:
            self.objects.remove(key)
            return True
        return False


def make_gone(absent: KnownAbsent, server: Server, key: tuple[str, str, str]) -> None:
    """Do what a pass does that wants an object gone."""
    if absent.is_absent(*key):
        return
    since = absent.ticket()
    if not server.delete(key):
        absent.remember(*key, Proof.NOT_FOUND, since=since)


def test_ten_thousand_asks_to_delete_what_is_absent_cost_one_delete(absent: KnownAbsent) -> None:
    """One 404 is proof enough for all later asks."""
    server = Server()
    for _ in range(10_000):
        make_gone(absent, server, X)
    assert server.deletes == 1
    assert absent.saved == 9_999


def test_a_synced_watch_saves_even_the_first_delete(absent: KnownAbsent) -> None:
    """What a watch in sync does not have need not be deleted."""
    server = Server()
    absent.remember(*X, Proof.SYNCED_WATCH)
    for _ in range(10_000):
        make_gone(absent, server, X)
    assert server.deletes == 0
    assert absent.proof_of(*X) is Proof.SYNCED_WATCH


def test_an_object_that_shows_up_is_no_longer_absent(absent: KnownAbsent) -> None:
    """A sighting voids the proof at once, so the object is deleted after all."""
    server = Server()
    make_gone(absent, server, X)
    server.objects.add(X)
    absent.forget(*X)
    make_gone(absent, server, X)
    assert X not in server.objects


def test_an_answer_older_than_a_sighting_is_not_believed(absent: KnownAbsent) -> None:
    """A 404 that was overtaken by the creation and its event proves nothing."""
    since = absent.ticket()
    absent.forget(*X)
    assert not absent.remember(*X, Proof.NOT_FOUND, since=since)
    assert not absent.is_absent(*X)
    assert absent.remember(*X, Proof.NOT_FOUND, since=absent.ticket())
    assert absent.is_absent(*X)


def test_sightings_of_others_do_not_make_an_answer_old(absent: KnownAbsent) -> None:
    """Only the object itself and its kind count."""
    since = absent.ticket()
    absent.forget("NetworkPolicy", "default", "y")
    absent.new_epoch("Service")
    assert absent.remember(*X, Proof.NOT_FOUND, since=since)


def test_a_new_epoch_forgets_all_of_its_kind_and_nothing_else(absent: KnownAbsent) -> None:
    """After a gap of one watch its kind has to be proven anew, other kinds not."""
    for n in range(100):
        absent.remember("Service", "default", f"{n}", Proof.SYNCED_WATCH)
    absent.remember(*X, Proof.NOT_FOUND)
    since = absent.ticket()
    absent.new_epoch("Service")
    assert not any(absent.is_absent("Service", "default", f"{n}") for n in range(100))
    assert absent.is_absent(*X)
    assert not absent.remember("Service", "default", "0", Proof.NOT_FOUND, since=since)
    assert absent.remember("Service", "default", "0", Proof.NOT_FOUND, since=absent.ticket())
    assert absent.is_absent("Service", "default", "0")


def test_an_entry_expires_after_its_time(clock: HandClock, absent: KnownAbsent) -> None:
    """The time limit is the safety net under a lost event."""
    absent.remember(*X, Proof.NOT_FOUND)
    clock.move(599)
    assert absent.is_absent(*X)
    clock.move(1)
    assert not absent.is_absent(*X)


def test_the_memory_is_bounded(clock: HandClock) -> None:
    """However many names come by, entries and sightings stay within their limits."""
    absent = KnownAbsent(100, 600.0, clock, max_sightings=50)
    for n in range(1000):
        absent.remember("Service", "default", f"{n}", Proof.NOT_FOUND)
        absent.forget("Service", "default", f"s{n}")
    assert len(absent) == 100
    assert len(absent._sightings) == 50


def test_an_answer_older_than_every_kept_sighting_is_not_believed(clock: HandClock) -> None:
    """Dropping a sighting for room must not make an old answer believable."""
    absent = KnownAbsent(100, 600.0, clock, max_sightings=2)
    since = absent.ticket()
    absent.forget(*X)
    for n in range(5):
        absent.forget("Service", "default", f"{n}")
    assert not absent.remember(*X, Proof.NOT_FOUND, since=since)
    assert absent.outdated == 1
