"""The status of a claim, row by row."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.model.claim import EMPTY_CLAIM_STATUS, BoundSandbox, SandboxClaimStatus
from lean_sandbox.model.claim_status import (
    ClaimError,
    ClaimFault,
    ClaimObservation,
    Retry,
    claim_status_patch,
    next_claim_status,
    not_controlled,
    requeue_after_s,
)
from lean_sandbox.model.conditions import Condition, find
from lean_sandbox.model.sandbox import SandboxStatus
from tests.model.extensions import EARLIER, NOW, claim_status, condition
from tests.model.support import as_json, merged

NOW_TEXT = "2026-10-22T12:00:00Z"
READY = condition("Ready", "True", "DependenciesReady", "Pod is Ready")
FINISHED = condition("Finished", "True", "PodSucceeded", "Pod completed successfully")


def mirrored(*conditions: Condition, **fields: Any) -> SandboxStatus:
    """Return a Sandbox's status."""
    return SandboxStatus(conditions=conditions, **fields)


def after(old: SandboxClaimStatus = EMPTY_CLAIM_STATUS, **seen: Any) -> SandboxClaimStatus:
    """Return the status after a reconcile over generation 7."""
    return next_claim_status(old, ClaimObservation(generation=7, **seen), NOW)


def ready(status: SandboxClaimStatus) -> tuple[str, str, str]:
    """Return status, reason and message of Ready."""
    found = find(status.conditions, "Ready")
    assert found is not None
    assert found.observedGeneration == 7
    return found.status, found.reason, found.message


# --- Ready ---------------------------------------------------------------------------------------

INVALID = ClaimError(ClaimFault.INVALID_METADATA, "invalid additionalPodMetadata: x")
TEMPLATE_NOT_FOUND = ClaimError(ClaimFault.TEMPLATE_NOT_FOUND, 'SandboxTemplate "tpl" not found')
POOL_NOT_FOUND = ClaimError(ClaimFault.WARM_POOL_NOT_FOUND, 'SandboxWarmPool "pool" not found')
CREATE_PENDING = ClaimError(ClaimFault.CREATE_PENDING, 'sandbox "c" already exists')
NOT_OWNED = ClaimError(
    ClaimFault.SANDBOX_NOT_OWNED,
    'sandbox not owned by this claim: sandbox "m1" is not owned by claim "c"',
)
ROWS: list[tuple[ClaimError, str, str]] = [
    (TEMPLATE_NOT_FOUND, "TemplateNotFound", 'SandboxTemplate "tpl" not found'),
    (POOL_NOT_FOUND, "WarmPoolNotFound", 'SandboxWarmPool "pool" not found'),
    (
        ClaimError(ClaimFault.ADOPTION_CONFLICT, "sandbox m1 deleted before adoption completed"),
        "AdoptionConflict",
        (
            "adoption write conflict: sandbox m1 deleted before adoption completed; "
            "the next pass retries from a converged view"
        ),
    ),
    (
        ClaimError(
            ClaimFault.ADOPTION_CONFLICT,
            "completing adoption of m1 for claim c",
            conflict="Operation cannot be fulfilled",
        ),
        "AdoptionConflict",
        (
            "adoption write conflict: completing adoption of m1 for claim c "
            "(conflicting concurrent write); the next pass retries from a converged view"
        ),
    ),
    (
        CREATE_PENDING,
        "SandboxCreatePending",
        "Sandbox already created; waiting for cache to converge",
    ),
    (INVALID, "InvalidMetadata", INVALID.text),
    (ClaimError(ClaimFault.ENV_VARS_REJECTED, "t"), "EnvVarsInjectionRejected", "t"),
    (
        NOT_OWNED,
        "ClaimExpired",
        (
            'Claim expired. sandbox not owned by this claim: sandbox "m1" is not owned '
            'by claim "c"; deletion skipped.'
        ),
    ),
    (ClaimError(ClaimFault.CLAIM_TEMPLATES, "t"), "VolumeClaimTemplatesError", "t"),
    (
        not_controlled("c"),
        "ReconcilerError",
        (
            'Error seen: sandbox "c" is not controlled by claim "c". '
            "Please use a different claim name or delete the sandbox manually"
        ),
    ),
    (
        ClaimError(ClaimFault.OTHER, "sandbox create error: boom"),
        "ReconcilerError",
        "Error seen: sandbox create error: boom",
    ),
]


