"""What the controller makes of a recorded watch: every event through a cache of its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from filters import Decision, EventType
from filters.replay import Decide
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.wire import ODD
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Kind
from lean_sandbox.watch.resources.claim import claim_kind
from lean_sandbox.watch.resources.pod import pod_kind
from lean_sandbox.watch.resources.policy import policy_kind
from lean_sandbox.watch.resources.pool import pool_kind
from lean_sandbox.watch.resources.pvc import pvc_kind
from lean_sandbox.watch.resources.sandbox import sandbox_kind
from lean_sandbox.watch.resources.service import service_kind
from lean_sandbox.watch.resources.template import template_kind
from lean_sandbox.watch.wire import PartialItem

KINDS: Mapping[str, Callable[[], Kind[Any]]] = {
    "Sandbox": sandbox_kind,
    "Pod": pod_kind,
    "Service": service_kind,
    "PersistentVolumeClaim": pvc_kind,
    "SandboxClaim": claim_kind,
    "SandboxTemplate": template_kind,
    "SandboxWarmPool": pool_kind,
    "NetworkPolicy": policy_kind,
}
"""The watched kinds by name."""


def by_cache(kind: Kind[Any]) -> Decide:
    """Return what decides on events as the controller does that watches this kind.

    A full object is taken as from a watch of full objects, metadata and the rows of Tables as from
    a watch of those. The version of an event counts: the controller drops what it knows already.
    """
    cache: Cache[Any] = Cache(kind)
    decode_full = msgspec.json.Decoder(kind.item_type).decode
    decode_metadata = msgspec.json.Decoder(PartialItem).decode
    decisions: list[tuple[ObjectMeta, Decision]] = []

    def follow(_plural: str, _type: EventType, row: ObjectMeta, decision: Decision) -> None:
        decisions.append((row, decision))

    cache.observer = follow

    def decide(
        event_type: EventType, obj: Mapping[str, Any], columns: Mapping[str, str] | None
    ) -> tuple[ObjectMeta, Decision]:
        try:
            encoded = msgspec.json.encode(obj)
            if columns is None and ("spec" in obj or "status" in obj):
                cache.full(event_type, decode_full(encoded), initial=False)
            else:
                row = decode_metadata(encoded).metadata
                cache.row(event_type, row.with_columns(_wanted(kind.columns, columns)))
        except ODD as error:
            raise ValueError(f"not understood: {error}") from error
        return decisions.pop()

    return decide


def _wanted(names: tuple[str, ...], columns: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the columns that a kind reads, ``None`` unless the Table has all of them."""
    if not names or columns is None or any(name not in columns for name in names):
        return None
    return {name: columns[name] for name in names}
