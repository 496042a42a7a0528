"""PersistentVolumeClaims in use outlive their deletion until the last Pod that mounts them is gone.

An API server puts a finalizer on every claim; a controller beside it takes it away from those that
are being deleted and that no Pod on a node mounts, be it finished or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lean_sandbox.local.store.store import Collection, Entry, Event, Store
from lean_sandbox.local.write.creation import PROTECTED
from lean_sandbox.local.write.verbs import Verbs

_CLAIMS: Final = "persistentvolumeclaims"


class ClaimProtection:
    """Follows claims and Pods, and lets claims go at once when nothing uses them."""

    def __init__(self, store: Store, verbs: Verbs) -> None:
        self._verbs = verbs
        self._claims = store.collection(_CLAIMS)
        self._pods = store.collection("pods")
        store.listeners.append(self._follow)

    def rebuild(self) -> None:
        """Take in everything that is already stored, as after a restart."""
        self._look("")

    def _follow(self, collection: Collection, event: Event) -> None:
        is_gone = event.type == "DELETED"
        if is_gone if collection is self._pods else collection is self._claims and not is_gone:
            self._look(event.entry.namespace)

    def _look(self, namespace: str) -> None:
        """Let the claims of a namespace, or of all, go that are being deleted and not used."""
        for claim in self._claims.scan(namespace):
            if claim.deleting and not self._is_used(claim):
                kind = self._verbs.registry.by_resource(_CLAIMS)
                self._verbs.drop_finalizer(kind, claim, PROTECTED)

    def _is_used(self, claim: Entry) -> bool:
        return any(
            pod.fields.get("spec.nodeName") and claim.name in _claims_of(pod)
            for pod in self._pods.scan(claim.namespace)
        )


def _claims_of(pod: Entry) -> Iterator[str]:
    for volume in pod.load()["spec"].get("volumes") or ():
        claim = volume.get("persistentVolumeClaim")
        if claim:
            yield claim["claimName"]
        elif volume.get("ephemeral"):
            yield f"{pod.name}-{volume['name']}"