@pytest.mark.claim_case(4, 5, 6, 8, 11, 13, 21, 37, 45, 80, 99)
@pytest.mark.parametrize(("error", "reason", "message"), ROWS)
def test_failures_of_every_class(error: ClaimError, reason: str, message: str) -> None:
    """Claim cases 4, 5, 6, 8, 11, 13, 21, 37, 45, 80, 99: rows 1 to 9, word for word."""
    assert ready(after(error=error)) == ("False", reason, message)
    # A failure outweighs expiry and whatever the Sandbox says.
    bad = after(error=error, is_expired=True, sandbox_name="m1", sandbox_status=mirrored(READY))
    assert ready(bad) == ("False", reason, message)


@pytest.mark.claim_case(4, 7, 11, 13, 21, 36, 37, 45, 80)
@pytest.mark.parametrize(
    ("fault", "retry", "requeue_s"),
    [
        (ClaimFault.TEMPLATE_NOT_FOUND, Retry.REQUEUE, 60),
        (ClaimFault.WARM_POOL_NOT_FOUND, Retry.REQUEUE, 60),
        (ClaimFault.CREATE_PENDING, Retry.REQUEUE, 0.2),
        (ClaimFault.ADOPTION_CONFLICT, Retry.BACKOFF, None),
        (ClaimFault.INVALID_METADATA, Retry.SUPPRESSED, None),
        (ClaimFault.ENV_VARS_REJECTED, Retry.SUPPRESSED, None),
        (ClaimFault.CLAIM_TEMPLATES, Retry.SUPPRESSED, None),
        (ClaimFault.SANDBOX_NOT_OWNED, Retry.SUPPRESSED, None),
        (ClaimFault.OTHER, Retry.BACKOFF, None),
    ],
)
def test_every_class_has_its_retry(
    fault: ClaimFault, retry: Retry, requeue_s: float | None
) -> None:
    """Claim cases 4, 7, 11, 13, 21, 36, 37, 45, 80: fixed time, none, or backoff."""
    error = ClaimError(fault, "t")
    assert fault.retry is retry
    if retry is not Retry.BACKOFF:
        assert requeue_after_s(error) == requeue_s
    assert requeue_after_s(None) is None


def test_a_conflict_is_logged_in_full_and_shown_without_the_servers_words() -> None:
    """The API's text is for logs only."""
    error = ClaimError(
        ClaimFault.ADOPTION_CONFLICT, "claim c", conflict="Operation cannot be fulfilled"
    )
    assert str(error) == "claim c: Operation cannot be fulfilled"
    assert "Operation" not in error.message


@pytest.mark.parametrize(
    "reason",
    ["DependenciesNotReady", "SandboxSuspended", "PodSucceeded", "PodFailed", "MultiplePods"],
)
def test_every_reason_of_the_sandbox_is_forwarded(reason: str) -> None:
    """Clients stop on some of them, so they arrive unchanged."""
    seen = mirrored(condition("Ready", "False", reason, "why"))
    assert ready(after(sandbox_name="m1", sandbox_status=seen)) == ("False", reason, "why")


# --- times ---------------------------------------------------------------------------------------


def moment(status: SandboxClaimStatus, kind: str) -> str:
    """Return the transition time of a condition."""
    found = find(status.conditions, kind)
    assert found is not None
    return found.lastTransitionTime


def test_a_transition_takes_the_sandboxes_time_else_now() -> None:
    """A warm claim may be ready since before it existed; own conditions take the moment."""
    warm = after(sandbox_name="m1", sandbox_status=mirrored(READY))
    assert moment(warm, "Ready") == EARLIER
    failed = after(warm, error=INVALID)
    assert moment(failed, "Ready") == NOW_TEXT
    timeless = msgspec.structs.replace(READY, lastTransitionTime="")
    status = after(sandbox_name="m1", sandbox_status=mirrored(timeless))
    assert moment(status, "Ready") == NOW_TEXT


def test_without_a_transition_the_time_stays() -> None:
    """Another reason of the same status is no transition."""
    first = after(sandbox_name="m1", sandbox_status=mirrored(condition("Ready", "False")))
    assert moment(after(first, error=INVALID), "Ready") == EARLIER


# --- Finished ------------------------------------------------------------------------------------


@pytest.mark.claim_case(32, 97, 103)
def test_finished_leaves_with_its_sandbox_unless_the_claim_expired() -> None:
    """Claim cases 32, 97, 103: a failing reconcile removes it, a retained claim keeps it."""
    old = after(sandbox_name="m1", sandbox_status=mirrored(READY, FINISHED))

    assert find(after(old, error=INVALID).conditions, "Finished") is None
    assert find(after(old, is_expired=True).conditions, "Finished") == FINISHED
    resumed = after(old, sandbox_name="m1", sandbox_status=mirrored(READY))
    assert find(resumed.conditions, "Finished") is None
    still = after(old, is_expired=True, sandbox_name="m1", sandbox_status=mirrored(READY))
    assert find(still.conditions, "Finished") is None


