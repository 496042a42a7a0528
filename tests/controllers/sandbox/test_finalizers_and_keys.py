"""What the controller leaves on objects besides their specs and statuses."""

from __future__ import annotations

from typing import Any

from lean_sandbox.local.direct import StoredChange
from tests.manifests.flows import live_of_claims, live_of_sandboxes
from tests.support import names
from tests.support.extensions import settings
from tests.support.world import CONTROLLER, open_world

Json = dict[str, Any]
OBJECTS = (
    *("pods", "services", "persistentvolumeclaims", names.POLICIES),
    *(names.SANDBOXES, names.CLAIMS, names.POOLS, names.TEMPLATES),
)
# Those of the reference; `team` is the user's, for the Pod.
KEYS = {
    *(names.CREATED_BY, names.NAME_HASH, names.WARM_POOL, names.REF_HASH, names.TEMPLATE_HASH),
    *(names.POD_TEMPLATE_HASH, names.CLAIM_UID, names.LAUNCH_TYPE, names.TEMPLATE_REF),
    *(names.ANNOTATION, names.SAFE_TO_EVICT, "team"),
    "agents.x-k8s.io/propagated-labels",
    "agents.x-k8s.io/propagated-annotations",
    "agents.x-k8s.io/controller-first-observed-at",
    "agents.x-k8s.io/claim-first-ready-at",
}


def _of(obj: Json | None, field: str) -> set[str]:
    return set((obj or {}).get("metadata", {}).get(field) or ())


async def test_no_object_has_a_finalizer_or_a_key_that_the_reference_does_not_know() -> None:
    """So no deletion waits for a controller, and whoever goes back leaves nothing behind."""
    written: dict[str, set[str]] = {"labels": set(), "annotations": set(), "finalizers": set()}

    def take(change: StoredChange) -> None:
        if change.by == CONTROLLER:
            for field, found in written.items():
                found.update(_of(change.after, field) - _of(change.before, field))

    async with open_world(settings()) as world:
        world.plane.store.follow(take, OBJECTS)
        await live_of_claims(world)
        await live_of_sandboxes(world)
    assert written["labels"] | written["annotations"] == KEYS
    # The server sets this one.
    assert written["finalizers"] == {"kubernetes.io/pvc-protection"}
