"""What an object says, whatever is stored of it."""

from __future__ import annotations

from typing import Any

from tests.support.names import SAFE_TO_EVICT, WARM_POOL

Json = dict[str, Any]
# What a Sandbox says of its Pod, and nothing else can make it say.
POD_IS_READY = "Pod is Ready"
OF_POD = (POD_IS_READY, "Pod is Running but not Ready", "Pod does not exist")


def title_of(one: Json) -> str:
    """Return kind, namespace and name of an object."""
    return f"{one['kind']} {one['metadata']['namespace']}/{one['metadata']['name']}"


def key_of(one: Json) -> tuple[str, str]:
    """Return namespace and name of an object."""
    return one["metadata"]["namespace"], one["metadata"]["name"]


def owner_of(one: Json) -> Json:
    """Return the reference to the controller of an object; empty without one."""
    references: list[Json] = one["metadata"].get("ownerReferences") or []
    return next((ref for ref in references if ref.get("controller")), {})


def conditions_of(one: Json) -> list[Json]:
    """Return the conditions of an object, without what is none: anything may be stored."""
    status = one.get("status")
    found = status.get("conditions") if isinstance(status, dict) else None
    conditions = found if isinstance(found, list) else []
    return [it for it in conditions if isinstance(it, dict) and isinstance(it.get("type"), str)]


def condition_of(one: Json, type_: str) -> Json:
    """Return a condition of an object; empty where it has none of the type."""
    return next((found for found in conditions_of(one) if found["type"] == type_), {})


def ready_of(one: Json) -> Json:
    """Return the condition Ready of an object; empty without one."""
    return condition_of(one, "Ready")


def is_ready(one: Json | None) -> bool:
    """Tell whether there is an object, and its condition Ready has the status True."""
    return ready_of(one or {}).get("status") == "True"


def is_ending(one: Json) -> bool:
    """Tell whether somebody has deleted an object that is there still."""
    return "deletionTimestamp" in one["metadata"]


def ready_fact(one: Json | None) -> tuple[str, ...]:
    """Return what Ready says, by which a claim repeats what its Sandbox says."""
    ready = ready_of(one) if one is not None else {}
    return tuple(str(ready.get(name, "")) for name in ("status", "reason", "lastTransitionTime"))


def pod_fact(pod: Json | None) -> tuple[str, str]:
    """Return what a Sandbox can say of a Pod, and the Pod's address."""
    if pod is None:
        return OF_POD[2], ""
    status = pod.get("status", {})
    address = (status.get("podIPs") or [{"ip": ""}])[0]["ip"]
    if is_ending(pod):
        return "Pod is terminating", address
    if status.get("phase") != "Running":
        return f"Pod exists with phase: {status.get('phase')}", address
    # The kubelet takes a moment to say of a Pod whose gate has closed that it is not ready.
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()]
    needed = {"Ready", *gates}
    met = {found["type"] for found in conditions_of(pod) if found.get("status") == "True"}
    return POD_IS_READY if needed <= met else OF_POD[1], address


def lives(pod: Json) -> bool:
    """Say whether a Pod may be used, by what the columns of a list show of it."""
    return not is_ending(pod) and pod_fact(pod)[0] == POD_IS_READY


def marks_of(one: Json) -> set[str]:
    """Return by which keys a Pod looks free: to a router, and to an autoscaler."""
    metadata = one["metadata"]
    labels = metadata.get("labels") or {}
    annotations = metadata.get("annotations") or {}
    found = {WARM_POOL} if WARM_POOL in labels else set()
    return found | ({SAFE_TO_EVICT} if annotations.get(SAFE_TO_EVICT) == "true" else set())


def generations_of(one: Json) -> dict[str, int]:
    """Return which generation each condition was observed of; 0 where it does not say."""
    told = {found["type"]: found.get("observedGeneration") for found in conditions_of(one)}
    return {what: known if isinstance(known, int) else 0 for what, known in told.items()}


def bound_name(claim: Json) -> str:
    """Return which Sandbox the status of a claim names; empty for none."""
    return str((claim.get("status") or {}).get("sandbox", {}).get("name", ""))


def has_an_end(claim: Json) -> bool:
    """Tell whether the time of a claim ends some time, or has ended."""
    lifecycle = claim["spec"].get("lifecycle") or {}
    return not {"shutdownTime", "ttlSecondsAfterFinished"}.isdisjoint(lifecycle)
