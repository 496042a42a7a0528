"""The table of the simulated scheduler, asked of kube-scheduler."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.controlplane.binaries import provide
from tests.controlplane.plugin import REAL
from tests.controlplane.server import RealServer, started
from tests.local.kubelet.placements import PLACEMENTS
from tests.support.patience import PATIENCE_S

Json = dict[str, Any]

pytestmark = REAL
_NODES = "/api/v1/nodes"
_PODS = "/api/v1/namespaces/default/pods"
_CASE = "example.com/case"
_PREEMPTION = " no new claims to deallocate, preemption: "


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """Run a control plane with a scheduler, and without the Nodes of other tests."""
    with started(provide(os.environ), tmp_path_factory.mktemp("plane"), []) as found:
        found.start("kube-scheduler")
        yield found


@pytest.mark.parametrize("name", PLACEMENTS)
def test_kube_scheduler_places_pods_as_the_table_says(server: RealServer, name: str) -> None:
    """And says the same where no Node will do."""
    placement = PLACEMENTS[name]
    try:
        for node, body in placement.nodes.items():
            _register(server, node, body)
        for node, specs in placement.running.items():
            for number, spec in enumerate(specs):
                _make(server, f"{node}{number}", {**spec, "nodeName": node})
        _make(server, "new", placement.pod)
        _until(placement.expected, lambda: _outcome(server, "new"))
    finally:
        server.ask("DELETE", f"{_PODS}?gracePeriodSeconds=0")
        server.ask("DELETE", _NODES)


def _register(server: RealServer, name: str, body: Json) -> None:
    """Create a Node, and wait until the scheduler knows it as it is meant to be."""
    labels = {**body["metadata"]["labels"], _CASE: name}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {**body["status"], "capacity": body["status"]["allocatable"], "conditions": [ready]}
    server.ask("POST", _NODES, {"metadata": {"name": name}, "status": status})
    # A new Node has a taint until it is found ready.
    patch = {"metadata": {"labels": labels}, "spec": body["spec"]}
    server.ask("PATCH", f"{_NODES}/{name}", patch)
    probe: Json = {"containers": [{"name": "main", "image": "busybox"}]}
    probe |= {"nodeSelector": {_CASE: name}, "tolerations": [{"operator": "Exists"}]}
    _make(server, f"probe-{name}", probe)
    _until(name, lambda: _outcome(server, f"probe-{name}"))
    server.ask("DELETE", f"{_PODS}/probe-{name}?gracePeriodSeconds=0")


def _make(server: RealServer, name: str, spec: Json) -> None:
    server.ask("POST", _PODS, {"metadata": {"name": name}, "spec": spec})


def _outcome(server: RealServer, name: str) -> str:
    """Return the Node of a Pod, or what the scheduler says of it, but for preemption."""
    pod = server.ask("GET", f"{_PODS}/{name}")
    conditions = pod["status"].get("conditions") or []
    said = [one.get("message", "") for one in conditions if one["type"] == "PodScheduled"]
    return str(pod["spec"].get("nodeName") or "".join(said).partition(_PREEMPTION)[0])


def _until(expected: str, look: Callable[[], str]) -> None:
    """Wait for an outcome; the scheduler may have looked before it knew everything."""
    limit = time.monotonic() + PATIENCE_S
    found = ""
    while found != expected and time.monotonic() < limit:
        time.sleep(0.05)
        found = look()
    assert found == expected
