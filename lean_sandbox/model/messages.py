"""Texts that become visible in conditions and events, word for word.

Clients and operators match on some of them, so they are all kept in one place.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from lean_sandbox.model.meta import OwnerReference
from lean_sandbox.model.names import ADOPTABLE_LABEL, NAME_HASH_LABEL

# How the texts call the three kinds of children.
PVC: Final = "PVC"
POD: Final = "pod"
SERVICE: Final = "service"

SANDBOX_IS_READY: Final = "Sandbox is ready"


class Failure(StrEnum):
    """The step that failed; written in front of the error of the API."""

    PVC_GET = "failed to get PVC"
    PVC_PATCH = "failed to patch PVC with owner reference"
    PVC_REFERENCE = "SetControllerReference for PVC failed"
    POD_LIST = "pod list failed"
    POD_GET = "pod get failed"
    POD_GET_AFTER_CREATE = "pod already exists but failed to fetch"
    POD_DELETE = "failed to delete pod"
    POD_PATCH = "failed to patch pod"
    POD_REFERENCE = "SetControllerReference for Pod failed"
    POD_NAME_CLEAR = "failed to clear pod name annotation"
    SERVICE_GET = "service get failed"
    SERVICE_UPDATE = "failed to update service with owner reference"
    SERVICE_PATCH = "failed to patch owned service"
    SERVICE_DELETE = "failed to delete service"
    SERVICE_REFERENCE = "SetControllerReference for Service failed"
    EXPIRY_POD_GET = "failed to get pod"
    EXPIRY_SERVICE_GET = "failed to get service"
    SANDBOX_DELETE = "failed to delete sandbox"


def failed(step: Failure, error: object) -> str:
    """Return the text for ``error`` met in ``step``."""
    return f"{step}: {error}"


def owned_by_other(what: str, name: str, owner: OwnerReference, sandbox_name: str) -> str:
    """Return why the child ``name`` of the kind ``what`` is refused: somebody else controls it."""
    return (
        f'{what} "{name}" is owned by {owner.kind}/{owner.name} (UID: {owner.uid}), '
        f'not by sandbox "{sandbox_name}"'
    )


def cannot_adopt(what: str, name: str) -> str:
    """Return why the unowned child ``name`` of the kind ``what`` is refused."""
    return (
        f'cannot adopt unowned {what} "{name}": missing required pool authorization label '
        f'("{ADOPTABLE_LABEL}") or sandbox tracking label ("{NAME_HASH_LABEL}")'
    )


def service_has_cluster_ip(name: str, cluster_ip: str) -> str:
    """Return why an unowned Service with a real cluster IP is refused."""
    return (
        f'cannot adopt service "{name}": ClusterIP is "{cluster_ip}" '
        '(expected "None", field is immutable)'
    )


def multiple_pods(count: int) -> str:
    """Return the text for ``count`` Pods that all name one Sandbox as their controller."""
    return (
        f"multiple Pods ({count}) are controlled by this Sandbox; "
        "refusing to choose or create a Pod"
    )


def join(errors: Iterable[str]) -> str:
    """Return the errors of one pass as one text, a line each."""
    return "\n".join(errors)


def error_seen(text: str) -> str:
    """Return the Ready message for the joined errors ``text``."""
    return f"Error seen: {text}"


def pod_created(name: str) -> str:
    """Return the note of the event for a created Pod."""
    return f'Created Pod "{name}"'


def pod_create_failed(name: str, error: object) -> str:
    """Return the note of the event for a Pod that could not be created."""
    return f'Failed to create Pod "{name}": {error}'
