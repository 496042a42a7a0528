"""The four conditions of a Sandbox."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.model.conditions import MAX_MESSAGE_CHARACTERS, Condition, find, remove, upsert
from lean_sandbox.model.pod import Pod, PodCondition, PodState, pod_state
from lean_sandbox.model.sandbox import EMPTY_STATUS
from lean_sandbox.model.sandbox_status import (
    Observation,
    ObservedPod,
    finished,
    next_status,
    pod_scheduled,
    ready,
    suspended,
)
from tests.model.support import LATER, NOW, pod, seen


def told(condition: Condition | None) -> tuple[str, str, str]:
    """Return status, reason and message."""
    assert condition is not None
    return condition.status, condition.reason, condition.message


def readiness(**fields: Any) -> tuple[str, str, str]:
    """Return status, reason and message of Ready."""
    return told(ready(seen(**fields)))


@pytest.mark.case(29, 35)
@pytest.mark.parametrize("phase", ["Pending", "Unknown", ""])
def test_a_pod_not_running_shows_its_phase(phase: str) -> None:
    """Cases 29, 35: any phase but Running is shown as it is, even the empty one."""
    assert readiness(pod=pod(phase)) == (
        "False",
        "DependenciesNotReady",
        f"Pod exists with phase: {phase}",
    )


@pytest.mark.case(15, 33, 34, 88)
@pytest.mark.parametrize(
    ("requested", "present", "status", "part"),
    [
        (None, False, "True", ""),
        (None, True, "True", "; Service Exists"),
        (True, True, "True", "; Service Exists"),
        (True, False, "False", "; Service does not exist"),
        (False, False, "True", ""),
        (False, True, "True", ""),
    ],
)
def test_the_service_counts_when_it_is_required(
    *, requested: bool | None, present: bool, status: str, part: str
) -> None:
    """Cases 15, 33, 34, 88: required as the spec says, or, when it is silent, when there is one."""
    got = readiness(pod=pod(), service_requested=requested, service_present=present)

    assert (got[0], got[2]) == (status, f"Pod is Ready{part}")


@pytest.mark.case(36, 37)
@pytest.mark.parametrize(
    ("phase", "reason", "message"),
    [
        ("Failed", "PodFailed", "Pod failed"),
        ("Succeeded", "PodSucceeded", "Pod completed successfully"),
    ],
)
def test_a_finished_pod_is_told_twice(phase: str, reason: str, message: str) -> None:
    """Cases 36, 37: the end of an owned Pod shows in Finished and in Ready."""
    observation = seen(pod=pod(phase))

    assert told(finished(observation)) == ("True", reason, message)
    assert told(ready(observation)) == ("False", reason, message)


def test_finished_shows_while_suspending() -> None:
    """Finished does not depend on the mode."""
    assert told(finished(seen(is_suspended=True, pod=pod("Failed"))))[1] == "PodFailed"


@pytest.mark.case(39, 40, 41)
@pytest.mark.parametrize(
    ("status", "reason", "message", "expected_reason"),
    [
        ("False", "Unschedulable", "0/3 nodes", "Unschedulable"),
        ("False", "SchedulingGated", "gated", "SchedulingGated"),
        ("True", "", "", "PodScheduled"),
        ("False", "", "m", "PodSchedulingUnknown"),
        ("Unknown", "", "m", "PodSchedulingUnknown"),
        ("True", "Odd", "", "Odd"),
        ("True", "a" * 1024, "", "a" * 1024),
    ],
)
def test_scheduling_is_mirrored(
    status: str, reason: str, message: str, expected_reason: str
) -> None:
    """Cases 39-41: status and message are copied; an empty reason is replaced by its meaning."""
    mirrored = pod("Pending", scheduled=PodCondition("PodScheduled", status, reason, message))

    assert told(pod_scheduled(seen(pod=mirrored))) == (status, expected_reason, message)


@pytest.mark.parametrize("reason", ["not a word", "9lives", "ends-", "a" * 1025, "Käse", "a\n"])
def test_a_reason_the_schema_forbids_is_replaced(reason: str) -> None:
    """A mirrored reason that would make the server refuse the whole status is not passed on."""
    mirrored = pod(scheduled=PodCondition("PodScheduled", "False", reason, "m"))

    assert told(pod_scheduled(seen(pod=mirrored))) == ("False", "PodSchedulingUnknown", "m")


def test_a_status_the_schema_forbids_is_unknown() -> None:
    """A mirrored status outside True, False and Unknown becomes Unknown."""
    mirrored = pod(scheduled=PodCondition("PodScheduled", "Maybe", "R", "m"))

    assert told(pod_scheduled(seen(pod=mirrored))) == ("Unknown", "R", "m")


@pytest.mark.case(27, 60, 66)
@pytest.mark.parametrize("fields", [{"has_pod_failed": True}, {"many_pods": 2}])
def test_scheduling_is_unknown_when_the_pod_is(fields: dict[str, Any]) -> None:
    """Cases 27, 60, 66: a failed Pod step leaves the scheduling unknown."""
    assert told(pod_scheduled(seen(**fields))) == (
        "Unknown",
        "PodSchedulingUnknown",
        "Pod state is unknown. Pod scheduling cannot be determined",
    )


@pytest.mark.case(62, 108, 109, 113, 114, 115, 116)
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"is_suspended": False}, ("False", "NotSuspended", "Sandbox is not suspended")),
        (
            {"is_suspended": True, "has_pod_failed": True},
            (
                "Unknown",
                "PodStateUnknown",
                "Pod state is unknown. Sandbox suspension cannot be confirmed",
            ),
        ),
        (
            {"is_suspended": True, "many_pods": 2},
            (
                "Unknown",
                "PodStateUnknown",
                "Pod state is unknown. Sandbox suspension cannot be confirmed",
            ),
        ),
        (
            {"is_suspended": True, "errors": ("PVC",)},
            ("True", "PodTerminated", "Pod has been terminated. Sandbox is suspended"),
        ),
        (
            {"is_suspended": True, "pod": pod(is_owned=False)},
            (
                "False",
                "PodNotOwned",
                "Refused to delete pod because it is not owned by this sandbox",
            ),
        ),
        (
            {"is_suspended": True, "pod": pod()},
            ("False", "PodTerminating", "Pod is terminating. Sandbox is suspending"),
        ),
        (
            {"is_suspended": True, "pod": pod(), "has_pod_failed": True},
            ("False", "PodTerminating", "Pod is terminating. Sandbox is suspending"),
        ),
    ],
)
def test_suspended_tells_how_far_it_is(fields: dict[str, Any], expected: tuple[str, ...]) -> None:
    """Cases 62, 108, 109, 113-116: the mode and the Pod alone decide."""
    assert told(suspended(seen(**fields))) == expected


@pytest.mark.case(26, 66, 90, 102, 114)
def test_errors_are_told_in_order() -> None:
    """Cases 26, 66, 90, 102, 114: the errors of a reconcile beat mode and Pod, line by line."""
    assert readiness(errors=("pvc", "service"), is_suspended=True, pod=pod()) == (
        "False",
        "ReconcilerError",
        "Error seen: pvc\nservice",
    )


def test_a_final_reason_waits_until_nothing_else_fails() -> None:
    """While another error may pass, the refusal is told but not as the final reason."""
    assert readiness(invalid="refused", errors=("get failed",)) == (
        "False",
        "ReconcilerError",
        "Error seen: get failed\nrefused",
    )


@pytest.mark.parametrize("fields", [{"errors": ("x" * 40000,)}, {"invalid": "x" * 40000}])
def test_a_message_is_cut_to_what_the_schema_allows(fields: dict[str, Any]) -> None:
    """A text longer than the schema allows is cut instead of making the status unwritable."""
    assert len(readiness(**fields)[2]) == MAX_MESSAGE_CHARACTERS


@given(
    st.builds(
        Observation,
        generation=st.integers(min_value=0, max_value=9),
        is_suspended=st.booleans(),
        service_requested=st.none() | st.booleans(),
        service_present=st.booleans(),
        pod=st.none()
        | st.builds(
            ObservedPod,
            is_owned=st.booleans(),
            state=st.builds(
                PodState,
                phase=st.sampled_from(["", "Pending", "Running", "Succeeded", "Failed"]),
                is_ready=st.booleans(),
                ips=st.sampled_from([(), ("10.0.0.1",)]),
                scheduled=st.none() | st.builds(PodCondition, st.just("PodScheduled")),
            ),
        ),
        has_pod_failed=st.booleans(),
        many_pods=st.sampled_from([0, 2]),
        errors=st.lists(st.text(), max_size=3).map(tuple),
        invalid=st.none() | st.text(),
    )
)
def test_conditions_are_always_writable(observation: Observation) -> None:
    """Whatever was observed: types in order, Suspended and Ready present, legal values."""
    computed = next_status(
        EMPTY_STATUS, observation, NOW, name="sb-1", namespace="ns", cluster_domain="cluster.local"
    ).conditions

    types = [condition.type for condition in computed]
    order = ["Suspended", "Finished", "PodScheduled", "Ready"]
    assert types == [kind for kind in order if kind in types]
    assert {"Suspended", "Ready"} <= set(types)
    for condition in computed:
        assert condition.status in {"True", "False", "Unknown"}
        assert condition.reason
        assert condition.observedGeneration == observation.generation


def test_a_known_type_stays_in_place_and_a_new_one_is_appended() -> None:
    """The order of conditions is the order of their first appearance."""
    a = Condition("A", "True")
    b = Condition("B", "True")

    order = upsert(upsert(upsert((), a, NOW), b, NOW), Condition("A", "False"), LATER)

    assert [(c.type, c.status) for c in order] == [("A", "False"), ("B", "True")]
    assert [c.type for c in remove(order, "A")] == ["B"]
    assert find(order, "C") is None


@pytest.mark.case(32)
def test_a_pod_is_observed_by_its_own_status() -> None:
    """Case 32: all addresses in order, the node, the first Ready condition."""
    decoded = msgspec.json.decode(
        b'{"spec": {"nodeName": "node-1", "containers": []},'
        b' "status": {"phase": "Running", "podIP": "10.244.0.5",'
        b' "podIPs": [{"ip": "10.244.0.5"}, {"ip": "fd00::5"}],'
        b' "conditions": [{"type": "PodScheduled", "status": "True"},'
        b' {"type": "Ready", "status": "True"}, {"type": "Ready", "status": "False"}]}}',
        type=Pod,
    )

    assert pod_state(decoded) == PodState(
        phase="Running",
        is_ready=True,
        ips=("10.244.0.5", "fd00::5"),
        node="node-1",
        scheduled=PodCondition("PodScheduled", "True"),
    )
