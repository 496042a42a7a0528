"""What the kubelets of all nodes do in the end, done at once: Pods run, and deleted ones end."""

from __future__ import annotations

from typing import Any

from lean_sandbox.local.controlplane import ControlPlane
from tests.support.stored import is_ending, is_ready
from tests.support.world import pod_conditions, running_status, write_pod_status

__all__ = ["Kubelets"]

Json = dict[str, Any]
_ENDED = ("Succeeded", "Failed")


class Kubelets:
    """The kubelets of a control plane; each Pod that begins to run gets another address."""

    def __init__(self, plane: ControlPlane, *namespaces: str) -> None:
        """Work for these namespaces."""
        self._plane = plane
        self._namespaces = namespaces

    def bind(self, namespace: str, name: str) -> None:
        """Give a Pod a node, as a scheduler does once its gates are lifted."""
        verbs = self._plane._verbs
        kind = self._plane._registry.by_resource("pods")

        def binding(pod: Json) -> None:
            pod["spec"]["nodeName"] = "node-2"
            pod["spec"].pop("schedulingGates", None)
            conditions = pod.setdefault("status", {}).setdefault("conditions", [])
            conditions[:] = [one for one in conditions if one["type"] != "PodScheduled"]
            conditions.append(pod_conditions(ready=False)[0])

        verbs.rewrite(kind, namespace, name, binding)

    def work(self) -> bool:
        """Bring every Pod to where it is to be; return whether there was anything to do."""
        store = self._plane.store
        did = False
        for namespace in self._namespaces:
            for pod in store.list("pods", namespace):
                name = pod["metadata"]["name"]
                status = pod.get("status", {})
                ready = bool(status.get("podIPs")) and is_ready(pod)
                if is_ending(pod):
                    store.delete("pods", namespace, name, grace_s=0)
                elif not ready and status.get("phase") not in _ENDED:
                    if not pod["spec"].get("nodeName"):
                        self.bind(namespace, name)
                    status = running_status(ips=(self._address(),))
                    write_pod_status(self._plane, name, status, namespace)
                else:
                    continue
                did = True
        return did

    def _address(self) -> str:
        # No two Pods have ever run since the same version.
        version = self._plane.store.version
        return f"10.{245 + version // 62_500 % 10}.{version // 250 % 250}.{version % 250 + 1}"
