"""The status of a Sandbox: a pure function of the old one and of what one reconcile observed."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from lean_sandbox.model import names
from lean_sandbox.model.conditions import (
    Condition,
    is_true,
    new_condition,
    remove,
    upsert,
    whole_status,
)
from lean_sandbox.model.pod import PodState
from lean_sandbox.model.sandbox import SandboxStatus

# Limits of the schema of metav1.Condition.
_MAX_REASON_CHARACTERS: Final = 1024
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_STATUSES: Final = frozenset({names.TRUE, names.FALSE, names.UNKNOWN})


class FailedStep(StrEnum):
    """The step that failed; written, with a colon, in front of the error of the API."""

    PVC_GET = "failed to get PVC"
    PVC_PATCH = "failed to patch PVC with owner reference"
    POD_GET = "pod get failed"
    POD_GET_AFTER_CREATE = "pod already exists but failed to fetch"
    POD_DELETE = "failed to delete pod"
    POD_PATCH = "failed to patch pod"
    POD_NAME_CLEAR = "failed to clear pod name annotation"
    SERVICE_GET = "service get failed"
    SERVICE_UPDATE = "failed to update service with owner reference"
    SERVICE_PATCH = "failed to patch owned service"
    SERVICE_DELETE = "failed to delete service"
    EXPIRY_POD_GET = "failed to get pod"


class ObservedPod(msgspec.Struct, frozen=True):
    """The Pod a reconcile ended up with, ours or not."""

    is_owned: bool
    # From then on its phase says nothing of the work: a kubelet sets Failed or Succeeded before it
    # removes a Pod that was deleted or drained.
    is_terminating: bool = False
    # Empty for a Pod that is not ours, and while nothing is known of it.
    state: PodState = PodState()
    # What keeps one of its containers from running.
    trouble: str = ""
    # It failed by a disruption, and another is to follow.
    is_replaced: bool = False


class Observation(msgspec.Struct, kw_only=True):
    """What one reconcile of a Sandbox found out and what went wrong."""

    generation: int
    is_suspended: bool = False
    service_requested: bool | None = None
    service_present: bool = False
    # The Service step failed or was skipped: what status says about the Service stays.
    is_service_unknown: bool = False
    pod: ObservedPod | None = None
    # Any failure of the Pod step, a rejected create included.
    has_pod_failed: bool = False
    # How many Pods name the Sandbox as their controller, if more than one do.
    many_pods: int = 0
    # Failures worth a retry, in the order PVC, Pod, Service.
    errors: tuple[str, ...] = ()
    # Why the schema of a child refuses it: no retry mends that.
    invalid: str | None = None

    @property
    def is_pod_state_unknown(self) -> bool:
        """Whether no Pod is known because the Pod step failed."""
        return self.pod is None and (self.has_pod_failed or self.many_pods > 0)


def suspended(seen: Observation) -> Condition:
    """Return the Suspended condition; failures of claims and Services never influence it."""
    if not seen.is_suspended:
        verdict = names.FALSE, names.REASON_NOT_SUSPENDED, "Sandbox is not suspended"
    elif seen.is_pod_state_unknown:
        message = "Pod state is unknown. Sandbox suspension cannot be confirmed"
        verdict = names.UNKNOWN, names.REASON_POD_STATE_UNKNOWN, message
    elif seen.pod is None:
        message = "Pod has been terminated. Sandbox is suspended"
        verdict = names.TRUE, names.REASON_POD_TERMINATED, message
    elif not seen.pod.is_owned:
        message = "Refused to delete pod because it is not owned by this sandbox"
        verdict = names.FALSE, names.REASON_POD_NOT_OWNED, message
    else:
        message = "Pod is terminating. Sandbox is suspending"
        verdict = names.FALSE, names.REASON_POD_TERMINATING, message
    return new_condition(names.SUSPENDED, *verdict, seen.generation)


def finished(seen: Observation) -> Condition | None:
    """Return the Finished condition of an owned Pod that ran to its end, else None."""
    if seen.pod is None or not seen.pod.is_owned:
        return None
    outcome = _outcome(seen.pod)
    if outcome is None:
        return None
    return new_condition(names.FINISHED, names.TRUE, *outcome, seen.generation)


def pod_scheduled(seen: Observation) -> Condition | None:
    """Return the mirrored PodScheduled condition, None when it does not apply."""
    status = names.UNKNOWN
    reason = names.REASON_POD_SCHEDULING_UNKNOWN
    if seen.is_pod_state_unknown:
        message = "Pod state is unknown. Pod scheduling cannot be determined"
    elif seen.pod is None or not seen.pod.is_owned:
        return None
    elif (mirrored := seen.pod.state.scheduled) is None:
        message = "Pod has not reported a PodScheduled condition yet"
    else:
        status = mirrored.status if mirrored.status in _STATUSES else names.UNKNOWN
        if not mirrored.reason and status == names.TRUE:
            reason = names.REASON_POD_SCHEDULED
        elif len(mirrored.reason) <= _MAX_REASON_CHARACTERS and _REASON.fullmatch(mirrored.reason):
            reason = mirrored.reason
        message = mirrored.message
    return new_condition(names.POD_SCHEDULED, status, reason, message, seen.generation)


def ready(seen: Observation) -> Condition:
    """Return the Ready condition: the first reason that applies.

    InvalidConfiguration, which clients take as final, is reported only when nothing else failed.
    """
    outcome = _outcome(seen.pod) if seen.pod is not None else None
    if seen.many_pods:
        message = (
            f"multiple Pods ({seen.many_pods}) are controlled by this Sandbox; "
            "refusing to choose or create a Pod"
        )
        verdict = names.FALSE, names.REASON_MULTIPLE_PODS, message
    elif seen.errors:
        texts = seen.errors if seen.invalid is None else (*seen.errors, seen.invalid)
        message = "Error seen: " + "\n".join(texts)
        verdict = names.FALSE, names.REASON_RECONCILER_ERROR, message
    elif seen.invalid is not None:
        verdict = names.FALSE, names.REASON_INVALID_CONFIGURATION, seen.invalid
    elif seen.is_suspended:
        message = "Sandbox is suspended" if seen.pod is None else "Sandbox is suspending"
        verdict = names.FALSE, names.REASON_SANDBOX_SUSPENDED, message
    elif seen.pod is not None and seen.pod.is_terminating:
        verdict = names.FALSE, names.REASON_POD_TERMINATING, "Pod is terminating"
    elif outcome is not None:
        verdict = names.FALSE, *outcome
    else:
        verdict = _dependencies(seen)
    return new_condition(names.READY, *verdict, seen.generation)


def next_status(
    old: SandboxStatus,
    seen: Observation,
    now: datetime,
    *,
    name: str,
    namespace: str,
    cluster_domain: str,
) -> SandboxStatus:
    """Return the complete status of the Sandbox ``namespace``/``name``, unless it expired."""
    conditions = old.conditions
    for kind, observed in (
        (names.SUSPENDED, suspended(seen)),
        (names.FINISHED, finished(seen)),
        (names.POD_SCHEDULED, pod_scheduled(seen)),
        (names.READY, ready(seen)),
    ):
        if observed is None:
            conditions = remove(conditions, kind)
        else:
            conditions = upsert(conditions, observed, now)
    selector = old.selector
    if seen.pod is not None:
        selector = selector_of(name)
    service = old.service
    fqdn = old.serviceFQDN
    if not (seen.is_service_unknown or seen.many_pods):
        service = name if seen.service_present else ""
        fqdn = f"{name}.{namespace}.svc.{cluster_domain}" if seen.service_present else ""
    state = seen.pod.state if seen.pod is not None and seen.pod.is_owned else PodState()
    return SandboxStatus(
        conditions=conditions,
        selector=selector,
        podIPs=state.ips,
        nodeName=state.node,
        service=service,
        serviceFQDN=fqdn,
    )


def selector_of(name: str) -> str:
    """Return the label selector of the Pod of a Sandbox."""
    return f"{names.NAME_HASH_LABEL}={names.name_hash(name)}"


def expired_mark(old: SandboxStatus, generation: int, now: datetime) -> SandboxStatus:
    """Return ``old`` marked as expired; the conditions Finished and Suspended stay."""
    conditions = remove(old.conditions, names.POD_SCHEDULED)
    conditions = upsert(conditions, _expired(generation), now)
    return msgspec.structs.replace(old, conditions=conditions)


def expired_cleared(old: SandboxStatus, generation: int, now: datetime) -> SandboxStatus:
    """Return the status after a retained Sandbox was torn down: its conditions and nothing else."""
    return SandboxStatus(conditions=upsert(old.conditions, _expired(generation), now))


def status_patch(old: SandboxStatus, new: SandboxStatus) -> dict[str, Any] | None:
    """Return what a JSON merge patch puts under ``status``; ``None`` when no request is due."""
    # A changed nodeName alone is not worth a request before the Sandbox is ready.
    if not is_true(new.conditions, names.READY):
        old = msgspec.structs.replace(old, nodeName=new.nodeName)
    return whole_status(new) if new != old else None


def _expired(generation: int) -> Condition:
    return new_condition(
        names.READY, names.FALSE, names.REASON_SANDBOX_EXPIRED, "Sandbox has expired", generation
    )


def _outcome(pod: ObservedPod) -> tuple[str, str] | None:
    if pod.is_terminating or pod.is_replaced:
        return None
    if pod.state.phase == names.POD_SUCCEEDED:
        return names.REASON_POD_SUCCEEDED, "Pod completed successfully"
    if pod.state.phase == names.POD_FAILED:
        return names.REASON_POD_FAILED, "Pod failed"
    return None


def _dependencies(seen: Observation) -> tuple[str, str, str]:
    is_ready, message = _pod_part(seen.pod)
    # As the spec asks; if it does not say, whether there is one.
    requested = seen.service_requested
    if seen.service_present if requested is None else requested:
        message += "; Service Exists" if seen.service_present else "; Service does not exist"
        is_ready = is_ready and seen.service_present
    if is_ready:
        return names.TRUE, names.REASON_DEPENDENCIES_READY, message
    return names.FALSE, names.REASON_DEPENDENCIES_NOT_READY, message


def _pod_part(pod: ObservedPod | None) -> tuple[bool, str]:
    if pod is None:
        return False, "Pod does not exist"
    waits = pod.state.scheduled
    what = pod.trouble or (
        waits.reason if waits is not None and waits.status == names.FALSE else ""
    )
    trouble = f" ({what})" if what else ""
    if pod.state.phase != names.POD_RUNNING:
        return False, f"Pod exists with phase: {pod.state.phase}{trouble}"
    if not pod.state.is_ready:
        return False, f"Pod is Running but not Ready{trouble}"
    if not pod.state.ips:
        return False, "Pod is Ready but has no podIPs yet"
    return True, "Pod is Ready"
