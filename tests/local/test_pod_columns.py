"""Laws of the columns of a Pod: the cells that a server prints."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from lean_sandbox.local import recorded
from lean_sandbox.local.read.printers import pod_cells


def columns_of(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the cells of a Pod by the names of their columns."""
    names = [column["name"] for column in recorded.columns()["pods"]]
    return dict(zip(names, pod_cells(obj, datetime(2026, 1, 1, tzinfo=UTC)), strict=True))


def container(ready: bool = False, **state: Any) -> dict[str, Any]:  # noqa: FBT001, FBT002 - test data
    """Return the status of a container."""
    return {"name": "c", "ready": ready, "state": state}


def pod(phase: str, *statuses: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a full Pod."""
    spec = {"containers": [{"name": "c"}] * max(1, len(statuses)), **more.pop("spec", {})}
    return {
        "kind": "Pod",
        "metadata": {"name": "p", **more.pop("metadata", {})},
        "spec": spec,
        "status": {"phase": phase, "containerStatuses": list(statuses), **more},
    }


READY = [{"type": "Ready", "status": "True"}]
SIDECAR = {"initContainers": [{"name": "s", "restartPolicy": "Always"}]}

WORDS = [
    ("Pending", pod("Pending")),
    ("ContainerCreating", pod("Pending", container(waiting={"reason": "ContainerCreating"}))),
    ("Running", pod("Running", container(ready=True, running={}))),
    ("CrashLoopBackOff", pod("Running", container(waiting={"reason": "CrashLoopBackOff"}))),
    ("Completed", pod("Succeeded", container(terminated={"reason": "Completed", "exitCode": 0}))),
    ("Error", pod("Failed", container(terminated={"reason": "Error", "exitCode": 1}))),
    ("ExitCode:3", pod("Failed", container(terminated={"exitCode": 3}))),
    ("Signal:9", pod("Failed", container(terminated={"exitCode": 137, "signal": 9}))),
    ("Evicted", pod("Failed", reason="Evicted")),
    (
        "Terminating",
        pod("Running", container(ready=True, running={}), metadata={"deletionTimestamp": "t"}),
    ),
    (
        "Completed",
        pod(
            "Succeeded",
            container(terminated={"reason": "Completed"}),
            metadata={"deletionTimestamp": "t"},
        ),
    ),
    ("Unknown", pod("Running", reason="NodeLost", metadata={"deletionTimestamp": "t"})),
    (
        "SchedulingGated",
        pod(
            "Pending",
            conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
        ),
    ),
    (
        "NotReady",
        pod(
            "Running",
            container(terminated={"reason": "Completed"}),
            container(ready=True, running={}),
        ),
    ),
    (
        "Running",
        pod(
            "Running",
            container(terminated={"reason": "Completed"}),
            container(ready=True, running={}),
            conditions=READY,
        ),
    ),
    (
        "Init:1/2",
        pod(
            "Pending",
            spec={"initContainers": [{"name": "a"}, {"name": "b"}]},
            initContainerStatuses=[
                {"name": "a", "state": {"terminated": {"exitCode": 0}}},
                {"name": "b", "state": {"waiting": {"reason": "PodInitializing"}}},
            ],
        ),
    ),
    (
        "Init:Error",
        pod(
            "Pending",
            initContainerStatuses=[{"state": {"terminated": {"reason": "Error", "exitCode": 1}}}],
        ),
    ),
    (
        "Init:ErrImagePull",
        pod("Pending", initContainerStatuses=[{"state": {"waiting": {"reason": "ErrImagePull"}}}]),
    ),
    (
        "Running",
        pod(
            "Running",
            container(ready=True, running={}),
            spec=SIDECAR,
            initContainerStatuses=[
                {"name": "s", "started": True, "ready": True, "state": {"running": {}}}
            ],
        ),
    ),
]


@pytest.mark.parametrize(("word", "obj"), WORDS)
def test_the_status_word_of_a_pod(word: str, obj: dict[str, Any]) -> None:
    """The word follows phase, reason, init containers, containers and deletion, in this order."""
    assert columns_of(obj)["Status"] == word


def test_ready_counts_running_and_ready_containers_and_sidecars() -> None:
    """A sidecar counts like a container; a container that is ready but not running does not."""
    obj = pod(
        "Running",
        container(ready=True, running={"startedAt": "t"}),
        container(ready=True),
        spec=SIDECAR,
    )
    obj["spec"]["containers"] = [{"name": "c"}, {"name": "d"}]
    obj["status"]["initContainerStatuses"] = [
        {"name": "s", "started": True, "ready": True, "state": {"running": {"startedAt": "t"}}}
    ]
    assert columns_of(obj)["Ready"] == "2/3"


def test_ip_node_and_gates_read_none_until_they_are_known() -> None:
    """The cells of a Pod not yet placed, and of one that is."""
    fresh = columns_of(pod("Pending"))
    assert (fresh["IP"], fresh["Node"], fresh["Readiness Gates"]) == ("<none>",) * 3
    placed = columns_of(
        pod(
            "Running",
            spec={
                "nodeName": "n",
                "readinessGates": [{"conditionType": "g"}, {"conditionType": "h"}],
            },
            podIPs=[{"ip": "10.0.0.1"}, {"ip": "fd::1"}],
            conditions=[{"type": "g", "status": "True"}],
        )
    )
    assert (placed["IP"], placed["Node"], placed["Readiness Gates"]) == ("10.0.0.1", "n", "1/2")
