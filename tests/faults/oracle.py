"""What the specification asks of the objects that are stored, once everything has come to rest.

A small model of the end, told from the specs that users left and the Pods that a kubelet runs; it
knows nothing of how the controller gets there.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.model.names import name_hash
from tests.faults.details import CANNOT_START
from tests.faults.scope import EVERYTHING, Scope
from tests.support.names import (
    ADOPTABLE,
    CLAIMS,
    NAME_HASH,
    POOLS,
    REF_HASH,
    SANDBOXES,
    TEMPLATES,
    WARM_POOL,
)
from tests.support.stored import bound_name, condition_of, title_of

__all__ = ["CLAIMS", "POOLS", "SANDBOXES", "TEMPLATES", "violations"]

Json = dict[str, Any]
# What a claim may bring only if its template lets it, and what it says otherwise.
_REFUSALS = {"env": "EnvVarsInjectionRejected", "volumeClaimTemplates": "VolumeClaimTemplatesError"}


def violations(
    plane: ControlPlane,
    namespaces: tuple[str, ...],
    *,
    disowned: Container[str] = (),
    scope: Scope = EVERYTHING,
) -> list[str]:
    """Return in words everything that is not as the specification asks.

    ``disowned`` are the uids of what others left or made without an owner. Of what is not in the
    ``scope`` nothing is asked.
    """
    every = [_Namespace(plane, name, disowned, scope) for name in namespaces]
    return [found for one in every for found in one.violations()]


class _Namespace:
    def __init__(
        self, plane: ControlPlane, name: str, disowned: Container[str], scope: Scope
    ) -> None:
        self.name = name
        self.disowned = disowned
        self.scope = scope
        self.pods = plane.store.list("pods", name)
        self.services = plane.store.list("services", name)
        self.volume_claims = plane.store.list("persistentvolumeclaims", name)
        self.sandboxes = plane.store.list(SANDBOXES, name)
        self.claims = plane.store.list(CLAIMS, name)
        self.pools = plane.store.list(POOLS, name)
        self.templates = {one["metadata"]["name"]: one for one in plane.store.list(TEMPLATES, name)}

    def violations(self) -> Iterator[str]:
        for kind in (self.pods, self.sandboxes, self.claims, self.pools):
            for one in kind:
                if "deletionTimestamp" in one["metadata"]:
                    yield f"{title_of(one)} is still being deleted"
        yield from self._strays()
        for one in filter(self.scope.selects, self.sandboxes):
            yield from self._sandbox(one)
        if not self.scope.has_extensions:
            return
        for one in self.claims:
            yield from self._claim(one)
        for one in self.pools:
            yield from self._pool(one)
        named = [bound_name(one) for one in self.claims if bound_name(one)]
        for name in {name for name in named if named.count(name) > 1}:
            yield f"{self.name}/{name} is bound to several claims"

    def _strays(self) -> Iterator[str]:
        uids = {
            one["metadata"]["uid"]
            for kind in (self.sandboxes, self.claims, self.pools)
            for one in kind
        }
        pools = {name_hash(one["metadata"]["name"]) for one in self.pools}
        for one in (*self.pods, *self.services, *self.volume_claims, *self.sandboxes):
            owners = [ref["uid"] for ref in _controllers(one)]
            if len(owners) > 1:
                yield f"{title_of(one)} has several controllers"
            if any(uid not in uids for uid in owners):
                yield f"{title_of(one)} has an owner that is gone, or of another namespace"
            is_disowned = one["metadata"]["uid"] in self.disowned
            if one["kind"] == "Pod" and not owners and not is_disowned:
                yield f"{title_of(one)} belongs to nobody"
            if one["kind"] == "Sandbox" and not owners and not _is_users(one) and not is_disowned:
                yield f"{title_of(one)} belongs to nobody"
            is_served = self.scope.has_extensions
            if is_served and one["kind"] == "Sandbox" and not owners and _pool_label(one) in pools:
                yield f"{title_of(one)} has the label of a pool and no owner"

    def _children(self, owner: Json, of: list[Json]) -> list[Json]:
        uid = owner["metadata"]["uid"]
        return [one for one in of if any(ref["uid"] == uid for ref in _controllers(one))]

    def _named(self, owner: Json, of: list[Json]) -> list[Json]:
        return [one for one in of if one["metadata"]["name"] == owner["metadata"]["name"]]

    def _sandbox(self, one: Json) -> Iterator[str]:
        pods = self._children(one, self.pods)
        title = title_of(one)
        ready = condition_of(one, "Ready")
        if one["spec"].get("shutdownTime"):
            if one["spec"].get("shutdownPolicy") == "Delete":
                yield f"{title} is over and still there"
            if pods or self._children(one, self.services):
                yield f"{title} is over and has {_names(pods)} or a Service"
            if ready.get("reason") != "SandboxExpired":
                yield f"{title} is over and says {ready}"
            return
        if one["spec"].get("volumeClaimTemplates") and not self._children(one, self.volume_claims):
            yield f"{title} has no volume claim"
        if one["spec"].get("operatingMode") == "Suspended":
            if pods:
                yield f"{title} is suspended and has {_names(pods)}"
            reason = "PodNotOwned" if self._named(one, self.pods) else "PodTerminated"
            if condition_of(one, "Suspended").get("reason") != reason:
                yield f"{title} is suspended and does not say so: {one.get('status')}"
            if ready.get("status") != "False":
                yield f"{title} is suspended and Ready"
            return
        services = self._children(one, self.services)
        is_wanted = one["spec"].get("service")
        # One that is no longer asked for stays, until it is unwanted (sandboxes, 3.9).
        if is_wanted is not None and bool(services) != is_wanted:
            yield f"{title} has Services {_names(services)}"
        if not pods and any(map(_cannot_be_adopted, self._named(one, self.pods))):
            # A Pod that others took from its owner and unlabelled stays, and keeps the name.
            if ready.get("reason") != "ReconcilerError":
                yield f"{title} does not tell that a Pod is in its way: {one.get('status')}"
            return
        if len(pods) != 1:
            yield f"{title} has Pods {_names(pods)}"
            return
        (pod,) = pods
        if pod["status"].get("phase") in ("Succeeded", "Failed"):
            if condition_of(one, "Finished").get("status") != "True":
                yield f"{title} has ended and says {one.get('status')}"
            return
        is_ready = condition_of(pod, "Ready").get("status") == "True"
        is_there = pod["status"]["phase"] == "Running" and bool(pod["status"].get("podIPs"))
        wanted = "True" if is_ready and is_there else "False"
        if ready.get("status") != wanted:
            yield f"{title} is Ready={ready} with a Pod {pod['status']}"
        addresses = [found["ip"] for found in pod["status"].get("podIPs", ())]
        if one.get("status", {}).get("podIPs", []) != addresses:
            yield f"{title} tells addresses {one.get('status')}, its Pod {addresses}"
        if condition_of(one, "Suspended").get("status") == "True":
            yield f"{title} runs and says that it is suspended"

    def _claim(self, one: Json) -> Iterator[str]:
        owned = self._children(one, self.sandboxes)
        title = title_of(one)
        ready = condition_of(one, "Ready")
        bound = bound_name(one)
        if _is_over(one):
            if one["spec"]["lifecycle"]["shutdownPolicy"] != "Retain":
                yield f"{title} is over and still there"
            if owned:
                yield f"{title} is over and owns {_names(owned)}"
            if ready.get("reason") != "ClaimExpired":
                yield f"{title} is over and says {ready}"
            return
        pool = next((p for p in self.pools if p["metadata"]["name"] == _pool_of(one)), None)
        template = pool and self.templates.get(pool["spec"]["sandboxTemplateRef"]["name"])
        if not owned:
            if condition_of(one, "Finished").get("status") == "True":
                # Finished work is not done again when its Sandbox goes.
                if bound or ready.get("reason") not in ("PodSucceeded", "PodFailed"):
                    yield f"{title} has finished and says {one.get('status')}"
                return
            if any(map(self.scope.selects, self._named(one, self.sandboxes))):
                # It cannot have a Sandbox of its own, whatever its pool and its template allow.
                if bound or "is not controlled by claim" not in ready.get("message", ""):
                    yield f"{title} does not tell that its name is taken: {one.get('status')}"
                return
            spec = one["spec"]
            refused = [why for part, why in _REFUSALS.items() if spec.get(part)]
            if refused and not _allows_additions(template):
                # Nor does it learn that the template which refused them has gone.
                reasons = (*refused, *(CANNOT_START if template is None else ()))
                if ready.get("reason") not in reasons:
                    yield f"{title} may not bring what it does and says {one.get('status')}"
                return
            # One that cannot start keeps the name of the Sandbox that it had (claims, 5.4).
            if bound and ready.get("reason") not in CANNOT_START:
                yield f"{title} names {bound}, which is not its own"
            if template is not None:
                yield f"{title} has no Sandbox: {one.get('status')}"
            elif ready.get("reason") not in CANNOT_START:
                yield f"{title} cannot start and says {one.get('status')}"
            return
        if [sandbox["metadata"]["name"] for sandbox in owned] != [bound]:
            yield f"{title} names {bound!r} and owns {_names(owned)}"
        if template is None and one["spec"].get("additionalPodMetadata"):
            # It cannot be told whether the Sandbox has what the claim asks for (claims, 3.3).
            return
        mirrored = condition_of(owned[0], "Ready")
        if ready.get("status") != mirrored.get("status"):
            yield f"{title} is Ready={ready}, its Sandbox {mirrored}"

    def _pool(self, one: Json) -> Iterator[str]:
        template = self.templates.get(one["spec"]["sandboxTemplateRef"]["name"])
        if template is None:
            return
        wanted = one["spec"].get("replicas", 0)
        title = title_of(one)
        label = name_hash(one["metadata"]["name"])
        owned = list(self._children(one, self.sandboxes))
        if len(owned) != wanted:
            yield f"{title} wants {wanted} and owns {_names(owned)}"
            return
        if any(_pool_label(it) != label for it in owned):
            yield f"{title} has members without its label"
        status = one.get("status", {})
        ready = sum(condition_of(sandbox, "Ready").get("status") == "True" for sandbox in owned)
        if ready != wanted:
            yield f"{title} wants {wanted} and has {ready} Ready"
        if (status.get("replicas", 0), status.get("readyReplicas", 0)) != (wanted, ready):
            yield f"{title} has {wanted}, {ready} Ready, and says {status}"
        if one["spec"].get("updateStrategy", {}).get("type") == "Recreate":
            # One whose spec somebody has edited still has the stamp of its template (pools, 6.2).
            untouched = [it for it in owned if it["metadata"]["generation"] == 1]
            made = {_blueprint(sandbox["spec"]) for sandbox in untouched}
            if older := made - {_blueprint(template["spec"])}:
                yield f"{title} has members of an older template: {older}"
            key = name_hash(template["metadata"]["name"])
            if {sandbox["metadata"]["labels"].get(REF_HASH) for sandbox in owned} - {key}:
                yield f"{title} has members of another template"


def _names(objects: list[Json]) -> list[str]:
    return [one["metadata"]["name"] for one in objects]


def _controllers(one: Json) -> list[Json]:
    references: list[Json] = one["metadata"].get("ownerReferences", [])
    return [ref for ref in references if ref.get("controller")]


def _cannot_be_adopted(pod: Json) -> bool:
    labels = pod["metadata"].get("labels") or {}
    is_tracked = labels.get(NAME_HASH) == name_hash(pod["metadata"]["name"])
    return not _controllers(pod) and not is_tracked and labels.get(ADOPTABLE) != "true"


def _is_users(sandbox: Json) -> bool:
    return "user" in (sandbox["metadata"].get("annotations") or {})


def _pool_of(claim: Json) -> str:
    return str(claim["spec"]["warmPoolRef"]["name"])


def _is_over(claim: Json) -> bool:
    lifecycle = claim["spec"].get("lifecycle", {})
    is_timed = "ttlSecondsAfterFinished" in lifecycle
    return "shutdownTime" in lifecycle or (is_timed and bool(condition_of(claim, "Finished")))


def _pool_label(sandbox: Json) -> str | None:
    label: str | None = sandbox["metadata"].get("labels", {}).get(WARM_POOL)
    return label


def _blueprint(spec: Json) -> tuple[str, str, bool | None, tuple[str, ...]]:
    """Return what tells apart the Sandboxes that stories make of templates."""
    pod = spec["podTemplate"]["spec"]
    volumes = tuple(one["metadata"]["name"] for one in spec.get("volumeClaimTemplates") or ())
    return pod["containers"][0]["image"], pod.get("nodeName", ""), spec.get("service"), volumes


def _allows_additions(template: Json | None) -> bool:
    return template is not None and template["spec"].get("envVarsInjectionPolicy") == "Allowed"
