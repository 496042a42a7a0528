"""The requests a kubelet and a scheduler make for a Pod: bind, write the status, delete."""

from __future__ import annotations

from typing import Any

from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.resources import NODES, PODS
from lean_sandbox.local.addresses import AddressPool
from lean_sandbox.local.kubelet_settings import KubeletSettings
from lean_sandbox.local.pods import Step, perform
from lean_sandbox.local.podstatus import status_patch
from lean_sandbox.local.podview import PodView


class PodWriter:
    """Each method makes one request and raises what the client raises."""

    def __init__(
        self, client: Client, settings: KubeletSettings, clock: Clock, addresses: AddressPool
    ) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._addresses = addresses

    async def bind(self, pod: PodView, node: str) -> None:
        """Post the Pod's binding to ``node``."""
        meta = pod.metadata
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Binding",
            # The uid keeps a Pod of the same name made meanwhile from being bound.
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "target": {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": node},
        }
        await self._client.create(
            PODS,
            meta.namespace,
            body,
            bytes,
            name=meta.name,
            subresource="binding",
            timeout_s=self._settings.request_timeout_s,
        )

    async def write_status(self, pod: PodView, step: Step) -> PodView:
        """Write what ``step`` changes and return the Pod as the server has it then.

        Returns ``pod`` itself, without a request, when the step changes nothing.
        """
        meta = pod.metadata
        addresses = self._take_addresses(pod) if step.needs_addresses else ()
        status = perform(pod, step, self._settings, self._clock.now(), addresses)
        patch = status_patch(pod.status, status)
        if not patch:
            return pod
        # Whole arrays are written, so the write holds only against the version it was made from:
        # a condition another writer set in between would be lost.
        guard = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        # Operators tell the scheduler's writes from the kubelet's by this name.
        manager = "kubelet" if step.verdict is None else "kube-scheduler"
        return await self._client.patch(
            PODS,
            meta.namespace,
            meta.name,
            {"metadata": guard, "status": patch},
            PodView,
            subresource="status",
            field_manager=manager,
            timeout_s=self._settings.request_timeout_s,
        )

    async def finish(self, pod: PodView) -> None:
        """Delete the Pod for good: its containers have stopped."""
        meta = pod.metadata
        await self._client.delete(
            PODS,
            meta.namespace,
            meta.name,
            uid=meta.uid,
            grace_s=0,
            timeout_s=self._settings.request_timeout_s,
        )

    def _take_addresses(self, pod: PodView) -> tuple[str, ...]:
        if pod.spec.hostNetwork:
            return (self._settings.node_address,)
        return self._addresses.take(pod.metadata.uid)