# --- patches -------------------------------------------------------------------------------------


def test_a_first_status_carries_an_empty_sandbox() -> None:
    """With the first conditions the key comes; alone it is not worth a request."""
    patch = claim_status_patch(EMPTY_CLAIM_STATUS, after(error=POOL_NOT_FOUND))
    assert merged({}, as_json(patch))["sandbox"] == {}
    assert claim_status_patch(EMPTY_CLAIM_STATUS, claim_status({"sandbox": {}})) is None


def test_everything_goes_out_in_one_patch() -> None:
    """Name, addresses, FQDN and the forwarded Ready are one write."""
    seen = mirrored(READY, podIPs=("10.0.0.1",), serviceFQDN="f")
    patch = claim_status_patch(EMPTY_CLAIM_STATUS, after(sandbox_name="m1", sandbox_status=seen))
    assert as_json(patch) == {
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "DependenciesReady",
                "message": "Pod is Ready",
                "lastTransitionTime": EARLIER,
                "observedGeneration": 7,
            }
        ],
        "sandbox": {"name": "m1", "podIPs": ["10.0.0.1"], "serviceFQDN": "f"},
    }


def test_order_and_notation_of_time_are_no_change() -> None:
    """Conditions stored unsorted, or with a fraction of a second, are not rewritten."""
    status = after(sandbox_name="m1", sandbox_status=mirrored(READY, FINISHED))
    entries = reversed(status.conditions)
    stored = tuple(
        msgspec.structs.replace(entry, lastTransitionTime="2026-10-22T11:00:00.000Z")
        for entry in entries
    )
    old = msgspec.structs.replace(status, conditions=stored)
    new = after(old, sandbox_name="m1", sandbox_status=mirrored(READY, FINISHED))
    assert claim_status_patch(old, new) is None
    renamed = msgspec.structs.replace(new, bound=BoundSandbox("m2"))
    patch = claim_status_patch(old, renamed)
    assert patch is not None
    assert patch["sandbox"] == {"name": "m2", "podIPs": None, "serviceFQDN": None}


CONDITIONS = st.lists(
    st.builds(
        condition,
        st.sampled_from(["Ready", "Finished", "Other"]),
        st.sampled_from(["True", "False"]),
        st.sampled_from(["A", "SandboxExpired"]),
        st.sampled_from(["", "m"]),
    ),
    max_size=3,
    unique_by=lambda entry: entry.type,
).map(tuple)
STATUSES = st.builds(
    lambda conditions, bound: msgspec.structs.replace(
        claim_status({"sandbox": bound} if bound is not None else {}), conditions=conditions
    ),
    CONDITIONS,
    st.none()
    | st.fixed_dictionaries(
        {},
        optional={
            "name": st.sampled_from(["", "m1", "m2"]),
            "podIPs": st.lists(st.sampled_from(["1", "2"]), max_size=2),
            "serviceFQDN": st.sampled_from(["", "f"]),
        },
    ),
)
OBSERVATIONS = st.builds(
    ClaimObservation,
    generation=st.integers(1, 3),
    sandbox_name=st.sampled_from(["", "m1"]),
    sandbox_status=st.builds(SandboxStatus, conditions=CONDITIONS),
    error=st.sampled_from([None, INVALID, *(row[0] for row in ROWS)]),
    is_expired=st.booleans(),
)


@given(STATUSES, OBSERVATIONS, STATUSES)
def test_a_patch_leads_to_the_new_status_and_then_to_rest(
    old: SandboxClaimStatus, seen: ClaimObservation, other: SandboxClaimStatus
) -> None:
    """Applied to the old status, or to a later one, the patch gives the new one; then no more.

    Conditions are stored sorted where they are written; their order alone is never a change.
    """
    new = next_claim_status(old, seen, NOW)
    patch = claim_status_patch(old, new)
    for before in (old, other) if patch is not None else (old,):
        reached = claim_status(merged(as_json(before), as_json(patch or {})))
        assert claim_status_patch(reached, new) is None
        if patch is not None:
            assert reached.conditions == new.conditions
            assert list(reached.conditions) == sorted(reached.conditions, key=lambda c: c.type)
        assert reached.bound == new.bound
        assert claim_status_patch(reached, next_claim_status(reached, seen, NOW)) is None
