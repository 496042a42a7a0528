"""Claims as they are remembered, and when they expire."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.model.claim import ClaimView, SandboxClaim, SandboxClaimStatus, view_of_claim
from lean_sandbox.model.claim import expire_at as claim_expires_at
from lean_sandbox.model.conditions import Condition
from lean_sandbox.model.sandbox import PodTemplateMetadata
from lean_sandbox.model.times import format_rfc3339, has_come, time_left_s
from tests.model.extensions import NOW, additional, claim_object, condition, seconds


def view(**lifecycle: Any) -> ClaimView:
    """Return the view of a claim with this lifecycle."""
    return view_of_claim(claim_object({"lifecycle": lifecycle}))


def expire_at(claim: ClaimView, finished: Condition | None) -> float | None:
    """Return when a claim with this condition expires."""
    held = SandboxClaimStatus(conditions=() if finished is None else (finished,))
    return claim_expires_at(claim, held)


def finished(ago_s: float) -> Any:
    """Return a Finished condition of that age."""
    since = format_rfc3339(NOW - seconds(ago_s))
    return condition("Finished", "True", "PodSucceeded", since=since)


def shutdown(in_s: float) -> str:
    """Return a shutdownTime."""
    return format_rfc3339(NOW + seconds(in_s))


def test_a_view_holds_what_decisions_need() -> None:
    """Flags instead of lists, seconds instead of texts, maps shared between equal claims."""
    spec = {
        "env": [{"name": "A", "value": "b"}],
        "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {}}],
        "lifecycle": {"shutdownTime": shutdown(5), "ttlSecondsAfterFinished": 9},
        **additional({"sandbox.users.io/a": "b"}, {"c": "d"}),
    }
    first = view_of_claim(claim_object(spec))
    second = view_of_claim(claim_object(spec))

    assert first == ClaimView(
        generation=7,
        pool="pool",
        needs_cold_start=True,
        shutdown_time=(NOW + seconds(5)).timestamp(),
        ttl_s=9,
        policy="Retain",
        additional=PodTemplateMetadata({"sandbox.users.io/a": "b"}, {"c": "d"}),
    )
    assert first.additional.labels is second.additional.labels


def test_a_plain_claim_is_plain() -> None:
    """Empty lists and maps, and nulls, are nothing."""
    for spec in ({}, {"env": None, "volumeClaimTemplates": [], **additional({}, None)}):
        plain = view_of_claim(claim_object(spec))
        assert plain == ClaimView(generation=7, pool="pool")
        assert not plain.needs_cold_start
    nothing = view_of_claim(msgspec.json.decode(b'{"spec":null,"status":null}', type=SandboxClaim))
    assert nothing == ClaimView()


@pytest.mark.parametrize(
    "mirrored",
    [
        None,
        condition("Finished", "False"),
        condition("Finished", "True", since=""),
        condition("Finished", "True", since="0001-01-01T00:00:00Z"),
        condition("Finished", "True", since="yesterday"),
    ],
)
def test_only_a_true_finished_with_a_time_counts(mirrored: Any) -> None:
    """A time to live without a known moment of finishing never runs."""
    assert expire_at(view(ttlSecondsAfterFinished=1), mirrored) is None


def test_a_broken_date_names_its_field() -> None:
    """The schema keeps such dates out; one that got in is told by name."""
    with pytest.raises(ValueError, match=r"spec\.lifecycle\.shutdownTime"):
        view(shutdownTime="soon")


@given(
    st.none() | st.integers(-100, 100),
    st.none() | st.integers(0, 100),
    st.none() | st.integers(-100, 100),
)
def test_expired_or_time_left_never_both(
    shutdown_s: int | None, ttl_s: int | None, finished_s: int | None
) -> None:
    """A claim with a moment of expiry is expired or has time left; another has neither."""
    lifecycle: dict[str, Any] = {}
    if shutdown_s is not None:
        lifecycle["shutdownTime"] = shutdown(shutdown_s)
    if ttl_s is not None:
        lifecycle["ttlSecondsAfterFinished"] = ttl_s
    done = None if finished_s is None else finished(finished_s)
    claim = view(**lifecycle)

    left = time_left_s(expire_at(claim, done), NOW)

    assert (left is None) == (expire_at(claim, done) is None)
    assert has_come(expire_at(claim, done), NOW) == (left is not None and left <= 0)
