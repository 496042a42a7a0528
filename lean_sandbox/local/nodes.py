"""The Node objects a simulated kubelet registers: Ready, roomy, and labelled like real ones."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lean_sandbox.local.kubelet_settings import KubeletSettings
from lean_sandbox.model.times import format_rfc3339

# Marks what must never be mistaken for a machine that runs anything.
SIMULATED_LABEL = "kubelet.lean-sandbox/simulated"

_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "memory is sufficient"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "disks have room"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "process ids are left"),
    ("Ready", "True", "KubeletReady", "the simulated kubelet is ready"),
)


def node_object(name: str, settings: KubeletSettings, now: datetime) -> dict[str, Any]:
    """Return the Node ``name`` as the kubelet registers it."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        SIMULATED_LABEL: "true",
        **dict(settings.node_labels),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": f"simulated://{name}"},
        "status": node_status(name, settings, now, now),
    }


def node_status(
    name: str, settings: KubeletSettings, now: datetime, since: datetime
) -> dict[str, Any]:
    """Return the status, at ``now``, of a simulated Node that is healthy ``since`` then."""
    room = {
        "cpu": "100000",
        "memory": "100000Gi",
        "ephemeral-storage": "100000Gi",
        "pods": str(settings.pods_per_node),
    }
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": format_rfc3339(now),
            "lastTransitionTime": format_rfc3339(since),
        }
        for kind, status, reason, message in _CONDITIONS
    ]
    return {
        "capacity": room,
        "allocatable": room,
        "conditions": conditions,
        "addresses": [
            {"type": "InternalIP", "address": settings.node_address},
            {"type": "Hostname", "address": name},
        ],
        "nodeInfo": {
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
        },
    }
