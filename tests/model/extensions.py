"""Builders: namespace ``default``, template ``tpl``, pool ``pool``, claim ``c`` with uid ``u1``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import jsonpatch
import msgspec

from lean_sandbox.model.claim import (
    ClaimFacts,
    SandboxClaim,
    SandboxClaimSpec,
    SandboxClaimStatus,
    view_of_claim,
)
from lean_sandbox.model.conditions import Condition
from lean_sandbox.model.names import name_hash
from lean_sandbox.model.sandbox import SandboxSpec
from lean_sandbox.model.template import SandboxTemplate, TemplateView, view_of_template
from lean_sandbox.model.warmpool import PoolView, SandboxWarmPool, view_of_pool
from tests.model.support import as_json

NOW = datetime(2026, 10, 22, 12, 0, 0, tzinfo=UTC)
EARLIER = "2026-10-22T11:00:00Z"
POOL_UID = "pool-uid"

CORE = "agents.x-k8s.io/"
CLAIM_UID = CORE + "claim-uid"
LAUNCH_TYPE = CORE + "launch-type"
REF_HASH = CORE + "sandbox-template-ref-hash"
TEMPLATE_HASH = CORE + "sandbox-template-hash"
POD_TEMPLATE_HASH = CORE + "sandbox-pod-template-hash"
WARM_POOL = CORE + "warm-pool-sandbox"
CREATED_BY = CORE + "created-by"
TEMPLATE_REF = CORE + "sandbox-template-ref"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
TRACE = "opentelemetry.io/trace-context"
MAIN: dict[str, Any] = {"name": "main", "image": "i"}


def seconds(value: float) -> timedelta:
    """Return a time span."""
    return timedelta(seconds=value)


def template_object(
    pod: dict[str, Any] | None = None,
    *,
    name: str = "tpl",
    metadata: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> SandboxTemplate:
    """Return a template, decoded from JSON like a real one."""
    body = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": "tu",
            "generation": 1,
            "labels": labels,
        },
        "spec": {
            "podTemplate": {"metadata": metadata, "spec": pod or {"containers": [MAIN]}},
            **spec,
        },
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=SandboxTemplate)


def template(pod: dict[str, Any] | None = None, **more: Any) -> TemplateView:
    """Return the view of a template."""
    return view_of_template(template_object(pod, **more))


def pool(spec: dict[str, Any] | None = None, *, name: str = "pool") -> PoolView:
    """Return the view of a pool."""
    return view_of_pool(pool_object(spec, name=name))


def pool_object(spec: dict[str, Any] | None = None, *, name: str = "pool") -> SandboxWarmPool:
    """Return a pool."""
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": POOL_UID, "generation": 3},
        "spec": {"sandboxTemplateRef": {"name": "tpl"}, **(spec or {})},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=SandboxWarmPool)


def claim_object(
    spec: dict[str, Any] | None = None,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> SandboxClaim:
    """Return a claim."""
    body = {
        "metadata": {
            "name": "c",
            "namespace": "default",
            "uid": "u1",
            "generation": 7,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {"warmPoolRef": {"name": "pool"}, **(spec or {})},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=SandboxClaim)


def facts(spec: dict[str, Any] | None = None, **metadata: Any) -> ClaimFacts:
    """Return what of a claim goes into its Sandbox."""
    claim = claim_object(spec, **metadata)
    view = view_of_claim(claim)
    return ClaimFacts(
        name=claim.metadata.name,
        namespace=claim.metadata.namespace,
        uid=claim.metadata.uid,
        created_by=(claim.metadata.labels or {}).get(CREATED_BY, ""),
        trace_context=(claim.metadata.annotations or {}).get(TRACE, ""),
        additional=view.additional,
    )


def claim_spec(**spec: Any) -> SandboxClaimSpec:
    """Return the spec of a claim."""
    return claim_object(spec).spec


def additional(
    labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return the part of a claim's spec that asks for metadata."""
    return {"additionalPodMetadata": {"labels": labels, "annotations": annotations}}


def sandbox_spec(value: Any) -> SandboxSpec:
    """Return the spec of a Sandbox, decoded from JSON."""
    return msgspec.json.decode(msgspec.json.encode(value), type=SandboxSpec)


def stored_member(body: dict[str, Any], name: str = "m1") -> dict[str, Any]:
    """Return the body of a member as the server stores it."""
    stored: dict[str, Any] = as_json(body)
    stored["metadata"].pop("generateName", None)
    stored["metadata"].update(name=name, uid=f"uid-{name}", resourceVersion="41")
    return stored


def known(stored: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return what is known of a stored member: everything, unless said otherwise."""
    metadata = stored["metadata"]
    return {
        "pool_uid": POOL_UID,
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        "is_applied": False,
        "ref_hash": name_hash("tpl"),
        **fields,
    }


def patched(stored: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    """Return ``stored`` after a JSON Patch."""
    # The server's library takes what is missing for null; this one, as the RFC, for a failed test.
    metadata = {"deletionTimestamp": None, **stored["metadata"]}
    result: dict[str, Any] = jsonpatch.apply_patch(
        {**stored, "metadata": metadata}, as_json(operations)
    )
    if result["metadata"]["deletionTimestamp"] is None:
        del result["metadata"]["deletionTimestamp"]
    return result


def condition(
    kind: str, status: str, reason: str = "R", message: str = "m", since: str = EARLIER
) -> Condition:
    """Return a condition of generation 2, which is never the claim's."""
    return Condition(kind, status, reason, message, since, 2)


def claim_status(value: Any) -> SandboxClaimStatus:
    """Return a claim's status, decoded from JSON."""
    return msgspec.json.decode(msgspec.json.encode(value), type=SandboxClaimStatus)
