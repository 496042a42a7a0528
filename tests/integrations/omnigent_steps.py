"""What the server of Omnigent does with its two launchers: run by the Python of its environment.

The arguments: a kubeconfig and a namespace. What a Pod is asked by exec is answered here.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, ClassVar

from kubernetes import client, config
from omnigent.onboarding.sandboxes.agent_sandbox import AgentSandboxLauncher
from omnigent.onboarding.sandboxes.agent_sandbox_warm_pool import (
    AgentSandboxWarmPoolLauncher,
    WarmPoolHandle,
)
from omnigent.onboarding.sandboxes.base import SandboxGoneError

Json = dict[str, Any]

_CORE = "agents.x-k8s.io"
_EXTENSIONS = "extensions.agents.x-k8s.io"
_VERSION = "v1beta1"
_POOL = "warm"
_REPLICAS = 3


class Answering(AgentSandboxWarmPoolLauncher):  # type: ignore[misc]
    """Its Pods say what the bootstrap in them would say: activated, they are prepared."""

    # One for all launchers, as the Pods are.
    _activated: ClassVar[dict[str, str]] = {}

    def _exec(self, handle: Any, pod_name: str, mode: str, payload: Json | None = None) -> str:
        pod = self._load_core().read_namespaced_pod(pod_name, handle.namespace)
        if payload is not None:
            assert (mode, payload["pod_uid"]) == ("activate", pod.metadata.uid)
            self._activated[pod.metadata.uid] = payload["generation"]
        generation = self._activated.get(pod.metadata.uid)
        stage = "prepared" if generation else "waiting"
        return json.dumps({"stage": stage, "generation": generation})


class Cluster:
    """What is seen of the namespace."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        config.load_kube_config(config_file=kubeconfig)  # type: ignore[no-untyped-call]
        self._core: Any = client.CoreV1Api()
        self._custom: Any = client.CustomObjectsApi()
        self._namespace = namespace

    def all(self, group: str, plural: str) -> list[Json]:
        """Return the objects of a kind."""
        found = self._custom.list_namespaced_custom_object(group, _VERSION, self._namespace, plural)
        return list(found["items"])

    def names(self, group: str, plural: str) -> set[str]:
        """Return their names."""
        return {one["metadata"]["name"] for one in self.all(group, plural)}

    def create(self, kind: str, name: str, spec: Json) -> None:
        """Create a template or a pool."""
        body = {
            "apiVersion": f"{_EXTENSIONS}/{_VERSION}",
            "kind": kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        self._custom.create_namespaced_custom_object(
            _EXTENSIONS, _VERSION, self._namespace, f"{kind.lower()}s", body
        )

    def expire(self, sandbox: str) -> None:
        """Let the time of a Sandbox end, as it does when nobody prolongs it."""
        ended = {"spec": {"shutdownTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}}
        self._custom.patch_namespaced_custom_object(
            _CORE, _VERSION, self._namespace, "sandboxes", sandbox, ended
        )

    def ready(self, pool: str) -> int:
        """Count the members of a pool that are Ready."""
        found = self.all(_EXTENSIONS, "sandboxwarmpools")
        (one,) = [one for one in found if one["metadata"]["name"] == pool]
        return int(one.get("status", {}).get("readyReplicas", 0))

    def pods(self) -> set[str]:
        """Return the names of the Pods that run."""
        found = self._core.list_namespaced_pod(self._namespace).items
        return {one.metadata.name for one in found if one.status.phase == "Running"}

    def volumes(self) -> dict[str, str]:
        """Return the PersistentVolumeClaims with their uids."""
        found = self._core.list_namespaced_persistent_volume_claim(self._namespace).items
        return {one.metadata.name: one.metadata.uid for one in found}

    def secrets(self) -> set[str]:
        """Return the names of the Secrets."""
        return {
            one.metadata.name for one in self._core.list_namespaced_secret(self._namespace).items
        }


def until(holds: Callable[[], object]) -> None:
    """Wait; the test ends what never comes."""
    while not holds():
        time.sleep(0.05)


def start(launcher: AgentSandboxLauncher, sandbox_id: str, token: str) -> None:
    """Start the host, whose token is another one each time."""
    workspace = launcher.start_host(
        sandbox_id, token=token, host_id="host", host_name="Host", server_url="http://server"
    )
    assert workspace.endswith("/workspace")


def gone(launcher: AgentSandboxLauncher, sandbox_id: str) -> bool:
    """Tell whether a sandbox can be woken no more."""
    try:
        launcher.resume(sandbox_id)
    except SandboxGoneError:
        return True
    return False


def claimed(handle: str) -> str:
    """Return the name of the Sandbox that a claim got."""
    return str(WarmPoolHandle.parse(handle).sandbox_name)


def direct(launcher: AgentSandboxLauncher, cluster: Cluster) -> None:
    """A Sandbox of its own: started, prolonged, suspended by its time, woken, terminated."""
    one = launcher.provision("red")
    assert not cluster.names(_CORE, "sandboxes")
    start(launcher, one, "first")
    assert cluster.pods() == {one}
    before = cluster.volumes()
    assert list(before) == [f"home-{one}"]
    assert launcher.keep_alive(one)
    cluster.expire(one)
    until(lambda: not cluster.pods())
    assert (cluster.names(_CORE, "sandboxes"), cluster.volumes()) == ({one}, before)
    launcher.resume(one)
    start(launcher, one, "second")
    assert (cluster.pods(), cluster.volumes()) == ({one}, before)
    launcher.resume(one)
    start(launcher, one, "third")
    launcher.terminate(one)
    until(lambda: not (cluster.pods() | cluster.volumes().keys() | cluster.secrets()))
    assert launcher.keep_alive(one) is False
    assert gone(launcher, one)
    launcher.terminate(one)


def warm(launcher: Answering, cluster: Cluster) -> None:
    """A member of a pool: claimed, activated, suspended by its time, woken, terminated."""
    until(lambda: cluster.ready(_POOL) == _REPLICAS)
    members = cluster.names(_CORE, "sandboxes")
    one = launcher.provision("blue")
    sandbox = claimed(one)
    assert sandbox in members
    start(launcher, one, "first")
    before = cluster.volumes()[f"home-{sandbox}"]
    assert launcher.is_running(one)
    assert launcher.keep_alive(one)
    cluster.expire(sandbox)
    until(lambda: not launcher.is_running(one))
    launcher.resume(one)
    start(launcher, one, "second")
    assert launcher.is_running(one)
    assert cluster.volumes()[f"home-{sandbox}"] == before
    launcher.terminate(one)
    until(lambda: sandbox not in cluster.names(_CORE, "sandboxes"))
    assert gone(launcher, one)
    assert launcher.is_running(one) is False
    launcher.terminate(one)


def elsewhere(launcher: Answering, cluster: Cluster) -> None:
    """An agent without a pool has a Sandbox of its own, and takes no member."""
    until(lambda: cluster.ready(_POOL) == _REPLICAS)
    launcher.prepare_for_launch(agent_name="other")
    one = launcher.provision("green")
    start(launcher, one, "first")
    assert one in cluster.pods()
    assert not cluster.all(_EXTENSIONS, "sandboxclaims")
    launcher.terminate(one)


def crowd(launch: Callable[[], Answering], cluster: Cluster, count: int = 10) -> None:
    """More at once than the pool has members: each has a Sandbox of its own."""

    def one(number: int) -> str:
        launcher = launch()
        made = launcher.provision(f"crowd-{number}")
        start(launcher, made, f"token-{number}")
        assert launcher.is_running(made)
        return str(made)

    with ThreadPoolExecutor(count) as pool:
        made = list(pool.map(one, range(count)))
        assert len({claimed(handle) for handle in made}) == count
        list(pool.map(lambda handle: launch().terminate(handle), made))
    until(lambda: not cluster.all(_EXTENSIONS, "sandboxclaims"))


def main(kubeconfig: str, namespace: str) -> None:
    """Take all steps, with a workspace that outlives a Pod."""
    os.environ["OMNIGENT_AGENT_SANDBOX_WORKSPACE_SIZE"] = "1Gi"
    options = {"kubeconfig": kubeconfig, "in_cluster": False, "namespace": namespace}
    options |= {"image": "omnigent", "pod_ready_timeout_s": 300}

    def launch() -> Answering:
        return Answering(warm_pool=_POOL, **options)

    cluster = Cluster(kubeconfig, namespace)
    direct(AgentSandboxLauncher(**options), cluster)
    template = {**launch().template_spec(), "networkPolicyManagement": "Unmanaged"}
    cluster.create("SandboxTemplate", _POOL, template)
    pool = {"replicas": _REPLICAS, "sandboxTemplateRef": {"name": _POOL}}
    cluster.create("SandboxWarmPool", _POOL, {**pool, "updateStrategy": {"type": "Recreate"}})
    warm(launch(), cluster)
    elsewhere(launch(), cluster)
    crowd(launch, cluster)


if __name__ == "__main__":
    main(*sys.argv[1:])
