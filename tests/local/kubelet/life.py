"""Pods for the laws of the kubelet, and a life driven by its pure functions alone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from lean_sandbox.local.kubelet.pods import (
    PREFIX,
    Delay,
    KubeletSettings,
    PodStep,
    PodView,
    condition_is,
    next_step,
)
from lean_sandbox.local.kubelet.podstatus import Told, perform, status_patch
from tests.support.clock import EPOCH

ADDRESS = "10.64.0.1"
SETTINGS = KubeletSettings()


def pod(
    *containers: dict[str, Any],
    script: dict[str, str] | None = None,
    status: dict[str, Any] | None = None,
    meta: dict[str, Any] | None = None,
    **spec: Any,
) -> PodView:
    """Build a Pod; ``script`` holds annotations without their prefix."""
    raw = {
        "metadata": {
            "name": "web",
            "namespace": "default",
            "uid": "u-1",
            "resourceVersion": "1",
            "annotations": {PREFIX + key: value for key, value in (script or {}).items()},
            **(meta or {}),
        },
        "spec": {
            "nodeName": "node-0",
            "schedulerName": "default-scheduler",
            "containers": list(containers) or [{"name": "main", "image": "nginx:1"}],
            **spec,
        },
        "status": {"phase": "Pending", **(status or {})},
    }
    return msgspec.convert(raw, PodView)


class Life:
    """One Pod living through its steps, each carried out the moment it is due."""

    def __init__(self, start: PodView) -> None:
        self.pod = start
        self.now: datetime = EPOCH
        self.steps: list[str] = []
        self.told: set[Told] = set()

    @property
    def elapsed_s(self) -> float:
        """Return the age of the life."""
        return (self.now - EPOCH).total_seconds()

    @property
    def is_ready(self) -> bool:
        """Whether the Pod is Ready."""
        return condition_is(self.pod.status, "Ready", "True")

    def planned(self) -> PodStep | None:
        """Return what is next."""
        return next_step(self.pod, SETTINGS, self.now)

    def step(self) -> bool:
        """Carry out one step; return whether there was one that writes a status.

        ``told`` are its Events.
        """
        planned = self.planned()
        if planned is None or planned.name == "delete":
            return False
        self.now += timedelta(seconds=planned.delay.base_s)
        status, self.told = perform(self.pod, planned, self.now, ADDRESS)
        assert status_patch(self.pod.status, status), f"{planned} writes nothing"
        # Over the wire and back, as a server would keep it.
        status = msgspec.json.decode(msgspec.json.encode(status), type=type(status))
        self.pod = replace(self.pod, status=status)
        self.steps.append(planned.name)
        return True

    def run(self, most: int = 50) -> Life:
        """Live until nothing is left to do, or for ``most`` steps."""
        for _ in range(most):
            if not self.step():
                break
        return self


SWIFT = KubeletSettings(
    schedule=Delay(0.001),
    waiting=Delay(0.001),
    network=Delay(0.001, 0.004),
    running=Delay(0.001, 0.004),
    ready=Delay(0.001, 0.004),
    termination=Delay(0.005),
)
