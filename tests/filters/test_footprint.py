"""What a filter costs in memory."""

from __future__ import annotations

import gc
import re
import tracemalloc
from pathlib import Path

import pytest

from filters import EventType, Filter, any_of, column, deletion, generation, labels, owners
from filters.events import ObservedObject, Owner
from tests.filters.objects import MODIFIED

PREDICATE = any_of(generation(), deletion(), labels(), owners(), column("Ready"))
OBJECTS = 5_000


def member(number: int, ready: str = "True") -> ObservedObject:
    """Return one of many Sandboxes, with texts of its own as a decoder makes them."""
    owner_uid = f"{number:08x}-owner-0000-0000-000000000000"
    return ObservedObject(
        uid=f"{number:08x}-0000-4000-8000-000000000000",
        name=f"sandbox-{number:06d}",
        namespace="default",
        generation=1,
        labels={"app": "web", "agents.x-k8s.io/sandbox-template-ref-hash": f"{number:08x}"},
        owners=(Owner(owner_uid, controller=True),),
        columns={"Ready": ready},
    )


def bytes_per_object(*, caller_keeps_the_object: bool) -> float:
    """Return the growth of the heap for each object remembered."""
    kept = [member(number) for number in range(OBJECTS)] if caller_keeps_the_object else []
    subject = Filter(PREDICATE)
    gc.collect()  # empties the interpreter's free lists, whose tuples are no growth
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(OBJECTS):
            obj = kept[number] if kept else member(number)
            subject.admit(EventType.ADDED, obj)
        del obj
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(subject._objects) == OBJECTS
    return (after - before) / OBJECTS


def test_an_object_costs_as_many_bytes_as_the_page_says() -> None:
    """Within a fifth: with the texts of its identity, and beside a program that keeps them."""
    page = " ".join((Path(__file__).parents[2] / "docs/filters.md").read_text().split())
    said = re.search(r"about (\d+) bytes for each object, its identity included, or (\d+) if", page)
    assert said is not None
    alone, beside = map(int, said.groups())
    assert bytes_per_object(caller_keeps_the_object=False) == pytest.approx(alone, rel=0.2)
    assert bytes_per_object(caller_keeps_the_object=True) == pytest.approx(beside, rel=0.2)


def test_a_dropped_event_allocates_nothing_that_stays() -> None:
    """Repeated states share one decision and leave the remembered fingerprints in place."""
    subject = Filter(PREDICATE)
    obj = member(1)
    subject.admit(EventType.ADDED, obj)
    first = subject.admit(MODIFIED, obj)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(1_000):
            assert subject.admit(MODIFIED, obj) is first
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 2_000
