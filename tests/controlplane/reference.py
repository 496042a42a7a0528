"""Objects as the reference controller leaves them, made by hand: metadata, owners, statuses.

A Pod's own status comes from the simulated kubelet. ``version`` is that of the owner references:
objects that were made before v1beta1 still say ``v1alpha1``, which no server knows any more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from lean_sandbox.model.names import name_hash
from tests.controlplane.objects import condition, extension
from tests.controlplane.scene import Scene

__all__ = ["DOMAIN", "NEW", "OLD", "Reference", "go_hash", "owner"]

Json = dict[str, Any]

DOMAIN = "agents.x-k8s.io"
OLD = "v1alpha1"
NEW = "v1beta1"
_SINCE = "2026-10-01T08:00:00Z"
# As a typed client sends it: empty structs that are held by value stay.
_CONTAINER: Json = {"name": "main", "image": "busybox", "resources": {}}
_SECURE: Json = {
    "automountServiceAccountToken": False,
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["8.8.8.8", "1.1.1.1"]},
}


def go_hash(value: Json) -> str:
    """Return the hash the reference gives to what Go encodes as this JSON."""
    return name_hash(json.dumps(value, separators=(",", ":")))


def owner(made: Json, version: str = NEW) -> list[Json]:
    """Return the owner references of what an object controls."""
    group = made["apiVersion"].partition("/")[0]
    return [
        {
            "apiVersion": f"{group}/{version}",
            "kind": made["kind"],
            "name": made["metadata"]["name"],
            "uid": made["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def verdict(made: Json, type_: str, status: str, reason: str, message: str) -> Json:
    """Return a condition about the present generation of an object."""
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": made["metadata"]["generation"],
        "lastTransitionTime": _SINCE,
    }


@dataclass(frozen=True, slots=True)
class Reference:
    """Makes what the reference would have made in the namespace of a scene."""

    scene: Scene

    async def tell(self, plural: str, name: str, status: Json) -> Json:
        """Write a status."""
        path = f"{self.scene.path(plural)}/{name}/status"
        return dict((await self.scene.room.api.patch(path, {"status": status})).ok())

    # ------------------------------------------------------------------ Sandboxes

    async def sandbox(
        self,
        name: str,
        *,
        version: str = NEW,
        labels: Json | None = None,
        annotations: Json | None = None,
        owners: list[Json] | None = None,
        pod_labels: Json | None = None,
        secure: bool = False,
        template: Json | None = None,
        **spec: Any,
    ) -> Json:
        """Make a Sandbox with its children, wait for its Pod, and report it Ready.

        A suspended one has no Pod. ``pod_labels`` are what the reference copies to the Pod.
        """
        mode = spec.get("operatingMode", "Running")
        made = await self.scene.create(
            "sandboxes",
            {
                "apiVersion": f"{DOMAIN}/{NEW}",
                "kind": "Sandbox",
                "metadata": {
                    "name": name,
                    "labels": labels or {},
                    "annotations": {
                        **({f"{DOMAIN}/pod-name": name} if mode == "Running" else {}),
                        **(annotations or {}),
                    },
                    "ownerReferences": owners or [],
                },
                "spec": {
                    "podTemplate": {
                        "metadata": template or {},
                        "spec": {"containers": [_CONTAINER], **(_SECURE if secure else {})},
                    },
                    **spec,
                },
            },
        )
        for volume in spec.get("volumeClaimTemplates", []):
            await self._volume(made, volume, version)
        if spec.get("service"):
            await self._service(made, version)
        if mode == "Suspended":
            return await self.tell("sandboxes", name, self._asleep(made))
        await self._pod(made, version, pod_labels or {})
        pod = await self._until_ready(name)
        return await self.tell("sandboxes", name, self._awake(made, pod))

    async def _pod(self, made: Json, version: str, labels: Json) -> None:
        meta = made["metadata"]
        spec = dict(made["spec"]["podTemplate"]["spec"])
        wanted = made["spec"]["podTemplate"].get("metadata", {})
        own = {
            kind: {k: v for k, v in wanted.get(kind, {}).items() if not k.startswith(DOMAIN)}
            for kind in ("labels", "annotations")
        }
        notes = {
            f"{DOMAIN}/propagated-{kind}": ",".join(sorted(own[kind])) for kind in own if own[kind]
        }
        if made["spec"].get("volumeClaimTemplates"):
            spec["volumes"] = [
                {
                    "name": one["metadata"]["name"],
                    "persistentVolumeClaim": {
                        "claimName": f"{one['metadata']['name']}-{meta['name']}"
                    },
                }
                for one in made["spec"]["volumeClaimTemplates"]
            ]
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": meta["name"],
                "labels": {
                    **own["labels"],
                    f"{DOMAIN}/sandbox-name-hash": name_hash(meta["name"]),
                    **labels,
                },
                "annotations": {**own["annotations"], **notes},
                "ownerReferences": owner(made, version),
            },
            "spec": spec,
        }
        await self.scene.create("pods", body)

    async def _service(self, made: Json, version: str) -> None:
        name = made["metadata"]["name"]
        tracking = {f"{DOMAIN}/sandbox-name-hash": name_hash(name)}
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "labels": tracking, "ownerReferences": owner(made, version)},
            "spec": {"clusterIP": "None", "selector": tracking},
        }
        await self.scene.create("services", body)

    async def _volume(self, made: Json, volume: Json, version: str) -> None:
        name = made["metadata"]["name"]
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": f"{volume['metadata']['name']}-{name}",
                "labels": {f"{DOMAIN}/sandbox-name-hash": name_hash(name)},
                "ownerReferences": owner(made, version),
            },
            "spec": volume["spec"],
        }
        await self.scene.create("persistentvolumeclaims", body)

    async def _until_ready(self, name: str) -> Json:
        def pods(found: list[Json]) -> list[Json]:
            return [one for one in found if one["metadata"]["name"] == name]

        found = await self.scene.until(
            "pods", lambda all_: condition(pods(all_)[0], "Ready") == "True"
        )
        return pods(found)[0]

    def _awake(self, made: Json, pod: Json) -> Json:
        is_served = bool(made["spec"].get("service"))
        message = "Pod is Ready; Service Exists" if is_served else "Pod is Ready"
        return {
            "conditions": [
                verdict(made, "Suspended", "False", "NotSuspended", "Sandbox is not suspended"),
                verdict(made, "PodScheduled", "True", "PodScheduled", ""),
                verdict(made, "Ready", "True", "DependenciesReady", message),
            ],
            "selector": self._selector(made),
            "podIPs": [one["ip"] for one in pod["status"]["podIPs"]],
            "nodeName": pod["spec"]["nodeName"],
            **(self._served(made) if is_served else {}),
        }

    def _asleep(self, made: Json) -> Json:
        message = "Pod has been terminated. Sandbox is suspended"
        return {
            "conditions": [
                verdict(made, "Suspended", "True", "PodTerminated", message),
                verdict(made, "Ready", "False", "SandboxSuspended", "Sandbox is suspended"),
            ],
            "selector": self._selector(made),
            **(self._served(made) if made["spec"].get("service") else {}),
        }

    def _served(self, made: Json) -> Json:
        name = made["metadata"]["name"]
        return {"service": name, "serviceFQDN": f"{name}.{self.scene.room.name}.svc.cluster.local"}

    @staticmethod
    def _selector(made: Json) -> str:
        return f"{DOMAIN}/sandbox-name-hash={name_hash(made['metadata']['name'])}"

    async def expired(self, name: str) -> Json:
        """Make a Sandbox that was kept at the end of its time: of its status only Ready is left."""
        made = await self.scene.create(
            "sandboxes",
            {
                "apiVersion": f"{DOMAIN}/{NEW}",
                "kind": "Sandbox",
                "metadata": {"name": name},
                "spec": {
                    "podTemplate": {"metadata": {}, "spec": {"containers": [_CONTAINER]}},
                    "shutdownTime": _SINCE,
                },
            },
        )
        conditions = [
            verdict(made, "Suspended", "False", "NotSuspended", "Sandbox is not suspended"),
            verdict(made, "Ready", "False", "SandboxExpired", "Sandbox has expired"),
        ]
        return await self.tell("sandboxes", name, {"conditions": conditions})

    # ------------------------------------------------------------------ extensions

    async def template(self, name: str, version: str = NEW) -> Json:
        """Make a template with its label and its NetworkPolicy."""
        reference = {f"{DOMAIN}/sandbox-template-ref-hash": name_hash(name)}
        body = extension(
            "SandboxTemplate",
            name,
            podTemplate={"metadata": {}, "spec": {"containers": [_CONTAINER]}},
        )
        body["metadata"]["labels"] = reference
        made = await self.scene.create("sandboxtemplates", body)
        router = {
            "namespaceSelector": {
                "matchLabels": {"kubernetes.io/metadata.name": "agent-sandbox-system"}
            },
            "podSelector": {"matchLabels": {"app": "sandbox-router"}},
        }
        private = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"]
        outside = [
            {"ipBlock": {"cidr": "0.0.0.0/0", "except": private}},
            {"ipBlock": {"cidr": "::/0", "except": ["fc00::/7", "fe80::/10"]}},
        ]
        await self.policy(
            f"{name}-network-policy",
            owner(made, version),
            {
                "podSelector": {"matchLabels": reference},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{"from": [router]}],
                "egress": [{"to": outside}],
            },
        )
        return made

    async def policy(self, name: str, owners: list[Json], spec: Json) -> None:
        """Make a NetworkPolicy."""
        body = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": name, "ownerReferences": owners},
            "spec": spec,
        }
        await self.scene.create("networkpolicies", body)

    async def pool(self, name: str, template: str, replicas: int, strategy: str) -> Json:
        """Make a pool that reports all its members ready; they are made by :meth:`member`."""
        made = await self.scene.create(
            "sandboxwarmpools",
            extension(
                "SandboxWarmPool",
                name,
                replicas=replicas,
                sandboxTemplateRef={"name": template},
                updateStrategy={"type": strategy},
            ),
        )
        status = {
            "replicas": replicas,
            "readyReplicas": replicas,
            "selector": f"{DOMAIN}/warm-pool-sandbox={name_hash(name)}",
            "observedGeneration": made["metadata"]["generation"],
        }
        return await self.tell("sandboxwarmpools", name, status)

    async def member(
        self, pool: Json, name: str, *, stamp: str | None = None, version: str = NEW
    ) -> Json:
        """Make a member of a pool; ``stamp`` is its blueprint hash if not the reference's own."""
        template = pool["spec"]["sandboxTemplateRef"]["name"]
        pod_template = {"spec": {"containers": [_go_container()]}, "metadata": {}}
        hashes = {
            f"{DOMAIN}/warm-pool-sandbox": name_hash(pool["metadata"]["name"]),
            f"{DOMAIN}/sandbox-template-ref-hash": name_hash(template),
            f"{DOMAIN}/sandbox-pod-template-hash": stamp or go_hash(pod_template),
            f"{DOMAIN}/sandbox-template-hash": stamp or go_hash({"podTemplate": pod_template}),
        }
        copied = (f"{DOMAIN}/warm-pool-sandbox", f"{DOMAIN}/sandbox-template-ref-hash")
        made_by = {f"{DOMAIN}/created-by": "controller"}
        return await self.sandbox(
            name,
            version=version,
            owners=owner(pool, version),
            labels={**hashes, f"{DOMAIN}/launch-type": "warm", **made_by},
            annotations={f"{DOMAIN}/sandbox-template-ref": template},
            pod_labels={key: hashes[key] for key in copied} | made_by,
            secure=True,
            template={
                "labels": hashes,
                "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
            },
        )

    async def claim(
        self, name: str, pool: Json, *, sandbox: str, version: str = NEW, **spec: Any
    ) -> Json:
        """Make a claim bound to a Ready Sandbox, which is made too.

        Warm when the Sandbox has a name of its own.
        """
        template = pool["spec"]["sandboxTemplateRef"]["name"]
        is_warm = sandbox != name
        body = extension("SandboxClaim", name, warmPoolRef={"name": pool["metadata"]["name"]})
        body["metadata"]["annotations"] = {
            f"{DOMAIN}/controller-first-observed-at": "2026-10-01T07:59:59.25Z",
            f"{DOMAIN}/claim-first-ready-at": "2026-10-01T08:00:00.5Z",
            **({f"{DOMAIN}/sandbox-name": sandbox} if is_warm else {}),
        }
        made = await self.scene.create("sandboxclaims", body)
        reference = {f"{DOMAIN}/sandbox-template-ref-hash": name_hash(template)}
        identity = {f"{DOMAIN}/claim-uid": made["metadata"]["uid"]}
        launch = {f"{DOMAIN}/launch-type": "warm" if is_warm else "cold"}
        bound = await self.sandbox(
            sandbox,
            version=version,
            owners=owner(made, version),
            labels={**identity, **launch, **reference},
            annotations={f"{DOMAIN}/sandbox-template-ref": template},
            pod_labels={**identity, **reference},
            secure=True,
            template={"labels": {**identity, **reference}},
            **spec,
        )
        ready = next(one for one in bound["status"]["conditions"] if one["type"] == "Ready")
        status = {
            "conditions": [{**ready, "observedGeneration": made["metadata"]["generation"]}],
            "sandbox": {
                "name": sandbox,
                **{
                    k: bound["status"][k] for k in ("podIPs", "serviceFQDN") if k in bound["status"]
                },
            },
        }
        return await self.tell("sandboxclaims", name, status)


def _go_container() -> Json:
    # Go writes fields in the order of their declaration.
    return {key: _CONTAINER[key] for key in ("name", "image", "resources")}
