"""Pods and Nodes as the simulated kubelet reads them: pruned while decoding to what a step needs.

Field names are those of the Kubernetes core/v1 API. Conditions and container states stay plain
mappings, because a kubelet that writes a whole ``conditions`` array must hand back what other
writers put into it, field by field, known or not.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from lean_sandbox.model.times import parse_rfc3339

Condition = dict[str, Any]

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


class Container(msgspec.Struct, frozen=True, gc=False):
    """The part of a container that decides how its simulation behaves."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    restartPolicy: str | None = None


class Named(msgspec.Struct, frozen=True, gc=False):
    """A scheduling gate."""

    name: str = ""


class ReadinessGate(msgspec.Struct, frozen=True, gc=False):
    """A condition some other writer must set before the Pod counts as ready."""

    conditionType: str = ""


class PodMeta(msgspec.Struct, frozen=True):
    """Identity, script and deletion of a Pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    generation: int | None = None
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    deletionGracePeriodSeconds: int | None = None
    annotations: dict[str, str] | None = None


class PodSpec(msgspec.Struct, frozen=True):
    """The part of a Pod's spec a scheduler and a kubelet act on."""

    nodeName: str = ""
    schedulerName: str = ""
    restartPolicy: str = "Always"
    hostNetwork: bool = False
    activeDeadlineSeconds: int | None = None
    nodeSelector: dict[str, str] | None = None
    schedulingGates: tuple[Named, ...] | None = None
    readinessGates: tuple[ReadinessGate, ...] | None = None
    containers: tuple[Container, ...] = ()
    initContainers: tuple[Container, ...] | None = None


class PodIP(msgspec.Struct, frozen=True, gc=False):
    """One entry of ``podIPs`` or ``hostIPs``."""

    ip: str = ""


class ContainerStatus(msgspec.Struct, frozen=True):
    """The state of one container, written in full by each step."""

    name: str = ""
    image: str = ""
    imageID: str = ""
    ready: bool = False
    restartCount: int = 0
    started: bool | None = None
    containerID: str = ""
    state: dict[str, dict[str, Any]] = {}
    lastState: dict[str, dict[str, Any]] = {}

    @property
    def is_running(self) -> bool:
        """Whether the container runs."""
        return "running" in self.state

    @property
    def terminated(self) -> dict[str, Any] | None:
        """Return how the container ended, or None while it has not."""
        return self.state.get("terminated")

    @property
    def waiting_reason(self) -> str:
        """Return why the container waits, or the empty string."""
        return str((self.state.get("waiting") or {}).get("reason") or "")


class PodStatus(msgspec.Struct, frozen=True):
    """The part of a Pod's status a kubelet owns."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    hostIP: str = ""
    hostIPs: tuple[PodIP, ...] = ()
    podIP: str = ""
    podIPs: tuple[PodIP, ...] = ()
    startTime: str | None = None
    initContainerStatuses: tuple[ContainerStatus, ...] = ()
    containerStatuses: tuple[ContainerStatus, ...] = ()

    @property
    def is_terminal(self) -> bool:
        """Whether the Pod has ended for good."""
        return self.phase in TERMINAL_PHASES


class PodView(msgspec.Struct, frozen=True):
    """A Pod without what a simulated kubelet has no use for."""

    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_deleting(self) -> bool:
        """Whether somebody asked for the Pod's deletion."""
        return self.metadata.deletionTimestamp is not None


class NodeMeta(msgspec.Struct, frozen=True):
    """Identity and labels of a Node."""

    name: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    labels: dict[str, str] | None = None


class NodeSpec(msgspec.Struct, frozen=True):
    """Whether a Node takes new Pods."""

    unschedulable: bool = False


class NodeStatus(msgspec.Struct, frozen=True):
    """What a Node can hold and how it is."""

    allocatable: dict[str, Any] | None = None
    conditions: tuple[Condition, ...] = ()


class NodeView(msgspec.Struct, frozen=True):
    """A Node without what the scheduling of simulated Pods has no use for."""

    metadata: NodeMeta = NodeMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def max_pods(self) -> int | None:
        """Return how many Pods fit, or None when the Node does not say."""
        value = str((self.status.allocatable or {}).get("pods", ""))
        return int(value) if value.isdigit() else None

    @property
    def is_ready(self) -> bool:
        """Whether the Node's Ready condition is True."""
        conditions = self.status.conditions
        return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def condition(status: PodStatus, kind: str) -> Condition | None:
    """Return the first condition of type ``kind``, or None."""
    return next((c for c in status.conditions if c.get("type") == kind), None)


def condition_is(status: PodStatus, kind: str, value: str) -> bool:
    """Whether the first condition of type ``kind`` has the status ``value``."""
    found = condition(status, kind)
    return found is not None and found.get("status") == value


def age_s(stamp: object, now: datetime) -> float:
    """Return the whole seconds from the API timestamp ``stamp`` to ``now``, 0 if unreadable.

    API timestamps have whole seconds. ``now`` is cut to whole seconds too, so that the age of
    a timestamp written this very second is zero and a delay counted from it is not shortened.
    """
    if not isinstance(stamp, str) or not stamp:
        return 0.0
    try:
        then = parse_rfc3339(stamp)
    except ValueError:
        return 0.0
    return max(0.0, (now.replace(microsecond=0) - then).total_seconds())
