"""Pods and Nodes as simulated kubelets and their scheduler see them.

Fields are those of the Kubernetes core/v1 API; decoding leaves out what no step needs. Conditions
and container states stay plain mappings: a kubelet that writes a whole array hands back what
other writers put into it, field by field.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum, auto
from typing import Any

import msgspec

from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.times import format_rfc3339, parse_rfc3339

Json = dict[str, Any]

# Marks what must never be mistaken for a machine that runs anything.
SIMULATED_LABEL = "kubelet.lean-sandbox/simulated"
NODE_ADDRESS = "127.0.0.1"


class Container(msgspec.Struct, frozen=True):
    """A container of a Pod's spec."""

    name: str = ""
    image: str = ""
    restartPolicy: str | None = None
    resources: Json | None = None
    ports: tuple[Json, ...] | None = None

    @property
    def requests(self) -> Json:
        """Return the resources that the container asks for."""
        return (self.resources or {}).get("requests") or {}


class PodMeta(ObjectMeta, frozen=True, gc=False):
    """Metadata, and how long the Pod may take to stop."""

    deletion_grace_period_seconds: int | None = None


class PodSpec(msgspec.Struct, frozen=True):
    """The part of a Pod's spec that a scheduler and a kubelet act on."""

    nodeName: str = ""
    schedulerName: str = ""
    restartPolicy: str = "Always"
    hostNetwork: bool = False
    activeDeadlineSeconds: int | None = None
    nodeSelector: dict[str, str] | None = None
    affinity: Json | None = None
    tolerations: tuple[Json, ...] | None = None
    topologySpreadConstraints: tuple[Json, ...] | None = None
    resourceClaims: tuple[Json, ...] | None = None
    resources: Json | None = None
    overhead: Json | None = None
    schedulingGates: tuple[Json, ...] | None = None
    readinessGates: tuple[Json, ...] | None = None
    containers: tuple[Container, ...] = ()
    initContainers: tuple[Container, ...] | None = None


class ContainerStatus(msgspec.Struct, frozen=True):
    """The state of one container, written in full by each step."""

    name: str = ""
    image: str = ""
    imageID: str = ""
    ready: bool = False
    restartCount: int = 0
    started: bool | None = None
    containerID: str = ""
    state: dict[str, Json] = {}
    lastState: dict[str, Json] = {}

    @property
    def is_running(self) -> bool:
        """Whether the container runs."""
        return "running" in self.state

    @property
    def ended(self) -> Json | None:
        """Return how the container ended, or None while it has not."""
        return self.state.get("terminated")

    @property
    def exit_code(self) -> int:
        """Return the code with which the container ended; 0 without one."""
        code = (self.ended or {}).get("exitCode")
        return code if isinstance(code, int) else 0

    @property
    def waits_for(self) -> str:
        """Return why the container waits, or the empty string."""
        return str((self.state.get("waiting") or {}).get("reason") or "")


class PodStatus(msgspec.Struct, frozen=True):
    """The part of a Pod's status that a kubelet owns."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Json, ...] = ()
    hostIP: str = ""
    hostIPs: tuple[Json, ...] = ()
    podIP: str = ""
    podIPs: tuple[Json, ...] = ()
    startTime: str | None = None
    initContainerStatuses: tuple[ContainerStatus, ...] = ()
    containerStatuses: tuple[ContainerStatus, ...] = ()

    @property
    def is_terminal(self) -> bool:
        """Whether the Pod has ended for good."""
        return self.phase in ("Succeeded", "Failed")


class PodView(msgspec.Struct, frozen=True):
    """A Pod without what a simulated kubelet has no use for."""

    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_deleting(self) -> bool:
        """Whether somebody asked for the Pod's deletion."""
        return self.metadata.deletion_timestamp is not None


class Stage(Enum):
    """How far a container is."""

    UNSTARTED = auto()
    RUNNING = auto()
    #: It has ended, and starts again.
    RESTARTING = auto()
    #: It has ended, and waits for its next start.
    CRASHED = auto()
    #: It has ended for good.
    ENDED = auto()


def stage_of(pod: PodView, container: ContainerStatus) -> Stage:
    """Return how far a container is, under the Pod's restart policy."""
    if container.is_running:
        return Stage.RUNNING
    if container.ended is None:
        is_crashed = container.waits_for == "CrashLoopBackOff"
        return Stage.CRASHED if is_crashed else Stage.UNSTARTED
    policy = pod.spec.restartPolicy
    restarts = policy == "Always" or (policy == "OnFailure" and container.exit_code != 0)
    return Stage.RESTARTING if restarts else Stage.ENDED


class NodeSpec(msgspec.Struct, frozen=True):
    """What keeps Pods away from a Node."""

    unschedulable: bool = False
    taints: tuple[Json, ...] | None = None


class NodeStatus(msgspec.Struct, frozen=True):
    """What a Node can hold."""

    allocatable: Json | None = None


class NodeView(msgspec.Struct, frozen=True):
    """A Node without what the scheduling of simulated Pods has no use for."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


_ROOM = {"cpu": "100000", "memory": "100000Gi", "ephemeral-storage": "100000Gi", "pods": "5000"}
_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "memory is sufficient"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "disks have room"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "process ids are left"),
    ("Ready", "True", "KubeletReady", "the simulated kubelet is ready"),
)
_INFO = {
    "architecture": "amd64",
    "bootID": "",
    "containerRuntimeVersion": "simulated://0",
    "kernelVersion": "simulated",
    "kubeProxyVersion": "",
    "kubeletVersion": "v0.0.0-simulated",
    "machineID": "",
    "operatingSystem": "linux",
    "osImage": "simulated",
    "systemUUID": "",
}


def node_object(name: str, now: datetime) -> Json:
    """Return the Node ``name`` as its kubelet registers it: Ready, roomy, labelled like others."""
    stamp = format_rfc3339(now)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                SIMULATED_LABEL: "true",
            },
        },
        "status": {
            "capacity": _ROOM,
            "allocatable": _ROOM,
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": message,
                    "lastHeartbeatTime": stamp,
                    "lastTransitionTime": stamp,
                }
                for kind, status, reason, message in _CONDITIONS
            ],
            "addresses": [
                {"type": "InternalIP", "address": NODE_ADDRESS},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": _INFO,
        },
    }


def condition(status: PodStatus, kind: str) -> Json:
    """Return the first condition of type ``kind``, empty without one."""
    return next((c for c in status.conditions if c.get("type") == kind), {})


def condition_is(status: PodStatus, kind: str, value: str) -> bool:
    """Whether the first condition of type ``kind`` has the status ``value``."""
    return condition(status, kind).get("status") == value


def age_s(stamp: object, now: datetime) -> float:
    """Return the whole seconds from the API timestamp ``stamp`` to ``now``, 0 if unreadable.

    API timestamps have whole seconds. ``now`` is cut to whole seconds too, so that the age of
    a timestamp written this very second is zero and a delay counted from it is not shortened.
    """
    try:
        then = parse_rfc3339(str(stamp))
    except ValueError:
        return 0.0
    return max(0.0, (now.replace(microsecond=0) - then).total_seconds())
