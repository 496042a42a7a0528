"""Pods, Nodes and what runs there, and what kube-scheduler makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

_TAINTED = "node(s) had untolerated taint(s)"
_MISMATCH = "node(s) didn't match Pod's node affinity/selector"


@dataclass(frozen=True)
class Placement:
    """Nodes by name, the specs of Pods on them, a Pod, and the Node it gets or what is said."""

    pod: Json
    expected: str
    nodes: dict[str, Json]
    running: dict[str, list[Json]] = field(default_factory=dict)


def node(
    *taints: Json, cordoned: bool = False, room: dict[str, str] | None = None, **labels: str
) -> Json:
    """Return a Node; ``room`` is what it can hold besides the usual."""
    usual = {"cpu": "4", "memory": "4Gi", "ephemeral-storage": "10Gi", "pods": "10"}
    return {
        "metadata": {"labels": labels},
        "spec": {"unschedulable": cordoned, "taints": list(taints)},
        "status": {"allocatable": {**usual, **(room or {})}},
    }


def taint(effect: str = "NoSchedule", key: str = "dedicated", value: str = "me") -> Json:
    """Return a taint."""
    return {"key": key, "value": value, "effect": effect}


def container(name: str = "main", restart: str = "", **requests: str) -> Json:
    """Return a container with requests; ``gpu`` stands for ``example.com/gpu``."""
    asked = {{"gpu": "example.com/gpu"}.get(key, key): value for key, value in requests.items()}
    limits = {key: value for key, value in asked.items() if "/" in key}
    return {
        "name": name,
        "image": "busybox",
        "resources": {"requests": asked, "limits": limits},
        **({"restartPolicy": restart} if restart else {}),
    }


def pod(*containers: Json, **spec: Any) -> Json:
    """Return the spec of a Pod."""
    return {"containers": list(containers) or [container()], **spec}


def affine(*terms: Json) -> Json:
    """Return a node affinity with these required terms."""
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def labelled(*requirements: tuple[str, str, list[str]]) -> Json:
    """Return a term about labels."""
    found = [
        {"key": key, "operator": operator, **({"values": values} if values else {})}
        for key, operator, values in requirements
    ]
    return {"matchExpressions": found}


def no_fit(reasons: str, nodes: int) -> str:
    """Return the words for Nodes that all fail."""
    return f"0/{nodes} nodes are available: {reasons}."


def alone(reason: str) -> str:
    """Return the words for the only Node."""
    return no_fit(f"1 {reason}", 1)


PLACEMENTS = {
    "no node at all": Placement(pod(), "no nodes available to schedule pods", {}),
    "taint that is not tolerated": Placement(pod(), alone(_TAINTED), {"a": node(taint())}),
    "NoExecute keeps Pods out as well": Placement(
        pod(), alone(_TAINTED), {"a": node(taint("NoExecute"))}
    ),
    "taint tolerated by value": Placement(
        pod(tolerations=[{"key": "dedicated", "value": "me"}]), "a", {"a": node(taint())}
    ),
    "taint of another value": Placement(
        pod(tolerations=[{"key": "dedicated", "operator": "Equal", "value": "you"}]),
        alone(_TAINTED),
        {"a": node(taint())},
    ),
    "taint tolerated by key": Placement(
        pod(tolerations=[{"key": "dedicated", "operator": "Exists"}]), "a", {"a": node(taint())}
    ),
    "toleration of another effect": Placement(
        pod(tolerations=[{"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}]),
        alone(_TAINTED),
        {"a": node(taint())},
    ),
    "everything tolerated": Placement(
        pod(tolerations=[{"operator": "Exists"}]),
        "a",
        {"a": node(taint(), taint("NoExecute", "gpu"), cordoned=True)},
    ),
    "one of two taints tolerated": Placement(
        pod(tolerations=[{"key": "dedicated", "operator": "Exists"}]),
        alone(_TAINTED),
        {"a": node(taint(), taint(key="gpu"))},
    ),
    "cordoned": Placement(pod(), alone("node(s) were unschedulable"), {"a": node(cordoned=True)}),
    "cordoned and tainted": Placement(
        pod(), alone("node(s) were unschedulable"), {"a": node(taint(), cordoned=True)}
    ),
    "selector": Placement(
        pod(nodeSelector={"disk": "fast"}), "b", {"a": node(disk="slow"), "b": node(disk="fast")}
    ),
    "selector that no node has": Placement(
        pod(nodeSelector={"disk": "fast"}), alone(_MISMATCH), {"a": node(disk="slow")}
    ),
    "affinity: any of the terms": Placement(
        pod(affinity=affine(labelled(("disk", "In", ["fast"])), labelled(("zone", "Exists", [])))),
        "a",
        {"a": node(disk="slow", zone="x"), "b": node(disk="slow")},
    ),
    "affinity: all of a term": Placement(
        pod(affinity=affine(labelled(("disk", "In", ["fast"]), ("zone", "NotIn", ["x"])))),
        alone(_MISMATCH),
        {"a": node(disk="fast", zone="x")},
    ),
    "affinity: absent labels": Placement(
        pod(affinity=affine(labelled(("zone", "NotIn", ["x"]), ("disk", "DoesNotExist", [])))),
        "a",
        {"a": node()},
    ),
    "affinity: numbers": Placement(
        pod(affinity=affine(labelled(("gen", "Gt", ["4"]), ("gen", "Lt", ["7"])))),
        "c",
        {"a": node(gen="4"), "b": node(gen="x"), "c": node(gen="5"), "d": node()},
    ),
    "affinity: an empty term selects nothing": Placement(
        pod(affinity=affine({}, labelled(("disk", "Exists", [])))), alone(_MISMATCH), {"a": node()}
    ),
    "affinity and selector": Placement(
        pod(nodeSelector={"zone": "x"}, affinity=affine(labelled(("disk", "Exists", [])))),
        "b",
        {"a": node(zone="x"), "b": node(zone="x", disk="fast")},
    ),
    "more than a node ever has": Placement(
        pod(container(cpu="5")), alone("Insufficient cpu"), {"a": node()}
    ),
    "more than others leave": Placement(
        pod(container(cpu="1001m", memory="3Gi")),
        no_fit("1 Insufficient cpu, 1 Insufficient memory", 1),
        {"a": node()},
        {"a": [pod(container(cpu="3", memory="1025Mi"))]},
    ),
    "just what others leave": Placement(
        pod(container(cpu="0.5", memory="1Gi")),
        "a",
        {"a": node()},
        {"a": [pod(container(cpu="3500m", memory="3Gi"))]},
    ),
    "containers together": Placement(
        pod(container(cpu="2"), container(name="b", cpu="2001m")),
        alone("Insufficient cpu"),
        {"a": node()},
    ),
    "the largest of what initializes": Placement(
        pod(
            container(cpu="1"),
            initContainers=[container(name="i", cpu="3"), container(name="j", cpu="4")],
        ),
        "a",
        {"a": node()},
    ),
    "sidecars run beside what initializes": Placement(
        pod(
            container(cpu="1"),
            initContainers=[
                container(name="s", cpu="2", restart="Always"),
                container(name="i", cpu="3"),
            ],
        ),
        alone("Insufficient cpu"),
        {"a": node()},
    ),
    "sidecars run beside the containers": Placement(
        pod(
            container(cpu="3"), initContainers=[container(name="s", cpu="1100m", restart="Always")]
        ),
        alone("Insufficient cpu"),
        {"a": node()},
    ),
    "what a Pod asks for as a whole": Placement(
        pod(container(cpu="1"), resources={"requests": {"cpu": "5"}}),
        alone("Insufficient cpu"),
        {"a": node()},
    ),
    "a device that no node has": Placement(
        pod(container(gpu="1")), alone("Insufficient example.com/gpu"), {"a": node()}
    ),
    "a device that is taken": Placement(
        pod(container(gpu="1")),
        alone("Insufficient example.com/gpu"),
        {"a": node(room={"example.com/gpu": "1"})},
        {"a": [pod(container(gpu="1"))]},
    ),
    "too many Pods": Placement(
        pod(),
        alone("Too many pods"),
        {"a": node(room={"pods": "1"})},
        {"a": [pod()]},
    ),
    "each reason is counted": Placement(
        pod(container(cpu="3", memory="3Gi"), nodeSelector={"disk": "fast"}),
        no_fit(
            f"1 Insufficient memory, 1 {_MISMATCH}, 1 {_TAINTED}, 2 Insufficient cpu",
            4,
        ),
        {
            "a": node(taint(), disk="fast"),
            "b": node(),
            "c": node(disk="fast"),
            "d": node(disk="fast", room={"memory": "1Gi"}),
        },
        {"c": [pod(container(cpu="2"))], "d": [pod(container(cpu="2"))]},
    ),
}
"""Each with a name that says what it is about."""
