"""The memory of namespaces in which nothing can be created any more."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.kube.client import ENDING_S, TerminatingNamespaces
from lean_sandbox.kube.errors import (
    Asked,
    Forbidden,
    Status,
    StatusCause,
    StatusDetails,
    message_of,
)
from tests.support.clock import FakeClock

ENDS = StatusDetails(causes=(StatusCause(reason="NamespaceTerminating"),))


def refusal(namespace: str) -> Forbidden:
    """Return the server's refusal to create in a namespace that ends."""
    words = Status(message=f"{namespace} ends", details=ENDS)
    return Forbidden(403, words, Asked(namespace=namespace))


async def test_a_refusal_is_believed_for_half_a_minute_and_in_its_own_namespace() -> None:
    """The words are the server's, the error is a new one each time."""
    clock = FakeClock()
    ending = TerminatingNamespaces(clock)
    ending.remember("a", refusal("a"))
    raised = []
    for _ in range(2):
        with pytest.raises(Forbidden, match="a ends") as told:
            ending.enter("a")
        raised.append(told.value)
    assert raised[0] is not raised[1]
    assert all(one.namespace_terminating and not one.retryable for one in raised)
    assert "b" not in ending
    await clock.advance(29.5)
    assert "a" in ending
    await clock.advance(0.5)
    assert "a" not in ending


def test_what_was_said_of_one_object_is_not_said_of_another() -> None:
    """Only why: not what was asked for, and not its name."""
    why = "unable to create new content in namespace a because it is being terminated"
    words = Status(message=f'pods "one" is forbidden: {why}', details=ENDS)
    ending = TerminatingNamespaces(FakeClock())
    ending.remember("a", Forbidden(403, words, Asked("create", "pods", "a")))
    with pytest.raises(Forbidden) as refused:
        ending.enter("a")
    assert message_of(refused.value) == why
    assert str(refused.value) == (
        f"create in namespace 'a': 403: {why};"
        " the namespace is being deleted, nothing can be created in it"
    )


async def test_after_that_one_create_is_tried_and_the_others_wait_for_its_answer() -> None:
    """Many that come back at the same moment are one request."""
    clock = FakeClock()
    ending = TerminatingNamespaces(clock)
    ending.forget("a")
    ending.enter("a")
    ending.remember("a", refusal("a"))
    await clock.advance(ENDING_S)
    ending.enter("a")
    for _ in range(3):
        with pytest.raises(Forbidden, match="a ends"):
            ending.enter("a")
    # Its answer never came.
    await clock.advance(5.0)
    ending.enter("a")
    ending.forget("a")
    ending.enter("a")
    ending.enter("a")
    assert len(ending._refusals) == 0


def test_a_missing_right_is_no_end() -> None:
    """Only the cause NamespaceTerminating says that a namespace ends."""
    ending = TerminatingNamespaces(FakeClock())
    ending.remember("a", Forbidden(403, Status(message="no")))
    assert "a" not in ending
    assert len(ending._refusals) == 0


@given(st.lists(st.integers(0, 400), max_size=1000))
def test_the_memory_is_bounded_and_keeps_the_latest(numbers: list[int]) -> None:
    """At most 256 namespaces; of more, those that were refused last."""
    ending = TerminatingNamespaces(FakeClock())
    for number in numbers:
        ending.remember(f"n{number}", refusal(f"n{number}"))
    latest = list(dict.fromkeys(reversed(numbers)))[:256]
    assert len(ending._refusals) == len(latest)
    assert all(f"n{number}" in ending for number in latest)


def test_the_memory_of_a_refusal_holds_neither_the_request_nor_a_long_reason() -> None:
    """An error that was raised keeps what its request was made of; that is not kept along."""
    ending = TerminatingNamespaces(FakeClock())
    made: list[weakref.ref[set[str]]] = []

    def create() -> None:
        body = {"stands for a large body"}
        made.append(weakref.ref(body))
        raise Forbidden(403, Status(message="x" * 1_000_000, details=ENDS), Asked(namespace="a"))

    try:
        create()
    except Forbidden as error:
        ending.remember("a", error)
    gc.collect()
    assert made[0]() is None
    with pytest.raises(Forbidden) as refused:
        ending.enter("a")
    assert len(message_of(refused.value)) < 2_000
