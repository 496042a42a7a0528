"""Keys, kinds and reasons of the sandbox APIs, which clients compare, and the rules about names."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

# --- groups, versions, kinds -------------------------------------------------------------------

CORE_GROUP: Final = "agents.x-k8s.io"
EXTENSIONS_GROUP: Final = "extensions.agents.x-k8s.io"
VERSION: Final = "v1beta1"
CORE_API_VERSION: Final = f"{CORE_GROUP}/{VERSION}"
EXTENSIONS_API_VERSION: Final = f"{EXTENSIONS_GROUP}/{VERSION}"

SANDBOX_KIND: Final = "Sandbox"
SANDBOX_CLAIM_KIND: Final = "SandboxClaim"
SANDBOX_TEMPLATE_KIND: Final = "SandboxTemplate"
SANDBOX_WARM_POOL_KIND: Final = "SandboxWarmPool"

# --- labels and annotations --------------------------------------------------------------------

CORE_PREFIX: Final = f"{CORE_GROUP}/"
EXTENSIONS_PREFIX: Final = f"{EXTENSIONS_GROUP}/"

NAME_HASH_LABEL: Final = CORE_PREFIX + "sandbox-name-hash"
ADOPTABLE_LABEL: Final = CORE_PREFIX + "adoptable"
CREATED_BY_LABEL: Final = CORE_PREFIX + "created-by"
WARM_POOL_LABEL: Final = CORE_PREFIX + "warm-pool-sandbox"
TEMPLATE_REF_HASH_LABEL: Final = CORE_PREFIX + "sandbox-template-ref-hash"
TEMPLATE_HASH_LABEL: Final = CORE_PREFIX + "sandbox-template-hash"
POD_TEMPLATE_HASH_LABEL: Final = CORE_PREFIX + "sandbox-pod-template-hash"
CLAIM_UID_LABEL: Final = CORE_PREFIX + "claim-uid"
LAUNCH_TYPE_LABEL: Final = CORE_PREFIX + "launch-type"
LAUNCH_TYPE_COLD: Final = "cold"
LAUNCH_TYPE_WARM: Final = "warm"

POD_NAME_ANNOTATION: Final = CORE_PREFIX + "pod-name"
PROPAGATED_LABELS_ANNOTATION: Final = CORE_PREFIX + "propagated-labels"
PROPAGATED_ANNOTATIONS_ANNOTATION: Final = CORE_PREFIX + "propagated-annotations"
TEMPLATE_REF_ANNOTATION: Final = CORE_PREFIX + "sandbox-template-ref"
TRACE_CONTEXT_ANNOTATION: Final = "opentelemetry.io/trace-context"
SAFE_TO_EVICT_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"

# Annotations clients keep on claims.
CLIENT_FIRST_REQUESTED_AT_ANNOTATION: Final = CORE_PREFIX + "client-first-requested-at"
CONTROLLER_FIRST_OBSERVED_AT_ANNOTATION: Final = CORE_PREFIX + "controller-first-observed-at"
WEBHOOK_FIRST_OBSERVED_AT_ANNOTATION: Final = CORE_PREFIX + "webhook-first-observed-at"
CLAIM_FIRST_READY_AT_ANNOTATION: Final = CORE_PREFIX + "claim-first-ready-at"
SANDBOX_NAME_ANNOTATION: Final = CORE_PREFIX + "sandbox-name"

# --- values of spec ----------------------------------------------------------------------------

OPERATING_MODE_RUNNING: Final = "Running"
OPERATING_MODE_SUSPENDED: Final = "Suspended"
SHUTDOWN_POLICY_DELETE: Final = "Delete"
SHUTDOWN_POLICY_RETAIN: Final = "Retain"
# Known to claims only.
SHUTDOWN_POLICY_DELETE_FOREGROUND: Final = "DeleteForeground"

MANAGEMENT_UNMANAGED: Final = "Unmanaged"
INJECTION_ALLOWED: Final = "Allowed"
INJECTION_OVERRIDES: Final = "Overrides"
INJECTION_DISALLOWED: Final = "Disallowed"
STRATEGY_RECREATE: Final = "Recreate"

# --- the router and who may opt into its rules ---------------------------------------------------

ROUTER_NAMESPACE: Final = "agent-sandbox-system"
ROUTER_LABEL: Final = "app"
ROUTER_VALUE: Final = "sandbox-router"
# The only domain of labels that claims may set when the operator allows no others.
DEFAULT_LABEL_DOMAIN: Final = "sandbox.users.io"

# --- condition types and reasons ---------------------------------------------------------------

READY: Final = "Ready"
SUSPENDED: Final = "Suspended"
FINISHED: Final = "Finished"
POD_SCHEDULED: Final = "PodScheduled"

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"

REASON_NOT_SUSPENDED: Final = "NotSuspended"
REASON_POD_STATE_UNKNOWN: Final = "PodStateUnknown"
REASON_POD_TERMINATED: Final = "PodTerminated"
REASON_POD_TERMINATING: Final = "PodTerminating"
REASON_POD_NOT_OWNED: Final = "PodNotOwned"
REASON_POD_SUCCEEDED: Final = "PodSucceeded"
REASON_POD_FAILED: Final = "PodFailed"
REASON_POD_SCHEDULED: Final = "PodScheduled"
REASON_POD_SCHEDULING_UNKNOWN: Final = "PodSchedulingUnknown"
REASON_UNSCHEDULABLE: Final = "Unschedulable"
REASON_SCHEDULING_GATED: Final = "SchedulingGated"
REASON_MULTIPLE_PODS: Final = "MultiplePods"
REASON_RECONCILER_ERROR: Final = "ReconcilerError"
REASON_INVALID_CONFIGURATION: Final = "InvalidConfiguration"
REASON_SANDBOX_SUSPENDED: Final = "SandboxSuspended"
REASON_SANDBOX_EXPIRED: Final = "SandboxExpired"
REASON_DEPENDENCIES_READY: Final = "DependenciesReady"
REASON_DEPENDENCIES_NOT_READY: Final = "DependenciesNotReady"

# Reasons of a claim's Ready condition that a Sandbox never has.
REASON_TEMPLATE_NOT_FOUND: Final = "TemplateNotFound"
REASON_WARM_POOL_NOT_FOUND: Final = "WarmPoolNotFound"
REASON_ADOPTION_CONFLICT: Final = "AdoptionConflict"
REASON_SANDBOX_CREATE_PENDING: Final = "SandboxCreatePending"
REASON_INVALID_METADATA: Final = "InvalidMetadata"
REASON_ENV_VARS_REJECTED: Final = "EnvVarsInjectionRejected"
REASON_CLAIM_TEMPLATES_ERROR: Final = "VolumeClaimTemplatesError"
REASON_CLAIM_EXPIRED: Final = "ClaimExpired"
REASON_SANDBOX_MISSING: Final = "SandboxMissing"
REASON_SANDBOX_NOT_READY: Final = "SandboxNotReady"

POD_PENDING: Final = "Pending"
POD_RUNNING: Final = "Running"
POD_SUCCEEDED: Final = "Succeeded"
POD_FAILED: Final = "Failed"
DISRUPTION_TARGET: Final = "DisruptionTarget"

FIELD_MANAGER: Final = "sandbox-controller"

# --- rules -------------------------------------------------------------------------------------

_CREATED_BY: Final = frozenset({"go-client", "python-client", "controller"})
CREATED_BY_UNKNOWN: Final = "unknown"

MAX_NAME_CHARACTERS: Final = 253
# More than twice of what W3C's headers for traces and their baggage may have together.
_LONGEST_TRACE: Final = 16 * 1024
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)


@lru_cache(maxsize=128)
def name_hash(name: str) -> str:
    """Return the 8 hex digits (FNV-1a) that label the children of the object ``name``."""
    return f"{_fnv1a(name, 0x811C9DC5, 0x01000193, 32):08x}"


@lru_cache(maxsize=4096)
def shard_hash(namespace: str) -> int:
    """Return the number (FNV-1a of 64 bits) by which API servers shard lists and watches."""
    return _fnv1a(namespace, 0xCBF29CE484222325, 0x100000001B3, 64)


def _fnv1a(text: str, value: int, prime: int, bits: int) -> int:
    mask = 2**bits - 1
    for byte in text.encode():
        value = (value ^ byte) * prime & mask
    return value


def normalise_created_by(value: str | None) -> str:
    """Return the created-by value with bounded cardinality; the empty string if there is none."""
    if not value:
        return ""
    return value if value in _CREATED_BY else CREATED_BY_UNKNOWN


def is_object_name(text: str) -> bool:
    """Return whether ``text`` is a valid object name: an RFC 1123 subdomain of 253 characters.

    Any other text that a tenant wrote is never requested, and never a metric's label.
    """
    return len(text) <= MAX_NAME_CHARACTERS and _SUBDOMAIN.fullmatch(text) is not None


def clipped_trace(text: str) -> str:
    """Return a trace context that a tenant wrote as it is remembered: cut if it is too long."""
    return text[:_LONGEST_TRACE]


def clipped_name(text: str) -> str:
    """Return a name that a tenant wrote as it is remembered: cut if it is too long for a name."""
    if len(text) <= MAX_NAME_CHARACTERS:
        return text
    # With three dots at the end it cannot be the name of an object.
    return f"{text[:MAX_NAME_CHARACTERS]}..."
