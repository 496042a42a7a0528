"""Whole statuses and the patch that writes them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.model.conditions import Condition, find, has_reason
from lean_sandbox.model.sandbox import EMPTY_STATUS, SandboxStatus
from lean_sandbox.model.sandbox_status import (
    FailedStep,
    Observation,
    expired_mark,
    next_status,
    status_patch,
)
from tests.model.support import HASH, HASH_KEY, LATER, NOW, as_json, merged, pod, seen

SELECTOR = f"{HASH_KEY}={HASH}"
FQDN = "sb-1.ns.svc.cluster.local"


def after(old: SandboxStatus, observation: Observation, now: Any = NOW) -> SandboxStatus:
    """Return the next status of the fixture Sandbox."""
    return next_status(
        old, observation, now, name="sb-1", namespace="ns", cluster_domain="cluster.local"
    )


def is_marked_expired(status: SandboxStatus) -> bool:
    """Return whether the status says that the Sandbox expired."""
    return has_reason(status.conditions, "Ready", "SandboxExpired")


def patch_of(old: SandboxStatus, new: SandboxStatus) -> dict[str, Any] | None:
    """Return the patch as the server would read it."""
    patch: dict[str, Any] | None = as_json(status_patch(old, new))
    return patch


def plain(status: SandboxStatus) -> dict[str, Any]:
    """Return the status as the server would read it."""
    data = msgspec.json.decode(msgspec.json.encode(status))
    assert isinstance(data, dict)
    return data


def types(status: SandboxStatus) -> list[str]:
    """Return the condition types in order."""
    return [condition.type for condition in status.conditions]


def healthy() -> SandboxStatus:
    """Return the status of an operational Sandbox with a Service."""
    return after(EMPTY_STATUS, seen(pod=pod(), service_requested=True, service_present=True))


@pytest.mark.case(60)
def test_several_pods_clear_the_pod_and_keep_the_service() -> None:
    """Case 60: no address, no node, scheduling unknown; what is said of the Service stays."""
    status = after(healthy(), seen(many_pods=2))

    assert (status.podIPs, status.nodeName) == ((), "")
    assert (status.service, status.serviceFQDN) == ("sb-1", FQDN)
    assert status.selector == SELECTOR


@pytest.mark.case(90)
def test_a_failed_service_step_keeps_what_is_known() -> None:
    """Case 90: on a Service error the fields keep their values; without one they are cleared."""
    failed = after(healthy(), seen(pod=pod(), is_service_unknown=True, errors=("x",)))
    gone = after(healthy(), seen(pod=pod()))

    assert (failed.service, failed.serviceFQDN) == ("sb-1", FQDN)
    assert (gone.service, gone.serviceFQDN) == ("", "")


@pytest.mark.case(113)
def test_a_foreign_pod_is_never_mirrored() -> None:
    """Case 113: of a foreign Pod nothing reaches the status; only the selector is set."""
    foreign = pod("Failed", is_owned=False)

    status = after(EMPTY_STATUS, seen(is_suspended=True, pod=foreign))

    assert types(status) == ["Suspended", "Ready"]
    assert status == SandboxStatus(conditions=status.conditions, selector=SELECTOR)


def test_a_pod_whose_delete_failed_is_still_shown() -> None:
    """A failed delete returns the Pod along with the error: its address is still the truth."""
    text = "failed to delete pod: x"

    status = after(
        healthy(), seen(is_suspended=True, pod=pod(), has_pod_failed=True, errors=(text,))
    )

    assert status.podIPs == ("10.244.0.5",)
    assert "PodScheduled" in types(status)


@pytest.mark.case(119, 125)
def test_the_mark_of_expiry_touches_only_ready_and_scheduling() -> None:
    """Cases 119, 125: at marking Ready changes, PodScheduled goes, everything else stays."""
    old = after(healthy(), seen(pod=pod("Succeeded"), service_present=True))

    marked = expired_mark(old, 5, LATER)

    assert types(marked) == ["Suspended", "Ready", "Finished"]
    assert find(marked.conditions, "Finished") == find(old.conditions, "Finished")
    assert find(marked.conditions, "Suspended") == find(old.conditions, "Suspended")
    assert find(marked.conditions, "Ready") == Condition(
        "Ready", "False", "SandboxExpired", "Sandbox has expired", "2026-01-02T03:04:05Z", 5
    )
    assert (marked.podIPs, marked.service) == (old.podIPs, "sb-1")
    assert is_marked_expired(marked)
    assert not is_marked_expired(old)
    assert not is_marked_expired(EMPTY_STATUS)


@pytest.mark.case(66, 114)
def test_a_failed_step_is_told_word_for_word() -> None:
    """Cases 66, 114: each stands, with a colon, before the error of the API."""
    assert [str(step) for step in FailedStep] == [
        "failed to get PVC",
        "failed to patch PVC with owner reference",
        "pod get failed",
        "pod already exists but failed to fetch",
        "failed to delete pod",
        "failed to patch pod",
        "failed to clear pod name annotation",
        "service get failed",
        "failed to update service with owner reference",
        "failed to patch owned service",
        "failed to delete service",
        "failed to get pod",
    ]


# --- the patch ---------------------------------------------------------------------------------


@pytest.mark.case(43)
def test_a_node_alone_waits_while_not_ready() -> None:
    """Case 43: nodeName alone is no reason to write; with another change it goes along."""
    old = after(EMPTY_STATUS, seen(pod=pod("Pending", ips=(), node="")))
    placed = after(old, seen(pod=pod("Pending", ips=(), node="node-1")))
    addressed = after(old, seen(pod=pod("Pending", ips=("1.2.3.4",), node="node-1")))

    assert patch_of(old, placed) is None
    patch = patch_of(old, addressed)
    assert patch is not None
    assert (patch["podIPs"], patch["nodeName"]) == (["1.2.3.4"], "node-1")


def test_an_empty_message_is_written_because_the_schema_requires_it() -> None:
    """A mirrored condition with no message still has the field."""
    patch = patch_of(EMPTY_STATUS, after(EMPTY_STATUS, seen(pod=pod())))

    assert patch is not None
    assert patch["conditions"][1]["message"] == ""


def test_another_spelling_of_a_time_is_no_reason_to_write() -> None:
    """The transition times that are stored stay as they are written."""
    observation = seen(pod=pod())
    stored = after(EMPTY_STATUS, observation)
    respelled = msgspec.structs.replace(
        stored,
        conditions=tuple(
            msgspec.structs.replace(one, lastTransitionTime="2026-01-02T05:04:05+02:00")
            for one in stored.conditions
        ),
    )

    assert patch_of(respelled, after(respelled, observation, LATER)) is None


CONDITIONS = st.lists(
    st.builds(
        Condition,
        type=st.sampled_from(["Ready", "Suspended", "Finished"]),
        status=st.sampled_from(["True", "False"]),
        reason=st.sampled_from(["A", "B"]),
        message=st.sampled_from(["", "m"]),
        lastTransitionTime=st.just("2026-01-02T03:04:05Z"),
        observedGeneration=st.none() | st.integers(min_value=1, max_value=2),
    ),
    max_size=3,
    unique_by=lambda condition: condition.type,
).map(tuple)
TEXTS = st.sampled_from(["", "x", "y"])
STATUSES = st.builds(
    SandboxStatus,
    conditions=CONDITIONS,
    selector=TEXTS,
    podIPs=st.lists(st.sampled_from(["10.0.0.1", "fd00::1"]), max_size=2).map(tuple),
    nodeName=TEXTS,
    service=TEXTS,
    serviceFQDN=TEXTS,
)


@given(STATUSES, STATUSES, STATUSES)
def test_the_patch_makes_the_old_status_the_new_one(
    old: SandboxStatus, new: SandboxStatus, other: SandboxStatus
) -> None:
    """Applied to the old status, or a later one, it gives the new one; a node may have to wait."""
    patch = patch_of(old, new)
    for before in (old, other) if patch is not None else (old,):
        result = merged(plain(before), patch or {})
        expected = plain(new)
        if patch is None:
            result.pop("nodeName", None)
            expected.pop("nodeName", None)
        assert result == expected
    assert patch_of(new, new) is None
