"""What is remembered of the watched kinds, in one place.

Sizes, kept as a test: a Sandbox with its Pod costs less than 2.2 KiB of the heap, fingerprints and
indices included. Strings that repeat across objects (namespaces, nodes, reasons, label keys) are
interned, whole maps shared; lists are tuples; nothing here takes part in a reference cycle, so the
collector never looks at it.
"""

from lean_sandbox.watch.resources.pod import (
    GATED,
    NEW_POD_COLUMNS,
    NO_NODE,
    READY,
    RUNNING,
    WAITING,
    PodEntry,
    PodState,
    managed_metadata,
    pod_columns,
    pod_from_full,
    pod_from_row,
    pod_hint,
    pod_row_contradicts,
    pod_state,
    sandbox_uid,
)
from lean_sandbox.watch.resources.sandbox import (
    SANDBOX_ANNOTATIONS,
    SANDBOX_LABELS,
    SandboxEntry,
    compact_status,
    sandbox_columns,
    sandbox_from_full,
    sandbox_from_row,
    sandbox_row_contradicts,
)
from lean_sandbox.watch.resources.service import (
    PvcEntry,
    ServiceEntry,
    pvc_from_full,
    pvc_from_row,
    service_from_full,
    service_from_row,
    service_spec_version,
)
from lean_sandbox.watch.rows import ADOPTION_LABELS, row_of

__all__ = [
    "ADOPTION_LABELS",
    "GATED",
    "NEW_POD_COLUMNS",
    "NO_NODE",
    "READY",
    "RUNNING",
    "SANDBOX_ANNOTATIONS",
    "SANDBOX_LABELS",
    "WAITING",
    "PodEntry",
    "PodState",
    "PvcEntry",
    "SandboxEntry",
    "ServiceEntry",
    "compact_status",
    "managed_metadata",
    "pod_columns",
    "pod_from_full",
    "pod_from_row",
    "pod_hint",
    "pod_row_contradicts",
    "pod_state",
    "pvc_from_full",
    "pvc_from_row",
    "row_of",
    "sandbox_columns",
    "sandbox_from_full",
    "sandbox_from_row",
    "sandbox_row_contradicts",
    "sandbox_uid",
    "service_from_full",
    "service_from_row",
    "service_spec_version",
]
