"""What the specification asks of the details of what is stored, once all has come to rest.

``oracle.py`` says which objects there are and whether they are ready. Here is what they carry:
labels, annotations, generations, and what one object repeats of another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.model.names import name_hash
from tests.faults.scope import EVERYTHING, Scope
from tests.support.names import (
    CLAIMS,
    CREATED_BY,
    LAUNCH_TYPE,
    NAME_HASH,
    POLICIES,
    POOLS,
    REF_HASH,
    SANDBOXES,
    TEMPLATES,
    WARM_POOL,
)
from tests.support.stored import condition_of, owner_of

__all__ = ["CANNOT_START", "MARK", "NOTE", "TEAM", "discrepancies"]

Json = dict[str, Any]
# A label and an annotation that users give Pods by Sandboxes and templates, and one by claims.
TEAM = "team"
NOTE = "note"
MARK = "sandbox.users.io/mark"
CANNOT_START = ("WarmPoolNotFound", "TemplateNotFound")
# What a claim says of itself, whatever its Sandbox says.
_OF_CLAIMS = (*CANNOT_START, "ClaimExpired", "SandboxExpired")
_KNOWN_MAKERS = (None, "go-client", "python-client", "controller")
_ENDED = ("Succeeded", "Failed")
_PARTS = ("labels", "annotations")


def discrepancies(
    plane: ControlPlane, namespaces: tuple[str, ...], *, scope: Scope = EVERYTHING
) -> list[str]:
    """Return in words every detail that is not as the specification asks, of what is served."""
    return [found for name in namespaces for found in _Details(plane, name).found(scope)]


class _Details:
    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        def named(resource: str) -> dict[str, Json]:
            return {one["metadata"]["name"]: one for one in plane.store.list(resource, namespace)}

        self.pods = named("pods")
        self.services = named("services")
        self.policies = named(POLICIES)
        self.sandboxes = named(SANDBOXES)
        self.claims = named(CLAIMS)
        self.pools = named(POOLS)
        self.templates = named(TEMPLATES)

    def found(self, scope: Scope) -> Iterator[str]:
        for kind, look in (
            (self.sandboxes, self._sandbox),
            (self.claims, self._claim),
            (self.pools, self._pool),
            (self.templates, self._template),
        ):
            for one in filter(scope.serves, kind.values()):
                title = f"{one['kind']} {one['metadata']['namespace']}/{one['metadata']['name']}"
                for text in look(one):
                    yield f"{title} {text}"

    # -- Sandboxes -------------------------------------------------------------------------------

    def _sandbox(self, one: Json) -> Iterator[str]:
        yield from _generation(one)
        status = one["status"]
        if condition_of(one, "Ready").get("reason") == "SandboxExpired":
            if set(status) != {"conditions"}:
                yield f"has expired and still says {status}"
            return
        uid = one["metadata"]["uid"]
        key = name_hash(one["metadata"]["name"])
        services = [it for it in self.services.values() if owner_of(it).get("uid") == uid]
        if bool(status.get("service")) != bool(services):
            yield f"names the Service {status.get('service')!r} and has {len(services)}"
        for service in services:
            if service["spec"].get("selector") != {NAME_HASH: key}:
                yield f"has a Service that selects {service['spec'].get('selector')}"
            if one["spec"].get("service") and service["spec"].get("ports"):
                yield f"has a Service with ports that no container has: {service['spec']}"
        pods = [it for it in self.pods.values() if owner_of(it).get("uid") == uid]
        if len(pods) == 1 and one["spec"].get("operatingMode") != "Suspended":
            yield from self._pod(one, pods[0])
            if status.get("selector") != f"{NAME_HASH}={key}":
                yield f"tells the selector {status.get('selector')!r}"

    def _pod(self, one: Json, pod: Json) -> Iterator[str]:
        """Look at what a Pod has of its Sandbox, and what that says of it."""
        wanted = one["spec"]["podTemplate"].get("metadata", {})
        carried = pod["metadata"]
        for part in _PARTS:
            for key in (TEAM, NOTE, MARK):
                asked, has = ((it.get(part) or {}).get(key) for it in (wanted, carried))
                if asked != has:
                    yield f"wants {key}={asked} among the {part} of its Pod, which has {has}"
        labels = one["metadata"].get("labels", {})
        owner = owner_of(one)
        is_extended = owner.get("apiVersion", "").startswith("extensions.agents.x-k8s.io/")
        is_member = is_extended and owner["kind"] == "SandboxWarmPool"
        maker = labels.get(CREATED_BY)
        for key, asked in (
            (NAME_HASH, name_hash(one["metadata"]["name"])),
            (WARM_POOL, labels.get(WARM_POOL) if is_member else None),
            (REF_HASH, labels.get(REF_HASH) if is_extended else None),
            (CREATED_BY, maker if maker in _KNOWN_MAKERS else "unknown"),
        ):
            has = carried.get("labels", {}).get(key)
            if asked != has:
                yield f"has a Pod labelled {key}={has}, not {asked}"
        node = one["status"].get("nodeName")
        if node != pod["spec"].get("nodeName"):
            yield f"tells the node {node}, its Pod is on {pod['spec'].get('nodeName')}"
        scheduled = condition_of(pod, "PodScheduled").get("status")
        if scheduled and condition_of(one, "PodScheduled").get("status") != scheduled:
            yield f"says {condition_of(one, 'PodScheduled')}, its Pod is scheduled: {scheduled}"
        if condition_of(one, "Finished") and pod["status"].get("phase") not in _ENDED:
            yield f"says {condition_of(one, 'Finished')}, its Pod is {pod['status'].get('phase')}"

    # -- claims ----------------------------------------------------------------------------------

    def _claim(self, one: Json) -> Iterator[str]:
        yield from _generation(one)
        ready = condition_of(one, "Ready")
        bound = one["status"].get("sandbox", {})
        sandbox = self.sandboxes.get(bound.get("name", ""), {})
        is_own = bool(sandbox) and owner_of(sandbox).get("uid") == one["metadata"]["uid"]
        if not is_own or ready.get("reason") in ("ClaimExpired", *CANNOT_START):
            return
        for name in ("podIPs", "serviceFQDN"):
            if bound.get(name) != sandbox["status"].get(name):
                yield f"tells {name} {bound.get(name)}, its Sandbox {sandbox['status'].get(name)}"
        theirs = condition_of(sandbox, "Ready")
        if ready.get("reason") != "SandboxExpired":
            for name in ("status", "reason", "message"):
                if ready.get(name) != theirs.get(name):
                    yield f"says {ready}, its Sandbox {theirs}"
        finished = condition_of(one, "Finished")
        if finished != condition_of(sandbox, "Finished"):
            yield f"says {finished}, its Sandbox {condition_of(sandbox, 'Finished')}"
        labels = sandbox["metadata"].get("labels", {})
        if WARM_POOL in labels or LAUNCH_TYPE not in labels:
            yield f"has a Sandbox labelled {labels}"
        if self.template_of(one) is None:
            return
        maker = one["metadata"].get("labels", {}).get(CREATED_BY)
        if labels.get(CREATED_BY) != maker:
            yield f"was made by {maker}, its Sandbox by {labels.get(CREATED_BY)}"
        asked = one["spec"].get("additionalPodMetadata", {})
        has = sandbox["spec"]["podTemplate"].get("metadata", {})
        for part in _PARTS:
            mark, its = ((it.get(part) or {}).get(MARK) for it in (asked, has))
            if mark != its:
                yield f"asks for {MARK}={mark} among the {part}, its Sandbox for {its}"

    def template_of(self, claim: Json) -> Json | None:
        """Return the template of the pool of a claim, if both are there."""
        pool = self.pools.get(claim["spec"]["warmPoolRef"]["name"])
        return pool and self.templates.get(pool["spec"]["sandboxTemplateRef"]["name"])

    # -- pools and templates ---------------------------------------------------------------------

    def _pool(self, one: Json) -> Iterator[str]:
        metadata = one["metadata"]
        status = one.get("status", {})
        if status.get("observedGeneration") != metadata["generation"]:
            yield f"is of generation {metadata['generation']} and says {status}"
        if status.get("selector") != f"{WARM_POOL}={name_hash(metadata['name'])}":
            yield f"tells the selector {status.get('selector')!r}"

    def _template(self, one: Json) -> Iterator[str]:
        metadata = one["metadata"]
        labels = metadata.get("labels", {})
        if labels.get(REF_HASH) != name_hash(metadata["name"]):
            yield f"is labelled {labels}"
        policy = self.policies.get(f"{metadata['name']}-network-policy", {})
        is_its = bool(policy) and owner_of(policy).get("uid") == metadata["uid"]
        is_managed = one["spec"].get("networkPolicyManagement") != "Unmanaged"
        # The policy of somebody else stays, even if it was the template's own (templates, 5.4).
        if is_managed and not is_its and (not policy or owner_of(policy)):
            yield f"has no NetworkPolicy: {policy}"
        if is_its and not is_managed:
            yield f"is not managed and has a NetworkPolicy: {policy}"
        custom = one["spec"].get("networkPolicy")
        if is_its and custom is not None and policy["spec"].get("egress") != custom.get("egress"):
            yield f"has a NetworkPolicy for other rules: {policy['spec']}"
        if is_its and not policy["spec"].get("egress"):
            yield f"has a NetworkPolicy that somebody changed: {policy['spec']}"


def _generation(one: Json) -> Iterator[str]:
    generation = one["metadata"]["generation"]
    ready = condition_of(one, "Ready")
    if ready.get("observedGeneration") != generation:
        yield f"is of generation {generation} and says {ready}"
